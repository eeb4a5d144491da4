"""Answers of a delivered network for files. Beside load.py it needs torch, numpy, safetensors and Pillow alone.

A file is a PNG or JPEG picture, or an array of samples as the data set stored them: .npy, .npz, .pt, .safetensors.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

GREY = ("1", "L", "LA")
COLOUR = ("P", "RGB", "RGBA", "CMYK", "YCbCr")
BATCH, MOST_SHOWN = 64, 20
_TAKES = (
    "it takes PNG and JPEG pictures, and arrays in .npy, .npz, .pt and .safetensors. Give a table or a text as the "
    "encoded numbers that the network was trained on"
)
Samples = Mapping[str, tuple[str, Sequence[int]]]
"""Type and shape of a sample, for each input of the data set."""


def main(
    answer: Callable[[Any], Any], samples: Samples, class_names: Sequence[str], *, scores: bool, output: int = 0
) -> None:
    """Print what `answer` makes of the files on the command line; with `scores`, one of classes, by their names."""
    parser = argparse.ArgumentParser(prog="load.py", description="Print what the network answers for files.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a picture, or an array of one sample or several")
    parser.add_argument("--json", action="store_true", help="print one JSON document, with all numbers")
    asked = parser.parse_args()
    try:
        read = [_read(Path(name), samples) for name in asked.files]
        rows = [
            row for batch in _batches(read) for row in _rows(answer, batch, class_names, scores=scores, output=output)
        ]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    places = [
        {"file": name, **({"sample": at} if count > 1 else {})}
        for name, batch in zip(asked.files, read, strict=True)
        for count in [len(next(iter(batch.values())))]
        for at in range(count)
    ]
    found = [{**place, **row} for place, row in zip(places, rows, strict=True)]
    sys.stdout.write((json.dumps(found) if asked.json else "\n".join(map(_line, found))) + "\n")


def pixels_of(image: Any, channels: int, size: int | None) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Decode an image as uint8 [channels, height, width], the square in its middle resized to `size` if it is given."""
    from PIL import Image

    image = image.convert("L" if channels == 1 else "RGB")
    if size is not None:
        image = squared(image, size, Image.Resampling.BILINEAR)
    return np.array(image).reshape(image.height, image.width, channels).transpose(2, 0, 1)


def squared(image: Any, size: int, resample: Any) -> Any:
    """The square in the middle of an image, as wide as its shorter side, resized: a resize with a centre crop."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.resize((size, size), resample, (left, top, left + side, top + side))


def leaves(found: Any) -> list[Tensor]:
    """All tensors that a network returned, in order."""
    if isinstance(found, Tensor):
        return [found]
    parts = found.values() if isinstance(found, Mapping) else found if isinstance(found, tuple | list) else ()
    return [leaf for part in parts for leaf in leaves(part)]


def _read(path: Path, samples: Samples) -> dict[str, Tensor]:
    """A file as a batch of each input; raises `OSError` or `ValueError`."""
    if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
        if len(samples) > 1:
            raise ValueError(f"{path}: the network takes {', '.join(samples)}; give arrays of these names")
        return {name: _picture(path, *sample) for name, sample in samples.items()}
    held = _arrays(path)
    named = {name: held.get(f"inputs.{name}", held.get(name)) for name in samples}
    if len(samples) == 1 and not named.keys() & held.keys():
        named = dict.fromkeys(samples, held.get("inputs", next(iter(held.values())) if len(held) == 1 else None))
    return {name: _batch(path, name, one, samples[name][1]) for name, one in named.items()}


def _arrays(path: Path) -> Mapping[str, Any]:
    """The arrays of a file by their names."""
    kind = path.suffix.lower()
    if kind == ".safetensors":
        return load_file(path)
    if kind in (".pt", ".pth"):
        held = torch.load(path, map_location="cpu", weights_only=True)
    elif kind == ".npz":
        with np.load(path) as file:
            held = dict(file)
    elif kind == ".npy":
        held = np.load(path)
    else:
        raise ValueError(f"{path}: {_TAKES}")
    return held if isinstance(held, Mapping) else {"inputs": held}


def _batch(path: Path, name: str, array: Any, shape: Sequence[int]) -> Tensor:
    if array is None:
        raise ValueError(f"{path}: it has no array '{name}'")
    tensor = torch.as_tensor(array)
    if tensor.dim() not in (len(shape), len(shape) + 1):
        raise ValueError(f"{path}: a sample is {list(shape)}, but '{name}' is {list(tensor.shape)}")
    tensor = tensor.to(torch.float32) if tensor.dtype is torch.float64 else tensor
    return tensor if tensor.dim() > len(shape) else tensor[None]


def _picture(path: Path, dtype: str, shape: Sequence[int]) -> Tensor:
    """A picture as the data set stores it: if it has another size, the square in its middle is resized."""
    from PIL import Image

    channels, height, width = shape if len(shape) == 3 else (0, 0, 0)
    if dtype != "uint8" or channels not in (1, 3):
        raise ValueError(f"{path}: the network was trained on {dtype} {list(shape)}, not on pictures; give such arrays")
    with Image.open(path, formats=("PNG", "JPEG")) as image:
        if image.mode not in (*GREY, *COLOUR):
            raise ValueError(f"{path}: its pixels are of the kind {image.mode}; save it with 8 bits per channel")
        size, other = f"{image.height}x{image.width}", image.size != (width, height)
        if other and height != width:
            raise ValueError(f"{path} is {size}, but the network was trained on {height}x{width}")
        if other:
            sys.stderr.write(f"{path} is {size}: the square in its middle is resized to {height}x{width}.\n")
        return torch.from_numpy(pixels_of(image, channels, height if other else None)).contiguous()[None]


def _batches(read: Sequence[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    """All samples together where they are of one shape, so that they are computed as in an evaluation."""
    if len({tuple((one.dtype, one.shape[1:]) for one in batch.values()) for batch in read}) == 1:
        read = [{name: torch.cat([batch[name] for batch in read]) for name in read[0]}]
    for batch in read:
        count = len(next(iter(batch.values())))
        for start in range(0, count, BATCH):
            yield {name: one[start : start + BATCH] for name, one in batch.items()}


def _rows(
    answer: Callable[[Any], Any], batch: Mapping[str, Tensor], class_names: Sequence[str], *, scores: bool, output: int
) -> Iterator[dict[str, Any]]:
    """What the network makes of each sample of a batch."""
    with torch.no_grad():
        first = next(iter(batch.values()))
        returned = leaves(answer(batch if len(batch) > 1 else first))
        answers = returned[min(output, len(returned) - 1)].cpu()
    if answers.shape[:1] != first.shape[:1]:
        raise ValueError(f"the network returns {list(answers.shape)} for {len(first)} samples: call answer() yourself")
    for one in answers:
        row: dict[str, Any] = {}
        if scores and one.dim() == 1:
            number = int(one.argmax())
            row = {"class": class_names[number] if number < len(class_names) else number, "class_number": number}
        yield {**row, "outputs": one.tolist()}


def _line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    place = f"{row['file']}[{row['sample']}]" if "sample" in row else row["file"]
    if "class" in row:
        return f"{place}: {row['class']}"
    numbers = torch.tensor(row["outputs"])
    if numbers.numel() > MOST_SHOWN:
        return f"{place}: {list(numbers.shape)} numbers; --json prints them"
    return f"{place}: {' '.join(f'{number:.6g}' for number in numbers.flatten().tolist())}"
