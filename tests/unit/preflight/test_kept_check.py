"""A check is done once for each content: what an equal report hangs on, and what is found out again."""

from collections.abc import Callable
from typing import Any

import pytest

from unifiednn_core.base.errors import Finding
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import kept_check
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import parse_run

SHAS = {name: letter * 64 for name, letter in (("model", "a"), ("train_data", "b"), ("other", "c"))}
MACHINE = {"host": "here", "torch": "2"}
WARNING = Finding(severity="warning", title="No test data", field="x", message="-", remedy="-")


@pytest.fixture
def kept(home: Home) -> Callable[..., tuple[float | None, int]]:
    """Asks for a check of a spec; returns when it was found out, and how many checks were made in all."""
    home.create()
    for sha256 in SHAS.values():
        home.file(sha256).parent.mkdir(parents=True, exist_ok=True)
        home.file(sha256).touch()
    made: list[int] = []

    def ask(
        machine: dict[str, object] = MACHINE, at_s: float = 1.0, report: CheckReport | None = None, **more: Any
    ) -> tuple[float | None, int]:
        def make() -> CheckReport:
            made.append(1)
            return report or CheckReport(findings=(WARNING,))

        found = kept_check.check_once(spec_of(**more), home, machine, at_s, make)
        assert WARNING in found.findings or found.has_errors
        return found.at_s, len(made)

    return ask


def spec_of(part: dict[str, Any] | None = None, **more: Any) -> Any:
    files = {name: f"sha256:{SHAS[name]}" for name in ("model", "train_data")}
    return parse_run({"device": "cpu", **more, "submodels": [{"name": "a", **files, **(part or {})}]})


def test_an_equal_spec_is_not_checked_again(kept: Any) -> None:
    assert kept() == (1.0, 1)
    assert kept(at_s=9.0) == (1.0, 1)
    assert kept(policy={"name": "sjf"}, part={"priority": 3, "deadline_s": 9}, name="other") == (1.0, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"part": {"train_data": f"sha256:{SHAS['other']}"}},
        {"part": {"scale": 0.5}},
        {"part": {"hyperparameters": {"batch_size": 3}}},
        {"part": {"name": "b"}},
        {"memory_limit_bytes": 5},
        {"machine": {**MACHINE, "torch": "3"}},
    ],
)
def test_another_content_or_machine_is_checked_anew(kept: Any, change: dict[str, Any]) -> None:
    kept()
    assert kept(at_s=2.0, **change) == (2.0, 2)


def test_another_version_of_the_check_counts(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    monkeypatch.setattr(kept_check, "CHECK_VERSION", -1)
    assert kept() == (1.0, 2)


def test_errors_files_by_path_and_missing_files_are_checked_each_time(kept: Any, home: Home) -> None:
    wrong = CheckReport(findings=(WARNING.model_copy(update={"severity": "error"}),))
    assert [kept(report=wrong)[1] for _ in range(2)] == [1, 2]
    by_path = {"part": {"model": "net.pt2"}}
    assert [kept(**by_path) for _ in range(2)] == [(None, 3), (None, 4)]
    assert kept()[1] == 5
    assert kept_check.checked_before(spec_of(), home, MACHINE) is not None
    home.file(SHAS["model"]).unlink()
    assert kept_check.checked_before(spec_of(), home, MACHINE) is None
    assert kept() == (None, 6)


def test_a_full_disk_is_noticed_and_forgotten_again(kept: Any, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    spare = kept_check.SPARE_BYTES
    monkeypatch.setattr(kept_check, "SPARE_BYTES", 2**62)
    found = kept_check.checked_before(spec_of(), home, MACHINE)
    assert found is not None and [one.title for one in found.findings] == ["No test data", kept_check.DISK_FULL]
    kept(at_s=3.0, part={"scale": 2.0}, report=found)
    monkeypatch.setattr(kept_check, "SPARE_BYTES", spare)
    again = kept_check.checked_before(spec_of({"scale": 2.0}), home, MACHINE)
    assert again is None or not again.has_errors
