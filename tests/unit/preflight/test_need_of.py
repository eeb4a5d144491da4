"""What placement knows of the memory of a hybrid, against the prediction of the same hybrid."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.preflight.estimate_kit import MIB, hybrids
from unifiednn_core.preflight.estimate import Part, need_of, predict
from unifiednn_core.scheduling.placement import hybrid_bytes
from unifiednn_core.scheduling.registry import POLICIES, policy_named

CONTEXT = 100 * MIB
DEVICES = st.sampled_from([("cpu", "glibc"), ("cpu", "mimalloc"), ("cuda", "glibc")])
LANES = st.integers(1, 3)


def bound(parts: Sequence[Part], device: tuple[str, str], lanes: int) -> int:
    return hybrid_bytes([need_of(part, *device) for part in parts], CONTEXT, lanes=lanes)


@settings(deadline=None)
@given(hybrids(), DEVICES, LANES)
def test_placement_never_counts_less_than_the_prediction_under_any_policy(
    parts: tuple[Part, ...], device: tuple[str, str], lanes: int
) -> None:
    placed = bound(parts, device, lanes)
    for policy in POLICIES:
        found = predict(parts, policy(), device_type=device[0], allocator=device[1], context_bytes=CONTEXT, lanes=lanes)
        assert max(found.by_policy.values()) <= placed


@settings(deadline=None)
@given(hybrids(), DEVICES, LANES)
def test_it_counts_what_taking_turns_needs_once_all_have_started(
    parts: tuple[Part, ...], device: tuple[str, str], lanes: int
) -> None:
    long = [part.model_copy(update={"epochs": 3}) for part in parts]
    turns = predict(
        long,
        policy_named("round_robin", {}),
        device_type=device[0],
        allocator=device[1],
        context_bytes=CONTEXT,
        lanes=lanes,
    )
    assert bound(long, device, lanes) == turns.peak_bytes


def test_a_common_data_set_counts_once() -> None:
    @given(hybrids())
    @settings(deadline=None, max_examples=20)
    def check(parts: tuple[Part, ...]) -> None:
        needs = [need_of(part, "cuda") for part in parts]
        data = {sha256: size for need in needs for sha256, size in need.data.items()}
        apart = sum(sum(need.data.values()) for need in needs)
        without = [
            need_of(part.model_copy(update={"need": part.need.model_copy(update={"data": {}})}), "cuda")
            for part in parts
        ]
        assert hybrid_bytes(needs, 0) - hybrid_bytes(without, 0) == sum(data.values()) <= apart

    check()
