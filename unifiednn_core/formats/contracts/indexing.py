"""Look-ups by position."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
embedding one_hot index.Tensor index_select gather take_along_dim
""")
