from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.preflight.estimate_kit import MIB, hybrids, part
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.estimate import Part, hybrid_bytes
from unifiednn_core.preflight.forecast import smallest_change
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.registry import policy_named

TURNS, FCFS = policy_named("round_robin", {}), policy_named("fcfs", {})
CONTEXT = 100 * MIB


def peak(parts: Sequence[Part], policy: Policy) -> int:
    return hybrid_bytes(parts, policy, device_type="cuda", context_bytes=CONTEXT)


def change(parts: Sequence[Part], policy: Policy, most: int, names: str = "abc") -> tuple[str, str] | None:
    """Entry and remedy."""
    return smallest_change(parts, policy, peak, most, list(names))


def test_another_policy_goes_first_because_it_changes_no_result() -> None:
    parts = [part("a"), part("b")]
    found = change(parts, TURNS, peak(parts, TURNS) - 1)
    remedy = f'Choose the policy "fcfs": then {peak(parts, FCFS) // MIB} MiB are needed.'
    assert found == ("policy.name", remedy)


def test_then_the_smallest_split_of_one_sub_model() -> None:
    parts = [part("a"), part("b", a_sample=4)]
    found = change(parts, FCFS, peak(parts, FCFS) - 1)
    after = memory_text(peak([parts[0], parts[1].changed(batch_split=2)], FCFS))
    remedy = f'Set "batch_split" of b to 2: then {after} are needed.'
    assert found == ("submodels.b.hyperparameters.batch_split", remedy)


def test_where_an_evaluation_is_what_takes_most_only_a_smaller_batch_helps() -> None:
    parts = [part("a", tested=2)]
    found = change(parts, FCFS, peak(parts, FCFS) - 1)
    assert found is not None
    assert found[0] == "submodels.a.hyperparameters.batch_size" and found[1].startswith('Set "batch_size" of a to 16:')


def test_at_last_one_is_left_for_a_run_of_its_own_the_smallest_that_is_enough() -> None:
    parts = [part(name, weights=size) for name, size in zip("abc", (10, 30, 90), strict=True)]

    def weights(these: Sequence[Part], _policy: Policy) -> int:
        return sum(one.need.weights_bytes for one in these)

    found = smallest_change(parts, FCFS, weights, 100 * MIB, "abc")
    assert found == ("submodels.b", "Submit b as a separate run: then 100 MiB are needed.")


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
    field, remedy = found
    entry, value = field.rpartition(".")[2], remedy.partition(":")[0].rpartition(" ")[2].strip('"')
    if entry == "name":
        peak_bytes = peak(parts, policy_named(value, {}))
    elif field.count(".") == 1:
        peak_bytes = peak([one for one in parts if one.name != entry], policy)
    else:
        name = field.split(".")[1]
        peak_bytes = peak([one.changed(**{entry: int(value)}) if one.name == name else one for one in parts], policy)
    assert peak_bytes <= most
    assert f"then {memory_text(peak_bytes)} are needed" in remedy
