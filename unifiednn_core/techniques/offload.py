"""Activation offload: what autograd saves waits on the host, as far as a budget asks, and comes back before its use.

The idea of moDNN (IEEE TPDS 2019): offload, prefetch and smaller parts of a batch, so that a step stays under a budget.
The first part of a batch sends everything away and watches how much is alive at each moment; from that follows what may
stay on the device from then on.
"""

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from unifiednn_core.techniques.live_bytes import LiveBytes
from unifiednn_core.techniques.saved import KeptMemory, Packed


class Parcel(Protocol):
    """One tensor on the host."""

    def sent(self) -> None:
        """Make the current stream wait for the copy to the host, after which the memory of the device is free."""

    def fetch(self) -> Tensor:
        """Begin to copy it back; returns where it will be on the device, [elements]."""

    def wait(self) -> None:
        """Make the current stream wait for the copy back to the device."""


class HostMemory(Protocol):
    """Takes tensors for one part of a batch."""

    def send(self, flat: Tensor) -> Parcel:
        """Begin to copy memory, [elements], to the host. It has to live until `Parcel.sent`."""

    def close(self) -> None:
        """Make the current stream wait for all copies, prefetched ones included."""


def beside(device: torch.device) -> HostMemory:
    """The memory beside a device."""
    return PinnedMemory(device) if device.type == "cuda" else LogicalMemory()


class LogicalMemory:
    """Copies in memory that torch knows nothing of."""

    def send(self, flat: Tensor) -> Parcel:
        """Copy at once."""
        return _Copy(flat)

    def close(self) -> None:
        """All copies are done."""


class _Copy:
    def __init__(self, flat: Tensor):
        self._content: Any = flat.view(torch.uint8).numpy().copy()
        self._dtype = flat.dtype

    def sent(self) -> None:
        """It is done."""

    def fetch(self) -> Tensor:
        there = torch.empty(len(self._content), dtype=torch.uint8)
        there.numpy()[:] = self._content
        return there.view(self._dtype)

    def wait(self) -> None:
        """It is there."""


class PinnedMemory:
    """Copies beside a GPU, in a stream of their own.

    Memory of the GPU belongs to the stream that computes, which waits for a copy before it uses that memory for
    something else. So it is free in the order of that stream, however far ahead the CPU is.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, flat: Tensor) -> Parcel:
        """Begin to copy."""
        host = torch.empty(flat.numel(), dtype=flat.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            host.copy_(flat, non_blocking=True)
            return _Pinned(host, self._device, self._stream, self._stream.record_event())

    def close(self) -> None:
        """Make the current stream wait for all copies, prefetched ones included."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


class _Pinned:
    def __init__(self, host: Tensor, device: torch.device, stream: torch.cuda.Stream, done: torch.cuda.Event):
        self._host, self._device, self._stream, self._done = host, device, stream, done

    def sent(self) -> None:
        """Make the current stream wait for the copy to the host."""
        torch.cuda.current_stream(self._device).wait_event(self._done)

    def fetch(self) -> Tensor:
        """Copy in the other stream, into memory that belongs to the one that computes."""
        there = torch.empty_like(self._host, device=self._device, pin_memory=False)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            there.copy_(self._host, non_blocking=True)
            self._done = self._stream.record_event()
        return there

    def wait(self) -> None:
        """Make the current stream wait for the copy back."""
        torch.cuda.current_stream(self._device).wait_event(self._done)


@dataclass(slots=True)
class Absence:
    """A saved tensor that was on the host for a while."""

    size_bytes: int
    left: int | None = None
    """Moment from which its memory on the device was free; None if somebody else needed it until it came back."""
    back: int | None = None
    """Moment from which it was on the device again; None if nobody asked for it."""


@dataclass(frozen=True, slots=True)
class ResidencyPlan:
    """What stays, by the order of saving."""

    stays: frozenset[int]
    sizes_bytes: tuple[int, ...] | None
    """Of all saved tensors: with larger ones the plan does not hold. None without a budget."""

    def holds(self, place: int, size_bytes: int) -> bool:
        """Whether it was made for such a tensor."""
        return self.sizes_bytes is None or (place < len(self.sizes_bytes) and size_bytes <= self.sizes_bytes[place])


def planned(absences: Sequence[Absence], alive_bytes: Sequence[int], most_bytes: int | None) -> ResidencyPlan:
    """Keep as many tensors as fit, the last saved first: backward needs it first.

    `alive_bytes` is what was alive at each moment while all were away. A tensor whose memory stayed on the device
    anyway always stays. Without a limit no other does.
    """
    stays = {place for place, one in enumerate(absences) if one.left is None}
    if most_bytes is None:
        return ResidencyPlan(frozenset(stays), None)
    alive = list(alive_bytes)
    for place, one in reversed(list(enumerate(absences))):
        if one.left is None:
            continue
        there = range(one.left, len(alive) if one.back is None else one.back)
        if all(alive[moment] + one.size_bytes <= most_bytes for moment in there):
            stays.add(place)
            for moment in there:
                alive[moment] += one.size_bytes
    return ResidencyPlan(frozenset(stays), tuple(one.size_bytes for one in absences))


BLOCK_BYTES = {"cpu": 64, "cuda": 512}
"""In which torch's allocators hand out memory."""


class Offloading:
    """The technique for one network."""

    def __init__(self, budget_bytes: int | None, ahead: int):
        """`budget_bytes` is what a step may need besides weights, gradients and optimizer state; None is the least.

        `ahead` tensors travel while the device goes on.
        """
        self.budget_bytes, self._ahead = budget_bytes, ahead
        self._plans: dict[bool, ResidencyPlan] = {}
        """By whether there were gradients before: a later part of a step meets those of earlier ones."""

    def unlimited(self) -> "Offloading":
        """The same without a budget."""
        return Offloading(None, self._ahead)

    @contextmanager
    def part(self, module: nn.Module, batch: Iterable[Tensor]) -> Iterator["Moving"]:
        """Move what is saved in one part of a batch."""
        trained = [one for one in module.parameters() if one.requires_grad]
        gradients = [one.grad for one in trained if one.grad is not None]
        device, later = next((one.device for one in module.parameters()), torch.device("cpu")), bool(gradients)
        plan, most_bytes, live = self._plans.get(later), None, None
        if self.budget_bytes is not None and plan is None:
            live = LiveBytes(BLOCK_BYTES[device.type], device.type)
            live.track([*module.parameters(), *module.buffers()])
            at_rest_bytes = live.current_bytes
            live.track([*gradients, *batch])
            most_bytes = at_rest_bytes + self.budget_bytes + LiveBytes(BLOCK_BYTES[device.type]).track(trained)
        moving = Moving(beside(device), plan, self._ahead, live)
        try:
            with moving.watching():
                yield moving
        finally:
            moving.close()
        if plan is None:
            self._plans[later] = planned(moving.absences, [] if live is None else live.timeline, most_bytes)
        elif moving.outgrown:
            self._plans.pop(later, None)


class Moving:
    """Moves saved memory in one part of a batch."""

    def __init__(self, host: HostMemory, plan: ResidencyPlan | None, ahead: int, live: LiveBytes | None):
        """Without a plan everything goes away, and `live` watches."""
        self._host, self._plan, self._ahead, self._live = host, plan, ahead, live
        self._slots: list[weakref.ref[_Slot]] = []
        self._watched: list[weakref.ref[Any]] = []
        self._leaving: deque[tuple[Tensor, Parcel] | None] = deque()
        self.absences: list[Absence] = []
        self.outgrown = False
        """Whether a tensor was larger than the plan knows."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what is alive, if there is no plan yet."""
        if self._live is None:
            yield
            return
        with self._live:
            yield

    def moved(self, packed: Packed) -> Packed:
        """Return what takes the place of saved memory, a dataclass; its tensors are on the host, or stay."""
        if isinstance(packed, KeptMemory):
            slot = self._slot(packed.unpack())
            return packed if slot.parcel is None else _Away(packed.complete, None, {"": (slot,)})
        tensors = {one.name: _tensors_in(getattr(packed, one.name)) for one in fields(packed)}  # type: ignore[arg-type]
        slots = {name: tuple(map(self._slot, found)) for name, found in tensors.items() if found}
        several = frozenset(name for name in slots if isinstance(getattr(packed, name), tuple))
        emptied = replace(packed, **dict.fromkeys(slots))  # type: ignore[type-var]
        return _Away(packed.complete, emptied, slots, several)

    def close(self) -> None:
        """Let all copies end."""
        self._let_go(0)
        self._host.close()

    def _slot(self, flat: Tensor) -> "_Slot":
        place, plan = len(self._slots), self._plan
        if plan is None:
            self._watch(flat)
        elif not plan.holds(place, flat.nbytes):
            self.outgrown = True
        stays = not flat.nbytes or (plan is not None and not self.outgrown and place in plan.stays)
        slot = _Slot(self, place, flat, None) if stays else _Slot(self, place, None, self._host.send(flat))
        self._leaving.append(None if slot.parcel is None else (flat, slot.parcel))
        self._let_go(self._ahead)
        self._slots.append(weakref.ref(slot))
        return slot

    def _let_go(self, but: int) -> None:
        """Free what was sent, except for the last tensors. Those that stay count, so that each goes at one moment."""
        while len(self._leaving) > but:
            if (gone := self._leaving.popleft()) is not None:
                gone[1].sent()

    def _watch(self, flat: Tensor) -> None:
        """Note when its memory is free."""
        absence = Absence(flat.nbytes)

        def left(_: object) -> None:
            if absence.back is None:
                absence.left = self._moment

        self.absences.append(absence)
        self._watched.append(weakref.ref(flat.untyped_storage(), left))

    @property
    def _moment(self) -> int:
        return 0 if self._live is None else len(self._live.timeline)

    def fetch(self, place: int) -> None:
        """Bring a tensor back, and those that backward needs next."""
        self._let_go(0)
        for one in range(place, max(-1, place - self._ahead - 1), -1):
            slot = self._slots[one]()
            if slot is not None and slot.flat is None and slot.parcel is not None:
                slot.flat = slot.parcel.fetch()
                if self._plan is None:
                    self.absences[one].back = self._moment


class _Slot:
    """The memory of one saved tensor; it lives as long as backward may ask for it."""

    __slots__ = ("__weakref__", "_moving", "_place", "flat", "parcel")

    def __init__(self, moving: Moving, place: int, flat: Tensor | None, parcel: Parcel | None):
        self._moving, self._place, self.flat, self.parcel = moving, place, flat, parcel

    def get(self) -> Tensor:
        self._moving.fetch(self._place)
        if self.parcel is not None:
            self.parcel.wait()
        if self.flat is None:
            raise RuntimeError("a saved tensor is neither on the device nor on the host")
        return self.flat


@dataclass(frozen=True, slots=True)
class _Away:
    """Saved memory whose tensors may be on the host."""

    complete: bool
    packed: Any
    """As a codec packed it, without its tensors; None for memory as it was."""
    slots: dict[str, tuple[_Slot, ...]]
    several: frozenset[str] = frozenset()
    """Entries that hold several tensors."""

    def unpack(self) -> Tensor:
        back = {name: tuple(slot.get() for slot in reversed(slots)) for name, slots in reversed(self.slots.items())}
        if self.packed is None:
            return back[""][0]
        tensors = {name: found[::-1] if name in self.several else found[0] for name, found in back.items()}
        packed: Packed = replace(self.packed, **tensors)
        return packed.unpack()


def _tensors_in(value: Any) -> Sequence[Tensor]:
    if isinstance(value, Tensor):
        return (value,)
    is_several = isinstance(value, tuple) and value and all(isinstance(one, Tensor) for one in value)
    return value if is_several else ()
