"""Runs a case twice with differently poisoned surroundings, in a process that may die of it.

Every tensor lies in one arena, between guard zones that are filled with a pattern, as is all memory that the C library
hands out; other blocks are in use around it. What a case returns, its gradients and its own memory must be the same
bits with both patterns, and the guard zones as they were.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tests.hostile.operators import layers, programs
from tests.hostile.operators.arena import Arena
from tests.hostile.operators.cases import PROGRAM, Case
from tests.hostile.operators.values import T, flat, mapped
from tests.hostile.poison import fill_memory, overrun
from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats.operators import resolve

Check = Callable[[str, tuple[Any, ...], dict[str, Any]], bool]
"""Whether the shape of the result depends on values; raises `ContractBroken` for a call that is not allowed."""
_MOST_COMPARED = 2**20
_WHOLE_NUMBERS = (torch.int32, torch.int64)
_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""How torch refuses arguments."""


@dataclass(frozen=True, slots=True)
class Poison:
    """One kind of surroundings: bytes of the guard zones and of fresh memory, and blocks in use nearby."""

    guard: int
    fresh: int
    blocks: tuple[int, ...]


POISONS = (Poison(0x00, 0x00, (8, 24, 100)), Poison(0x41, 0xC1, (40, 8, 8, 200, 3000, 16, 72, 500)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    It `ran`, or was `forbidden` by its contract or `refused` by torch. Harm: `differs`, `canary` (something was written
    outside its tensors), `unsound` (the contract failed instead of refusing), `moves` (the shape of a result depends on
    values, and the contract does not say so), and what `batches` adds.
    """

    said: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What one execution gave: an outcome, the name and digest of each result, and their shapes and strides."""

    outcome: Outcome
    parts: tuple[tuple[str, str], ...] = ()
    shapes: tuple[str, ...] = ()
    steady: bool = False
    """Whether the contract says that the shapes are the same for all values."""

    @property
    def short_of_memory(self) -> bool:
        return "memory" in self.outcome.why or "memory" in dict(self.parts).get("gradients", "")


class Stopped(Exception):
    """The case ends here with an outcome."""

    def __init__(self, said: str, why: str):
        self.outcome = Outcome(said, why)
        super().__init__(why)


class Executor:
    """Runs cases in this process."""

    def __init__(self, check: Check | None = None):
        """Without `check` every call is allowed."""
        self._check, self._steady, self._shapes = check, False, tuple[str, ...]()
        self._arena = Arena()

    def outcome(self, case: Case) -> Outcome:
        """Run a case with each poison."""
        first, second = (self._attempt(case, poison) for poison in POISONS)
        harm = [found.outcome for found in (first, second) if found.outcome.said in ("canary", "unsound")]
        if harm or first == second:
            return harm[0] if harm else self._moved(case, first) or first.outcome
        short = next((one.outcome for one in (first, second) if one.short_of_memory), None)
        racing = torch.get_num_threads() > 1 and first.outcome.said == second.outcome.said == "refused"
        if short or racing:  # each thread refuses in its own words
            return short or first.outcome
        return Outcome("differs", _difference(first, second))

    def _moved(self, case: Case, first: Found) -> Outcome | None:
        """Run some cases with other numbers; guards of graphs check a shape once where the contract says so."""
        if case.gradients or case.number % 3 or not first.steady:
            return None
        other = self._attempt(replace(case, seed=case.seed + 1_000_003), POISONS[0])
        moved = other.steady and other.shapes != first.shapes
        return Outcome("moves", f"{first.shapes} and {other.shapes}") if moved else None

    def _attempt(self, case: Case, poison: Poison) -> Found:
        fill_memory(poison.fresh)
        self._arena.clear(poison.guard)
        neighbours, self._steady, self._shapes = _blocks(poison), False, ()
        try:
            parts = self._runner(case)(case)
            parts |= {"own memory": _digest(self._arena.content())}
            found = Found(Outcome("ran"), tuple(parts.items()), self._shapes, self._steady)
        except Stopped as stopped:
            found = Found(stopped.outcome)
        del neighbours
        touched = self._arena.touched()
        return Found(Outcome("canary", touched)) if touched else found

    def _runner(self, case: Case) -> Callable[[Case], dict[str, str]]:
        if case.target == PROGRAM:
            return self._program
        return self._whole if case.target.startswith((layers.LAYER, layers.CRITERION)) else self._call

    def _program(self, case: Case) -> dict[str, str]:
        """Run several operators one after the other."""
        leaves: list[Tensor] = []

        def call(target: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any] | None:
            try:
                self._require(target, tuple(args), kwargs)
                with _refusals():
                    return list(flat(resolve(target)(*args, **kwargs)))
            except Stopped as stopped:
                if stopped.outcome.said == "unsound":
                    raise
                return None

        torch.default_generator.manual_seed(case.seed)
        with torch.enable_grad():
            outputs = list(programs.run(case.number, lambda tensor: self._made(tensor, case, leaves), call))
        return self._results(case, outputs, leaves, [])

    def _whole(self, case: Case) -> dict[str, str]:
        """Run a layer or a criterion."""
        leaves: list[Tensor] = []
        inputs = tuple(self._made(value, case, leaves) for value in case.call.args)
        if case.target.startswith(layers.CRITERION):  # targets are data
            leaves = leaves[:1]
            inputs = (*inputs[:1], *(part.detach() if isinstance(part, Tensor) else part for part in inputs[1:]))
        torch.default_generator.manual_seed(case.seed)
        with torch.set_grad_enabled(case.gradients), _refusals():
            outputs, weights = layers.run(case.target, self._arena.copy, inputs, dict(case.call.kwargs))
        return self._results(case, outputs, [*leaves, *weights], [*inputs])

    def _call(self, case: Case) -> dict[str, str]:
        """Run an operator."""
        function = resolve(case.target)
        leaves: list[Tensor] = []
        args = [self._made(value, case, leaves) for value in case.call.args]
        kwargs = {name: self._made(value, case, leaves) for name, value in case.call.kwargs.items()}
        self._require(case.target, tuple(args), kwargs)
        declared = function._schema.arguments if isinstance(function, torch._ops.OpOverload) else []
        for at, argument in enumerate(declared[: len(args)]):
            value = args[at]
            if not isinstance(value, Tensor) or not value.requires_grad:
                continue
            if argument.name.startswith("running_"):  # statistics have no gradient
                args[at] = value.detach()
            elif argument.alias_info is not None and argument.alias_info.is_write:  # nobody writes to a leaf
                args[at] = value.clone()
        torch.default_generator.manual_seed(case.seed)
        with torch.set_grad_enabled(case.gradients), _refusals():
            returned = function(*args, **kwargs)
        return self._results(case, returned, leaves, [*args, *kwargs.values()])

    def _made(self, value: Any, case: Case, leaves: list[Tensor]) -> Any:
        """Make the tensors in an argument; real ones are leaves if gradients are computed."""

        def make(tensor: T) -> Tensor:
            made = self._arena.place(tensor, 1000 * case.seed + len(self._arena.pieces))
            if case.gradients and (made.is_floating_point() or made.is_complex()):
                leaves.append(made.requires_grad_())
            return made

        with _refusals():  # of too much memory
            return mapped(value, make)

    def _require(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._check is None:
            return
        try:
            self._steady = not self._check(target, args, kwargs)
        except ContractBroken as error:
            raise Stopped("forbidden", _said(error)) from None
        except Exception as error:
            raise Stopped("unsound", _said(error)) from error

    def _results(self, case: Case, returned: Any, leaves: list[Tensor], given: list[Any]) -> dict[str, str]:
        """Digest what was returned, and the gradients that come back."""
        outputs = list(flat(returned))
        self._shapes = tuple(f"{one.dtype} {[*one.shape]} {one.stride()}" for one in outputs if isinstance(one, Tensor))
        parts = self._digests("result", outputs)
        if case.meddles:  # as a network could with what kernels have saved: positions, or any number
            for value in flat([outputs, given]):
                if isinstance(value, Tensor) and (case.number % 2 or value.dtype in _WHOLE_NUMBERS):
                    with _refusals():
                        value.detach().add_(2**20)
        roots = [part for part in outputs if isinstance(part, Tensor) and part.requires_grad]
        if not leaves or not roots:
            return parts
        try:
            with _refusals():
                weights = [
                    self._arena.place(_weights(one, case.number), case.seed + at) for at, one in enumerate(roots)
                ]
                gradients = torch.autograd.grad(roots, leaves, weights, allow_unused=True)
        except Stopped as stopped:
            return parts | {"gradients": stopped.outcome.why}
        return parts | self._digests("gradient", gradients)

    def _digests(self, what: str, values: Iterable[Any]) -> dict[str, str]:
        """Name and digest of each, if nothing was written behind it."""
        found = {}
        for place, value in enumerate(values):
            if isinstance(value, Tensor) and value._is_zerotensor():  # a gradient that is zero has no memory
                value = torch.zeros(value.shape, dtype=value.dtype)
            if isinstance(value, Tensor) and value.layout == torch.strided:
                address = value.untyped_storage().data_ptr()
                if address and not address % 64 and not self._arena.holds(address) and overrun(address):
                    raise Stopped("canary", f"behind {what} {place}")
            with _refusals():  # of too much memory
                found[f"{what} {place}"] = _of(value)
        return found


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except _REFUSALS as error:
        raise Stopped("refused", _said(error)) from None


def _weights(root: Tensor, number: int) -> T:
    """What comes back from the rest of a network: any numbers, or one for all."""
    plain = T(tuple(root.shape), root.dtype)
    return plain if number % 3 and plain.fits() else T(tuple(root.shape), root.dtype, layout="constant")


def _blocks(poison: Poison) -> list[Tensor]:
    """Fill free memory with the pattern, and keep a few blocks of it in use."""
    free = [torch.empty(size, dtype=torch.uint8) for size in (*range(16, 1024, 48), 2048, 4096, 2**16, 2**20)]
    kept = [torch.empty(size, dtype=torch.uint8) for size in poison.blocks]
    del free
    return kept


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
    return bytes(tensor.resolve_conj().contiguous().view(-1).view(torch.uint8).numpy())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:150]}"


def _difference(first: Found, second: Found) -> str:
    if first.outcome != second.outcome:
        return f"{first.outcome} and {second.outcome}"
    return ", ".join(name for (name, one), (_, two) in zip(first.parts, second.parts, strict=True) if one != two)
