"""What a delivered network's inputs and answers mean, as the lines of load.py that prepare samples and name classes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.batch import Transform
from unifiednn_core.data.datasets import INPUTS
from unifiednn_core.data.transforms.images import Normalize, Resize
from unifiednn_core.data.transforms.tokens import Trim
from unifiednn_core.data.values import preview_of
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.step import TARGETS, UNSCALED, Scaling, Step
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.choices import CLASSIFICATION
from unifiednn_core.spec.run import SubModelSpec

_SCRIPT = """
class_names = {class_names}


def answer(inputs):
    \"\"\"Answer a batch of samples as the data set stores them, {stored}; prepares them as in training.\"\"\"
{lines}


if __name__ == "__main__":
    import predict

    predict.main(answer, {samples}, class_names, scores={scores}, output={output})
"""
Facts = Mapping[str, Any]
"""What the library knows about the training data."""


def step_of(spec: SubModelSpec, definition: Definition, facts: Facts) -> Step | None:
    """What an answer means; None for a part of a network, one that takes targets, and one that returns its loss."""
    if definition.part is not None or "input_shape" not in facts or spec.hyperparameters.criterion == "none":
        return None
    try:
        step = training_step(spec, definition, [*_samples(facts)])
    except BadInput:
        return None
    return None if TARGETS in step.inputs else step


def script(spec: SubModelSpec, definition: Definition, call: str, facts: Facts) -> str:
    """Lines that follow those that load the network, which `call` calls; empty if nothing is known of its samples."""
    step = step_of(spec, definition, facts)
    if step is None or not call:
        return ""
    samples, preview = _samples(facts), preview_of(dict(facts))
    scores = spec.hyperparameters.criterion in CLASSIFICATION and spec.targets == "stored"
    used = {name: samples[name] for name in step.inputs}
    names = {name: "inputs" if len(samples) == 1 else f"inputs[{name!r}]" for name in step.inputs}
    given = [names[name] for name in step.inputs]
    lines = [
        *_scaled(step.scaling, used, names),
        *(line for one in step.transforms for line in _line(one, used, names)),
    ]
    if lines and len(samples) > 1:
        lines.insert(0, "inputs = dict(inputs)")
    lines.append(f"return {call.format(*given, all=', '.join(given))}")
    stored = " and ".join(f"{dtype} {list(shape)}" for dtype, shape in used.values())
    if preview is not None and preview.notes.plan is not None:
        stored += " of encoded columns"
    named = preview.notes.class_names if scores and preview is not None else ()
    return _SCRIPT.format(
        class_names=list(named),
        stored=stored,
        lines="\n".join(f"    {line}" for line in lines),
        samples=used,
        scores=scores,
        output=step.output,
    )


def _samples(facts: Facts) -> dict[str, tuple[str, Sequence[int]]]:
    """Type and shape of a sample of each input of the data."""
    several = {name: text.partition(" ") for name, text in facts.get("inputs", {}).items()}
    return {name: (dtype, json.loads(shape)) for name, (dtype, _, shape) in several.items()} or {
        INPUTS: (facts["input_dtype"], facts["input_shape"])
    }


def _scaled(
    scaling: Scaling, samples: Mapping[str, tuple[str, Sequence[int]]], names: Mapping[str, str]
) -> Iterator[str]:
    for name, (dtype, _) in samples.items():
        if scaling != UNSCALED and (len(samples) == 1 or dtype not in ("int32", "int64")):
            code = f"{names[name]}.to(torch.float32)"
            code += "" if scaling.scale is None else f" * {scaling.scale!r}"
            code += "" if scaling.mean is None else f" - {scaling.mean!r}"
            yield f"{names[name]} = {code if scaling.std is None else f'({code}) / {scaling.std!r}'}"


def _line(
    transform: Transform, samples: Mapping[str, tuple[str, Sequence[int]]], names: Mapping[str, str]
) -> Iterator[str]:
    """A transform of evaluations as code; what draws, such as masks of tokens, is left out."""
    name = next(iter(samples)) if transform.input is None else transform.input
    inputs = names[name]
    match transform:
        case Normalize(mean=mean, std=std):
            ones = ", 1" * (len(samples[name][1]) - 1)
            means, deviations = (f"{inputs}.new_tensor({list(one)}).view(-1{ones})" for one in (mean, std))
            yield f"{inputs} = ({inputs} - {means}) / {deviations}"
        case Resize(size=size, interpolation=mode, antialias=antialias):
            smooth = f", align_corners=False, antialias={antialias}" if mode in ("bilinear", "bicubic") else ""
            yield f"{inputs} = torch.nn.functional.interpolate({inputs}, {list(size)}, mode={mode!r}{smooth})"
        case Trim(pad=pad, others=others):
            yield f"places = torch.arange(1, {inputs}.shape[1] + 1)"
            yield f"longest = max(1, int((({inputs} != {pad}) * places).max()))"
            for each, (_, shape) in samples.items():
                if each == name or (others and [*shape[:1]] == [*samples[name][1][:1]]):
                    yield f"{names[each]} = {names[each]}[:, :longest].contiguous()"
