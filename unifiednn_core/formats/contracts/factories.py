"""Tensors made from numbers, and copies in another type or place."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
zeros ones full arange arange.start arange.start_step
linspace eye scalar_tensor zeros_like ones_like full_like new_zeros new_ones new_full
to.dtype to.dtype_layout to.device to.other _to_copy type_as contiguous clone detach detach_ lift_fresh_copy alias
""")
