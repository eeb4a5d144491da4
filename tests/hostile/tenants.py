"""Two tenants of one dashboard: Alice, who only wants to train, and Mallory, who is hostile in every way."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.hostile.names import NAMES
from tests.hostile.signed import SignedHouse
from tests.hostile.test_shared_data import Halver, Wiper
from tests.unit.formats.kit import content_of

ALICE, MALLORY, OTTO = (f"{name}@example.org" for name in ("alice", "mallory", "otto"))
GROUPS = {ALICE: ["learners"], MALLORY: ["learners"], OTTO: ["staff"]}
SIDE, CLASSES, SAMPLES = 6, 4, 40


class Dropping(nn.Module):
    """The victim: it draws random numbers in every step, and normalises over its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
        self.head = nn.Linear(48, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(images))
        return scores


class Drawing(nn.Module):
    """Draws a quarter of a million random numbers in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.drop = nn.Linear(36, CLASSES), nn.Dropout(0.5)
        self.register_buffer("many", torch.ones(250_000))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(images.flatten(1)) + 0.0 * self.drop(self.many).sum()
        return scores


class Denormal(nn.Module):
    """Leaves the smallest numbers there are, and divides by nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, CLASSES)
        self.register_buffer("small", torch.full((36,), 1e-42))

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        scores: Tensor = self.head(flat * self.small + (flat / (flat - flat)).nan_to_num(0.0) * 0.0)
        return scores


class Looking(nn.Module):
    """Looks ids up in a table of ten: from its seventh step on far behind the end."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(16, CLASSES)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, ids: Tensor) -> Tensor:
        self.steps.add_(1)
        scores: Tensor = self.head(self.table(ids + self.steps // 7 * 1_000_000).flatten(1))
        return scores


IMAGES = torch.randn(3, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "alpha": (Dropping, IMAGES),
    "relu": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, CLASSES)), IMAGES),
    "zero": (Wiper, IMAGES),
    "strided": (Halver, IMAGES),
    "noise": (Drawing, IMAGES),
    "nan": (Dropping, IMAGES),
    "denormal": (Denormal, IMAGES),
    "ids": (Looking, torch.zeros(3, 4, dtype=torch.int64)),
}
"""What is uploaded, by the name of its sub-model; all but the first are Mallory's."""
SPOILT = frozenset({"nan", "ids"})
"""Fail in the middle of their training."""


def model(name: str) -> bytes:
    """A network as its owner exports it."""
    network, example = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(name))
        return content_of(network().train(), example)


def data(name: str = "") -> bytes:
    """The data set of everybody, or the one of a sub-model."""
    numbers, held = np.random.default_rng(0), io.BytesIO()
    inputs: Any = numbers.random((SAMPLES, 1, SIDE, SIDE), dtype=np.float32) - 0.5
    if name == "ids":
        inputs = numbers.integers(0, 10, (SAMPLES, 4))
    np.savez(held, inputs=inputs, targets=np.arange(SAMPLES) % CLASSES)
    return held.getvalue()


@dataclass
class Tenant:
    """Somebody with a cookie of their own; `files` are what they have uploaded, by name."""

    house: SignedHouse
    person: str
    files: dict[str, str] = field(default_factory=dict)

    @property
    def cookie(self) -> str:
        named = {} if self.person == ALICE else {"name": NAMES[5]}
        return self.house.cookie(self.person, groups=GROUPS[self.person], **named)

    def ask(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> tuple[int, bytes]:
        own = {"Origin": self.house.origin}
        status, _, content = self.house.ask(method, path, self.cookie, body, **(own | headers))
        return status, content

    def upload(self, filename: str, content: bytes) -> tuple[int, dict[str, Any]]:
        """Send a file; status and answer of the last request."""
        announced = json.dumps({"filename": filename, "size_bytes": len(content)})
        status, begun = self.ask("POST", "/files/uploads", announced)
        assert status == 201, begun
        place = f"/files/uploads/{json.loads(begun)['upload_id']}"
        assert self.ask("PATCH", place, content, Upload_Offset="0")[0] == 204
        status, answer = self.ask("POST", f"{place}/finish")
        told = json.loads(answer)
        if status == 200:
            self.files[filename] = f"sha256:{told['sha256']}"
        return status, told
