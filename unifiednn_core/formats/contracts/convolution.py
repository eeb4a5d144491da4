"""Convolutions and their transposes."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding conv_transpose1d conv_transpose2d.input
conv_transpose3d.input
""")
