"""What can go wrong inside one step of one network, done to a real worker: `MISHAP=resnet=raise@7`."""

import os
import signal
import time
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path

import torch
from torch import nn

from tests.waiting import wait_until
from unifiednn_core.engine.events import Stepped
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.runtime import worker
from unifiednn_core.runtime.reporter import Reporter

MISHAP = "MISHAP"
HOLD = "HOLD"


def arm(environment: Mapping[str, str], home: Path) -> None:
    """Let what the environment names happen in each attempt at that step.

    A mishap is avoided where batches are split. `HOLD=resnet@7,9` waits before each of these steps for its `go_file`.
    """
    step, write = SubModel.step, Reporter.write
    mishap, _, rest = environment.get(MISHAP, "").partition("=")
    action, _, mishap_step = rest.partition("@")
    held, _, held_steps = environment.get(HOLD, "").partition("@")
    holds = [int(step) for step in held_steps.split(",") if step]
    turns = count()
    turn = [next(turns)]

    def step_with_mishaps(submodel: SubModel) -> Stepped:
        next_step = submodel.steps_done + 1
        if submodel.spec.name == held and next_step in holds and not go_file(home, next_step).exists():
            held_file(home, next_step).touch()
            wait_until(go_file(home, next_step).exists)
            begun = turn[0]
            wait_until(lambda: turn[0] >= begun + 2)  # the worker has heard all that was asked for until now
        happens = submodel.spec.name == mishap and next_step == int(mishap_step)
        if happens and submodel.spec.hyperparameters.batch_split == 1:
            _happen(action, submodel)
        return step(submodel)

    def counted_write(reporter: Reporter, now_s: float, **how: bool) -> None:
        write(reporter, now_s, **how)
        turn[0] = next(turns)

    worker.TICK_S = 0.05  # tests wait for little else
    SubModel.step = step_with_mishaps  # type: ignore[method-assign]
    Reporter.write = counted_write  # type: ignore[method-assign]


def held_file(home: Path, step: int) -> Path:
    """Is there once a worker waits before that step."""
    return home / f"held-{step}"


def go_file(home: Path, step: int) -> Path:
    """Lets all workers pass that step."""
    return home / f"go-{step}"


def _divide(in_training: bool, module: nn.Module, _: object) -> None:
    """Divide the smallest integer by -1, at which the processor raises SIGFPE."""
    if module.training is in_training:
        torch.tensor([torch.iinfo(torch.int64).min]).div(torch.tensor([-1]), rounding_mode="trunc")


def _happen(action: str, submodel: SubModel) -> None:
    match action:
        case "divide" | "divide in evaluation":
            in_training = action == "divide"
            submodel.module.register_forward_pre_hook(partial(_divide, in_training))
        case "spoil":
            submodel.leases[0].use().inputs["inputs"].zero_()
        case "raise":
            raise RuntimeError("shapes do not fit")
        case "out_of_memory":
            raise torch.OutOfMemoryError("there is no room for 8 GiB")
        case "hang":
            time.sleep(3600)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
