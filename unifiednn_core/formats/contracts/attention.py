"""Attention: its kernels take the number of rows from one argument and read as many from the others."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
scaled_dot_product_attention
""")
