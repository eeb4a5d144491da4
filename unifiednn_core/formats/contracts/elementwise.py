"""Operators on one entry at a time, of one tensor or of several that are broadcast."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
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
""")
