"""Sub-models whose weights and optimizer state leave the device between turns: same bits, nothing left behind."""

import math
from collections.abc import Iterable

import pytest
from torch import Tensor

from tests.integration.kit import Session, submodel_spec
from unifiednn_core.engine.events import Ended, Report
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.round_robin import RoundRobin

SEND = "unifiednn_core.engine.submodel.send_to_host"


def trained(*, leaves: tuple[str, ...] = ()) -> tuple[dict[str, str], list[dict[str, bool]], list[Report]]:
    """Weights of three sub-models by name, who was on the device after each report, and the reports."""
    seen: list[dict[str, bool]] = []
    networks = [
        (
            "noisy",
            submodel_spec(name, optimizer="adam", ema={"decay": 0.9}, techniques=["idle_offload"] * (name in leaves)),
        )
        for name in "abc"
    ]

    def look(session: Session, report: Report) -> None:
        seen.append({name: footprint.placed for name, footprint in session.engine.footprints().items()})

    session = Session(networks, RoundRobin(unit="steps", amount=2), look)
    session.run()
    ends = [report for report in session.reports if isinstance(report, Ended)]
    return {end.submodel: state_sha256(end.state_dict or {}) for end in ends}, seen, session.reports


def moved(tensors: Iterable[Tensor]) -> None:
    """Do what a move does, without a GPU: each tensor gets other memory, and the old one is not to be read again."""
    for tensor in tensors:
        old = tensor.detach()
        tensor.data = old.clone()
        if old.is_floating_point():
            old.fill_(math.nan)


def test_only_those_at_work_are_on_the_device_and_every_bit_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, with_all, _ = trained()
    assert any(all(placed.values()) for placed in with_all)
    monkeypatch.setattr(SEND, moved)
    weights, seen, reports = trained(leaves=("a", "c"))
    assert weights == alone
    assert any(placed.get("b") and not placed["a"] and not placed["c"] for placed in seen if len(placed) == 3)
    assert not any(placed.get("a") and placed.get("c") for placed in seen)
    assert all(end.probes is not None and not end.probes.missing for end in reports if isinstance(end, Ended))
