import weakref
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pytest
import torch

from tests.integration.kit import Session
from tests.integration.three import NAMES, THREE, alone, at_step
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.events import EpochDone, Granted, Refused, Released, Report, Stepped
from unifiednn_core.engine.orders import Order
from unifiednn_core.scheduling.base import TO_COMPLETION, Decision, Policy, Quantum, View
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst
from unifiednn_core.spec.lifecycle import Event


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (FirstComeFirstServed(), ["first", "second", "third"]),
        (Priority(), ["second", "third", "second", "third", "first"]),
        (ShortestJobFirst(by="epochs"), ["second", "third", "first"]),
        (RoundRobin(), ["first", "second", "third", "first", "second", "third", "first"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_engine_enacts_what_the_policy_decides(policy: Policy, order: list[str]) -> None:
    session = Session(THREE, policy).run()
    granted = [report for report in session.reports if isinstance(report, Granted)]
    assert [report.submodel for report in granted] == order
    assert all(report.reason for report in granted)


def test_slices_cover_all_steps_and_never_overlap() -> None:
    session = Session(THREE, RoundRobin(unit="steps", amount=2)).run()
    slices = [report for report in session.reports if isinstance(report, Released)]
    for name in NAMES:
        assert sum(s.steps for s in slices if s.submodel == name) == len(session.losses(name))
    for before, after in pairwise(slices):
        assert before.start_s <= before.end_s <= after.start_s


def test_a_stopped_submodel_keeps_its_progress_and_the_others_train_on() -> None:
    stop = at_step("first", 4, Order(Event.STOP, "first"))
    session = Session(THREE, RoundRobin(unit="steps", amount=1), stop).run()
    assert session.ended["first"].event is Event.HALT
    assert len(session.losses("first")) == 4
    assert session.ended["first"].state_dict is not None
    trained = session.hashes()
    assert {name: trained[name] for name in ("second", "third")} == alone("second", "third")


def test_a_stopped_run_keeps_the_progress_of_those_that_trained() -> None:
    session = Session(THREE, FirstComeFirstServed(), at_step("first", 3, Order(Event.STOP))).run()
    assert {name: ended.event for name, ended in session.ended.items()} == dict.fromkeys(NAMES, Event.HALT)
    assert session.ended["first"].state_dict is not None
    assert session.ended["second"].state_dict is None


def test_orders_for_an_ended_sub_model_are_ignored() -> None:
    orders = [Order(event, "second") for event in (Event.PAUSE, Event.RESUME, Event.STOP)]

    def on_report(session: Session, report: Report) -> None:
        if "second" in session.ended:
            at_step("third", 2, *orders, Order(Event.PAUSE, "nobody"))(session, report)

    assert Session(THREE, FirstComeFirstServed(), on_report).run().hashes() == alone()


def test_a_policy_that_names_an_unknown_sub_model_is_refused_and_training_goes_on() -> None:
    @dataclass(frozen=True)
    class Lost:
        name: ClassVar[str] = "lost"
        summary: ClassVar[str] = "Names no sub-model."

        def decide(self, view: View) -> Decision:
            return Decision("nobody", TO_COMPLETION, "It is the turn of nobody.")

    session = Session(THREE, Lost()).run()
    assert any(isinstance(report, Refused) and "nobody" in report.message for report in session.reports)
    assert session.hashes() == alone()


def test_nothing_of_one_submodel_is_left_when_it_has_ended() -> None:
    session = Session(THREE, FirstComeFirstServed()).run()
    assert session.hybrid.names == ()
    assert list(session.hybrid.parameters()) == []
    assert session.data.peek("train") is session.data.peek("test") is None


def test_failed_and_ended_sub_models_free_their_memory_while_others_train(capfd: pytest.CaptureFixture[str]) -> None:
    def on_report(session: Session, report: Report) -> None:
        if isinstance(report, Stepped) and report.submodel == "third":
            alive.append([module() is not None for module in modules])

    alive: list[list[bool]] = []
    session = Session(THREE, FirstComeFirstServed(), on_report)
    modules = [weakref.ref(session.hybrid.submodel(name).module) for name in ("first", "second")]
    session.hybrid.submodel("second").module.register_forward_pre_hook(lambda *_: 1 / 0)
    session.run()
    assert session.ended["second"].event is Event.FAIL
    assert alive[-1] == [False, False]


def test_idle_submodels_hold_no_gradients() -> None:
    seen: list[bool] = []

    def on_report(session: Session, report: Report) -> None:
        if isinstance(report, Granted):
            seen.append(all(parameter.grad is None for parameter in session.hybrid.parameters()))

    Session(THREE, RoundRobin(unit="steps", amount=1), on_report).run()
    assert len(seen) > 10
    assert all(seen)


def test_the_engine_leaves_generators_and_threads_of_the_process_as_it_found_them() -> None:
    torch.manual_seed(11)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Session(THREE[1:2], RoundRobin()).run()
        assert torch.get_num_threads() == 3
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        torch.set_num_threads(threads)


def test_the_profile_of_a_gpu_is_taken_back() -> None:
    """These are settings of the process, which torch takes without a GPU, too."""
    cuda = torch.backends.cuda

    def settings() -> list[object]:
        attention = [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled()]
        cudnn = torch.backends.cudnn
        kernels = [cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, cuda.matmul.allow_tf32]
        mode = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        return [*attention, *kernels, mode, torch.utils.deterministic.fill_uninitialized_memory]  # type: ignore[attr-defined]

    before = settings()
    with pytest.raises(RuntimeError, match="stopped"), exact_profile(torch.device("cuda", 0), 1):
        assert settings() == [False, False, False, True, False, False, False, (True, True), False]
        raise RuntimeError("stopped")
    assert settings() == before


def test_figures_of_an_epoch_are_means_over_its_samples() -> None:
    session = Session(THREE[1:2], FirstComeFirstServed()).run()
    figures = [report.figures for report in session.reports if isinstance(report, EpochDone)]
    losses = session.losses("second")
    first = [8.0] * 4 + [5.0]
    assert figures[0].train_loss == pytest.approx(
        sum(loss * n for loss, n in zip(losses[:5], first, strict=True)) / 37, rel=1e-6
    )
    assert figures[0].test_accuracy is not None
    assert round(figures[0].test_accuracy * 20) == figures[0].test_accuracy * 20
    assert [f.epoch for f in figures] == [1, 2]


def test_it_runs_in_a_background_thread_of_a_notebook() -> None:
    session = Session(THREE, Priority())
    thread = session.engine.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert session.hashes() == alone()


def test_a_quantum_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive number of steps"):
        Quantum("steps", 0)
