"""What the plain script tells: one JSON document a line, each with its `kind`.

    begun   environment, step, epoch ............ where it starts
    step    step, steps, epoch, loss, accuracy .. the mean over the `steps` steps that end with `step`
    epoch   figures of a whole epoch
    done    state_sha256, peak_bytes ............ the weights are written

Figures stay on the device until they are told: once a second and at the end of an epoch, never at every step.
"""

import json
import os
import platform
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor

PERIOD_S = 1.0


class _Window(NamedTuple):
    """Steps that make one row of the curve."""

    step: int
    epoch: float
    losses: list[Tensor]
    rights: list[Tensor]
    labels: int


class Sums:
    """Loss and right answers since the last reading, left on the device."""

    def __init__(self) -> None:
        self.loss: Tensor | None = None
        self.correct: Tensor | None = None
        self.samples = self.labels = 0

    def add(self, loss: Tensor, samples: int, correct: Tensor | None, labels: int) -> None:
        """Count one batch with its mean loss over `samples` (or labels, where some do not count) and its answers."""
        weighted = loss.double() * samples
        self.loss = weighted if self.loss is None else self.loss + weighted
        self.samples += samples
        if correct is not None:
            self.correct = correct if self.correct is None else self.correct + correct
            self.labels += labels

    def means(self) -> tuple[float | None, float | None]:
        """Mean loss over samples and accuracy since the last call; waits for the device."""
        loss = None if self.loss is None else self.loss.item() / self.samples
        accuracy = None if self.correct is None else self.correct.item() / self.labels
        self.loss, self.correct, self.samples, self.labels = None, None, 0, 0
        return loss, accuracy

    def restore(self, sums: Mapping[str, Any], device: torch.device) -> None:
        """Go on with the sums of a checkpoint (training/progress.py)."""
        self.loss = None if sums["loss"] is None else sums["loss"].to(device)
        self.correct = None if sums["correct"] is None else sums["correct"].to(device)
        self.samples, self.labels = sums["samples"], sums["labels"]


class Reporter:
    """Writes rows to a stream."""

    def __init__(self, stream: TextIO, every_steps: int):
        self._stream, self._every_steps = stream, every_steps
        self._closed: list[_Window] = []
        self._losses: list[Tensor] = []
        self._rights: list[Tensor] = []
        self._labels = 0
        self._last: tuple[int, float] = (0, 0.0)
        self._told_at_s = time.monotonic()

    def begun(self, environment: dict[str, object], step: int, epoch: int) -> None:
        """Say where the training starts."""
        self._tell("begun", environment=environment, step=step, epoch=epoch)

    def step(self, step: int, epoch: float, loss: Tensor, correct: Tensor | None, labels: int) -> None:
        """Take one step in; `epoch` is how many are done by now, with fractions."""
        self._last = step, epoch
        self._losses.append(loss)
        self._rights += [] if correct is None else [correct]
        self._labels += labels
        if step % self._every_steps == 0:
            self._close()
            if time.monotonic() - self._told_at_s >= PERIOD_S:
                self._tell_steps()

    def epoch(self, figures: dict[str, Any]) -> None:
        """Tell the figures of an epoch, and all steps before."""
        self._tell_steps()
        self._tell("epoch", **figures)

    def done(self, state_sha256: str, device: torch.device) -> None:
        """Say that the weights are written."""
        self._close()
        self._tell_steps()
        peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        self._tell("done", state_sha256=state_sha256, peak_bytes=peak_bytes)

    def _close(self) -> None:
        if self._losses:
            self._closed.append(_Window(*self._last, self._losses, self._rights, self._labels))
            self._losses, self._rights, self._labels = [], [], 0

    def _tell_steps(self) -> None:
        """Read all closed windows; the device is waited for once."""
        windows, self._closed = self._closed, []
        self._told_at_s = time.monotonic()
        if not windows:
            return
        losses = torch.stack([torch.stack(window.losses).double().mean() for window in windows]).tolist()
        scored = all(window.rights for window in windows)
        rights = torch.stack([torch.stack(window.rights).sum() for window in windows]).tolist() if scored else []
        for place, window in enumerate(windows):
            accuracy = rights[place] / window.labels if scored else None
            self._tell(
                "step",
                step=window.step,
                steps=len(window.losses),
                epoch=window.epoch,
                loss=losses[place],
                accuracy=accuracy,
            )

    def _tell(self, kind: str, **values: object) -> None:
        self._stream.write(json.dumps({"kind": kind, **values}) + "\n")
        self._stream.flush()


def facts_of(device: torch.device, threads: int) -> dict[str, object]:
    """What a result depends on, under the names of training/device.py."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
    }
