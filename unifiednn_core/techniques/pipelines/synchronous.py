"""The pipeline schedules of `torch.distributed.pipelining`: one process per device, exact gradients.

All micro-batches of a batch pass the stages before one update, so the gradients are those of accumulation over the
micro-batches. The processes exist for one call: they meet through a file, talk over the loopback interface (NCCL
between GPUs), and have ended when the call returns, however it ends.
"""

import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import SGD, Optimizer

from unifiednn_core.base.errors import BadInput, PipelineFailed

ScheduleName = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v"]
SCHEDULES: Mapping[ScheduleName, str] = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
    "zero_bubble_v": "ScheduleZBVZeroBubble",
}
"""Names of torch's classes. The first two have one stage per process, the last one exactly two, in the shape of a V."""
ONE_STAGE: frozenset[ScheduleName] = frozenset({"gpipe", "1f1b"})
ENDS_WITHIN_S = 2.0
GRACE_S = 0.2
"""After a failure, for others to say that they failed before."""
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """How a chain of stages trains."""

    schedule: ScheduleName = "1f1b"
    micro_batches: int
    devices: tuple[str, ...]
    """One process for each: `cpu` as often as wanted, or `cuda:0`, `cuda:1` and so on."""
    loss: nn.Module = field(default_factory=nn.CrossEntropyLoss)
    """Mean over the samples of a micro-batch."""
    optimizer: type[Optimizer] = SGD
    optimizer_args: Mapping[str, Any] = field(default_factory=lambda: {"lr": 0.01})
    timeout_s: float = 300.0
    """For the whole call, and for each message."""


@dataclass(frozen=True, slots=True)
class _RankJob:
    """What one process gets."""

    rank: int
    stages: dict[int, nn.Module]
    shapes: dict[int, tuple[Tensor, Tensor]]
    """Input and output of each stage for a micro-batch, without memory."""
    count: int
    """Stages of all processes."""
    inputs: list[Tensor]
    """Of each batch, for the process of the first stage."""
    targets: list[Tensor]
    """Of each batch, for the process of the last stage."""
    steps: int
    how: Pipelining
    meet_at: str
    threads: int


def places(schedule: ScheduleName, stages: int, processes: int) -> list[list[int]]:
    """Stages of each process: in turns, and for the V there and back. Raises `BadInput` if they do not divide."""
    each, rest = divmod(stages, processes)
    wanted = "one stage" if schedule in ONE_STAGE else "two stages" if schedule == "zero_bubble_v" else "equally many"
    wrong = {"one stage": each != 1, "two stages": each != 2, "equally many": each < 1}[wanted]
    if rest or wrong:
        raise BadInput.of(
            "Not a pipeline",
            field="stages",
            message=f"The schedule {schedule} needs {wanted} per process, and there are {stages} for {processes}.",
            remedy="Cut the network into another number of stages.",
        )
    if schedule == "zero_bubble_v":
        return [[rank, stages - 1 - rank] for rank in range(processes)]
    return [list(range(rank, stages, processes)) for rank in range(processes)]


def train(
    stages: Sequence[nn.Module],
    batches: Sequence[tuple[Tensor, Tensor]],
    how: Pipelining,
    *,
    context: BaseContext | None = None,
) -> list[float]:
    """Take one step for each batch; returns the mean loss of each.

    Afterwards the stages have the trained weights and buffers, and the gradients of the last step. Raises `BadInput`
    for what the schedule cannot do, `PipelineFailed` for a process that fails or is too slow.

    Args:
        stages: Consecutive parts of a network.
        batches: Inputs and targets; each divides into equal micro-batches.
        how: Schedule, devices and optimizer.
        context: Of multiprocessing; by default new interpreters.
    """
    placed = places(how.schedule, len(stages), len(how.devices))
    for inputs, _ in batches:
        if len(inputs) % how.micro_batches:
            raise BadInput.of(
                "Uneven micro-batches",
                field="micro_batches",
                message=f"A batch of {len(inputs)} samples does not divide into {how.micro_batches} equal parts.",
                remedy="Choose a number that divides the batch size, and drop the last batch if it is smaller.",
            )
    last, shapes = len(stages) - 1, _shapes(stages, batches[0][0][: len(batches[0][0]) // how.micro_batches])
    with tempfile.TemporaryDirectory(prefix="unifiednn-pipeline-") as folder:
        jobs = [
            _RankJob(
                rank,
                {place: stages[place] for place in own},
                {place: shapes[place] for place in own},
                len(stages),
                [inputs for inputs, _ in batches] if 0 in own else [],
                [targets for _, targets in batches] if last in own else [],
                len(batches),
                how,
                str(Path(folder, "store")),
                max(1, torch.get_num_threads() // len(placed)),
            )
            for rank, own in enumerate(placed)
        ]
        answers = _answers(jobs, how.timeout_s, context or get_context("spawn"))
    losses: list[float] = []
    for answer in answers:
        found = torch.load(io.BytesIO(answer), weights_only=True)
        losses = losses or found["losses"]
        for place, (state, gradients) in found["stages"].items():
            stages[place].load_state_dict(state)
            for name, weight in stages[place].named_parameters():
                weight.grad = gradients.get(name)
    return losses


def _shapes(stages: Sequence[nn.Module], inputs: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Input and output of each stage, as torch would find them by a step that counts in the statistics of BatchNorm."""
    found = []
    with torch.random.fork_rng(devices=[]):
        for place, stage in enumerate(stages):
            given = inputs.detach().requires_grad_(place > 0 and inputs.is_floating_point())
            buffers = {name: one.clone() for name, one in stage.named_buffers()}
            output: Tensor = functional_call(stage, buffers, (given,))
            inputs = output.detach()
            found.append((_without_memory(given), _without_memory(output)))
    return found


def _without_memory(tensor: Tensor) -> Tensor:
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)


def _answers(jobs: Sequence[_RankJob], timeout_s: float, context: BaseContext) -> list[bytes]:
    """Run all jobs at once and collect what they say; a failure of one ends all. Raises `PipelineFailed`."""
    until_s = time.monotonic() + timeout_s
    with _started(jobs, context) as running:
        waiting = {pipe: rank for rank, (_, pipe) in enumerate(running)}
        answers: dict[int, bytes] = {}
        failures: list[tuple[float, int, str]] = []
        while waiting:
            left_s = GRACE_S if failures else max(0.0, until_s - time.monotonic())
            ready = connection.wait(list(waiting), left_s)
            for pipe in ready:
                rank = waiting.pop(pipe)
                kind, at_s, said = _heard(running[rank][0], pipe)
                if kind == "done":
                    answers[rank] = said
                else:
                    failures.append((at_s, rank, said.decode()))
            if failures and not ready:
                break
            if not ready:
                slow = ", ".join(map(str, sorted(waiting.values())))
                raise PipelineFailed(f"The pipeline took longer than {timeout_s:g} s; rank {slow} had not finished.")
        if failures:  # what a rank says after its neighbour has gone is not the cause
            _, rank, cause = min(failures)
            raise PipelineFailed(f"Rank {rank} of {len(jobs)} failed: {cause}. All ranks were ended.")
    return [answers[rank] for rank in range(len(jobs))]


def _heard(process: BaseProcess, pipe: Any) -> tuple[str, float, bytes]:
    try:
        kind, at_s, said = pipe.recv()
    except (EOFError, OSError):
        process.join(ENDS_WITHIN_S)
        return "failed", 0.0, f"its process ended with exit code {process.exitcode}".encode()
    return str(kind), float(at_s), bytes(said)


@contextmanager
def _started(jobs: Sequence[_RankJob], context: BaseContext) -> Iterator[list[tuple[BaseProcess, Any]]]:
    """Start one process for each job; all have ended afterwards."""
    running: list[tuple[BaseProcess, Any]] = []
    try:
        for job in jobs:
            ours, theirs = context.Pipe(duplex=False)
            packed = io.BytesIO()
            torch.save(job, packed)
            process = context.Process(  # type: ignore[attr-defined]
                target=_run_rank, args=(packed.getvalue(), theirs), name=f"pipeline rank {job.rank}", daemon=True
            )
            process.start()
            theirs.close()
            running.append((process, ours))
        yield running
    finally:
        for process, _ in running:
            if process.exitcode is None:
                process.terminate()
        for process, pipe in running:
            process.join(ENDS_WITHIN_S)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
            pipe.close()


def _run_rank(packed: bytes, pipe: Any) -> None:
    """Do the job of this new process, and say how it ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        job: _RankJob = torch.load(io.BytesIO(packed), weights_only=False)  # our own bytes
        answer = io.BytesIO()
        torch.save(_trained(job), answer)
        pipe.send(("done", time.monotonic(), answer.getvalue()))
    except BaseException as error:
        at_s, cause = time.monotonic(), error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        with suppress(OSError):
            pipe.send(("failed", at_s, f"{type(cause).__name__}: {cause}".encode()))
    finally:
        pipe.close()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _trained(job: _RankJob) -> dict[str, Any]:
    from torch import distributed
    from torch.distributed import pipelining  # imports far more than torch

    torch.set_num_threads(job.threads)
    os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK
    device = torch.device(job.how.devices[job.rank])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{job.meet_at}",
        rank=job.rank,
        world_size=len(job.how.devices),
        timeout=timedelta(seconds=job.how.timeout_s),
    )
    try:
        modules = {place: module.to(device).train() for place, module in job.stages.items()}
        parts = [
            pipelining.PipelineStage(one, place, job.count, device, *job.shapes[place])
            for place, one in modules.items()
        ]
        made = getattr(pipelining, SCHEDULES[job.how.schedule])
        schedule = made(parts[0] if job.how.schedule in ONE_STAGE else parts, job.how.micro_batches, job.how.loss)
        weights = [one for module in modules.values() for one in module.parameters() if one.requires_grad]
        optimizer = job.how.optimizer(weights, **job.how.optimizer_args) if weights else None
        losses: list[float] = []
        for step in range(job.steps):
            for module in modules.values():
                module.zero_grad(set_to_none=True)
            found: list[Tensor] = []
            given = [job.inputs[step].to(device)] if job.inputs else []
            asked = {"target": job.targets[step].to(device), "losses": found} if job.targets else {}
            schedule.step(*given, **asked, return_outputs=False)
            if optimizer is not None:
                optimizer.step()
            losses += [torch.stack(found).mean().item()] if found else []
    finally:
        distributed.destroy_process_group()
    return {"losses": losses, "stages": {place: _result(module) for place, module in modules.items()}}


def _result(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and buffers, and the gradients, on the host."""
    gradients = {name: one.grad.cpu() for name, one in module.named_parameters() if one.grad is not None}
    return {name: one.detach().cpu() for name, one in module.state_dict().items()}, gradients
