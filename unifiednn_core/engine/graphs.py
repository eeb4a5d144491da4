"""A learner that replays whole steps: forward and backward, recorded once and launched by one call.

The optimizer, clipping and the LR scheduler stay outside, and partial batches go through operator by operator. A
recording is used only if three replayed steps give the bits of three eager ones and are faster: gradients, buffers,
generators and counts of correct predictions. The loss that is shown has the same bits, too, unless torch itself calls
the operator not repeatable, as the forward of `nll_loss2d` on CUDA; then it agrees within rounding. Otherwise the
sub-model trains eagerly for good, and says why.

Recorders are what a device offers for that. Only CUDA has one; see "CUDA graphs" in torch's
docs/source/notes/cuda.rst. A recording keeps addresses: all that it reads and writes has to stay where it is. Its
temporary memory comes from a pool. All recordings of one recorder share one pool, because they never run at once, and
what one leaves there for later is its own.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from unifiednn_core.base.errors import first_line
from unifiednn_core.engine.device import RngState
from unifiednn_core.engine.learning import Learned, Learner, RecordableLearner
from unifiednn_core.engine.randomness import Randomness

_FAILED: list[str] = []
"""Recordings of this process that failed. Each leaves memory, and maybe more, behind; so there is no second."""


def recorder_for(device: torch.device) -> "CudaRecorder | None":
    """A recorder for one lane; None if the device has none."""
    return CudaRecorder(device) if device.type == "cuda" else None


class CudaRecorder:
    """Records work as CUDA graphs, for one lane. Nothing else in the process may compute meanwhile.

    The default generator belongs to all sub-models, and a recording that fails leaves it unusable ("Offset increment
    outside graph capture"). So each recording has a generator of its own.
    """

    def __init__(self, device: torch.device):
        self._device, self._index = device, device.index or 0
        self._pool: Any = None
        self._live = 0
        """Recordings that use the pool."""

    @property
    def refuses(self) -> str | None:
        """Why it records nothing: the failure of an earlier recording in this process; None if it does."""
        return f"an earlier recording in this process failed: {_FAILED[0]}" if _FAILED else None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Compute on the stream of recordings: the current one, if it is not the default one, which cannot record."""
        here = torch.cuda.current_stream(self._device)
        can_record = here != torch.cuda.default_stream(self._device)
        self._synchronize()
        try:
            with torch.cuda.stream(here if can_record else _side_stream(self._index)):
                yield
        finally:
            self._synchronize()

    def record(self, work: Callable[[], object], *, draws: bool) -> "Recording":
        """Record work, inside `aside`; nothing of it happens. `draws` tells whether it draws random numbers.

        Raises what the work raises, and `RuntimeError` for work that cannot be recorded. A failure counts for the whole
        process.
        """
        default = torch.cuda.default_generators[self._index]
        own = torch.Generator(self._device)
        own.set_state(default.get_state())
        shared = default.graphsafe_get_state()
        if not self._live:  # torch refuses a pool that once had graphs and has none now
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._synchronize()
        torch.cuda.empty_cache()  # what the steps before it needed: the pool takes memory of its own
        default.graphsafe_set_state(own)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            except Exception:
                with suppress(Exception):  # it only says that something went wrong before
                    graph.capture_end()
                raise
            graph.capture_end()
        except Exception as error:
            _FAILED.append(first_line(error))
            with suppress(Exception):  # not done by older versions of torch
                torch._C._cuda_endAllocateToPool(self._index, self._pool)
            raise
        finally:
            default.graphsafe_set_state(shared)
        self._live += 1
        return Recording(graph, default if draws else None, own, self._forget)

    def duration_s(self, work: Callable[[], object]) -> float:
        """Do some work and return how long it takes, from an idle device to an idle device."""
        self._synchronize()
        began_s = time.perf_counter()
        work()
        self._synchronize()
        return time.perf_counter() - began_s

    def memory_share(self, work: Callable[[], object]) -> float:
        """Do some work and return which share of the device's memory it takes for a while."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before_bytes = torch.cuda.memory_allocated(self._device)
        work()
        risen_bytes = torch.cuda.max_memory_allocated(self._device) - before_bytes
        return risen_bytes / torch.cuda.get_device_properties(self._device).total_memory

    def _synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def _forget(self) -> None:
        with suppress(RuntimeError):  # a broken device has nothing to wait for
            self._synchronize()
        self._live -= 1


@cache
def _side_stream(index: int) -> Any:
    """One for the process: libraries keep a workspace for each stream that they have seen."""
    return torch.cuda.Stream(index)  # type: ignore[no-untyped-call]


class Recording:
    """One graph. If it draws, it draws what the default generator would."""

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        default: torch.Generator | None,
        own: torch.Generator,
        forget: Callable[[], object],
    ):
        self._graph, self._default, self._own, self._forget = graph, default, own, forget

    def replay(self) -> None:
        """Launch the graph; the default generator moves on as if the operators had been launched one by one."""
        if self._default is None:
            self._graph.replay()
            return
        self._own.set_state(self._default.get_state())
        self._graph.replay()
        self._default.set_state(self._own.get_state())

    def free(self) -> None:
        """Destroy the graph once it is not running any more; it cannot be replayed then."""
        self._forget()
        self._graph.reset()


EAGER_STEPS = 2  # before the first recording: libraries choose their kernels
CHECKED_STEPS = 3
LEAST_GAIN = 1.1
LARGEST_SHARE = 0.1  # of the device's memory: steps that are not recorded need theirs beside that of a recording
LONGEST_STEP_S = 1.0  # a check takes a dozen steps, and nobody else trains meanwhile
MOST_RECORDINGS = 8  # of one sub-model, each because it came to another lane or was parked
_PART = 2**18  # elements that are digested at once
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
_UNREPEATABLE = "does not have a deterministic implementation"
"""What torch says of an operator in its mode `warn`."""
LOSS_TOLERANCE = 1e-5  # relative; sums of float32 in another order
_SHRINKAGE = 0.999  # of weights between two checked steps, so that a recording has to read them anew


class Unfit(Exception):
    """A step that cannot be replayed, or should not be."""


class RecordedLearner:
    """Replays full steps in the lane where they were recorded; launches all others one by one."""

    def __init__(self, eager: RecordableLearner, full: list[int], randomness: Randomness):
        """`full` are the sizes of the batches of a full step."""
        self._eager, self._full, self._randomness = eager, full, randomness
        self._recordings = 0
        self.eager_steps = 0
        """Full steps that were launched one by one."""
        self._step: _RecordedStep | None = None
        self._lane: CudaRecorder | None = None
        """Where the next step is computed."""
        self.gain: float | None = None
        """How many times faster a replayed step is; None if that was not measured."""
        self.refused: str | None = None
        """Why its steps are not replayed, for good."""

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Replay a full step if it is recorded here; else launch its operators one by one."""
        step = self._step
        if len(batches) != len(self._full) or len(batches[-1]) != self._full[-1]:
            return self._eager(batches)
        if step is None or step.recorder is not self._lane:
            self.eager_steps += 1
            return self._eager(batches)
        if step.data is not self._eager.data():  # moved since
            self.free()
            return self._eager(batches)
        return step(batches)

    @property
    def holds_gradients(self) -> bool:
        """Whether gradients stay in memory between two turns."""
        return self._step is not None

    def prepare(self, recorder: CudaRecorder) -> bool:
        """Step in the lane of this recorder from now on; returns whether to record before the next step."""
        self._lane = recorder
        if self.refused is not None or self.eager_steps < EAGER_STEPS:
            return False
        return (self._step is None or self._step.recorder is not recorder) and self._recordings < MOST_RECORDINGS

    def record(self, recorder: CudaRecorder, samples: Tensor) -> bool:
        """Record a full step, and check it if none was checked before; returns whether there is news to tell.

        `samples` are indices on the device, at least those of a full step. Weights, buffers and generators are
        afterwards what they were, whatever happens. Nothing else may compute meanwhile.
        """
        first = self.gain is None
        self.free()
        self._recordings += 1
        kept = _Kept(self._eager.module, self._randomness)
        try:
            if recorder.refuses is not None:
                raise Unfit(recorder.refuses)
            self._record(recorder, kept, self._checked(samples))
        except Exception as error:  # if it was no fault of the recording, the eager step raises it again
            self.free()
            self.refused = str(error) if isinstance(error, Unfit) else f"a step cannot be recorded: {_shown(error)}"
        finally:
            kept.restore()
            self._eager.drop_gradients()
        return first or self.refused is not None

    def free(self) -> None:
        """Give the memory of the recording back: before weights or data move, and at the end."""
        if self._step is not None:
            self._step.recording.free()
            self._step = None

    # -- inside

    def _checked(self, samples: Tensor) -> list[list[Tensor]]:
        """Batches of full steps that differ, if the data set has enough samples for that."""
        size = sum(self._full)
        rolled = (torch.roll(samples, -size * place)[:size] for place in range(CHECKED_STEPS))
        return [list(torch.split(some, self._full)) for some in rolled]

    def _record(self, recorder: CudaRecorder, kept: "_Kept", given: list[list[Tensor]]) -> None:
        checks = self.gain is None
        before, eager_s, unrepeatable = list[_Left](), 0.0, list[str]()
        with recorder.aside():
            draws = self._probe(recorder, given[0])
            kept.restore()
            if checks:
                with _unrepeatable() as unrepeatable:
                    before = list(self._digests(self._eager, given))
                kept.restore()
                eager_s = recorder.duration_s(lambda: _each(self._eager, given))
                kept.restore()
            self._eager.drop_gradients()
            self._step = step = _RecordedStep(recorder, self._eager, given[0], draws)
        if not checks:
            return
        for replayed, eager in zip(self._digests(step, given), before, strict=True):
            if replayed.bits != eager.bits:
                raise Unfit("its replayed steps give other bits")
            if not replayed.has_loss_of(eager, exactly=not unrepeatable):
                raise Unfit("its replayed steps give another loss")
        kept.restore()
        gain = eager_s / recorder.duration_s(lambda: _each(step, given))
        if gain < LEAST_GAIN:
            raise Unfit(f"a replayed step is only {gain:.2f} times as fast")
        self.gain = gain

    def _probe(self, recorder: CudaRecorder, batches: list[Tensor]) -> bool:
        """Take a step, and return whether it draws random numbers on the device. Raises `Unfit`."""
        draws, took_s = list[bool](), list[float]()

        def step() -> None:
            took_s.append(recorder.duration_s(lambda: draws.append(_draws_on_device(self._eager, batches))))

        share = recorder.memory_share(step)
        if share > LARGEST_SHARE:
            raise Unfit(f"one takes {share:.0%} of the device's memory for a while, which a recording would keep")
        if took_s[0] > LONGEST_STEP_S:
            raise Unfit(f"one takes {took_s[0]:.1f} s, and launching it is a small part of that")
        return draws[0]

    def _digests(self, learner: Learner, given: list[list[Tensor]]) -> Iterator["_Left"]:
        """What each step leaves."""
        trained, module = self._eager.trained, self._eager.module
        for batches in given:
            learned, rng = learner(batches), self._randomness.state
            left = [learned.correct, rng.cpu, rng.cuda, *module.buffers(), *(one.grad for one in trained)]
            yield _Left(digest(tensor for tensor in left if tensor is not None), learned.loss.detach().cpu())
            with torch.no_grad():
                torch._foreach_mul_(list(trained), _SHRINKAGE)


def digest(tensors: Iterable[Tensor]) -> list[int]:
    """A number for each tensor, computed where it is: another one if one element differs, almost surely if several do.

    A sum of the elements' bits as whole numbers, each times an odd number of its own, modulo 2**64.
    """
    drawn = torch.randint(-(2**62), 2**62, (_PART,), generator=torch.Generator().manual_seed(0)) * 2 + 1
    factors, sums = {drawn.device: drawn}, []
    for tensor in tensors:
        if tensor.device not in factors:
            factors[tensor.device] = drawn.to(tensor.device)
        bits = tensor.detach().contiguous().reshape(-1).view(_WHOLE[tensor.element_size()])
        parts = [(part.long() * factors[tensor.device][: len(part)]).sum() for part in torch.split(bits, _PART)]
        sums.append(sum(part * (2 * place + 1) for place, part in enumerate(parts)))
    return [int(one) for one in sums]


class _Left(NamedTuple):
    """What a step leaves: the digest of all that trains or counts, and the loss, [] or [members]."""

    bits: list[int]
    loss: Tensor

    def has_loss_of(self, other: "_Left", *, exactly: bool) -> bool:
        """Whether the loss has the same bits, or agrees within rounding."""
        if exactly:
            return digest([self.loss]) == digest([other.loss])
        return torch.allclose(self.loss, other.loss, rtol=LOSS_TOLERANCE, atol=0.0, equal_nan=True)


@contextmanager
def _unrepeatable() -> Iterator[list[str]]:
    """Collect what torch says of operators that are not repeatable; other warnings go on."""
    found = list[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    for one in caught:
        if _UNREPEATABLE in str(one.message):
            found.append(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


class _RecordedStep:
    """A recording with the tensors that it reads and writes."""

    def __init__(self, recorder: CudaRecorder, eager: RecordableLearner, batches: Sequence[Tensor], draws: bool):
        self.recorder, self.data = recorder, eager.data()
        self._batches = [batch.clone() for batch in batches]
        self._learned = Learned(torch.empty(0), None)

        def work() -> None:
            self._learned = eager(self._batches)

        self.recording: Recording = recorder.record(work, draws=draws)
        self._gradients = [(one, one.grad) for one in eager.trained if one.grad is not None]

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        for own, batch in zip(self._batches, batches, strict=True):
            own.copy_(batch)
        self.recording.replay()
        parameter, gradient = self._gradients[0]
        if parameter.grad is not gradient:  # dropped at the end of a turn, or replaced by those of a partial step
            for parameter, gradient in self._gradients:
                parameter.grad = gradient
        loss, correct, labels = self._learned
        kept = labels.clone() if isinstance(labels, Tensor) else labels
        return Learned(loss.clone(), None if correct is None else correct.clone(), kept)


class _Kept:
    """Copies of what a step changes, to put back; on the host, so that a check needs no more of the device."""

    def __init__(self, module: nn.Module, randomness: Randomness):
        self._module, self._randomness = module, randomness
        self._tensors = {name: tensor.detach().to("cpu", copy=True) for name, tensor in _named(module)}
        self._rng = randomness.state

    @torch.no_grad()
    def restore(self) -> None:
        for name, tensor in _named(self._module):
            tensor.copy_(self._tensors[name])
        self._randomness.state = self._rng
        self._randomness.begin()


def _each(learner: Learner, given: list[list[Tensor]]) -> None:
    for batches in given:
        learner(batches)


def _named(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


# -- what a step does on the host


def _draws_on_device(eager: RecordableLearner, batches: Sequence[Tensor]) -> bool:
    """Take a step, and return whether it draws random numbers on the device.

    Raises `Unfit` for a step that the host has a part in: a replay would repeat what the host did this time.
    """
    device = eager.data().device
    before, seen = RngState.current(device), _HostWork()
    with seen:
        eager(batches)
    after = RngState.current(device)
    if seen.found is not None:
        raise Unfit(f"the host has a part in its steps ({seen.found})")
    if not torch.equal(before.cpu, after.cpu):
        raise Unfit("its steps draw random numbers on the host")
    return before.cuda is not None and after.cuda is not None and not torch.equal(before.cuda, after.cuda)


class _HostWork(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first operator that makes the host wait for values, or that brings values from the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator."""
        result = func(*args, **(kwargs or {}))
        if self.found is None and (_depends_on_values(func, args) or _crosses(func, args, result)):
            self.found = str(func)
        return result


def _depends_on_values(func: Any, args: Sequence[Any]) -> bool:
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def _crosses(func: Any, args: Sequence[Any], result: Any) -> bool:
    """Whether an operator copies between host and device."""
    copies = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    return copies and any(isinstance(one, Tensor) and one.device != result.device for one in args)


def _shown(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
