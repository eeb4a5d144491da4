"""The operators that an exported graph may use, and those among them that behave differently in training.

An operator with a contract is allowed (`contracts`); any other is not. Operators that open files (`from_file`), reach
beyond their tensor (`set_`, `resize_`, `as_strided`), write into given memory (`*.out`, but for `div.out`, which
spectral norm needs) or are not `aten` have none.
"""

from collections.abc import Callable
from typing import Any

from unifiednn_core.formats.contracts import sizes, table
from unifiednn_core.formats.contracts.general import overload

# Assertions of the exporter; they are left out, for the operators themselves are checked.
_ASSERTIONS = """
_assert_tensor_metadata.default _assert_scalar.default sym_constrain_range_for_size.default sym_constrain_range.default
"""
ASSERTIONS = frozenset(f"torch.ops.aten.{name}" for name in _ASSERTIONS.split())
ATEN = ASSERTIONS | table.ATEN.keys()
# Arithmetic on sizes, which are plain integers when the graph runs.
SIZES = sizes.FUNCTIONS

_DROPOUT = "dropout dropout_ feature_dropout feature_dropout_ alpha_dropout alpha_dropout_ feature_alpha_dropout"
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


# Memory that nothing was written to is read as zeros. An unsafe view has no part in autograd's record of changes: with
# it a network can change saved positions, which the backward pass of pooling writes to without a check. A tensor that
# is marked as a conjugate shows kernels other numbers than its memory holds.
_REPLACED = {
    "torch.ops.aten.empty.memory_format": "torch.ops.aten.zeros.default",
    "torch.ops.aten.empty_like.default": "torch.ops.aten.zeros_like.default",
    "torch.ops.aten.new_empty.default": "torch.ops.aten.new_zeros.default",
    "torch.ops.aten._unsafe_view.default": "torch.ops.aten.view.default",
    "torch.ops.aten._conj.default": "torch.ops.aten.conj_physical.default",
    "torch.ops.aten.unsafe_chunk.default": "torch.ops.aten.chunk.default",
    "torch.ops.aten.unsafe_split.Tensor": "torch.ops.aten.split.Tensor",
}

ALLOWED = ATEN | SIZES.keys()  # everything that a graph may call


def resolve(target: str) -> Callable[..., Any]:
    """Return the function that runs for an allowed target; raises `KeyError` for any other."""
    if target not in ATEN:
        return SIZES[target]
    function: Callable[..., Any] = overload(_REPLACED.get(target, target))
    return function
