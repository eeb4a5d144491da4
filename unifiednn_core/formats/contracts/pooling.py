"""Pooling."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d max_pool2d_with_indices
""")
