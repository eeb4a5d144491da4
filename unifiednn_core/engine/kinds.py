"""Kinds of device: on one kind a training gives the same bits wherever it goes on, on another one it may not.

A kind is what the choice of kernels depends on: of a GPU its name, driver, CUDA and cuDNN; of a CPU its model,
instruction set and threads per step; and torch. The recipe of a checkpoint lists the kinds that its steps were trained
on, the last one last, so that a result of several kinds says so for good.
"""

import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Literal

import pynvml
import torch

from unifiednn_core.base.errors import OtherKind
from unifiednn_core.engine import bounds
from unifiednn_core.machine.devices import processor_model

MOST_KINDS = 16
MOST_CHARACTERS = 80
_MOST_THREADS = 2**16
_STRANGE = re.compile(r"[^A-Za-z0-9_ .,:;()/@+-]")
_WORDS = {
    "name": "device",
    "instructions": "instruction set",
    "threads": "number of threads per step",
    "driver": "driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "torch": "torch",
}
"""What a person calls each fact, in the order in which they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of device. A fact is None where it does not apply or is not known."""

    type: str
    """`cpu` or `cuda`."""
    torch: str
    name: str | None = None
    instructions: str | None = None
    threads: int | None = None
    """CPU threads of a step."""
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None

    @property
    def text(self) -> str:
        """Its facts as people read them: `NVIDIA H200, driver 570.86, CUDA 12.8, cuDNN 91002, torch 2.9.1`."""
        threads = None if self.threads is None else f"{self.threads} thread{'s' * (self.threads > 1)}"
        told = {**asdict(self), "name": None, "instructions": None, "threads": None}
        versions = (f"{word} {told[fact]}" for fact, word in _WORDS.items() if told[fact] is not None)
        return ", ".join([*filter(None, (self.name or self.type, self.instructions, threads)), *versions])

    @property
    def row(self) -> dict[str, str | int]:
        """Its known facts as plain values, for a recipe."""
        return {fact: value for fact, value in asdict(self).items() if value is not None}


def current_kind(device: torch.device, threads: int) -> Kind:
    """The kind of a device of this process, which asks a GPU for its name; `threads` are those of a step on a CPU."""
    if device.type == "cuda":
        return _gpu(device.index or 0)
    return replace(expected_kind(device.type), threads=threads)


def expected_kind(device_type: str) -> Kind:
    """What is known of the kind before a device is chosen, without a question to any GPU."""
    if device_type == "cuda":
        return Kind(type=device_type, torch=_torch(), cuda=torch.version.cuda)
    instructions = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return Kind(type=device_type, torch=_torch(), name=_plain(processor_model()), instructions=_plain(instructions))


def differences(written: Kind, current: Kind) -> tuple[str, ...]:
    """Why two kinds are not the same, a sentence each; a fact that one of them does not know makes no difference."""
    if written.type != current.type:
        return (f"It was trained on {written.text}; this is {current.text}.",)
    before, now = asdict(written), asdict(current)
    return tuple(
        f"Its {word} was {before[fact]}; here it is {now[fact]}."
        for fact, word in _WORDS.items()
        if None not in (before[fact], now[fact]) and before[fact] != now[fact]
    )


def joined(earlier: tuple[Kind, ...], last: Kind) -> tuple[Kind, ...]:
    """The kinds of a training that went on at `last`: each once, the last one last, at most `MOST_KINDS`."""
    others = [kind for kind in earlier if differences(kind, last)]
    return (*others[1 - MOST_KINDS :], last)


def require(earlier: tuple[Kind, ...], current: Kind, moves: Literal["same", "any"]) -> None:
    """Raise `OtherKind` if a training of these kinds may not go on here. `any` allows it everywhere."""
    if moves == "same" and earlier and (found := differences(earlier[-1], current)):
        raise OtherKind(found)


def of_recipe(recipe: Mapping[str, object]) -> tuple[Kind, ...]:
    """The kinds that a recipe lists; one of few facts if it was written without any. Raises `BadCheckpoint`."""
    rows, known = recipe.get("kinds"), Kind(type=str(recipe["device_type"]), torch=str(recipe["torch"]))
    if "kinds" not in recipe:
        return (known,)
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_KINDS:
        raise bounds.refusal(rows, "recipe.kinds", f"a list of 1 to {MOST_KINDS} kinds of device")
    *others, last = (_of_row(row, f"recipe.kinds.{place}") for place, row in enumerate(rows))
    return (*others, replace(last, type=known.type, torch=known.torch))


def _of_row(row: object, place: str) -> Kind:
    facts = bounds.entries(row, place, ("type", "torch"), [field.name for field in fields(Kind)])
    for name, value in facts.items():
        if name == "threads":
            bounds.whole(value, f"{place}.{name}", 1, _MOST_THREADS)
        elif not isinstance(value, str) or not value or value != _plain(value):
            raise bounds.refusal(value, f"{place}.{name}", "a short text")
    return Kind(**facts)


@cache
def _gpu(index: int) -> Kind:
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return Kind(
        type="cuda",
        torch=_torch(),
        name=_plain(torch.cuda.get_device_name(index)),
        driver=_driver(),
        cuda=torch.version.cuda,
        cudnn=None if cudnn is None else str(cudnn),
    )


def _driver() -> str | None:
    with suppress(Exception):  # a container may have no NVML
        pynvml.nvmlInit()
        return _plain(str(pynvml.nvmlSystemGetDriverVersion()))
    return None


def _torch() -> str:
    return str(torch.__version__)


def _plain(text: str) -> str:
    """A text without characters that a terminal or a page obeys."""
    return _STRANGE.sub("_", text)[:MOST_CHARACTERS]
