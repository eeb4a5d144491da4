from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.preflight.estimate_kit import MIB, hybrids, part
from unifiednn_core.preflight.changes import Change, smallest_change
from unifiednn_core.preflight.estimate import Part, hybrid_bytes
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import policy_named

TURNS, FCFS = policy_named("round_robin", {}), policy_named("fcfs", {})
CONTEXT = 100 * MIB


def peak(parts: Sequence[Part], policy: Policy) -> int:
    return hybrid_bytes(parts, policy, device_type="cuda", context_bytes=CONTEXT)


def change(parts: Sequence[Part], policy: Policy, most: int, names: str = "abc") -> Change | None:
    return smallest_change(parts, policy, peak, most, list(names))


def test_another_policy_goes_first_because_it_changes_no_result() -> None:
    parts = [part("a"), part("b")]
    found = change(parts, TURNS, peak(parts, TURNS) - 1)
    assert found is not None
    assert (found.field, found.value, found.peak_bytes) == ("policy.name", "fcfs", peak(parts, FCFS))
    assert found.remedy == f'Choose the policy "fcfs": then {peak(parts, FCFS) // MIB} MiB are needed.'


def test_then_the_smallest_split_of_one_sub_model() -> None:
    parts = [part("a"), part("b", a_sample=4)]
    found = change(parts, FCFS, peak(parts, FCFS) - 1)
    assert found is not None
    assert (found.field, found.value) == ("submodels.b.hyperparameters.batch_split", 2)
    assert found.peak_bytes == peak([parts[0], parts[1].changed(batch_split=2)], FCFS)


def test_where_an_evaluation_is_what_takes_most_only_a_smaller_batch_helps() -> None:
    parts = [part("a", tested=2)]
    found = change(parts, FCFS, peak(parts, FCFS) - 1)
    assert found is not None
    assert (found.field, found.value) == ("submodels.a.hyperparameters.batch_size", 16)


def test_at_last_one_is_left_for_a_run_of_its_own_the_smallest_that_is_enough() -> None:
    parts = [part(name, weights=size) for name, size in zip("abc", (10, 30, 90), strict=True)]

    def weights(these: Sequence[Part], _policy: Policy) -> int:
        return sum(one.need.weights_bytes for one in these)

    found = smallest_change(parts, FCFS, weights, 100 * MIB, "abc")
    assert found == Change("submodels.b", None, "Submit b as a separate run", 100 * MIB)


def test_what_is_in_training_already_is_not_changed() -> None:
    parts = [part("a", a_sample=4), part("b")]
    found = change(parts, FCFS, peak(parts, FCFS) - 1, names="b")
    assert found is None


def test_nothing_helps_where_the_process_alone_is_too_large() -> None:
    assert change([part("a"), part("b")], TURNS, CONTEXT) is None


@given(hybrids(), st.sampled_from([TURNS, FCFS]), st.floats(0.2, 1.0))
def test_every_change_fits_and_nothing_is_asked_where_everything_fits(
    parts: tuple[Part, ...], policy: Policy, share: float
) -> None:
    most = int(peak(parts, policy) * share)
    found = smallest_change(parts, policy, peak, most, [one.name for one in parts])
    if found is None:
        return
    assert found.peak_bytes <= most
    entry = found.field.rpartition(".")[2]
    if entry == "name":
        assert peak(parts, policy_named(str(found.value), {})) == found.peak_bytes
    elif found.value is None:
        rest = [one for one in parts if one.name != entry]
        assert peak(rest, policy) == found.peak_bytes
    else:
        name = found.field.split(".")[1]
        applied = [one.changed(**{entry: int(found.value)}) if one.name == name else one for one in parts]
        assert peak(applied, policy) == found.peak_bytes
