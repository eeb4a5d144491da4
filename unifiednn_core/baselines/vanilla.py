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
from collections.abc import Iterator
from pathlib import Path

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
        self.criterion: nn.Module = getattr(nn, job.criterion)(**job.criterion_args)
        self.lr_scheduler = None
        if job.lr_scheduler is not None:
            scheduler = getattr(torch.optim.lr_scheduler, job.lr_scheduler)
            self.lr_scheduler = scheduler(self.optimizer, **job.lr_scheduler_args)
        inputs, targets = read_data(job.train_data)
        self.order = Permutations(len(targets), job.seed)
        self.train_data = self._loader(inputs, targets, sampler=self.order, drop_last=job.drop_last)
        self.test_data = None if job.test_data is None else self._loader(*read_data(job.test_data))
        self.sums = Sums()
        self.epochs_done = self.steps_done = 0
        self.steps_per_epoch = len(self.train_data)
        torch.manual_seed(job.seed)
        if job.start_from is not None:
            from unifiednn_core.baselines.start import begin_at  # few start there, so all others need not load it

            begin_at(self, Path(job.start_from), job.take)

    def train(self) -> nn.Module:
        """Train all epochs; raises whatever torch raises, and `Diverged`."""
        self.reporter.begun(facts_of(self.device, self.job.threads), self.steps_done, self.epochs_done)
        for epoch in range(self.epochs_done + 1, self.job.epochs + 1):
            for inputs, targets in self.train_data:
                self._step(*self._placed(inputs, targets))
            self._end_epoch(epoch)
        return self.module

    def _step(self, inputs: Tensor, targets: Tensor) -> None:
        job = self.job
        self.optimizer.zero_grad(set_to_none=True)
        if job.batch_split == 1:
            loss, correct = self._learn(inputs, targets)
        else:
            losses, rights = [], []
            for part, labels in zip(inputs.chunk(job.batch_split), targets.chunk(job.batch_split), strict=True):
                # A copy lies in memory as a whole batch does; the bits of some kernels depend on that.
                loss, correct = self._learn(part.clone(), labels.clone(), share=len(labels) / len(targets))
                losses.append(loss)
                rights += [] if correct is None else [correct]
            loss, correct = torch.stack(losses).sum(), torch.stack(rights).sum() if rights else None
        self.optimizer.step()
        if self.lr_scheduler is not None and job.lr_per_step:
            self.lr_scheduler.step()
        self.steps_done += 1
        self.sums.add(loss, len(targets), correct, targets.numel())
        epoch = self.steps_done / self.steps_per_epoch
        self.reporter.step(self.steps_done, epoch, loss, correct, targets.numel())

    def _learn(self, inputs: Tensor, targets: Tensor, share: float | None = None) -> tuple[Tensor, Tensor | None]:
        """Forward and backward; loss (times `share`) and right answers, left on the device."""
        outputs = self.module(self._scaled(inputs))
        loss = self.criterion(outputs, targets)
        loss = loss if share is None else loss * share
        loss.backward()
        return loss.detach(), self._correct(outputs, targets)

    def _end_epoch(self, epoch: int) -> None:
        learning_rate = float(self.optimizer.param_groups[0]["lr"])
        if self.lr_scheduler is not None and not self.job.lr_per_step:
            self.lr_scheduler.step()
        train_loss, train_accuracy = self.sums.means()
        if train_loss is not None and not math.isfinite(train_loss):
            from unifiednn_core.errors import Diverged

            raise Diverged(self.job.name, self.steps_done, train_loss)
        test_loss, test_accuracy = self._evaluate()
        self.reporter.epoch(
            {
                "epoch": epoch,
                "step": self.steps_done,
                "learning_rate": learning_rate,
                "train_loss": train_loss,
                "train_accuracy": train_accuracy,
                "test_loss": test_loss,
                "test_accuracy": test_accuracy,
            }
        )

    @torch.no_grad()
    def _evaluate(self) -> tuple[float | None, float | None]:
        if self.test_data is None:
            return None, None
        self.module.eval()
        for batch in self.test_data:
            inputs, targets = self._placed(*batch)
            outputs = self.module(self._scaled(inputs))
            self.sums.add(
                self.criterion(outputs, targets), len(targets), self._correct(outputs, targets), targets.numel()
            )
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

    def _correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return (outputs.detach().argmax(1) == targets).sum() if self.job.scores_classes else None


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
