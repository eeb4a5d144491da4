"""Strikes are counted by what they met, and every other death needs a reason."""

from tools.chaos.cluster.judge import WITHIN_S, tally
from tools.chaos.judge import ANY_MOMENT
from tools.chaos.scene import JournalEntry


def fault(action: str, at_s: float = 0.0) -> JournalEntry:
    return JournalEntry(what="fault", role="test", action=action, at_s=at_s, host="a")


def shot(pid: int, action: str = "sigkill") -> JournalEntry:
    return JournalEntry(what="shot", role="worker", pid=pid, action=action)


def ended(pid: int, code: int, at_s: float = 1.0) -> JournalEntry:
    return JournalEntry(what="ended", role="worker", pid=pid, code=code, at_s=at_s)


def test_a_host_counts_once_however_many_processes_it_had() -> None:
    outcome = tally([fault("host"), shot(1), shot(2), ended(1, -9), ended(2, -9)])
    assert outcome.struck == {(ANY_MOMENT + "host: agent and workers", "sigkill"): 1}
    assert (outcome.kills, outcome.unplanned_deaths) == (1, 0)


def test_a_fault_that_a_process_met_by_itself_counts_once_it_has_died() -> None:
    struck = JournalEntry(what="struck", role="worker", pid=1, point="store.after_commit", action="sigkill")
    assert tally([struck, ended(1, -9)]).struck == {("store.after_commit", "sigkill"): 1}
    assert tally([struck]).kills == 0


def test_a_process_gives_up_soon_after_a_fault_and_not_without_one() -> None:
    assert tally([fault("split"), ended(1, 1)]).gave_up == 1
    for entries in ([ended(1, 1)], [fault("split"), ended(1, 1, WITHIN_S + 1.0)], [fault("split"), ended(1, -11)]):
        outcome = tally(entries)
        assert (outcome.gave_up, outcome.unplanned_deaths, len(outcome.problems)) == (0, 1, 1)


def test_what_comes_after_the_end_does_not_count() -> None:
    assert tally([JournalEntry(what="over", role="test"), ended(1, -9)]).unplanned_deaths == 0
