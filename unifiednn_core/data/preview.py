"""Preview of a data set in flat memory: ranges, class balance, the first samples."""

import base64
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.base.errors import Finding
from unifiednn_core.data.containers import open_data
from unifiednn_core.data.datasets import Dataset, as_targets, entry_of
from unifiednn_core.data.parts import Opened, blocks
from unifiednn_core.data.values import DataPreview, DataSample, ValueStats

SHOWN_SAMPLES = 8
SHOWN_VALUES = 12
MAX_COUNTED_CLASSES = 1000
IMAGE_SIDE = 40  # pixels of a thumbnail, at most
MIN_IMAGE_SIDE = 4
UNBALANCED = 20  # ratio of the largest to the smallest class above which there is a warning


def preview(path: Path, dataset: Dataset) -> DataPreview:
    """Preview a data set that was read from this file."""
    opened = open_data(path)
    inputs = _stats(block for _, block in blocks(opened, entry_of(next(iter(dataset.inputs)))))
    counts = _class_counts(dataset, opened)
    return DataPreview(
        inputs=inputs,
        targets=None
        if counts or dataset.targets is None
        else _stats(as_targets(block) for _, block in blocks(opened, "targets")),
        class_counts=counts,
        samples=_samples(dataset),
        notes=dataset.notes.abridged(),
        warnings=(*_channels_last(dataset), *_warnings(inputs, counts)),
    )


def _stats(parts: Iterator[Tensor]) -> ValueStats:
    """Compute range, mean and standard deviation in float64."""
    least, most, total, squares, count = float("inf"), float("-inf"), 0.0, 0.0, 0
    for part in parts:
        values = part.reshape(-1).to(torch.float64)
        least, most = min(least, float(values.min())), max(most, float(values.max()))
        total, squares = total + float(values.sum()), squares + float(values.square().sum())
        count += values.numel()
    mean = total / count
    return ValueStats(minimum=least, maximum=most, mean=mean, std=max(0.0, squares / count - mean**2) ** 0.5)


def _class_counts(dataset: Dataset, opened: Opened) -> tuple[int, ...]:
    """Count the targets of each class, without numbers below 0, which mean "ignore"."""
    classes = dataset.classes
    if classes is None or not 0 < classes <= MAX_COUNTED_CLASSES:
        return ()
    counts = torch.zeros(classes, dtype=torch.int64)
    for _, block in blocks(opened, "targets"):
        flat = as_targets(block).reshape(-1)
        counts += torch.bincount(flat[flat >= 0], minlength=classes)
    return tuple(counts.tolist())


def _samples(dataset: Dataset) -> tuple[DataSample, ...]:
    shown = _shown(dataset)
    batch = dataset.batch(shown)
    images = _thumbnails(dataset.first[shown]) if look_like_pixels(dataset.first) else [""] * len(shown)
    names = dataset.notes.class_names
    return tuple(
        DataSample(
            values=_values({name: one[place] for name, one in batch.inputs.items()}),
            target="" if batch.targets is None else _target_text(batch.targets[place], names),
            image=image,
        )
        for place, image in enumerate(images)
    )


def _shown(dataset: Dataset) -> Tensor:
    """Indices of the first samples, or of samples spread over the file if the first are all of one class."""
    first = torch.arange(min(SHOWN_SAMPLES, dataset.samples))
    targets = torch.zeros(()) if dataset.targets is None else as_targets(dataset.targets[first])
    if dataset.classes is None or targets.dim() > 1 or bool((targets != targets[0]).any()):
        return first
    return torch.linspace(0, dataset.samples - 1, len(first)).long()


def look_like_pixels(inputs: Tensor) -> bool:
    """Whether samples are [channels, height, width] with one or three channels, or bytes [height, width]."""
    shape = inputs.shape[1:]
    if len(shape) == 2 and inputs.dtype is torch.uint8:
        return min(shape) >= MIN_IMAGE_SIDE
    numbers = inputs.dtype is torch.uint8 or inputs.is_floating_point()
    return len(shape) == 3 and numbers and shape[0] in (1, 3) and min(shape[1:]) >= MIN_IMAGE_SIDE


def _thumbnails(batch: Tensor) -> list[str]:
    """Make PNG data URIs; dark to light is the range of the shown numbers, or 0 to 255 for photographs."""
    from PIL import Image

    pixels = batch.to(torch.float32)
    least, most = float(pixels.min()), float(pixels.max())
    if batch.dtype is torch.uint8 and most > 127:
        least, most = 0.0, 255.0
    pixels = ((pixels - least) * (255 / ((most - least) or 1.0))).round().clamp(0, 255).to(torch.uint8)
    uris = []
    for sample in pixels:
        plane = sample if sample.dim() == 2 else sample.squeeze(0) if len(sample) == 1 else sample.permute(1, 2, 0)
        image = Image.fromarray(plane.contiguous().numpy())
        image.thumbnail((IMAGE_SIDE, IMAGE_SIDE))
        content = io.BytesIO()
        image.save(content, "PNG", optimize=True)
        uris.append("data:image/png;base64," + base64.b64encode(content.getvalue()).decode())
    return uris


def _values(inputs: Mapping[str, Tensor]) -> str:
    """The first numbers of a sample, of several inputs each with its name."""
    if len(inputs) == 1:
        return _text(*inputs.values())
    return "; ".join(f"{name}: {_text(one)}" for name, one in inputs.items())


def _text(values: Tensor) -> str:
    flat = values.reshape(-1)
    numbers = flat[:SHOWN_VALUES].tolist()
    shown = ", ".join(str(number) if isinstance(number, int) else f"{number:.4g}" for number in numbers)
    return shown + (", …" if flat.numel() > SHOWN_VALUES else "")


def _target_text(target: Tensor, names: tuple[str, ...]) -> str:
    named = not target.dim() and not target.is_floating_point() and 0 <= int(target) < len(names)
    return names[int(target)] if named else _text(target)


def _channels_last(dataset: Dataset) -> Iterator[Finding]:
    """Warn about inputs that look like [height, width, channels]."""
    for name, tensor in dataset.inputs.items():
        shape = list(tensor.shape[1:])
        numbers = tensor.dtype is torch.uint8 or tensor.is_floating_point()
        if numbers and len(shape) == 3 and shape[2] in (1, 3, 4) and min(shape[:2]) > max(MIN_IMAGE_SIDE, shape[2]):
            message = f"Each of '{name}' is {shape}, which looks like [height, width, channels]."
            remedy = "Networks of torch take channels first: import the file again with --channels-last."
            yield _warning("Channels last", name, message, remedy)


def _warnings(inputs: ValueStats, counts: tuple[int, ...]) -> Iterator[Finding]:
    """Warn about data that is rarely intended."""
    if inputs.minimum == inputs.maximum:
        message = f"Every number of the inputs is {inputs.minimum:g}, so a network cannot learn from them."
        yield _warning("Inputs all equal", "inputs", message, "Check how the file was written.")
    present = [count for count in counts if count]
    absent = [number for number, count in enumerate(counts) if not count]
    if len(present) == 1:
        yield _warning("One class alone", "targets", "All targets belong to one class.", "Give samples of all classes.")
    elif absent:
        named = ", ".join(map(str, absent[:5])) + (" …" if len(absent) > 5 else "")
        message = f"No sample belongs to class {named}, although larger class numbers occur."
        yield _warning("Classes without samples", "targets", message, "Number the classes from 0 without gaps.")
    elif present and max(present) > UNBALANCED * min(present):
        message = f"The largest class has {max(present):,} targets, the smallest {min(present):,}."
        remedy = "Read accuracy with care: a network that always answers the largest class scores high."
        yield _warning("Classes unbalanced", "targets", message, remedy)


def _warning(title: str, field: str, message: str, remedy: str) -> Finding:
    return Finding(severity="warning", title=title, field=field, message=message, remedy=remedy)
