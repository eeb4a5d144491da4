"""Operators along dimensions: sums, extremes, norms, sorting, softmax."""

from unifiednn_core.formats.contracts.contract import each

CONTRACTS = each("""
sum sum.dim_IntList mean mean.dim prod prod.dim_int amax amin max max.dim min min.dim argmax argmin any any.dim all
all.dim var var.dim var.correction std std.dim std.correction var_mean.correction norm.Scalar norm.ScalarOpt_dim
linalg_vector_norm logsumexp cumsum cumprod sort topk softmax.int log_softmax.int _softmax _log_softmax
""")
