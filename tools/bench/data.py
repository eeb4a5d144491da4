"""Real data for the workloads, from a folder with MNIST, CIFAR-10, SST-2 and WikiText-2. No torch in here.

Files: `mnist.npz` and `cifar10_12k.npz` (`train_inputs` uint8 [n, h, w(, 3)], `train_targets`, `test_inputs`,
`test_targets`), `sst2_train.tsv` and `sst2_dev.tsv` (sentence, tab, 0 or 1), `wikitext2_valid.txt` and
`wikitext2_test.txt`.
"""

import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from unifiednn_core.base.errors import BadInput, Finding

ENVIRONMENT = "UNIFIEDNN_DATA"
TEXT_LENGTH, SENTENCE_LENGTH = 35, 56
UNKNOWN = "<unk>"
# Numbers that XLM-RoBERTa gives to the beginning, padding, end and unknown word of a text.
BEGIN, PADDING, END, UNKNOWN_NUMBER = 0, 1, 2, 3
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Split:
    """Training and test samples as arrays, and a note for readers of the result."""

    train: tuple[Array, Array]
    test: tuple[Array, Array]
    note: str


@dataclass(frozen=True, slots=True)
class BenchData:
    """One data set."""

    files: tuple[str, ...]
    read: Callable[[Path, int], Split]
    """Takes the folder and the size of the vocabulary."""
    scaling: Mapping[str, float]
    """Scaling of integer inputs, with the names of the spec."""


def folder_of(asked: Path | None) -> Path:
    """Folder with the data, from the option or the environment. Raises `BadInput` if there is none."""
    named = asked or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if named is None or not named.is_dir():
        message = "No data folder is given." if named is None else f"{named} does not exist."
        remedy = f"Give a folder with the data: with --data, or as {ENVIRONMENT}; docs/RESULTS.md names the files."
        raise BadInput.of("Data missing", field="--data", message=message, remedy=remedy)
    return named


def require(folder: Path, names: Iterable[str]) -> None:
    """Raise `BadInput` with one finding for each missing file of these data sets."""
    needed = dict.fromkeys(file for name in names for file in SOURCES[name].files)
    absent = [file for file in needed if not (folder / file).is_file()]
    remedy = "Put it there; docs/RESULTS.md describes the file."
    findings = [
        Finding(title="Data missing", field=file, message=f"{folder} has no {file}.", remedy=remedy) for file in absent
    ]
    if findings:
        raise BadInput(findings)


def write(name: str, folder: Path, into: Path, *, train: int, test: int, vocabulary: int) -> tuple[str, str, str]:
    """Write the first samples as two files; returns their names and a note on the data.

    Raises `BadInput` for a file that cannot be read.
    """
    try:
        split = SOURCES[name].read(folder, vocabulary)
    except (OSError, KeyError, ValueError, IndexError, zipfile.BadZipFile) as error:
        message, remedy = f"A file in {folder} cannot be read: {error}.", "Get it again; docs/RESULTS.md describes it."
        raise BadInput.of("Data not readable", field=name, message=message, remedy=remedy) from error
    written, of_words = [], f"_{vocabulary}" if vocabulary else ""
    for part, (inputs, targets), most in (("train", split.train, train), ("test", split.test, test)):
        count = min(most, len(targets))
        file = f"{name}{of_words}_{part}_{count}.safetensors"
        if not (into / file).exists():
            save_file(
                {"inputs": np.ascontiguousarray(inputs[:count]), "targets": np.ascontiguousarray(targets[:count])},
                into / file,
            )
        written.append(file)
    return written[0], written[1], split.note


def _mnist(folder: Path, vocabulary: int) -> Split:
    train, test = _images(folder / "mnist.npz", lambda images: images[:, None])
    return Split(train, test, "MNIST.")


def _cifar10(folder: Path, vocabulary: int) -> Split:
    train, test = _images(folder / "cifar10_12k.npz", lambda images: images.transpose(0, 3, 1, 2))
    note = (
        f"CIFAR-10 in part: {len(train[1]):,} of its 50,000 training images, JPEG-compressed once. It also stands in"
        " for CIFAR100, so that a network with 100 classes sees ten of them."
    )
    return Split(train, test, note)


def _images(path: Path, arranged: Callable[[Array], Array]) -> list[tuple[Array, Array]]:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        return [
            (arranged(file[f"{part}_inputs"]), file[f"{part}_targets"].astype(np.int64)) for part in ("train", "test")
        ]


def _cifar10_224(folder: Path, vocabulary: int) -> Split:
    small = _cifar10(folder, vocabulary)
    large = [(_Enlarged(inputs, 7), targets) for inputs, targets in (small.train, small.test)]
    note = "CIFAR-10 stands in for Imagenette: each pixel is repeated 7 x 7 times, so that images have 224 x 224."
    return Split(large[0], large[1], note)  # type: ignore[arg-type]


class _Enlarged:
    """Images that are made larger only once a part of them is taken."""

    def __init__(self, images: Array, factor: int):
        self._images, self._factor = images, factor

    def __getitem__(self, part: slice) -> Array:
        return self._images[part].repeat(self._factor, axis=2).repeat(self._factor, axis=3)


def _wikitext2(folder: Path, vocabulary: int) -> Split:
    words = {part: (folder / f"wikitext2_{part}.txt").read_text(encoding="utf-8").lower().split() for part in _PARTS}
    counted = Counter(chain(words["test"], words["valid"]))
    counted.pop(UNKNOWN, None)
    known = {UNKNOWN: 0} | {word: place for place, word in enumerate(_commonest(counted, vocabulary - 1), start=1)}
    parts = [_texts(np.array([known.get(word, 0) for word in words[part]], dtype=np.int64)) for part in _PARTS]
    note = (
        f"WikiText-2 without its training part, which is not there: trained on its test part, tested on its validation"
        f" part. Words are what blanks divide, in small letters: {len(counted) + 1:,} different ones, of which the"
        f" network knows {len(known):,}."
    )
    return Split(parts[0], parts[1], note)


_PARTS = ("test", "valid")


def _texts(numbers: Array) -> tuple[Array, Array]:
    """Stretches of words, and the same moved on by one word."""
    count = (len(numbers) - 1) // TEXT_LENGTH
    whole = count * TEXT_LENGTH
    return numbers[:whole].reshape(count, TEXT_LENGTH), numbers[1 : whole + 1].reshape(count, TEXT_LENGTH)


def _sst2(folder: Path, vocabulary: int) -> Split:
    rows = {part: _sentences(folder / f"sst2_{part}.tsv") for part in ("train", "dev")}
    counted = Counter(word for words, _ in rows["train"] for word in words)
    first = UNKNOWN_NUMBER + 1
    known = {word: place for place, word in enumerate(_commonest(counted, vocabulary - first), start=first)}
    parts = [_encoded(found, known) for found in rows.values()]
    note = (
        f"SST-2 by words instead of XLM-RoBERTa's 250,002 pieces of words: {len(counted):,} different ones, of which"
        f" the network knows {len(known):,}."
    )
    return Split(parts[0], parts[1], note)


def _sentences(path: Path) -> list[tuple[list[str], int]]:
    rows = [line.rpartition("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [(sentence.split(), int(label)) for sentence, _, label in rows]


def _encoded(rows: list[tuple[list[str], int]], known: Mapping[str, int]) -> tuple[Array, Array]:
    inputs = np.full((len(rows), SENTENCE_LENGTH), PADDING, dtype=np.int64)
    for place, (words, _) in enumerate(rows):
        numbers = [known.get(word, UNKNOWN_NUMBER) for word in words[: SENTENCE_LENGTH - 2]]
        inputs[place, : len(numbers) + 2] = [BEGIN, *numbers, END]
    return inputs, np.array([label for _, label in rows], dtype=np.int64)


def _commonest(counted: Counter[str], most: int) -> list[str]:
    return [word for word, _ in sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))[:most]]


_PIXELS = {"scale": 1 / 255}
SOURCES: Mapping[str, BenchData] = {
    "mnist": BenchData(("mnist.npz",), _mnist, _PIXELS | {"mean": 0.1307, "std": 0.3081}),
    "cifar10": BenchData(("cifar10_12k.npz",), _cifar10, _PIXELS | {"mean": 0.4734, "std": 0.2516}),
    "cifar10_224": BenchData(("cifar10_12k.npz",), _cifar10_224, _PIXELS | {"mean": 0.4734, "std": 0.2516}),
    "sst2": BenchData(("sst2_train.tsv", "sst2_dev.tsv"), _sst2, {}),
    "wikitext2": BenchData(("wikitext2_valid.txt", "wikitext2_test.txt"), _wikitext2, {}),
}
