"""Normalisation: statistics and weights have one entry for each channel or place."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
batch_norm instance_norm layer_norm group_norm rms_norm
""")
