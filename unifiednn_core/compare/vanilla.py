"""Trains one network in plain PyTorch, as an ordinary user would.

    python -m unifiednn_core.compare.vanilla JOB.json

The script loops over `TensorDataset` and `DataLoader` in its own process. It follows the exactness recipe, so its
weights have the same bits as those of the hybrid. It shares with the engine what a step means (`engine.step`), but no
loop, and imports as little as such a script would. Data stay on the host in the type of the file; each batch moves to
the device first and becomes float there. It measures the time spent in the loader.

Intake has checked every file, so the usual loaders read them. Only `.pt2` needs our own reader, because its official
loader runs code from the file. Rows go to stdout, one JSON document per line, each with its `kind`:

    begun   environment, step, epoch ............ the start
    step    step, steps, epoch, loss, accuracy .. mean over the `steps` steps that end with `step`
    epoch   figures of a whole epoch
    done    state_sha256, peak_bytes, loader_s, loader_cpu_s ... the weights are written

Figures stay on the device until they are written, once a second and after each epoch, never at every step.
"""

import ctypes
import json
import math
import os
import pickle
import platform
import runpy
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from unifiednn_core.compare.job import ScriptJob
from unifiednn_core.compare.recipe import (
    autocast_of,
    make_criterion,
    make_lr_scheduler,
    make_optimizer,
    make_order,
    with_channels_last,
)
from unifiednn_core.data.batch import Batch, Transform
from unifiednn_core.engine.step import TARGETS, OutputIsLoss, Scaling, Step
from unifiednn_core.formats.weights import state_sha256

PERIOD_S = 1.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ZIP = b"PK\x03\x04"

Loaded = Sequence[Tensor]  # a batch of each tensor of a data set, in its order
_Loader: TypeAlias = "DataLoader[tuple[Tensor, ...]]"


class Permutations(Sampler[int]):
    """Draws the order of each epoch from its own generator; `RandomSampler` draws once more than the recipe."""

    def __init__(self, samples: int, seed: int, draws: Callable[[torch.Generator], Tensor]):
        self.samples, self.generator = samples, torch.Generator().manual_seed(seed)
        self.draws = draws
        self.rest: Tensor | None = None  # rest of the epoch in which the checkpoint was taken

    def __iter__(self) -> Iterator[int]:
        """Yield the samples of one epoch."""
        order, self.rest = self.rest, None
        yield from (self.draws(self.generator) if order is None else order).tolist()

    def __len__(self) -> int:
        return self.samples


class EpochSums:
    """Loss and correct answers since the last reading, kept on the device."""

    def __init__(self) -> None:
        self.loss: Tensor | None = None
        self.correct: Tensor | None = None
        self.samples = self.labels = 0

    def add(self, loss: Tensor, samples: int, correct: Tensor | None, labels: int) -> None:
        """Add one batch: its mean loss over `samples` (or labels, if some are ignored) and its correct answers."""
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
        """Continue with the sums of a checkpoint."""
        self.loss, self.correct = (None if sums[n] is None else sums[n].to(device) for n in ("loss", "correct"))
        self.samples, self.labels = sums["samples"], sums["labels"]


class _Step(NamedTuple):
    step: int
    epoch: float
    loss: Tensor
    correct: Tensor | None
    labels: int


class ProgressWriter:
    """Writes rows to a stream; one row of the curve averages `every_steps` steps."""

    def __init__(self, stream: TextIO, every_steps: int):
        self._stream, self._every_steps = stream, every_steps
        self._rows: list[list[_Step]] = [[]]  # steps of each row of the curve that is not written; the last one is open
        self._written_at_s = time.monotonic()

    def write(self, kind: str, **values: object) -> None:
        """Write one row."""
        self._stream.write(json.dumps({"kind": kind, **values}) + "\n")
        self._stream.flush()

    def step(self, step: int, epoch: float, loss: Tensor, correct: Tensor | None, labels: int) -> None:
        """Record one step; `epoch` counts finished epochs with fractions."""
        self._rows[-1].append(_Step(step, epoch, loss, correct, labels))
        if step % self._every_steps == 0:
            self._rows.append([])
            if time.monotonic() - self._written_at_s >= PERIOD_S:
                self._write_steps()

    def epoch(self, figures: dict[str, Any]) -> None:
        """Write the figures of an epoch, after all its steps."""
        self._write_steps()
        self.write("epoch", **figures)

    def done(self, **figures: object) -> None:
        """Write the last steps, and the row that says that the weights are on disk."""
        if self._rows[-1]:
            self._rows.append([])
        self._write_steps()
        self.write("done", **figures)

    def _write_steps(self) -> None:
        """Write all complete rows; waits for the device once."""
        *rows, open_row = self._rows
        self._rows, self._written_at_s = [open_row], time.monotonic()
        if not rows:
            return
        losses = torch.stack([torch.stack([one.loss for one in row]).double().mean() for row in rows]).tolist()
        answers = [[one.correct for one in row if one.correct is not None] for row in rows]
        correct = torch.stack([torch.stack(row).sum() for row in answers]).tolist() if all(answers) else []
        for place, row in enumerate(rows):
            accuracy = correct[place] / sum(one.labels for one in row) if correct else None
            last, loss = row[-1], losses[place]
            self.write("step", step=last.step, steps=len(row), epoch=last.epoch, loss=loss, accuracy=accuracy)


class PlainScript:
    """One training, from the files of the job to a trained network."""

    def __init__(self, job: ScriptJob, progress: ProgressWriter):
        self.job, self.progress = job, progress
        self.device = use_device(job)
        tensors = read_data(job.train_data)
        self.names = list(tensors)  # of the tensors of a batch
        self.module, self.meaning = read_network(job, self.names)
        self.module = self.module.to(self.device).train()
        self.channels_last = False
        if job.fast and self.device.type == "cuda" and any(one.dim() == 4 for one in self.module.parameters()):
            self._try_channels_last(tensors)
        self.optimizer = make_optimizer(job, self.module)
        criterion = make_criterion(job, tensors.get(TARGETS)) if job.criterion else OutputIsLoss()
        self.criterion: nn.Module = criterion.to(self.device)
        self.scaler = torch.amp.GradScaler(self.device.type) if job.precision == "float16" else None
        self.averaged: AveragedModel | None = None
        if job.ema is not None:
            self.averaged = AveragedModel(self.module, multi_avg_fn=get_ema_multi_avg_fn(job.ema["decay"]))  # type: ignore[no-untyped-call]
        self.lr_scheduler: Any = make_lr_scheduler(job, self.optimizer)  # ReduceLROnPlateau steps with a loss
        self.order = Permutations(len(tensors[self.names[0]]), job.seed, make_order(job, tensors))
        self.loader_s = self.loader_cpu_s = 0.0  # spent on fetching and collating batches; CPU seconds of all threads
        self.train_data = self._loader(tensors, self.order)
        self.ignored, self.test_ignored = self._ignored_in(tensors), None
        self.test_data: _Loader | None = None
        if job.test_data is not None:
            tensors = read_data(job.test_data)
            self.test_data, self.test_ignored = self._loader(tensors), self._ignored_in(tensors)
        self.sums = EpochSums()
        self.epochs_done = self.steps_done = 0
        self.best, self.bad_epochs = math.inf, 0  # of the metric of early stopping
        self.steps_per_epoch = -(-len(self.train_data) // job.accumulation_steps)
        torch.manual_seed(job.seed)
        if job.start_from is not None:
            self._start_from(Path(job.start_from), job.take)

    def train(self) -> nn.Module:
        """Train all epochs. Raises what torch raises, and `Diverged`."""
        facts = facts_of(self.device, self.job.threads)
        self.progress.write("begun", environment=facts, step=self.steps_done, epoch=self.epochs_done)
        while self.epochs_done < self.job.epochs and not self._stops_early():
            batches = self._timed(self.train_data)
            while group := list(islice(batches, self.job.accumulation_steps)):
                self._step(group)
            self._end_epoch()
        return self.trained

    @property
    def trained(self) -> nn.Module:
        """The network to evaluate and to deliver: that with averaged weights, if the job asks for them."""
        return self.module if self.averaged is None else self.averaged.module

    def _step(self, group: Sequence[Loaded]) -> None:
        """Take one step with the mean gradient of some batches, which move to the device one by one."""
        job, samples = self.job, sum(len(batch[0]) for batch in group)
        self.optimizer.zero_grad(set_to_none=True)
        if len(group) == job.batch_split == 1:
            loss, correct, labels = self._learn(self._placed(group[0]))
        else:
            losses, rights, labels = [], [], 0
            for batch in group:
                parts = (whole.chunk(job.batch_split) for whole in self._placed(batch))
                for part in zip(*parts, strict=True):
                    share = len(part[0]) / samples
                    if job.batch_split > 1:  # the bits of some kernels depend on the layout of their input
                        part = tuple(tensor.clone() for tensor in part)
                    loss, correct, count = self._learn(part, share)
                    losses.append(loss)
                    rights += [] if correct is None else [correct]
                    labels += count
            loss, correct = torch.stack(losses).sum(), torch.stack(rights).sum() if rights else None
        self.steps_done += 1
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        clipping = job.gradient_clipping or {}
        if clipping.get("norm") is not None:
            nn.utils.clip_grad_norm_(self.module.parameters(), clipping["norm"])
        if clipping.get("value") is not None:
            nn.utils.clip_grad_value_(self.module.parameters(), clipping["value"])
        self._update()
        if self.averaged is not None:
            self.averaged.update_parameters(self.module)
        if self.lr_scheduler is not None and job.lr_steps_by == "step":
            self.lr_scheduler.step()
        self.sums.add(loss, samples if self.ignored is None else labels, correct, labels)
        epoch = self.steps_done / self.steps_per_epoch
        self.progress.step(self.steps_done, epoch, loss, correct, labels)

    def _learn(self, loaded: Loaded, share: float | None = None) -> tuple[Tensor, Tensor | None, int]:
        """Run forward and backward; return loss (times `share`), correct answers and the count of valid labels."""
        batch = self.meaning.prepare(self._batch(loaded))
        outputs = self._forward(self.module, batch)
        loss = self.meaning.loss(self.criterion, outputs, batch)
        loss = loss if share is None else loss * share
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), *self._answers([one.detach() for one in outputs], batch.targets, self.ignored)

    @torch.no_grad()
    def _try_channels_last(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the channels of images and weights last in memory, if the network runs a batch so."""
        batch = self._batch(self._placed([one[: self.job.batch_size] for one in tensors.values()]))
        self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.channels_last = True
        try:
            self._forward(self.module.eval(), self.meaning.prepare(batch, training=False))
        except Exception:  # such as a view of what no longer lies in rows
            self.module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            self.channels_last = False
        self.module.train()

    def _forward(self, module: nn.Module, batch: Batch) -> list[Tensor]:
        """Run the network; the loss of what it computes in a lower precision is computed in float32."""
        if self.channels_last:
            batch = replace(batch, inputs={name: with_channels_last(one) for name, one in batch.inputs.items()})
        with autocast_of(self.job, self.device):
            outputs = self.meaning.forward(module, batch)
        low = None if self.job.precision == "float32" else getattr(torch, self.job.precision)
        return [one.float() if one is not None and one.dtype is low else one for one in outputs]

    def _update(self) -> None:
        """Step the optimizer; during warm-up with a share of the learning rate."""
        share = self._share_of_rate()
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate if share == 1.0 else rate * share
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def _share_of_rate(self) -> float:
        return 1.0 if self.job.warm_up is None else min(1.0, self.steps_done / int(self.job.warm_up["steps"]))

    def _stops_early(self) -> bool:
        """Whether the metric has not improved within the patience."""
        return self.job.early_stopping is not None and self.bad_epochs >= int(self.job.early_stopping["patience"])

    def _compare_with_best(self, asked: Mapping[str, Any], value: float | None) -> None:
        value = math.inf if value is None else -value if asked["metric"] == "test_accuracy" else value
        better = value < self.best - asked["min_delta"]
        self.best, self.bad_epochs = (value, 0) if better else (self.best, self.bad_epochs + 1)

    def _end_epoch(self) -> None:
        learning_rate = float(self.optimizer.param_groups[0]["lr"]) * self._share_of_rate()
        train_loss, train_accuracy = self.sums.means()
        if train_loss is not None and not math.isfinite(train_loss):
            from unifiednn_core.base.errors import Diverged

            raise Diverged(self.job.name, self.steps_done, train_loss)
        test_loss, test_accuracy = self._evaluate()
        if self.lr_scheduler is not None and self.job.lr_steps_by == "loss":
            self.lr_scheduler.step(train_loss if test_loss is None else test_loss)
        elif self.lr_scheduler is not None and self.job.lr_steps_by == "epoch":
            self.lr_scheduler.step()
        self.epochs_done += 1
        train = {"train_loss": train_loss, "train_accuracy": train_accuracy}
        test = {"test_loss": test_loss, "test_accuracy": test_accuracy}
        figures = {"epoch": self.epochs_done, "step": self.steps_done, "learning_rate": learning_rate, **train, **test}
        if self.job.early_stopping is not None:
            self._compare_with_best(self.job.early_stopping, figures[self.job.early_stopping["metric"]])
        self.progress.epoch(figures)

    @torch.no_grad()
    def _evaluate(self) -> tuple[float | None, float | None]:
        if self.test_data is None:
            return None, None
        module = self.trained.eval()
        for loaded in self._timed(self.test_data):
            batch = self.meaning.prepare(self._batch(self._placed(loaded)), training=False)
            outputs = self._forward(module, batch)
            correct, labels = self._answers(outputs, batch.targets, self.test_ignored)
            weight = len(loaded[0]) if self.test_ignored is None else labels
            loss = self.meaning.loss(self.criterion, outputs, batch, training=False)
            self.sums.add(loss, weight, correct, labels)
        module.train()
        return self.sums.means()

    def _loader(self, tensors: Mapping[str, Tensor], order: Permutations | None = None) -> _Loader:
        """Make a loader; `DataLoader` gets its own generator, because it draws a seed from it for every epoch."""
        size, drop_last = self.job.batch_size, order is not None and self.job.drop_last
        data, pinned, generator = TensorDataset(*tensors.values()), self.device.type == "cuda", torch.Generator()
        return DataLoader(data, size, sampler=order, drop_last=drop_last, pin_memory=pinned, generator=generator)

    def _timed(self, loader: Iterable[Loaded]) -> Iterator[Loaded]:
        """Yield the batches of a loader and add up the time spent in it."""
        batches: Iterator[Loaded] | None = None
        while True:
            begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
            batches = iter(loader) if batches is None else batches
            batch = next(batches, None)
            self.loader_s += time.perf_counter() - begun_s
            self.loader_cpu_s += time.process_time() - begun_cpu_s
            if batch is None:
                return
            yield batch

    def _placed(self, loaded: Loaded) -> tuple[Tensor, ...]:
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in loaded)

    def _batch(self, loaded: Loaded) -> Batch:
        named = dict(zip(self.names, loaded, strict=True))
        return Batch({name: one for name, one in named.items() if name != TARGETS}, named.get(TARGETS))

    def _ignored_in(self, tensors: Mapping[str, Tensor]) -> int | None:
        """Return the label that the criterion ignores if the targets contain it, else None."""
        label = self.job.ignored_label
        inputs = {name: one for name, one in tensors.items() if name != TARGETS}
        if label is None or self.meaning.moves_targets:
            return label
        targets = self.meaning.targets_of(inputs, tensors.get(TARGETS))
        if targets is None:
            return None
        return label if bool(torch.eq(targets, label).any()) else None

    def _answers(
        self, outputs: Sequence[Tensor], targets: Tensor | None, ignored: int | None
    ) -> tuple[Tensor | None, int]:
        """Count the correct answers, on the device, and the labels that are not ignored."""
        if targets is None:
            return None, 0
        counts = targets.numel() if ignored is None else int((targets != ignored).sum())
        if not self.job.scores_classes or not counts:
            return None, counts
        right = self.meaning.scores(outputs).argmax(1) == targets
        return (right if ignored is None else right & (targets != ignored)).sum(), counts

    def _start_from(self, path: Path, take: str) -> None:
        """Start at a checkpoint or at other weights. Raises `BadCheckpoint`, `BadInput`, `RuntimeError`."""
        from unifiednn_core.engine import optimizers  # imported only here to keep other scripts small
        from unifiednn_core.engine.checkpoint import Checkpoint
        from unifiednn_core.engine.start import initial_state
        from unifiednn_core.formats.state_dict import fitted
        from unifiednn_core.formats.weights import tree_to_cpu

        said = self.job.start_weights or {}
        begun = initial_state(path, take, said.get("entry"))
        if not isinstance(begun, Checkpoint):
            self.module.load_state_dict(fitted(begun, self.module.state_dict(), said.get("names")))
            return
        state, wanted_lr = begun.state, self.job.optimizer_args["lr"]
        for network, weights in ((self.module, state["model"]), (self.trained, state.get("ema", state["model"]))):
            network.load_state_dict(weights)
            for name, buffer in network.named_buffers():
                if name in state["buffers"]:
                    buffer.copy_(state["buffers"][name])
        if self.averaged is not None:
            self.averaged.n_averaged.fill_(begun.step)
        optimizers.restore_state(self.optimizer, state["optimizer"])
        if self.scaler is not None and "scaler" in state:
            self.scaler.load_state_dict(state["scaler"])
        if self.lr_scheduler is not None and state["lr_scheduler"] is not None:
            self.lr_scheduler.load_state_dict(tree_to_cpu(state["lr_scheduler"]))
        factor = wanted_lr / begun.recipe["learning_rate"]
        if factor != 1.0:
            optimizers.scale_learning_rates(self.optimizer, self.lr_scheduler, factor)
        torch.set_rng_state(state["rng"]["cpu"])
        if self.device.type == "cuda" and state["rng"]["cuda"] is not None:
            torch.cuda.set_rng_state(state["rng"]["cuda"], self.device)
        data, metrics = state["data"], state["metrics"]
        self.order.generator.set_state(data["generator"])
        self.order.rest = None if data["order"] is None else data["order"][data["cursor"] :]
        self.steps_done, self.epochs_done = begun.step, begun.epoch
        self.sums.restore(metrics["tally"], self.device)
        asked, seen = self.job.early_stopping, metrics["improvement"]
        if asked is not None and seen is not None and seen["metric"] == asked["metric"]:
            self.best, self.bad_epochs = seen["best"], seen["bad_epochs"]


def read_network(job: ScriptJob, names: Sequence[str]) -> tuple[nn.Module, Step]:
    """Build the network with the weights of its file, on the host, and its step on data with these tensors."""
    inputs = [name for name in names if name != TARGETS]
    if job.architecture_source is None:
        from unifiednn_core.engine.binding import training_step  # these import far more than torch
        from unifiednn_core.formats.registry import format_named
        from unifiednn_core.spec.run import SubModelSpec

        definition = format_named(job.model_format).read(Path(job.model), None)
        asked = SubModelSpec(name=job.name, model=job.model, train_data=job.train_data, **job.meaning)
        return definition.build(), training_step(asked, definition, inputs)
    module: nn.Module = runpy.run_path(job.architecture_source)["build"](**job.architecture_args)
    module.load_state_dict(_weights(Path(job.model), module, job.model_weights or {}))
    said = job.meaning
    scaling = Scaling(said["scale"], said["mean"], said["std"])
    transforms = _transforms(said["transforms"]) if said.get("transforms") else ()
    own = said.get("inputs", {}).get("inputs") or ("inputs" if "inputs" in inputs else inputs[0])
    return module, Step((own,), scaling, transforms, targets=said["targets"], classes=said["classes"])


def _transforms(asked: Sequence[Mapping[str, Any]]) -> tuple[Transform, ...]:
    from unifiednn_core.data.transforms.table import build  # these import far more than torch
    from unifiednn_core.spec.transforms import TransformSpec

    return build(TransformSpec.model_validate(one) for one in asked)


def read_data(path: str) -> dict[str, Tensor]:
    """Read the inputs and targets, each [samples, ...]. Targets become int64 or at most float32, as criteria expect."""
    loaded = _tensors(Path(path))
    several = loaded.get("inputs")
    inputs = several if isinstance(several, Mapping) else {"inputs": several} if several is not None else loaded
    named = sorted((name.removeprefix("inputs."), one) for name, one in inputs.items() if name != TARGETS)
    tensors = {name: one.contiguous() for name, one in named}
    if TARGETS in loaded:
        targets = loaded[TARGETS].contiguous()
        real = torch.float32 if targets.dtype is torch.float64 else targets.dtype
        tensors[TARGETS] = targets.to(real if targets.is_floating_point() else torch.int64)
    return tensors


def write_weights(module: nn.Module, path: Path) -> str:
    """Write all weights and buffers as safetensors, atomically; returns their hash."""
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for key, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes:  # safetensors refuses tied weights
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        tensors[key] = tensor
    temporary = path.with_name(f".{path.name}.part")
    save_file(tensors, temporary)
    temporary.replace(path)
    return state_sha256(tensors)


def _weights(path: Path, module: nn.Module, said: Mapping[str, str | None]) -> Mapping[str, Any]:
    """Read weights with torch alone; where they lie in an entry or have other names, with the product's reader."""
    with suppress(pickle.UnpicklingError):
        found = _tensors(path)
        if found.keys() == module.state_dict().keys():
            return found
    from unifiednn_core.engine.start import initial_state
    from unifiednn_core.formats.state_dict import fitted

    weights: Any = initial_state(path, "weights", said.get("entry"))
    return fitted(weights, module.state_dict(), said.get("names"))


def _tensors(path: Path) -> dict[str, Tensor]:
    """Read a `.pt`, `.npz` or `.safetensors` file; stored files have no suffix, so the first bytes decide."""
    with path.open("rb") as file:
        zipped = file.read(len(_ZIP)) == _ZIP
    if not zipped:
        return dict(load_file(path))
    with zipfile.ZipFile(path) as archive:
        arrays = all(name.endswith(".npy") for name in archive.namelist())
    if arrays:
        with np.load(path, allow_pickle=False) as loaded:
            return {name: torch.from_numpy(loaded[name]) for name in loaded.files}
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def facts_of(device: torch.device, threads: int) -> dict[str, object]:
    """Describe what a result depends on, with the keys of `engine.device.environment`."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
    }


def use_device(job: ScriptJob) -> torch.device:
    """Set threads and the profile as `engine.device` does; return the device of the job."""
    torch.set_num_threads(job.threads)
    name = ("cuda:0" if torch.cuda.is_available() else "cpu") if job.device == "auto" else job.device
    device = torch.device("cuda:0" if name == "cuda" else name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = job.fast
        torch.backends.cudnn.allow_tf32 = job.fast
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return device


def die_with(parent_pid: int | None) -> None:
    """Have the kernel kill this process when its parent dies; Linux only."""
    if parent_pid is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("The process that started this one is gone.")


def main() -> None:
    """Train the job named on the command line."""
    job = ScriptJob.read(Path(sys.argv[1]))
    die_with(job.parent_pid)
    progress = ProgressWriter(sys.stdout, job.report_every_steps)
    script = PlainScript(job, progress)
    module, device = script.train(), script.device
    loader = {"loader_s": script.loader_s, "loader_cpu_s": script.loader_cpu_s}
    del script  # frees optimizer and data before the weights are copied
    module.zero_grad(set_to_none=True)
    state_sha256 = write_weights(module, Path(job.weights))
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    progress.done(state_sha256=state_sha256, peak_bytes=peak_bytes, **loader)


if __name__ == "__main__":
    main()
