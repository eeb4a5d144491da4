"""Sub-models move between two hybrids at any steps, through files, and end with the bits of one that never moved."""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.kit import ROOM, Session, submodel_spec
from tests.unit.engine.checkpoint_kit import bits
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.checkpoint_file import CheckpointStore
from unifiednn_core.engine.events import Ended, EpochDone, Left, Report, Stepped
from unifiednn_core.engine.orders import Join, Order
from unifiednn_core.engine.progress import EpochFigures
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.registry import POLICIES, policy_named
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import SubModelSpec

TRAVELLERS: dict[str, tuple[str, SubModelSpec]] = {
    "noisy": ("noisy", submodel_spec("noisy", epochs=3, optimizer="adam")),
    "attentive": ("transformer", submodel_spec("attentive", optimizer="adamw", gradient_clipping={"norm": 0.5})),
    "paced": (
        "lstm",
        submodel_spec(
            "paced",
            epochs=3,
            accumulation_steps=2,
            batch_split=2,
            warm_up={"steps": 3},
            optimizer_args={"momentum": 0.9},
            lr_scheduler={"name": "one_cycle", "args": {"max_lr": 0.1, "total_steps": 9}, "per": "step"},
        ),
    ),
}
STEPS = {"noisy": 15, "attentive": 10, "paced": 9}
RESIDENTS = {
    "one": ("mlp", submodel_spec("one", epochs=4, priority=-1)),
    "two": ("plain", submodel_spec("two", seed=9)),
}
"""Who stays in each of the two hybrids."""
Tamper = Callable[[Checkpoint], Checkpoint]


@dataclass(frozen=True)
class Result:
    """What a training gave."""

    sha256: str
    whole_state: Any
    """With optimizer, LR scheduler, RNG and place in the data."""
    losses: tuple[float, ...]
    epochs: tuple[EpochFigures, ...]


@dataclass
class Journey:
    """Two engines that run in turns, because they share the RNG of the process; each with a resident."""

    folder: Path
    moves: Mapping[str, Sequence[int]]
    """Steps after which each traveller moves to the other hybrid."""
    tamper: Tamper = lambda checkpoint: checkpoint
    losses: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[str, list[EpochFigures]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[str, Ended] = field(default_factory=dict)
    departed: list[str] = field(default_factory=list)
    hops: int = 0

    def result(self, how: Sequence[tuple[str, int]]) -> dict[str, Result]:
        """Travel, and return the results by key; `how` says policy and lanes of each hybrid."""
        guests = [(f"run{place}/{name}", *TRAVELLERS[name]) for place, name in enumerate(self.moves)]
        first = self._session([*guests, ("home/one", *RESIDENTS["one"])], *how[0])
        second = self._session([("home/two", *RESIDENTS["two"])], *how[1])
        here, there = first, second
        while len(self.ended) < len(guests) + 2:
            here.run()
            for key in self.departed:
                there.engine.post(Join(key, lambda key=key, there=there: self._arrive(key, there)))  # type: ignore[misc]
            self.hops, self.departed = self.hops + len(self.departed), []
            here, there = there, here
        return {key: _result(ended, self.losses[key], self.epochs[key]) for key, ended in self.ended.items()}

    def _session(self, parts: Sequence[tuple[str, str, SubModelSpec]], policy: str, lanes: int) -> Session:
        networks = [(network, spec) for _, network, spec in parts]
        keys = [key for key, *_ in parts]
        return Session(networks, policy_named(policy, {}), self._on_report, keys=keys, lanes=lanes, **ROOM)

    def _on_report(self, session: Session, report: Report) -> None:
        match report:
            case Stepped(submodel=key, step=step, loss=loss):
                self.losses[key].append(loss.item())
                if step in self.moves.get(key.partition("/")[2], ()):
                    session.engine.post(Order(Event.RELEASE, key))
            case EpochDone(submodel=key, figures=figures):
                self.epochs[key].append(figures)
            case Left(submodel=key):
                self._store(key).put(session.checkpoints[key])
                self.departed.append(key)
                session.engine.post(Order(Event.PAUSE))
            case Ended(submodel=key):
                self.ended[key] = report

    def _arrive(self, key: str, session: Session) -> SubModel:
        checkpoint, said = self._store(key).latest()
        assert checkpoint is not None and not said and checkpoint.submodel == key.partition("/")[2]
        arrived = session.add(*TRAVELLERS[checkpoint.submodel], key)
        arrived.restore(self.tamper(checkpoint), moves="same")
        return arrived

    def _store(self, key: str) -> CheckpointStore:
        return CheckpointStore(self.folder / key)


def _result(ended: Ended, losses: Sequence[float], epochs: Sequence[EpochFigures]) -> Result:
    assert ended.event is Event.COMPLETE and ended.checkpoint is not None
    checkpoint = ended.checkpoint
    assert len(checkpoint.recipe["kinds"]) == 1
    return Result(state_sha256(checkpoint.state["model"]), bits(checkpoint.state), tuple(losses), tuple(epochs))


@cache
def alone(name: str) -> Result:
    """What it gives by itself, without a checkpoint."""
    session = Session([(TRAVELLERS | RESIDENTS)[name]], FirstComeFirstServed()).run()
    epochs = [one.figures for one in session.reports if isinstance(one, EpochDone) and one.submodel == name]
    return _result(session.ended[name], session.losses(name), epochs)


def travelled(moves: Mapping[str, Sequence[int]], how: Sequence[tuple[str, int]], tamper: Tamper | None = None) -> bool:
    """Whether travellers and residents have the results of those that never moved."""
    with TemporaryDirectory() as folder:
        journey = Journey(Path(folder), moves) if tamper is None else Journey(Path(folder), moves, tamper)
        found = journey.result(how)
    assert journey.hops == sum(map(len, moves.values()))
    assert found.keys() == {"home/one", "home/two", *(f"run{place}/{name}" for place, name in enumerate(moves))}
    return all(result == alone(key.partition("/")[2]) for key, result in found.items())


PLANS = {name: st.lists(st.integers(1, last - 1), unique=True, max_size=5) for name, last in STEPS.items()}
MOVES = st.fixed_dictionaries(PLANS)
HYBRID = st.tuples(st.sampled_from(sorted(policy.name for policy in POLICIES)), st.sampled_from([1, 2]))


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(moves=MOVES, how=st.tuples(HYBRID, HYBRID))
def test_any_sequence_of_moves_equals_training_alone(moves: dict[str, list[int]], how: Any) -> None:
    assert travelled(moves, how)


@pytest.mark.long
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(moves=MOVES, how=st.tuples(HYBRID, HYBRID))
def test_any_of_many_sequences_of_moves_equals_training_alone(moves: dict[str, list[int]], how: Any) -> None:
    assert travelled(moves, how)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_move_after_every_step_equals_training_alone(lanes: int) -> None:
    assert travelled({"noisy": range(1, 15), "paced": range(1, 9)}, [("round_robin", lanes), ("sjf", lanes)])


def _with(part: str, **entries: Any) -> Tamper:
    return lambda one: replace(one, state={**one.state, part: {**one.state[part], **entries}})


def _forgets_moments(one: Checkpoint) -> Checkpoint:
    state: dict[int, dict[str, torch.Tensor]] = copy.deepcopy(one.state["optimizer"]["state"])
    for moments in state.values():
        moments["exp_avg"].zero_()
    return _with("optimizer", state=state)(one)


def _forgets_statistics(one: Checkpoint) -> Checkpoint:
    weights = one.state["model"]
    return _with("model", **{name: value * 0 for name, value in weights.items() if "running_mean" in name})(one)


OTHER = torch.Generator().manual_seed(99).get_state()
EMPTY = {"loss": None, "correct": None, "samples": 0, "labels": 0}
LOSSES = {
    "nothing": lambda one: one,
    "the RNG": _with("rng", cpu=OTHER),
    "the generator of the data": _with("data", generator=OTHER),
    "the moments of the optimizer": _forgets_moments,
    "the statistics of batch norm": _forgets_statistics,
    "the sums of the epoch": _with("metrics", tally=EMPTY),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_move_that_loses_something_would_be_noticed(lost: str) -> None:
    assert travelled({"noisy": [7]}, [("fcfs", 1), ("fcfs", 1)], LOSSES[lost]) is (lost == "nothing")
