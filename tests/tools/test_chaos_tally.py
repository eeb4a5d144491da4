from dataclasses import replace

from tools.chaos.judge import Outcome, tally
from tools.chaos.plan import Exercise, Round
from tools.chaos.scene import JournalEntry, Role
from unifiednn_core.base.failpoints import Fault

FAULT = Fault("checkpoint.before_write", "sigkill")
EXERCISE = Exercise(0, (Round(card="first", fault=FAULT), Round(card="second")))


def started(pid: int, at_s: float, role: Role = "worker", *, fresh: bool = False, number: int = 0) -> JournalEntry:
    return JournalEntry(what="started", role=role, pid=pid, at_s=at_s, fresh=fresh, number=number)


def ended(pid: int, at_s: float, code: int, role: Role = "worker", number: int = 0) -> JournalEntry:
    return JournalEntry(what="ended", role=role, pid=pid, at_s=at_s, code=code, number=number)


def struck(pid: int, action: str = "sigkill", role: Role = "worker") -> JournalEntry:
    return JournalEntry(what="struck", role=role, pid=pid, point="store.after_commit", action=action)


def shot(pid: int, at_s: float, role: Role = "worker") -> JournalEntry:
    return JournalEntry(what="shot", role=role, pid=pid, at_s=at_s, action="sigkill")


def stepped(at_s: float) -> JournalEntry:
    return JournalEntry(what="stepped", role="test", at_s=at_s)


def count(*entries: JournalEntry) -> Outcome:
    return tally(entries, EXERCISE)


def test_a_fault_that_killed_is_counted_by_its_point() -> None:
    outcome = count(started(1, 0.0), struck(1), ended(1, 1.0, -9))
    assert outcome.struck == {("store.after_commit", "sigkill"): 1}
    assert (outcome.kills, outcome.unplanned_deaths) == (1, 0)


def test_a_worker_and_a_server_at_once_are_one_kill() -> None:
    outcome = count(shot(1, 5.0), shot(2, 5.01, "server"), ended(1, 5.1, -9), ended(2, 5.1, -9, "server"))
    assert outcome.struck == {("any moment: worker and server", "sigkill"): 1}
    apart = count(shot(1, 5.0), shot(2, 6.0, "server"), ended(1, 5.1, -9), ended(2, 6.1, -9, "server"))
    assert apart.kills == 2


def test_any_other_death_is_a_problem() -> None:
    outcome = count(started(1, 0.0), ended(1, 1.0, -11), ended(2, 1.0, 1, "server"), ended(3, 1.0, -9, number=1))
    assert outcome.unplanned_deaths == len(outcome.problems) == 3
    assert not outcome.passed


def test_a_worker_that_ends_before_a_locked_store_is_no_problem() -> None:
    assert count(started(1, 0.0), struck(1, "locked"), ended(1, 1.0, 1)).problems == []
    assert len(count(started(1, 0.0), struck(1, "disk_full"), ended(1, 1.0, 1)).problems) == 1


def test_recovery_is_timed_from_the_death_to_the_first_step_of_the_next() -> None:
    outcome = count(started(1, 0.0), struck(1), ended(1, 1.0, -9), started(2, 1.5), stepped(3.25), stepped(4.0))
    assert outcome.recovery_s == [2.25]
    fresh = count(started(1, 0.0), struck(1), ended(1, 1.0, -9), started(2, 1.5, fresh=True), stepped(3.25))
    assert (fresh.recovery_s, fresh.fresh_recovery_s) == ([], [2.25])


def test_what_comes_after_the_end_does_not_count() -> None:
    assert count(JournalEntry(what="over", role="test"), shot(1, 1.0), ended(1, 1.1, -9)).kills == 0


def test_outcomes_add_up() -> None:
    first = count(started(1, 0.0), struck(1), ended(1, 1.0, -9), stepped(2.0))
    sums = replace(first, struck=first.struck.copy(), recovery_s=list(first.recovery_s))
    sums.add(first)
    assert sums.kills == 2
    assert sums.recovery_s == [1.0, 1.0]
