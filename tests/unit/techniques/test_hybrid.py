"""A sub-model with a technique in a hybrid of three: its own bits where the technique is exact, the others' always."""

from typing import Any

import pytest
import torch

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, Bench, alone, hash_of, spec_of

CPU = torch.device("cpu")
NAMES = ("resnet", "transformer", "lenet")


@pytest.mark.parametrize("technique", ["checkpointing", "idle_offload"])
@pytest.mark.parametrize("has_it", NAMES[:2])
def test_each_has_the_bits_of_the_plain_loop(technique: str, has_it: str) -> None:
    def spec(name: str) -> Any:
        asked = {"techniques": [{"name": technique}]} if name == has_it else {}
        return spec_of(name, KINDS[name], **asked)

    ended = Bench(CPU, [(name, KINDS[name], spec(name)) for name in NAMES], IN_TURNS).run()
    assert {name: hash_of(end) for name, end in ended.items()} == {
        name: alone(KINDS[name], spec_of(name, KINDS[name]), CPU) for name in NAMES
    }
