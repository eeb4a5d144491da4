"""A sub-model with a technique in a hybrid of three: its own bits where the technique is exact, the others' always."""

from functools import cache
from typing import Any

import pytest
import torch

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, Bench, alone, hash_of, spec_of

CPU = torch.device("cpu")
NAMES = ("resnet", "transformer", "lenet")


def hashes(has_it: str, *techniques: Any) -> dict[str, str | None]:
    """Of the weights that a hybrid trains, in which one sub-model has techniques."""

    def spec(name: str) -> Any:
        asked = {"techniques": list(techniques)} if name == has_it else {}
        return spec_of(name, KINDS[name], **asked)

    ended = Bench(CPU, [(name, KINDS[name], spec(name)) for name in NAMES], IN_TURNS).run()
    return {name: hash_of(end) for name, end in ended.items()}


@cache
def vanilla() -> dict[str, str | None]:
    return {name: alone(KINDS[name], spec_of(name, KINDS[name]), CPU) for name in NAMES}


@pytest.mark.parametrize("technique", ["checkpointing", "idle_offload", "compression", {"name": "dropit", "keep": 1.0}])
@pytest.mark.parametrize("has_it", NAMES[:2])
def test_each_has_the_bits_of_the_plain_loop(technique: Any, has_it: str) -> None:
    assert hashes(has_it, technique) == vanilla()


@pytest.mark.parametrize("technique", [{"name": "compression", "bfloat16": True}, {"name": "dropit", "keep": 0.1}])
@pytest.mark.parametrize("has_it", NAMES[:2])
def test_a_lossy_technique_changes_one_sub_model_alone(technique: Any, has_it: str) -> None:
    found = hashes(has_it, technique)
    assert {name for name in NAMES if found[name] != vanilla()[name]} == {has_it}
