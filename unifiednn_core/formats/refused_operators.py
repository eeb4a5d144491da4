"""What to say of operators that a graph may not use: which, in which layer, and what to write instead."""

import json
import re
from collections.abc import Sequence

MOST_NAMED = 5
# Prefix of the operator's name, and what to write instead. The first that fits counts.
_INSTEAD = (
    (
        r"(linalg_\w*svd|svd|linalg_eig|linalg_lstsq|linalg_pinv|linalg_ldl|linalg_lu|lu_)",
        "Decompositions of matrices are not taken: compute them before the run and store the result as a buffer, or "
        "write the layer with products of matrices; det, inv, solve, cholesky and qr are taken.",
    ),
    (r"linalg_", "Write the layer with products, sums and norms (torch.linalg.vector_norm)."),
    (
        r"(bincount|_unique|unique|histogram|repeat_interleave\.Tensor)",
        "The size of its result depends on values. Count with one_hot(x, classes).sum(0), torch.histc or scatter_add "
        "into a tensor of fixed size.",
    ),
    (r"as_strided", "Take views with slices, narrow, unfold, expand and reshape."),
    (r"(set_|resize_|set_data)", "Make a new tensor with reshape, slices or torch.cat instead of changing this one."),
    (
        r"(item|_local_scalar_dense|equal|is_nonzero)",
        "It reads a value for Python code. Choose with torch.where instead of `if`, and keep numbers in tensors.",
    ),
    (r"(ctc_loss|_ctc_loss)", "Return the scores, and compute this loss outside of the network."),
    (r"fractional_max_pool", "Use max_pool or adaptive_max_pool, which draw nothing."),
    (
        r"(poisson|geometric_|cauchy_|log_normal_|random_|_standard_gamma|_sample_dirichlet|binomial)",
        "Draw with rand, randn, randint, uniform_, normal_, exponential_, bernoulli or multinomial.",
    ),
    (r"(quantize|dequantize|fake_quantize|_q)", "Hand in the network before it is quantised."),
    (
        r"(to_sparse|_sparse|sparse|to_mkldnn|_to_sparse)",
        "Write it with dense tensors; scatter_add and gather do the rest.",
    ),
    (r"(from_file|save|_print)", "A network here can reach no files: store the tensor as a buffer of the network."),
    (r"istft", "Write it with torch.fft.irfft and fold."),
)
_LIBRARIES = {
    "torchvision": "Use torch's own operators: for instance grid_sample instead of deform_conv2d or roi_align.",
    "transformers": 'Let the network use plain operators: experts with experts_implementation="batched_mm", '
    'attention with attn_implementation="eager".',
    "higher_order": "Write the region with plain operators: torch.where instead of torch.cond, a Python loop instead "
    "of scan or while_loop.",
}
_ELSE = "Write the layer with operators that docs/generated/OPERATORS.md lists; CONTRIBUTING.md says how to add one."
_LAYER = re.compile(r"[A-Za-z0-9_.@]{1,300},([A-Za-z0-9_.@]{0,200}),([A-Za-z0-9_.]{1,300})")


def explained(targets: Sequence[str], model: bytes) -> tuple[str, str]:
    """Message and remedy for refused operators, by their full names; `model` is the graph as the file holds it."""
    layers = _layers(model)
    named = [_short(target) + layers.get(target, "") for target in targets[:MOST_NAMED]]
    more = f", and {len(targets) - MOST_NAMED} more" if len(targets) > MOST_NAMED else ""
    one = len(targets) == 1
    message = (
        f"The network uses {'an operator' if one else 'operators'} that a network here may not use: "
        f"{', '.join(named)}{more}."
    )
    return message, " ".join(dict.fromkeys(map(_instead, targets[:MOST_NAMED])))


def _short(target: str) -> str:
    return target.removeprefix("torch.ops.").removeprefix("aten.").removesuffix(".default")


def _instead(target: str) -> str:
    library, _, name = target.removeprefix("torch.ops.").partition(".")
    if library != "aten":
        return _LIBRARIES.get(library, f"It belongs to the library '{library}'; only torch's own operators are taken.")
    return next((remedy for pattern, remedy in _INSTEAD if re.match(pattern, name)), _ELSE)


def _layers(model: bytes) -> dict[str, str]:
    """The layer of the first call of each operator, as the exporter noted it: ` in the layer 'body.0' (Linear)`."""
    found: dict[str, str] = {}
    for node in json.loads(model)["graph_module"]["graph"]["nodes"]:
        noted = node.get("metadata")
        stack = noted.get("nn_module_stack") if isinstance(noted, dict) else None
        match = _LAYER.fullmatch(str(stack).rpartition(";")[2])
        if match is not None:
            name, kind = match[1], match[2].rpartition(".")[2]
            where = f" in the layer '{name}' ({kind})" if name else f" in the network itself ({kind})"
            found.setdefault(node["target"], where)
    return found
