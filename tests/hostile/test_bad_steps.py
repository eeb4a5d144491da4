"""Networks that turn bad while they train: their neighbour keeps its bits, and the process its settings."""

import ctypes
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.integration import kit
from tests.integration.kit import CPU, Session, submodel_spec
from tests.integration.three import NAMES, THREE, alone
from unifiednn_core.engine.events import ProcessChanged
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.stepping import Stepper
from unifiednn_core.runtime.worker import OperatorTrace
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event

VICTIM = ("lstm", submodel_spec("victim", epochs=2))
UPWARD = 0x800  # FE_UPWARD of x86; other processors ignore it or take it for another rounding
BAD_CALL = 4


class Bad(nn.Module):
    """Does something at every call from the fourth on, to its hidden numbers [batch, 8]."""

    def __init__(self, deed: Callable[["Bad", Tensor], Tensor | None]):
        super().__init__()
        self.first, self.second = nn.Linear(36, 8), nn.Linear(8, kit.CLASSES)
        self.deed, self.calls = deed, 0

    def forward(self, images: Tensor) -> Tensor:
        hidden, self.calls = self.first(images.flatten(1)), self.calls + 1
        changed = self.deed(self, hidden) if self.calls >= BAD_CALL else None
        scores: Tensor = self.second(hidden if changed is None else changed)
        return scores


def numbers(bad: Bad, hidden: Tensor) -> Tensor:
    return hidden * float("nan")


def in_place(bad: Bad, hidden: Tensor) -> None:
    bad.second.weight.detach().zero_()


def draws(bad: Bad, hidden: Tensor) -> Tensor:
    return hidden + torch.rand(300_000).mean()


def out_of_range(bad: Bad, hidden: Tensor) -> Tensor:
    return hidden[:, torch.tensor([8])]


def denormal(bad: Bad, hidden: Tensor) -> Tensor:
    return hidden * 1e-42


def chosen(count: int) -> Tensor:
    """Places of a boolean index: as many as its entries say, which no shape tells."""
    return torch.ones(1).expand(count)[torch.ones(1, dtype=torch.bool).expand(count)]


def grows(bad: Bad, hidden: Tensor) -> Tensor:
    many = chosen(3_000)
    return hidden + 0 * (many[:, None] * many).sum()


def grows_too_far(bad: Bad, hidden: Tensor) -> Tensor:
    many = chosen(2_000_000)
    return hidden + 0 * (many[:, None] * many).sum()


ENDS: dict[str, tuple[Callable[[Bad, Tensor], Tensor | None], str | None]] = {
    "NaN": (numbers, "The loss of bad is nan"),
    "in-place on a detached parameter": (in_place, None),
    "300,000 random draws": (draws, None),
    "an index out of range": (out_of_range, "IndexError"),
    "denormal numbers": (denormal, None),
    "a boolean index that grows": (grows, None),
    "a boolean index that grows too far": (grows_too_far, "RuntimeError"),
}


def setting(change: Callable[[], object]) -> Callable[[Bad, Tensor], None]:
    return lambda bad, hidden: change() and None


def entered(mode: Any) -> None:
    """Enter a mode of torch and never leave it."""
    NEVER_LEFT.append(mode)
    mode.__enter__()


NEVER_LEFT: list[object] = []
LIBRARY = ctypes.CDLL(None)


# What a plug-in or a kernel could do, and the name under which it is reported.
SETTINGS: dict[str, tuple[Callable[[], object], str]] = {
    "float64": (lambda: torch.set_default_dtype(torch.float64), "default type"),
    "threads": (lambda: torch.set_num_threads(2), "number of threads"),
    "no grad": (lambda: torch._C._set_grad_enabled(False), "gradient mode"),
    "inference": (lambda: entered(torch.inference_mode()), "inference mode"),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), "autocast"),
    "determinism": (lambda: torch.use_deterministic_algorithms(True), "determinism"),
    "low precision": (lambda: torch.set_float32_matmul_precision("medium"), "precision of float32"),
    "low precision, newer": (
        lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
        "precision of float32",
    ),
    "low precision of all": (lambda: setattr(torch.backends, "fp32_precision", "tf32"), "precision of float32"),
    "a dispatch mode": (lambda: entered(OperatorTrace(lambda _: None)), "modes of torch"),
    "a default device": (lambda: torch.set_default_device("meta"), "modes of torch"),
    "no oneDNN": (lambda: torch._C._set_mkldnn_enabled(False), "oneDNN"),
    "flushed denormals": (lambda: torch.set_flush_denormal(True), "floating point of the processor"),
    "rounding": (lambda: LIBRARY.fesetround(UPWARD), "floating point of the processor"),
    "traps": (lambda: LIBRARY.feenableexcept(1), "floating point of the processor"),
    "a handler": (lambda: LIBRARY.signal(signal.SIGFPE, 1), "signal handlers"),
    "a blocked signal": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}), "blocked signals"),
}


@pytest.fixture(autouse=True)
def process() -> Iterator[ProcessState]:
    with ProcessState(CPU) as before:
        yield before


@pytest.fixture(scope="module")
def victim_alone() -> str | None:
    return Session([VICTIM], RoundRobin()).run().hashes()["victim"]


def beside(deed: Callable[[Bad, Tensor], Tensor | None], monkeypatch: pytest.MonkeyPatch) -> Session:
    """Train the bad network and its victim in turns of one step."""
    monkeypatch.setitem(kit.NETWORKS, "bad", lambda: Bad(deed))
    return Session([("bad", submodel_spec("bad", epochs=2)), VICTIM], RoundRobin(unit="steps", amount=1)).run()


@pytest.mark.parametrize("what", ENDS)
def test_a_bad_step_is_the_affair_of_one_network(
    what: str, process: ProcessState, victim_alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed, cause = ENDS[what]
    session = beside(deed, monkeypatch)
    bad = session.ended["bad"]
    assert bad.event is (Event.COMPLETE if cause is None else Event.FAIL)
    assert cause is None or (bad.cause or "").startswith(cause)
    assert session.hashes()["victim"] == victim_alone
    assert process.restore() == ()
    assert [report for report in session.reports if isinstance(report, ProcessChanged)] == []


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_of_the_process_are_put_back_after_each_step(
    what: str, process: ProcessState, victim_alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, name = SETTINGS[what]
    session = beside(setting(change), monkeypatch)
    assert session.hashes()["victim"] == victim_alone
    assert process.restore() == ()
    reports = [report for report in session.reports if isinstance(report, ProcessChanged)]
    assert [report.submodel for report in reports] == ["bad"], "each setting is reported once"
    assert name in reports[0].settings


@pytest.mark.parametrize("what", ["float64", "no grad", "rounding", "flushed denormals"])
def test_without_that_the_neighbour_would_suffer(
    what: str, process: ProcessState, victim_alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stepper, "restore_process", lambda engine, job, **_: None)
    monkeypatch.setattr(ProcessState, "__exit__", lambda *_: None)
    session = beside(setting(SETTINGS[what][0]), monkeypatch)
    if what in ("no grad", "rounding"):
        assert session.hashes()["victim"] != victim_alone
    assert SETTINGS[what][1] in process.restore()


def test_naming_every_operator_changes_no_bit() -> None:
    named: dict[str, set[str]] = {name: set() for name in NAMES}
    session = Session(THREE, RoundRobin())
    session.engine._stepper._trace = lambda lane, name, step: OperatorTrace(named[name].add)
    assert session.run().hashes() == alone()
    for name in NAMES:
        assert {"aten._log_softmax.default", "aten.add_.Tensor"} < named[name], "also criterion and optimizer"
        assert any("backward" in operator for operator in named[name])
