"""Who reads the log of a worker, and how much of it."""

from pathlib import Path

import pytest

from tests.unit.service.kit import ALICE, BOB, HERS, LOCAL_OPERATOR, OPERATOR, SHARED, VIEWER, World, write
from unifiednn_core.base.errors import Forbidden, NotFound
from unifiednn_core.service import logs
from unifiednn_core.service.logs import SHARED_WORKER, tail

SECRET = "the loss of bravo, a network of Bob"


@pytest.fixture
def told(here: World) -> World:
    write(here.home.log(SHARED), f"alpha begins\n{SECRET}\n")
    write(here.home.log(HERS), f'  File "{here.home.root}/runs/x.py"\nalpha begins\n')
    return here


def test_an_operator_reads_the_log_of_a_worker_that_trains_for_several(told: World) -> None:
    for actor in (OPERATOR, LOCAL_OPERATOR):
        assert SECRET in [line.text for line in told.of(actor).logs.worker_log(SHARED).lines]
        assert SECRET in told.of(actor).logs.log_text(SHARED)


@pytest.mark.parametrize("actor", [ALICE, BOB])
def test_a_submitter_reads_no_line_of_a_worker_that_also_trains_for_others(actor, told: World) -> None:
    log = told.of(actor).logs.worker_log(SHARED)
    assert log.lines == () and log.withheld == SHARED_WORKER
    text = told.of(actor).logs.log_text(SHARED)
    assert SECRET not in text and "begins" not in text and SHARED_WORKER in text


def test_a_submitter_reads_the_log_of_the_own_run_without_folders_of_the_server(told: World) -> None:
    log = told.of(ALICE).logs.worker_log(HERS)
    assert [line.text for line in log.lines] == ['  File "HOME/runs/x.py"', "alpha begins"]
    assert log.lines[1].who == ("alpha",)
    assert str(told.home.root) in told.of(LOCAL_OPERATOR).logs.worker_log(HERS).lines[0].text, "a control"


def test_others_do_not_even_know_of_the_log(told: World) -> None:
    with pytest.raises(NotFound):
        told.of(BOB).logs.worker_log(HERS)
    with pytest.raises(Forbidden):
        told.of(VIEWER).logs.worker_log(SHARED)


def test_only_the_end_of_a_log_is_read(told: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 1000)
    file = told.home.log(HERS)
    file.write_text("".join(f"line {place}\n" for place in range(10_000)))
    text, is_cut = tail([(file.parent, file.name)])
    assert is_cut and len(text) <= 1000 and text.endswith("line 9999\n") and text.startswith("line ")
    log = told.of(LOCAL_OPERATOR).logs.worker_log(HERS)
    assert log.is_cut and log.lines[-1].text == "line 9999"
    assert tail([(told.home.root, "absent.log")]) == ("", False)


def test_a_link_that_a_worker_made_is_not_followed(told: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a key\n")
    told.home.log(HERS).unlink()
    told.home.log(HERS).symlink_to(tmp_path / "secret")
    assert told.of(ALICE).logs.worker_log(HERS).lines == ()
    folder = told.home.run(HERS)
    (tmp_path / "a.log").write_text("a key\n")
    (folder / "baseline").symlink_to(tmp_path, target_is_directory=True)
    assert tail([(folder, "baseline/a.log")]) == ("", False)
