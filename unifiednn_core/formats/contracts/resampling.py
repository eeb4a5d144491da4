"""Images made larger, smaller or padded, and patches of images."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec
upsample_trilinear3d.vec upsample_bicubic2d.vec pixel_shuffle pixel_unshuffle pad constant_pad_nd im2col col2im
""")
