"""Runs a case twice with differently poisoned surroundings, in a process that may die of it.

Every tensor lies in one arena, between guard zones that are filled with a pattern, as is all memory that the C library
hands out; other blocks are in use around it. What a case returns, its gradients and its own memory must be the same
bits with both patterns, and the guard zones as they were.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.hostile.operators import layers
from tests.hostile.operators.cases import Case
from tests.hostile.operators.values import T, contents, mapped
from tests.hostile.poison import fill_memory
from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats.operators import resolve

GUARD_BYTES = 4096
ARENA_BYTES = 8 * 1024**2
_MOST_COMPARED = 2**20
Check = Callable[[str, tuple[Any, ...], dict[str, Any]], None]
"""Raises for a call that its contract does not allow."""


@dataclass(frozen=True, slots=True)
class Poison:
    """One kind of surroundings: bytes of the guard zones and of fresh memory, and blocks in use nearby."""

    guard: int
    fresh: int
    blocks: tuple[int, ...]


POISONS = (Poison(0x00, 0x00, (8, 24, 100)), Poison(0x41, 0xC1, (40, 8, 8, 200, 3000, 16, 72, 500)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    said: str
    """`ran`, `forbidden` by the contract, `refused` by torch, `differs` or `canary`; see also `batches`."""
    why: str = ""


class Arena:
    """Memory for the tensors of one call, with guard zones between them."""

    def __init__(self) -> None:
        unaligned = np.empty(ARENA_BYTES + 64, dtype=np.uint8)
        self._memory = unaligned[-unaligned.ctypes.data % 64 :][:ARENA_BYTES]
        self._pattern, self._end = 0, 0
        self.pieces: list[tuple[int, int]] = []
        """Begin and end of each tensor."""

    def clear(self, pattern: int) -> None:
        """Forget everything and fill it with a pattern."""
        self._memory[: self._end + 2 * GUARD_BYTES] = pattern
        self._pattern, self._end, self.pieces = pattern, 0, []

    def place(self, tensor: T, seed: int) -> Tensor:
        """Make a tensor."""
        values = contents(tensor, seed)
        if not len(values):
            return torch.empty_strided(tensor.shape, tensor.strides(), dtype=tensor.dtype)
        if tensor.alias is not None and self.pieces:
            begin = self.pieces[-1][0] + tensor.alias
            flat = self._put(values, begin - begin % tensor.dtype.itemsize)
        else:
            flat = self._put(values, shift=tensor.dtype.itemsize if tensor.layout == "shifted" else 0)
        return flat.as_strided(tensor.shape, tensor.strides()).detach()

    def _put(self, values: Tensor, begin: int = 0, shift: int = 0) -> Tensor:
        """Store numbers at a place, or behind everything else and a guard zone."""
        if not begin:
            begin = self._end + GUARD_BYTES
            begin += -begin % 64 + shift
        end = begin + values.nbytes
        if end + GUARD_BYTES > ARENA_BYTES:
            raise MemoryError("too many tensors")
        if end > self._end:
            self._memory[self._end + GUARD_BYTES : end + GUARD_BYTES] = self._pattern
            self._end = end
        self.pieces.append((begin, end))
        self._memory[begin:end] = values.view(torch.uint8).numpy()
        return torch.frombuffer(self._memory, dtype=values.dtype, count=len(values), offset=begin)

    def copy(self, tensor: Tensor) -> Tensor:
        """Make a contiguous tensor of the same numbers."""
        values = tensor.contiguous().view(-1)
        return self._put(values).view(tensor.shape) if len(values) else tensor

    def touched(self) -> int | None:
        """Place of a byte outside the tensors that has changed."""
        at = 0
        for begin, end in [*sorted(self.pieces), (self._end + GUARD_BYTES, 0)]:
            changed = np.flatnonzero(self._memory[at:begin] != self._pattern)
            if len(changed):
                return at + int(changed[0])
            at = max(at, end)
        return None

    def held(self) -> bytes:
        """All bytes of the tensors."""
        return b"".join(self._memory[begin:end].tobytes() for begin, end in self.pieces)


@dataclass(frozen=True, slots=True)
class Found:
    """What one execution gave."""

    refusal: str
    parts: tuple[tuple[str, str], ...]
    """Name and digest of each result."""
    touched: str = ""


class Executor:
    """Runs cases in this process."""

    def __init__(self, check: Check | None = None, functions: Mapping[str, Callable[..., Any]] | None = None):
        """`functions` replaces operators by name; without `check` every call is allowed."""
        self._check, self._functions = check, functions or {}
        self._arena = Arena()

    def outcome(self, case: Case) -> Outcome:
        """Run a case with each poison."""
        first, second = (self._attempt(case, poison) for poison in POISONS)
        if first.touched or second.touched:
            return Outcome("canary", first.touched or second.touched)
        refusals = first.refusal, second.refusal
        if first != second and not any("memory" in refusal for refusal in refusals):
            return Outcome("differs", _difference(first, second))
        if any(refusals):
            return Outcome("forbidden" if first.refusal.startswith("ContractBroken") else "refused", first.refusal)
        return Outcome("ran")

    def _attempt(self, case: Case, poison: Poison) -> Found:
        fill_memory(poison.fresh)
        self._arena.clear(poison.guard)
        neighbours = _blocks(poison)
        refusal, parts = "", {}
        try:
            parts = self._results(case)
        except ContractBroken as error:
            refusal = _said(error)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, NameError) as error:
            refusal = _said(error)
        except (MemoryError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            refusal = _said(error)
        del neighbours
        touched = self._arena.touched()
        place = "" if touched is None else f"byte {touched}, tensors at {self._arena.pieces}"
        own = {} if refusal else {"own memory": _digest(self._arena.held())}
        return Found(refusal, tuple((parts | own).items()), place)

    def _results(self, case: Case) -> dict[str, str]:
        whole = case.target.startswith((layers.LAYER, layers.CRITERION))
        function = None if whole else self._functions.get(case.target) or resolve(case.target)
        leaves: list[Tensor] = []
        written = _written(function) if case.gradients else frozenset()

        def make(tensor: T, leaf: bool = True) -> Tensor:
            made = self._arena.place(tensor, 1000 * case.seed + len(self._arena.pieces))
            if leaf and case.gradients and made.is_floating_point():
                leaves.append(made.requires_grad_())
            return made

        fixed = {1} if case.target.startswith(layers.CRITERION) else _statistics(function)
        args = [mapped(v, lambda t, at=at: make(t, at not in fixed)) for at, v in enumerate(case.call.args)]
        kwargs = {key: mapped(value, make) for key, value in case.call.kwargs.items()}
        if self._check is not None and not whole:
            self._check(case.target, tuple(args), kwargs)
        for place in written:  # a leaf is never written
            if place < len(args) and isinstance(args[place], Tensor) and args[place].requires_grad:
                args[place] = args[place].clone()
        torch.default_generator.manual_seed(case.seed)
        with torch.set_grad_enabled(case.gradients):
            if function is None:
                returned, weights = layers.run(case.target, self._arena.copy, tuple(args), kwargs)
                leaves += weights if case.gradients else []
            else:
                returned = function(*args, **kwargs)
            outputs = list(_flat(returned))
            parts = {f"result {place}": _of(value) for place, value in enumerate(outputs)}
            if case.meddles:
                _change_positions([*args, *kwargs.values(), outputs])
            if leaves:
                parts |= self._gradients(case, leaves, outputs)
        return parts

    def _gradients(self, case: Case, leaves: list[Tensor], outputs: list[Any]) -> dict[str, str]:
        roots = [part for part in outputs if isinstance(part, Tensor) and part.requires_grad]
        if not roots:
            return {}
        given = [self._arena.place(_weights(root, case.number), case.seed + place) for place, root in enumerate(roots)]
        found = torch.autograd.grad(roots, leaves, given, allow_unused=True)
        return {f"gradient {place}": _of(value) for place, value in enumerate(found)}


def _change_positions(values: list[Any]) -> None:
    """What a network could do between its forward and its backward pass to what kernels have saved."""
    for value in _flat(values):
        if isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64):
            value.detach().add_(2**20)


def _weights(root: Tensor, number: int) -> T:
    """What comes back from the rest of a network: any numbers, or one for all."""
    plain = T(tuple(root.shape), root.dtype)
    return plain if number % 3 and plain.fits() else T(tuple(root.shape), root.dtype, layout="constant")


def _statistics(function: Callable[..., Any] | None) -> frozenset[int]:
    """Places of the arguments that never have a gradient."""
    if not isinstance(function, torch._ops.OpOverload):
        return frozenset()
    return frozenset(at for at, part in enumerate(function._schema.arguments) if part.name.startswith("running_"))


def _written(function: Callable[..., Any] | None) -> frozenset[int]:
    """Places of the arguments that an operator writes."""
    if not isinstance(function, torch._ops.OpOverload):
        return frozenset()
    arguments = function._schema.arguments
    return frozenset(at for at, part in enumerate(arguments) if part.alias_info and part.alias_info.is_write)


def _blocks(poison: Poison) -> list[Tensor]:
    """Fill free memory with the pattern, and keep a few blocks of it in use."""
    free = [torch.empty(size, dtype=torch.uint8) for size in (*range(16, 1024, 48), 2048, 4096, 2**16, 2**20)]
    kept = [torch.empty(size, dtype=torch.uint8) for size in poison.blocks]
    del free
    return kept


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _of(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    return f"{value.dtype} {list(value.shape)} {_digest(_bytes(value.detach()))}"


def _bytes(tensor: Tensor) -> bytes:
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.numel() > _MOST_COMPARED:  # a view of little memory, or the begin of much
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        span = 1 + sum((size - 1) * stride for size, stride in steps)
        tensor = tensor.as_strided((min(span, _MOST_COMPARED),), (1,))
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:150]}"


def _difference(first: Found, second: Found) -> str:
    if first.refusal or second.refusal:
        return f"{first.refusal or 'ran'} | {second.refusal or 'ran'}"
    return ", ".join(name for (name, one), (_, two) in zip(first.parts, second.parts, strict=True) if one != two)
