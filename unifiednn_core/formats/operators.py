"""The operators that an exported graph may use, and those among them that behave differently in training.

Common networks need these operators in training: CNNs, ResNets, U-Nets, VGG with attention, ViTs, Transformers, BERT,
LSTMs, autoencoders. Operators that open files (`from_file`), reach beyond their tensor (`set_`, `resize_`,
`as_strided`), read uninitialised memory (`empty`), write into given memory (`*.out`) or are not `aten` are left out.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

_ATEN = """
conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding conv3d.padding
conv_transpose1d.default conv_transpose2d.input conv_transpose3d.input linear.default bilinear.default
matmul.default mm.default bmm.default addmm.default baddbmm.default einsum.default
scaled_dot_product_attention.default embedding.default one_hot.default
lstm.input gru.input rnn_tanh.input rnn_relu.input
batch_norm.default instance_norm.default layer_norm.default group_norm.default rms_norm.default
dropout.default dropout_.default feature_dropout.default feature_dropout_.default alpha_dropout.default
alpha_dropout_.default feature_alpha_dropout.default bernoulli.default bernoulli.p bernoulli_.float
rand.default randn.default rand_like.default randn_like.default
max_pool1d.default max_pool2d.default max_pool3d.default avg_pool1d.default avg_pool2d.default avg_pool3d.default
adaptive_avg_pool1d.default adaptive_avg_pool2d.default adaptive_avg_pool3d.default
adaptive_max_pool1d.default adaptive_max_pool2d.default max_pool2d_with_indices.default
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec
upsample_trilinear3d.vec upsample_bicubic2d.vec pixel_shuffle.default pixel_unshuffle.default
pad.default constant_pad_nd.default
relu.default relu_.default relu6.default relu6_.default leaky_relu.default leaky_relu_.default prelu.default
rrelu.default rrelu_.default elu.default elu_.default selu.default selu_.default celu.default celu_.default
gelu.default silu.default silu_.default mish.default mish_.default hardtanh.default hardtanh_.default
hardswish.default hardswish_.default hardsigmoid.default hardsigmoid_.default softplus.default softshrink.default
hardshrink.default log_sigmoid.default sigmoid.default sigmoid_.default tanh.default tanh_.default glu.default
threshold.default threshold_.default softmax.int log_softmax.int _softmax.default _log_softmax.default
add.Tensor add.Scalar add_.Tensor add_.Scalar sub.Tensor sub.Scalar sub_.Tensor rsub.Scalar rsub.Tensor
mul.Tensor mul.Scalar mul_.Tensor mul_.Scalar div.Tensor div.Scalar div_.Tensor div.Tensor_mode div.Scalar_mode
floor_divide.default remainder.Scalar remainder.Tensor pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar
addcmul.default addcdiv.default lerp.Scalar lerp.Tensor
neg.default abs.default sign.default exp.default expm1.default log.default log1p.default log2.default sqrt.default
rsqrt.default reciprocal.default square.default sin.default cos.default tan.default atan.default atan2.default
sinh.default cosh.default erf.default floor.default ceil.default round.default trunc.default
clamp.default clamp.Tensor clamp_.default clamp_min.default clamp_max.default maximum.default minimum.default
eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor
logical_and.default logical_or.default logical_not.default bitwise_and.Tensor bitwise_or.Tensor bitwise_not.default
__and__.Tensor __or__.Tensor
where.self where.ScalarOther where.ScalarSelf where.Scalar
masked_fill.Scalar masked_fill.Tensor masked_fill_.Scalar masked_fill_.Tensor
isnan.default isinf.default isfinite.default nan_to_num.default
sum.default sum.dim_IntList mean.default mean.dim prod.default prod.dim_int amax.default amin.default
max.default max.dim min.default min.dim argmax.default argmin.default any.default any.dim all.default all.dim
var.default var.dim var.correction std.default std.dim std.correction var_mean.correction norm.Scalar
norm.ScalarOpt_dim linalg_vector_norm.default logsumexp.default cumsum.default cumprod.default
sort.default topk.default cosine_similarity.default
view.default reshape.default _unsafe_view.default view_as.default reshape_as.default flatten.using_ints
unflatten.int squeeze.default squeeze.dim squeeze.dims unsqueeze.default transpose.int permute.default t.default
numpy_T.default movedim.int movedim.intlist swapaxes.default expand.default expand_as.default repeat.default
repeat_interleave.self_int tile.default broadcast_to.default
cat.default concat.default stack.default chunk.default split.Tensor split.sizes split_with_sizes.default unbind.int
tensor_split.sections select.int slice.Tensor narrow.default index.Tensor index_select.default gather.default
take_along_dim.default diagonal.default flip.default roll.default tril.default triu.default meshgrid.indexing
unfold.default im2col.default col2im.default
zeros.default ones.default full.default arange.default arange.start arange.start_step
linspace.default eye.default scalar_tensor.default zeros_like.default ones_like.default full_like.default
new_zeros.default new_ones.default new_full.default
fill_.Scalar zero_.default copy_.default
to.dtype to.dtype_layout to.device to.other _to_copy.default type_as.default contiguous.default clone.default
detach.default detach_.default lift_fresh_copy.default alias.default
sym_size.int sym_numel.default
"""
# Assertions of the exporter; the operators themselves raise for the same mistakes.
_ASSERTIONS = """
_assert_tensor_metadata.default _assert_scalar.default sym_constrain_range_for_size.default sym_constrain_range.default
"""
ASSERTIONS = frozenset(f"torch.ops.aten.{name}" for name in _ASSERTIONS.split())
ATEN = ASSERTIONS | {f"torch.ops.aten.{name}" for name in _ATEN.split()}

_ARITHMETIC = "add sub mul floordiv truediv mod neg eq ne lt le gt ge and_ or_ not_"
_DROPOUT = "dropout dropout_ feature_dropout feature_dropout_ alpha_dropout alpha_dropout_ feature_alpha_dropout"
_SYMBOLIC = "sym_float sym_int sym_max sym_min sym_not"
# Arithmetic on sizes, which are plain integers when the graph runs.
SIZES: dict[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _ARITHMETIC.split()},
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc")},
    **{f"torch.{name}": getattr(torch, name) for name in _SYMBOLIC.split()},
}

# The argument that is off in evaluation. If the file says `true`, it follows the mode of the module.
MODE_FLAGS: dict[str, str] = {
    **{f"torch.ops.aten.{name}.default": "train" for name in _DROPOUT.split()},
    **{f"torch.ops.aten.{name}.input": "train" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    "torch.ops.aten.batch_norm.default": "training",
    "torch.ops.aten.instance_norm.default": "use_input_stats",
    "torch.ops.aten.rrelu.default": "training",
    "torch.ops.aten.rrelu_.default": "training",
}
# Normalisation without running statistics uses those of the batch in evaluation too.
NEEDS_RUNNING_STATISTICS = frozenset({"torch.ops.aten.batch_norm.default", "torch.ops.aten.instance_norm.default"})
ATTENTION = "torch.ops.aten.scaled_dot_product_attention.default"
ADD_IN_PLACE = "torch.ops.aten.add_.Tensor"


ALLOWED = ATEN | SIZES.keys()  # everything that a graph may call


def resolve(target: str) -> Callable[..., Any]:
    """Return the function of an allowed target; raises `KeyError` for any other."""
    if target not in ATEN:
        return SIZES[target]
    name, overload = target.removeprefix("torch.ops.aten.").split(".")
    function: Callable[..., Any] = getattr(getattr(torch.ops.aten, name), overload)
    return function
