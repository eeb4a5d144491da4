"""Makes the `Step` of a sub-model: binds what its spec says to the inputs and outputs of its network."""

from collections.abc import Sequence

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data.transforms.table import build
from unifiednn_core.engine.coded_step import coded
from unifiednn_core.engine.step import TARGETS, Scaling, Step
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.run import SubModelSpec


def training_step(
    spec: SubModelSpec, definition: Definition, names: Sequence[str], *, has_targets: bool = True
) -> Step:
    """Make the step; `names` are the inputs of its training data. Raises `BadInput` for what does not fit."""
    outputs = definition.outputs
    output = 0 if spec.output is None else _place(spec, spec.output, outputs, "output")
    auxiliary = tuple((_place(spec, name, outputs, "auxiliary"), by) for name, by in spec.auxiliary.items())
    if any(place == output for place, _ in auxiliary):
        message = f"The criterion gets '{outputs[output]}' anyway; it is no auxiliary output."
        raise _refused(spec, "auxiliary", message, 'Leave it out, or name another one as "output".')
    step = Step(
        inputs=_bound(spec, definition, names, has_targets=has_targets),
        scaling=Scaling(spec.scale, spec.mean, spec.std),
        transforms=build(spec.transforms),
        targets=spec.targets,
        output=output,
        auxiliary=auxiliary,
        classes=spec.classes,
    )
    if definition.part is None or spec.split is None:
        return step
    return coded(step, definition.part, spec.split, spec.part or 1)


def _bound(spec: SubModelSpec, definition: Definition, names: Sequence[str], *, has_targets: bool) -> tuple[str, ...]:
    """For each input of the network the input of the data, or `targets`."""
    wanted = [one.name for one in definition.inputs]
    unknown = sorted(spec.inputs.keys() - set(wanted))
    if unknown:
        message = f"The network has no input '{unknown[0]}'; it has {abbreviated(wanted)}."
        raise _refused(spec, "inputs", message, "Name an input of the network, and the input of the data that it gets.")
    bound = [spec.inputs.get(name, name) for name in wanted]
    free = [place for place, name in enumerate(bound) if name not in names and wanted[place] not in spec.inputs]
    free = [place for place in free if bound[place] != TARGETS]
    if len(free) == 1 and len(unused := [name for name in names if name not in bound]) == 1:
        bound[free[0]] = unused[0]  # one is left on either side: names do not matter
    if TARGETS in bound and spec.targets == "stored" and not has_targets:
        message = "The network takes 'targets', and the data have none."
        raise _refused(
            spec, "targets", message, 'Store targets, or say where they come from: "targets": "inputs" or "next".'
        )
    if set(bound) == {TARGETS}:
        raise _refused(spec, "inputs", "The network takes nothing but the targets.", "Give it an input of the data.")
    missing = [wanted[place] for place, name in enumerate(bound) if name not in (*names, TARGETS)]
    if missing:
        held = abbreviated(list(names))
        message = f"The network takes {abbreviated(wanted)}; the data have {held}, and nothing for '{missing[0]}'."
        remedy = 'Say it in "inputs": {"input of the network": "input of the data"}, or store data of these names.'
        raise _refused(spec, "inputs", message, remedy)
    return tuple(bound)


def _place(spec: SubModelSpec, name: str, outputs: Sequence[str], entry: str) -> int:
    if name not in outputs:
        message = f"The network has no output '{name}'; it has {abbreviated(list(outputs))}."
        raise _refused(spec, entry, message, "Name one of these.")
    return outputs.index(name)


def _refused(spec: SubModelSpec, entry: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Inputs and outputs", f"submodels.{spec.name}.{entry}", message, remedy)
