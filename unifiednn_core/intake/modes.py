"""Which arguments of an exported graph are on in training and off in evaluation."""

from collections.abc import Iterable

from unifiednn_core.intake import operators
from unifiednn_core.intake.exported_schema import Argument, Node, Program
from unifiednn_core.intake.signature import Held

_COUNTER = "num_batches_tracked"
_OFF: dict[str, object] = {"as_bool": False, "as_float": 0.0, "as_int": 0}


def counters_of(held: Iterable[Held]) -> frozenset[str]:
    """Values that count the batches which a normalisation has seen."""
    return frozenset(entry.value for entry in held if entry.name.rpartition(".")[2] == _COUNTER)


def counts_batches(node: Node, counters: frozenset[str]) -> bool:
    """Whether this node adds one to such a counter."""
    inputs = {entry.name: entry.arg for entry in node.inputs}
    counter, step = inputs.get("self"), inputs.get("other")
    return (
        node.target == operators.ADD_IN_PLACE
        and counter is not None
        and counter.as_tensor is not None
        and counter.as_tensor.name in counters
        and step is not None
        and (step.kind, step.as_int) == ("as_int", 1)
    )


def depends_on_mode(node: Node, name: str, argument: Argument, counters: frozenset[str]) -> bool:
    """Whether this argument of a node is on in training and off in evaluation.

    What the file has switched off already (a frozen layer) stays off in both.
    """
    if operators.MODE_FLAGS.get(node.target) == name:
        return argument.as_bool and (node.target not in operators.NEEDS_RUNNING_STATISTICS or _has_statistics(node))
    if node.target == operators.ATTENTION and name == "dropout_p":
        return argument.kind == "as_float" and argument.as_float != 0.0
    return name == "other" and counts_batches(node, counters)


def switched_off(program: Program) -> tuple[str, ...]:
    """Layers that are off already, as in a network that was exported in evaluation: they stay so in training."""
    return tuple(sorted({_layer(node) for node in program.graph_module.graph.nodes if _is_off(node)}))


def _is_off(node: Node) -> bool:
    given = {entry.name: entry.arg for entry in node.inputs}
    flag = given.get(operators.MODE_FLAGS.get(node.target, ""))
    if flag is None or flag.kind != "as_bool" or flag.as_bool:
        return False
    if node.target in operators.NEEDS_RUNNING_STATISTICS:
        return _has_statistics(node)
    share = given.get("p", given.get("dropout"))  # a dropout of nothing is never on
    return share is None or share.kind != "as_float" or share.as_float != 0.0


def _layer(node: Node) -> str:
    return node.target.removeprefix("torch.ops.aten.").partition(".")[0].rstrip("_")


def for_evaluation(program: Program, held: Iterable[Held]) -> Program:
    """Return the program with everything off that is on in training only."""
    counters = counters_of(held)
    graph = program.graph_module.graph
    nodes = tuple(_off(node, counters) for node in graph.nodes)
    graph = graph.model_copy(update={"nodes": nodes})
    return program.model_copy(update={"graph_module": program.graph_module.model_copy(update={"graph": graph})})


def _off(node: Node, counters: frozenset[str]) -> Node:
    inputs = tuple(
        entry.model_copy(update={"arg": Argument.model_validate({entry.arg.kind: _OFF[entry.arg.kind]})})
        if depends_on_mode(node, entry.name, entry.arg, counters)
        else entry
        for entry in node.inputs
    )
    return node.model_copy(update={"inputs": inputs})


def _has_statistics(node: Node) -> bool:
    return any(entry.name == "running_mean" and entry.arg.as_tensor is not None for entry in node.inputs)
