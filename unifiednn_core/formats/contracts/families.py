"""Operators with the general rules alone; each family gets a file of its own."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = {
    **each("""
scaled_dot_product_attention
"""),
    **each("""
conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding conv_transpose1d conv_transpose2d.input
conv_transpose3d.input
"""),
    **each("""
relu relu_ relu6 relu6_ leaky_relu leaky_relu_ prelu elu elu_ selu selu_ celu celu_ gelu silu silu_ mish mish_
hardtanh hardtanh_ hardswish hardswish_ hardsigmoid hardsigmoid_ softplus softshrink hardshrink log_sigmoid sigmoid
sigmoid_ tanh tanh_ glu threshold threshold_ add.Tensor add.Scalar add_.Tensor add_.Scalar sub.Tensor sub.Scalar
sub_.Tensor rsub.Scalar rsub.Tensor mul.Tensor mul.Scalar mul_.Tensor mul_.Scalar div.Tensor div.Scalar div_.Tensor
div.Tensor_mode div.Scalar_mode floor_divide remainder.Scalar remainder.Tensor pow.Tensor_Scalar pow.Tensor_Tensor
pow.Scalar addcmul addcdiv lerp.Scalar lerp.Tensor neg abs sign exp expm1 log log1p log2 sqrt rsqrt reciprocal square
sin cos tan atan atan2 sinh cosh erf floor ceil round trunc clamp clamp.Tensor clamp_ clamp_min clamp_max maximum
minimum eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar
ge.Tensor logical_and logical_or logical_not bitwise_and.Tensor bitwise_or.Tensor bitwise_not __and__.Tensor
__or__.Tensor where.self where.ScalarOther where.ScalarSelf where.Scalar masked_fill.Scalar masked_fill.Tensor
masked_fill_.Scalar masked_fill_.Tensor isnan isinf isfinite nan_to_num fill_.Scalar zero_ copy_
"""),
    **each("""
zeros ones full arange arange.start arange.start_step
linspace eye scalar_tensor zeros_like ones_like full_like new_zeros new_ones new_full
to.dtype to.dtype_layout to.device to.other _to_copy type_as contiguous clone detach detach_ lift_fresh_copy alias
"""),
    **each("""
embedding one_hot index.Tensor index_select gather take_along_dim
"""),
    **each("""
batch_norm instance_norm layer_norm group_norm rms_norm
"""),
    **each("""
max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d max_pool2d_with_indices
"""),
    **each("""
linear bilinear matmul mm bmm addmm baddbmm einsum cosine_similarity
"""),
    **each("""
dropout dropout_ feature_dropout feature_dropout_ alpha_dropout
alpha_dropout_ feature_alpha_dropout bernoulli bernoulli.p bernoulli_.float rrelu rrelu_ rand randn rand_like randn_like
"""),
    **each("""
lstm.input gru.input rnn_tanh.input rnn_relu.input
"""),
    **each("""
sum sum.dim_IntList mean mean.dim prod prod.dim_int amax amin max max.dim min min.dim argmax argmin any any.dim all
all.dim var var.dim var.correction std std.dim std.correction var_mean.correction norm.Scalar norm.ScalarOpt_dim
linalg_vector_norm logsumexp cumsum cumprod sort topk softmax.int log_softmax.int _softmax _log_softmax
"""),
    **each("""
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec
upsample_trilinear3d.vec upsample_bicubic2d.vec pixel_shuffle pixel_unshuffle pad constant_pad_nd im2col col2im
"""),
    **each("""
view reshape _unsafe_view view_as reshape_as flatten.using_ints unflatten.int squeeze squeeze.dim squeeze.dims
unsqueeze transpose.int permute t numpy_T movedim.int movedim.intlist swapaxes expand expand_as repeat
repeat_interleave.self_int tile broadcast_to cat concat stack chunk split.Tensor split.sizes split_with_sizes
unbind.int tensor_split.sections select.int slice.Tensor narrow diagonal flip roll tril triu meshgrid.indexing unfold
sym_size.int sym_numel
"""),
}
