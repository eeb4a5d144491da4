"""The same entries in another shape or order: views, joins and parts."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
view reshape _unsafe_view view_as reshape_as flatten.using_ints unflatten.int squeeze squeeze.dim squeeze.dims
unsqueeze transpose.int permute t numpy_T movedim.int movedim.intlist swapaxes expand expand_as repeat
repeat_interleave.self_int tile broadcast_to cat concat stack chunk split.Tensor split.sizes split_with_sizes
unbind.int tensor_split.sections select.int slice.Tensor narrow diagonal flip roll tril triu meshgrid.indexing unfold
sym_size.int sym_numel
""")
