"""The plain script: trains one network as a user of PyTorch would who never heard of hybrids.

    python -m unifiednn_core.baselines.vanilla JOB.json

An ordinary loop over `TensorDataset` and `DataLoader`, in a process of its own. It follows the exactness recipe
(training/submodel.py), so its weights have the same bits, but shares no code with the engine and loads as little as
such a script would: for weights with an architecture that is torch alone (the network from its source file), for a
`.pt2` this project's own reader, which takes less memory than `torch.export.load`.

Data lie on the host as they are in the file; each batch goes to the device first and becomes float there, so that
integer images stay small on the host and on the bus. That is to the favour of this script.
Rows of the training go to stdout, one JSON document a line (`report.py`).
"""

import ctypes
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from unifiednn_core.baselines.files import read_data, read_network, write_weights
from unifiednn_core.baselines.job import Job
from unifiednn_core.baselines.report import Reporter, Sums, facts_of

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Permutations(Sampler[int]):
    """A new permutation for every epoch, from a generator of its own.

    `RandomSampler` would draw from its generator once more than the recipe does.
    """

    def __init__(self, samples: int, seed: int):
        self.samples, self.generator = samples, torch.Generator().manual_seed(seed)
        self.rest: Tensor | None = None
        """What is left of an epoch that a checkpoint was taken in."""

    def __iter__(self) -> Iterator[int]:
        """Yield the samples of one epoch."""
        order, self.rest = self.rest, None
        yield from (torch.randperm(self.samples, generator=self.generator) if order is None else order).tolist()

    def __len__(self) -> int:
        return self.samples


class Script:
    """One training, from the files of the job to a network that is trained."""

    def __init__(self, job: Job, reporter: Reporter):
        self.job, self.reporter = job, reporter
        self.device = use_device(job)
        self.module = read_network(job).to(self.device).train()
        self.optimizer = getattr(torch.optim, job.optimizer)(self.module.parameters(), **job.optimizer_args)
        self.criterion: nn.Module = getattr(nn, job.criterion)(**with_tensors(job.criterion_args)).to(self.device)
        self.lr_scheduler = None
        if job.lr_scheduler is not None:
            scheduler = getattr(torch.optim.lr_scheduler, job.lr_scheduler)
            self.lr_scheduler = scheduler(self.optimizer, **job.lr_scheduler_args)
        inputs, targets = read_data(job.train_data)
        self.order = Permutations(len(targets), job.seed)
        self.train_data = self._loader(inputs, targets, sampler=self.order, drop_last=job.drop_last)
        self.ignored, self.test_ignored = self._ignored_in(targets), None
        self.test_data = None
        if job.test_data is not None:
            inputs, targets = read_data(job.test_data)
            self.test_data, self.test_ignored = self._loader(inputs, targets), self._ignored_in(targets)
        self.sums = Sums()
        self.epochs_done = self.steps_done = 0
        self.history: list[dict[str, Any]] = []
        """Figures of the epochs done."""
        self.steps_per_epoch = -(-len(self.train_data) // job.accumulation_steps)
        torch.manual_seed(job.seed)
        if job.start_from is not None:
            from unifiednn_core.baselines.start import begin_at  # few start there, so all others need not load it

            begin_at(self, Path(job.start_from), job.take)

    def train(self) -> nn.Module:
        """Train all epochs; raises whatever torch raises, and `Diverged`."""
        self.reporter.begun(facts_of(self.device, self.job.threads), self.steps_done, self.epochs_done)
        while self.epochs_done < self.job.epochs and not self._stops_early():
            batches = iter(self.train_data)
            while group := list(islice(batches, self.job.accumulation_steps)):
                self._step(group)
            self._end_epoch()
        return self.module

    def _step(self, group: Sequence[Sequence[Tensor]]) -> None:
        """Take one step with the mean gradient of some batches; those that wait for their turn lie on the host."""
        job, samples = self.job, sum(len(targets) for _, targets in group)
        self.optimizer.zero_grad(set_to_none=True)
        if len(group) == job.batch_split == 1:
            loss, correct, labels = self._learn(*self._placed(*group[0]))
        else:
            losses, rights, labels = [], [], 0
            for batch in group:
                for inputs, targets in zip(
                    *(whole.chunk(job.batch_split) for whole in self._placed(*batch)), strict=True
                ):
                    share = len(targets) / samples
                    if job.batch_split > 1:  # bits of some kernels depend on how a part lies in memory
                        inputs, targets = inputs.clone(), targets.clone()
                    loss, correct, count = self._learn(inputs, targets, share)
                    losses.append(loss)
                    rights += [] if correct is None else [correct]
                    labels += count
            loss, correct = torch.stack(losses).sum(), torch.stack(rights).sum() if rights else None
        self.steps_done += 1
        self._clip()
        self._update()
        if self.lr_scheduler is not None and job.lr_per_step:
            self.lr_scheduler.step()
        self.sums.add(loss, samples if self.ignored is None else labels, correct, labels)
        epoch = self.steps_done / self.steps_per_epoch
        self.reporter.step(self.steps_done, epoch, loss, correct, labels)

    def _learn(self, inputs: Tensor, targets: Tensor, share: float | None = None) -> tuple[Tensor, Tensor | None, int]:
        """Forward and backward; loss (times `share`) and right answers, left on the device, and how many count."""
        outputs = self.module(self._scaled(inputs))
        loss = self.criterion(outputs, targets)
        loss = loss if share is None else loss * share
        loss.backward()
        return loss.detach(), *self._answers(outputs.detach(), targets, self.ignored)

    def _clip(self) -> None:
        if self.job.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.job.clip_norm)
        if self.job.clip_value is not None:
            nn.utils.clip_grad_value_(self.module.parameters(), self.job.clip_value)

    def _update(self) -> None:
        """Let the optimizer step, in the warm-up with a share of the learning rate."""
        share = self._share_of_rate()
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate if share == 1.0 else rate * share
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def _share_of_rate(self) -> float:
        warm_up_steps = self.job.warm_up_steps
        return min(1.0, self.steps_done / warm_up_steps) if warm_up_steps else 1.0

    def _stops_early(self) -> bool:
        """Whether the metric has not improved for so many epochs."""
        asked = self.job.early_stopping
        if asked is None:
            return False
        sign = -1 if asked["metric"] == "test_accuracy" else 1
        best, waited = math.inf, 0
        for row in self.history:
            value = math.inf if row[asked["metric"]] is None else sign * row[asked["metric"]]
            best, waited = (value, 0) if value < best - asked["min_delta"] else (best, waited + 1)
        return waited >= int(asked["patience"])

    def _end_epoch(self) -> None:
        learning_rate = float(self.optimizer.param_groups[0]["lr"]) * self._share_of_rate()
        train_loss, train_accuracy = self.sums.means()
        if train_loss is not None and not math.isfinite(train_loss):
            from unifiednn_core.errors import Diverged

            raise Diverged(self.job.name, self.steps_done, train_loss)
        test_loss, test_accuracy = self._evaluate()
        if self.lr_scheduler is not None and self.job.lr_by_loss:
            self.lr_scheduler.step(train_loss if test_loss is None else test_loss)
        elif self.lr_scheduler is not None and not self.job.lr_per_step:
            self.lr_scheduler.step()
        self.epochs_done += 1
        figures = {
            "epoch": self.epochs_done,
            "step": self.steps_done,
            "learning_rate": learning_rate,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
        }
        self.history.append(figures)
        self.reporter.epoch(figures)

    @torch.no_grad()
    def _evaluate(self) -> tuple[float | None, float | None]:
        if self.test_data is None:
            return None, None
        self.module.eval()
        for batch in self.test_data:
            inputs, targets = self._placed(*batch)
            outputs = self.module(self._scaled(inputs))
            correct, labels = self._answers(outputs, targets, self.test_ignored)
            weight = len(targets) if self.test_ignored is None else labels
            self.sums.add(self.criterion(outputs, targets), weight, correct, labels)
        self.module.train()
        return self.sums.means()

    def _loader(self, *tensors: Tensor, **options: object) -> DataLoader[tuple[Tensor, ...]]:
        """Make a loader with a generator of its own: it draws a seed for every epoch, and not from the default one."""
        return DataLoader(
            TensorDataset(*tensors),
            self.job.batch_size,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),
            **options,  # type: ignore[arg-type]
        )

    def _placed(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)

    def _scaled(self, batch: Tensor) -> Tensor:
        job = self.job
        if job.scale is None and job.mean is None and job.std is None:
            return batch
        batch = batch.to(torch.float32)
        if job.scale is not None:
            batch = batch * job.scale
        if job.mean is not None:
            batch = batch - job.mean
        return batch if job.std is None else batch / job.std

    def _ignored_in(self, targets: Tensor) -> int | None:
        """Label that the criterion leaves out, where there are any of it."""
        label = self.job.ignored_label
        return label if label is not None and bool((targets == label).any()) else None

    def _answers(self, outputs: Tensor, targets: Tensor, ignored: int | None) -> tuple[Tensor | None, int]:
        """Right answers, left on the device, and how many there were beside those that are to be ignored."""
        counts = targets.numel()
        if ignored is not None:
            counts = int((targets != ignored).sum())
        if not self.job.scores_classes or not counts:
            return None, counts
        right = outputs.argmax(1) == targets
        return (right if ignored is None else right & (targets != ignored)).sum(), counts


def with_tensors(args: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a criterion, with the lists (weights of classes and the like) as the tensors that it takes."""
    return {name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
            for name, value in args.items()}  # fmt: skip


def use_device(job: Job) -> torch.device:
    """Threads and device of the job, with the settings of the profile `exact` (training/device.py)."""
    torch.set_num_threads(job.threads)
    name = ("cuda:0" if torch.cuda.is_available() else "cpu") if job.device == "auto" else job.device
    device = torch.device("cuda:0" if name == "cuda" else name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return device


def die_with(parent_pid: int | None) -> None:
    """Have this process killed when its parent dies, or end it where that has happened already; Linux alone."""
    if parent_pid is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("The process that started this one is gone.")


def main() -> None:
    """Train the job named on the command line."""
    job = Job.read(Path(sys.argv[1]))
    die_with(job.parent_pid)
    reporter = Reporter(sys.stdout, job.report_every_steps)
    script = Script(job, reporter)
    module, device = script.train(), script.device
    del script  # optimizer and data, before the weights are copied
    module.zero_grad(set_to_none=True)
    reporter.done(write_weights(module, Path(job.weights)), device)


if __name__ == "__main__":
    main()
