"""Each invariant of a cluster is silent about an orderly history and loud about one hand-made violation."""

from dataclasses import replace

import pytest

from tools.chaos.cluster.audit import (
    Claim,
    Mark,
    backward_checkpoints,
    double_claims,
    lost_checkpoints,
    orphaned,
    two_workers,
    unsaved_s,
)


def claim(hybrid: str, device: str, *, held: bool = True, attempt: int = 0) -> Claim:
    return Claim(0.0, hybrid, (device,), held, attempt)


LIFE = (claim("h1", "a/cpu"), claim("h1", "a/cpu", attempt=1), claim("h1", "a/cpu", held=False, attempt=1))
NEXT = (claim("h2", "a/cpu"), claim("h2", "a/cpu", attempt=1))
AGAIN = (claim("h1", "b/cpu", attempt=1), claim("h1", "b/cpu", attempt=2))


def test_hybrids_that_take_turns_on_a_device_are_no_double_claim() -> None:
    history = (*LIFE, *NEXT, *AGAIN)
    assert double_claims(history) == two_workers(history) == []


def test_two_hybrids_on_one_device_are_found_though_it_ends_well() -> None:
    overlapping = (*LIFE[:2], *NEXT, LIFE[2], replace(NEXT[1], held=False))
    assert double_claims(overlapping) == ["h1 and h2 held a/cpu at the same time"]


def test_a_further_device_counts_as_much() -> None:
    wide = Claim(0.0, "h3", ("b/cpu", "a/cpu"), True, 0)
    assert double_claims((wide, LIFE[0])) == ["h3 and h1 held a/cpu at the same time"]


def test_the_end_of_the_first_of_two_does_not_free_the_device() -> None:
    third = claim("h3", "a/cpu")
    found = double_claims((LIFE[0], NEXT[0], LIFE[2], third))
    assert found == ["h1 and h2 held a/cpu at the same time", "h2 and h3 held a/cpu at the same time"]


def test_two_workers_of_one_claim_are_found() -> None:
    assert two_workers((*LIFE[:2], claim("h1", "a/cpu", attempt=2))) == [
        "h1 got worker 2 before the one before it was given up"
    ]


def mark(what: str, step: int, attempt: int = 1, at_s: float = 0.0) -> Mark:
    return Mark(at_s, "s1", "net", what, attempt, step)


def test_an_attempt_that_begins_at_the_newest_checkpoint_lost_nothing() -> None:
    marks = (mark("attempt", 0), mark("checkpoint", 8), mark("checkpoint", 16), mark("attempt", 16, 2))
    assert lost_checkpoints(marks) == backward_checkpoints(marks) == []


def test_one_that_was_newer_than_what_was_recorded_is_welcome() -> None:
    assert lost_checkpoints((mark("checkpoint", 8), mark("attempt", 16, 2))) == []


def test_an_attempt_that_begins_before_a_recorded_checkpoint_lost_it() -> None:
    [found] = lost_checkpoints((mark("checkpoint", 8), mark("checkpoint", 16), mark("attempt", 8, 2)))
    assert "began at step 8, though the checkpoint of step 16 was recorded" in found


def test_a_retry_from_the_start_is_no_loss() -> None:
    assert lost_checkpoints((mark("checkpoint", 8), mark("checkpoint", 0), mark("attempt", 0, 2))) == []


def test_a_checkpoint_of_an_attempt_that_is_over_is_found() -> None:
    [found] = backward_checkpoints((mark("checkpoint", 32), mark("attempt", 32, 2), mark("checkpoint", 24)))
    assert found == "net of s1: checkpoint 24 was recorded after 32"


def test_what_was_not_saved_is_counted_from_the_last_mark_before_the_death() -> None:
    marks = [mark("attempt", 0, at_s=1.0), mark("checkpoint", 8, at_s=3.0), mark("checkpoint", 16, at_s=9.0)]
    assert unsaved_s(marks, [("s1", "net", 5.0), ("s1", "net", 9.5), ("s1", "other", 5.0)]) == [2.0, 0.5]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (("files/1", "runs/s1/net/2"), []),
        (("runs/s1/net/.2.x7f_.part",), []),
        (("files/9",), ["the blob files/9 belongs to nothing"]),
        (("files/.9.x7f_.part",), ["the blob files/.9.x7f_.part belongs to nothing"]),
    ],
)
def test_a_blob_without_a_row_is_told(files: tuple[str, ...], found: list[str]) -> None:
    assert orphaned(files, {"files/1", "runs/s1/net/2"}) == found
