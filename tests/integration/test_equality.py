"""Training in a hybrid changes not one bit of weights, buffers, optimizer, LR scheduler and losses of any sub-model."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration import vanilla_loop
from tests.integration.kit import Networks, Session, dataset, definition, submodel_spec
from tests.integration.networks import ZOO, hyperparameters
from tests.integration.vanilla_loop import Trained
from unifiednn_core.base.errors import BadInput
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.events import Answered, Ended, Report, Stepped
from unifiednn_core.engine.orders import Adjust, AnyOrder, Order, Reorder, SetPolicy
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.registry import POLICIES, ParameterCard, describe, policy_named
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import SubModelSpec

DATA, TEST = dataset(), dataset(20, seed=1)
SAMPLES = len(DATA.targets)


# Numbers that a policy may take: as epochs, steps or seconds each is a quantum of its own.
NUMBERS = (1, 0.002)


def _values(parameter: ParameterCard) -> tuple[object, ...]:
    if parameter.choices:
        return parameter.choices
    return NUMBERS if isinstance(parameter.default, int | float) else (parameter.default,)


def _every_policy() -> Iterator[Policy]:
    """Yield each policy of the registry with all its choices and all the numbers that it accepts."""
    for card in describe():
        for values in product(*map(_values, card.parameters)):
            try:
                yield policy_named(card.name, {p.name: v for p, v in zip(card.parameters, values, strict=True)})
            except BadInput:
                continue


EVERY_POLICY = tuple(_every_policy())


@st.composite
def hybrids(draw: st.DrawFn, min_size: int = 1) -> Networks:
    networks = draw(st.lists(st.sampled_from(sorted(ZOO)), min_size=min_size, max_size=5))
    return [
        (network, submodel_spec(f"net{i}", priority=draw(st.integers(-1, 1)), **draw(hyperparameters(SAMPLES))))
        for i, network in enumerate(networks)
    ]


@dataclass(frozen=True)
class Disturbance:
    """An order that is given when `watched` has made its `step`-th step; a pause lasts some steps of the others."""

    order: AnyOrder
    watched: str
    step: int
    lasts_steps: int = 0

    @property
    def pauses(self) -> str | None:
        """Name of the sub-model that it pauses."""
        order = self.order
        return order.submodel if isinstance(order, Order) and order.event is Event.PAUSE else None


Plan = list[Disturbance]


@st.composite
def disturbed(draw: st.DrawFn) -> tuple[Networks, Plan]:
    """A hybrid, and orders that must not change any bits: pauses, some others, at most one stop."""
    networks = draw(hybrids(min_size=2))
    steps = {
        spec.name: spec.hyperparameters.epochs * spec.hyperparameters.steps_per_epoch(SAMPLES) for _, spec in networks
    }
    names = st.sampled_from(list(steps))

    def given_to(name: str | None, order: AnyOrder, lasts_steps: int = 0) -> Disturbance:
        watched = name if name is not None and draw(st.booleans()) else draw(names)
        return Disturbance(order, watched, draw(st.integers(1, steps[watched])), lasts_steps)

    def pause() -> Disturbance:
        name = draw(names)
        return given_to(name, Order(Event.PAUSE, name), draw(st.integers(1, 12)))

    def other() -> Disturbance:
        name = draw(names)
        orders: list[AnyOrder] = [
            Order(Event.PAUSE),  # all leave, and go on in the next session
            Order(Event.SAVE),
            Order(Event.SAVE, name),
            Adjust(name, "priority", draw(st.integers(-2, 2))),
            Reorder(tuple(draw(st.permutations(list(steps))))),
            SetPolicy(draw(st.sampled_from(EVERY_POLICY))),
        ]
        return given_to(None, draw(st.sampled_from(orders)))

    plan = [pause() for _ in range(draw(st.integers(1, 3)))] + [other() for _ in range(draw(st.integers(0, 3)))]
    if draw(st.booleans()):
        name = draw(names)
        plan.append(given_to(name, Order(Event.STOP, name)))
    return networks, plan


@dataclass
class Disturber:
    """Posts the orders of a plan, ends every pause in time, and all pauses at once when no sub-model trains."""

    plan: Plan
    steps: int = 0
    resumes: list[tuple[int, str]] = field(default_factory=list)
    """Step of the hybrid at which a sub-model resumes, and its name."""
    held: set[str] = field(default_factory=set)

    def __call__(self, session: Session, report: Report) -> None:
        match report:
            case Stepped():
                self._stepped(session, report)
            case Answered(id=place) if (name := self.plan[place].pauses) is not None:
                self.held.add(name)
                self._resume_all_if_none_trains(session)
            case Ended():
                self._resume_all_if_none_trains(session)

    def _stepped(self, session: Session, report: Stepped) -> None:
        self.steps += 1
        for name in [name for step, name in self.resumes if step == self.steps]:
            self._resume(session, name)
        for place, disturbance in enumerate(self.plan):
            if (disturbance.watched, disturbance.step) == (report.submodel, report.step):
                post(session, replace(disturbance.order, id=place))
                if disturbance.pauses is not None:
                    self.resumes.append((self.steps + disturbance.lasts_steps, disturbance.pauses))

    def _resume_all_if_none_trains(self, session: Session) -> None:
        alive = set(session.hybrid.names)
        if alive <= self.held:
            for name in alive:
                self._resume(session, name)

    def _resume(self, session: Session, name: str) -> None:
        self.held.discard(name)
        post(session, Order(Event.RESUME, name))


def post(session: Session, order: AnyOrder) -> None:
    session.engine.post(order)


@dataclass(frozen=True)
class Outcome:
    """How a sub-model ended."""

    event: Event
    steps: int
    bits: dict[str, str]


def train(networks: Networks, policy: Policy, plan: Plan) -> tuple[dict[str, Outcome], list[Report]]:
    """Train a hybrid to its end, in as many sessions as the plan cuts it into; outcomes by name, and all reports."""
    outcomes: dict[str, Outcome] = {}
    reports: list[Report] = []
    losses: dict[str, list[float]] = {spec.name: [] for _, spec in networks}
    checkpoints: dict[str, Checkpoint] = {}
    while left := [(network, spec) for network, spec in networks if spec.name not in outcomes]:
        session = Session(left, policy, Disturber(plan), restored=checkpoints)
        parts = {submodel.name: submodel for submodel in session.hybrid.submodels}
        hashes = session.run().hashes()
        for name, part in parts.items():
            losses[name] += session.losses(name)
            if name in session.ended:
                trained = Trained(part.module, part.optimizer, part.lr_scheduler, losses[name])
                outcomes[name] = Outcome(session.ended[name].event, len(losses[name]), trained.bits())
                handed_back = state_sha256(part.module.state_dict()) if losses[name] else None
                assert hashes[name] == handed_back, f"{name} was not handed back as it was trained"
        checkpoints |= session.checkpoints
        reports += session.reports
    return outcomes, reports


def check_equality(networks: Networks, policy: Policy, plan: Plan) -> None:
    """Compare each sub-model of a hybrid with a plain loop, and with itself alone unless it was stopped."""
    outcomes, _ = train(networks, policy, plan)
    stops = [disturbance.order for disturbance in plan]
    for network, spec in networks:
        name, outcome = spec.name, outcomes[spec.name]
        stopped = outcome.event is Event.HALT and Order(Event.STOP, name) in stops
        assert stopped or outcome.event is Event.COMPLETE, f"{name} did not train to its end"
        wrong = differing(outcome.bits, _vanilla(network, spec.model_dump_json(), outcome.steps if stopped else None))
        assert not wrong, f"{name} is not as the plain loop"
        if not stopped:
            wrong = differing(outcome.bits, _alone(network, spec.model_dump_json()))
            assert not wrong, f"{name} is not as alone"


@cache  # all policies are tried with the same examples
def _vanilla(network: str, document: str, steps: int | None) -> dict[str, str]:
    module, spec = definition(network).build(), SubModelSpec.model_validate_json(document)
    train, test = ((data.first, data.targets) for data in (DATA, TEST))
    return vanilla_loop.train(module, spec.hyperparameters, train, steps, test).bits()


@cache
def _alone(network: str, document: str) -> dict[str, str]:
    spec = SubModelSpec.model_validate_json(document)
    outcomes, _ = train([(network, spec)], FirstComeFirstServed(), [])
    return outcomes[spec.name].bits


def differing(some: dict[str, str], others: dict[str, str]) -> list[str]:
    return sorted(where for where in some.keys() | others.keys() if some.get(where) != others.get(where))


# Fixed examples, each with a policy: a failure is always due to the change that is tested.
SHORT = settings(max_examples=15, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Fresh examples in every run, so that each run can find something new.
LONG = settings(SHORT, max_examples=200, derandomize=False, print_blob=True)

under_every_policy = pytest.mark.parametrize("policy", EVERY_POLICY, ids=str)
pytestmark = pytest.mark.timeout(600)  # cutting down a failing example takes minutes


@SHORT
@given(networks=hybrids(), policy=st.sampled_from(EVERY_POLICY))
def test_training_in_a_hybrid_changes_not_one_bit(networks: Networks, policy: Policy) -> None:
    check_equality(networks, policy, [])


@SHORT
@given(example=disturbed(), policy=st.sampled_from(EVERY_POLICY))
def test_pauses_and_stops_change_not_one_bit(example: tuple[Networks, Plan], policy: Policy) -> None:
    check_equality(example[0], policy, example[1])


@pytest.mark.long
@under_every_policy
@LONG
@given(networks=hybrids())
def test_training_in_many_hybrids_changes_not_one_bit(networks: Networks, policy: Policy) -> None:
    check_equality(networks, policy, [])


@pytest.mark.long
@under_every_policy
@LONG
@given(example=disturbed())
def test_many_pauses_and_stops_change_not_one_bit(example: tuple[Networks, Plan], policy: Policy) -> None:
    check_equality(example[0], policy, example[1])


def test_every_policy_of_the_registry_is_among_those_tried() -> None:
    assert {type(policy) for policy in EVERY_POLICY} == set(POLICIES)


@under_every_policy
def test_the_orders_of_a_plan_are_carried_out(policy: Policy) -> None:
    networks = [(network, submodel_spec(network)) for network in ("resnet", "transformer", "lstm")]
    plan = [
        Disturbance(Order(Event.PAUSE, "resnet"), "resnet", 2, lasts_steps=3),
        Disturbance(Order(Event.PAUSE), "resnet", 6),
        Disturbance(Order(Event.STOP, "lstm"), "lstm", 4),
    ]
    outcomes, reports = train(networks, policy, plan)
    assert {report.id for report in reports if isinstance(report, Answered)} == {0, 1}  # a stop's end is its answer
    assert {name: (outcome.event, outcome.steps) for name, outcome in outcomes.items()} == {
        "resnet": (Event.COMPLETE, 10),
        "transformer": (Event.COMPLETE, 10),
        "lstm": (Event.HALT, 4),
    }
