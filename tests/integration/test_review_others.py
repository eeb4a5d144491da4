"""Findings of a review of the template process and of own draws; each test fails on the tree that was reviewed."""

import os
import signal
import threading
from contextlib import suppress

import torch
from torch import nn

from tests.integration.conftest import wait_until
from unifiednn_core.formats.own_draws import own_draws
from unifiednn_core.machine.forks import Template


def test_a_template_that_hangs_does_not_hold_up_its_caller() -> None:
    template = Template(())
    template.start()
    wait_until(template.ready)
    pid = template.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    stopping = threading.Thread(target=template.stop, daemon=True)
    try:
        stopping.start()
        stopping.join(5)
        assert not stopping.is_alive(), "a server could not end"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        stopping.join(5)


def test_a_dropout_with_a_hook_is_not_known_to_draw_from_its_own_generator_alone() -> None:
    """The hook of a plug-in may draw from the default generator, of which a neighbour in another lane has the state."""
    layer = nn.Dropout(0.5)
    layer.register_forward_hook(lambda module, given, output: output + torch.rand(()))
    assert own_draws(nn.Sequential(nn.Linear(2, 2), layer)) is None


def test_the_own_forward_of_a_layer_survives_a_turn() -> None:
    layer = nn.Dropout(0.5)
    layer.__dict__["forward"] = own = lambda inputs: inputs * 2
    draws = own_draws(nn.Sequential(layer))
    if draws is not None:
        draws.begin()
        draws.end()
    assert layer.__dict__.get("forward") is own
