"""Separates a trained sub-model: its weights in the format of the submitted file, verified, in one zip.

Beside them, load.py says what inputs and answers mean: it prepares samples and names classes.

The paper copies the whole hybrid model to the host; here only the weights of one sub-model are copied. Everything runs
on host copies, in parallel with training.
"""

import csv
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, SeparationCorrupt, SeparationFailed
from unifiednn_core.base.files import folder_lock, sync
from unifiednn_core.data.batch import Transform
from unifiednn_core.data.datasets import INPUTS
from unifiednn_core.data.transforms.images import Normalize, Resize
from unifiednn_core.data.transforms.tokens import Trim
from unifiednn_core.data.values import preview_of
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.probes import FILENAME as PROBES
from unifiednn_core.engine.probes import Probes
from unifiednn_core.engine.progress import EpochFigures
from unifiednn_core.engine.step import TARGETS, UNSCALED, Scaling, Step
from unifiednn_core.formats import cut, predict
from unifiednn_core.formats.base import Definition, Delivery
from unifiednn_core.formats.registry import format_named, sniff
from unifiednn_core.formats.weights import state_sha256
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


SNIPPET, ANSWERS = "load.py", "predict.py"
NO_FACTS: Facts = {}
_OWN_CODE = """\

# weights.safetensors has the weights alone, without the versions of layers, which few layers look at (MNASNet does).
# Into a network of your own code:
# state = network.state_dict()
# state.update(safetensors.torch.load_file("weights.safetensors"))
# network.load_state_dict(state)
"""


@dataclass(frozen=True, slots=True)
class Separated:
    """A separated model on disk."""

    archive: Path
    size_bytes: int
    model_path: Path
    state_sha256: str


def separate(
    name: str,
    definition: Definition,
    state_dict: Mapping[str, Tensor],
    *,
    spec: Mapping[str, Any],
    figures: Iterable[Any],
    folder: Path,
    probes: Probes | None = None,
    ships_probes: bool = True,
    facts: Facts = NO_FACTS,
) -> Separated:
    """Write `folder/NAME.zip` and next to it the model file itself; `name` is the plain one, of the spec.

    `state_dict` holds host copies under the submitted network's own keys, `figures` one row for each epoch with what
    `EpochFigures` has. Raises `SeparationFailed` if the disk refuses
    the files now, and `SeparationCorrupt` if they read back differently; both leave no file behind. The probes are kept
    beside the zip as `NAME.probes.safetensors`, and with `ships_probes` inside it, too. `facts` are those
    about its training data.
    """
    digest = state_sha256(state_dict)
    with _failures(name, folder), tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
        failpoints.passing("separation.before_write")
        work = Path(temporary)
        parts = spec.get("submodels", ())
        asked = SubModelSpec.model_validate(parts[0]) if parts else None
        delivery = deliver(name, definition, state_dict, work, asked, facts)
        save_file(dict(state_dict), work / "weights.safetensors")
        for part in delivery.files:
            known = sniff(part)
            if known is not None:
                _verify(name, digest, known.read_state_dict(part), part.name)
        _verify(name, digest, load_file(work / "weights.safetensors"), "weights.safetensors")
        (work / "spec.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
        with (work / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
            writer, columns = csv.writer(file), [field.name for field in fields(EpochFigures)]
            writer.writerow(columns)
            writer.writerows([getattr(row, name) for name in columns] for row in figures)
        if probes is not None:
            probes.write(work / PROBES, digest)
        archive, model_path = folder / f"{name}.zip", folder / delivery.files[0].name
        zipped = _zip(work, but=() if ships_probes else (PROBES,))
        failpoints.passing("separation.before_rename")
        if probes is not None:
            sync(work / PROBES)
        sync(delivery.files[0])
        with folder_lock(folder, exclusive=True):  # a certificate of an older export must not replace this one
            if probes is not None:
                (work / PROBES).replace(probes_path(folder, name))
            zipped.replace(archive)
            delivery.files[0].replace(model_path)
        failpoints.passing("separation.after_rename")
        sync(folder)
        return Separated(archive, archive.stat().st_size, model_path, digest)


def deliver(
    name: str,
    definition: Definition,
    state_dict: Mapping[str, Tensor],
    folder: Path,
    asked: SubModelSpec | None,
    facts: Facts,
) -> Delivery:
    """Write the model file and the code that loads it and answers for files."""
    write = cut.write if definition.part is not None else format_named(definition.format).write
    delivery = write(definition, state_dict, folder, name)
    answers = "" if asked is None else script(asked, definition, delivery.call, facts)
    if answers:
        shutil.copyfile(Path(predict.__file__), folder / ANSWERS)
    (folder / SNIPPET).write_text(delivery.load_script + _OWN_CODE + answers, encoding="utf-8")
    return delivery


@contextmanager
def _failures(name: str, folder: Path) -> Iterator[None]:
    """Create the folder, and turn errors of the disk into `SeparationFailed`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except SeparationCorrupt:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:  # each library has its own error for a full disk
        free_bytes = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.is_dir())).free
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
        raise SeparationFailed(
            f"The trained model '{name}' could not be written to {folder}: {reason}. "
            f"{free_bytes // 1024**2} MiB are free there; make room or fix the permissions."
        ) from error


def _verify(name: str, expected_sha256: str, read_back: Mapping[str, Tensor], filename: str) -> None:
    if state_sha256(read_back) != expected_sha256:
        raise SeparationCorrupt(f"The file {filename} of '{name}' reads back differently from what was written.")


def probes_path(folder: Path, name: str) -> Path:
    """Where the probes of a separated model are kept, beside its zip."""
    return folder / f"{name}.{PROBES}"


def _zip(work: Path, but: Sequence[str] = ()) -> Path:
    """Zip what is in `work`, except `but`, without compression: weights do not compress."""
    members, archive = sorted(path for path in work.iterdir() if path.name not in but), work / "archive.tmp"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for member in members:
            file.write(member, member.name)
    sync(archive)
    return archive
