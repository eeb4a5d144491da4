from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.preflight.estimate_kit import MIB, hybrids, need, part
from unifiednn_core.preflight.estimate import (
    CONTEXT_BYTES,
    FIRST_STEP_BYTES,
    SLACK_SHARE,
    Part,
    baseline_bytes,
    context_of,
    predict,
)
from unifiednn_core.preflight.memory_over_time import MemoryModel, memory_over_time
from unifiednn_core.preflight.prediction import Prediction
from unifiednn_core.scheduling.registry import POLICIES as ALL_POLICIES
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.scheduling.simulator import SimulatedTurn

CONTEXT = 100 * MIB
DEVICES = st.sampled_from(["cpu", "cuda"])
POLICIES = st.sampled_from([policy.name for policy in ALL_POLICIES])


def predicted(parts: Sequence[Part], policy: str = "fcfs", device: str = "cuda") -> Prediction:
    return predict(parts, policy_named(policy, {}), device_type=device, context_bytes=CONTEXT)


def transient(size_mib: int, gradients_mib: int, device: str) -> int:
    """With what the allocator keeps."""
    return int(MIB * (size_mib + SLACK_SHARE["glibc" if device == "cpu" else device] * (size_mib + gradients_mib)))


def test_one_sub_model_on_a_gpu_is_the_sum_of_its_parts() -> None:
    found = predicted([part(batch=32)])
    assert found.peak_bytes == CONTEXT + (4 + 4 + 8 + 2) * MIB + transient(32, 4, "cuda")
    [alone] = found.submodels
    assert alone.peak_bytes == found.peak_bytes - CONTEXT
    assert found.paper_bytes == alone.paper_bytes == found.peak_bytes
    assert not alone.measured


def test_on_a_gpu_who_waits_holds_nothing_and_who_has_started_keeps_all_but_temporary_memory() -> None:
    parts = [part("a"), part("b", weights=10, optimizer=20)]
    fcfs, turns = (predicted(parts).by_policy[name] for name in ("fcfs", "round_robin"))
    assert fcfs == CONTEXT + (10 + 10 + 20 + 2) * MIB + transient(32, 10, "cuda")
    assert turns == fcfs + (4 + 4 + 8) * MIB


def test_equation_2_is_true_on_a_gpu_if_idle_ones_leave_it() -> None:
    sizes: list[dict[str, int]] = [{}, {"weights": 10, "optimizer": 20}, {"a_sample": 3}]
    staying, leaving = (
        [part(str(place), data={}, leaves=leaves, **size) for place, size in enumerate(sizes)]
        for leaves in (False, True)
    )
    found = predicted(leaving)
    assert set(found.by_policy.values()) == {found.paper_bytes}
    assert predicted(staying).by_policy["round_robin"] > predicted(staying).paper_bytes == found.paper_bytes
    assert predicted(leaving, device="cpu") == predicted(staying, device="cpu"), "on a CPU it changes nothing"


def test_over_time_an_idle_one_that_leaves_counts_only_in_its_turns() -> None:
    parts = (part("a", data={}, leaves=True), part("b", data={}, weights=10, optimizer=20, leaves=True))
    turns = [SimulatedTurn(name, at, at + 1.0, 1, "") for at, name in enumerate("abab")]
    model = MemoryModel(parts=parts, device_type="cuda", context_bytes=CONTEXT)
    alone = {one.name: predicted([one]).peak_bytes for one in parts}
    points = dict(memory_over_time(turns, model))
    assert points == {0.0: alone["a"], 1.0: alone["b"], 2.0: alone["a"], 3.0: alone["b"], 4.0: CONTEXT}


def test_on_the_host_the_weights_of_all_are_there_from_the_beginning() -> None:
    parts = [part("a"), part("b", weights=10, optimizer=20, a_sample=0)]
    found = predicted(parts, device="cpu").by_policy["fcfs"]
    assert found == CONTEXT + (4 + 10 + 8 + 4 + 2) * MIB + transient(32, 4, "cpu")


def test_checkpoints_on_the_host_count_where_the_allocator_keeps_less() -> None:
    [small] = [part(weights=50, optimizer=100, a_sample=0)]
    kept = transient(0, 50, "cpu")
    found = predicted([small], device="cpu").peak_bytes
    assert found == CONTEXT + (50 + 50 + 100 + 2) * MIB + kept + max(0, 150 * MIB - kept)


def test_a_shared_data_set_counts_once() -> None:
    same = predicted([part("a"), part("b")], "round_robin").peak_bytes
    other = predicted([part("a"), part("b", data={"other": 2})], "round_robin").peak_bytes
    assert other == same + 2 * MIB


def test_a_measurement_replaces_the_estimate_but_not_what_was_seen_to_live() -> None:
    estimated, measured, too_small = (
        predicted([part(measured_bytes=size)], device="cpu").submodels[0] for size in (None, 40 * MIB, MIB)
    )
    assert (estimated.measured, measured.measured) == (False, True)
    assert estimated.transient_bytes == transient(32, 4, "cpu")
    assert measured.transient_bytes == 40 * MIB
    assert too_small.transient_bytes == 32 * MIB


def test_a_measured_context_is_taken_and_what_the_first_step_loads_is_added() -> None:
    assert context_of("cpu", None) == CONTEXT_BYTES["glibc"] + FIRST_STEP_BYTES["cpu"]
    assert context_of("cuda", 7 * MIB) == 7 * MIB + FIRST_STEP_BYTES["cuda"]


def test_a_split_batch_needs_the_memory_of_its_parts_and_the_evaluation_that_of_all() -> None:
    whole, split = need(batch=33), need(batch=33, split=4)
    assert (whole.transient_bytes, split.transient_bytes) == (33 * MIB, (9 + 1) * MIB)
    assert need(batch=32, split=8, a_sample=1, tested=1).transient_bytes == 32 * MIB
    assert whole.changed(batch_split=33).transient_bytes == 2 * MIB


def test_the_concurrent_baseline_pays_for_every_process_and_the_sequential_one_for_the_largest() -> None:
    parts = [part("a"), part("b", weights=40)]
    alone = [predicted([one]).peak_bytes for one in parts]
    sums = [baseline_bytes(parts, mode, device_type="cuda", context_bytes=CONTEXT) for mode in ("concurrent", "x")]
    assert sums == [sum(alone), max(alone)]


@pytest.mark.parametrize("mode", ["concurrent", "sequential"])
def test_a_baseline_needs_the_memory_of_steps_without_techniques(mode: str) -> None:
    def baseline(*parts: Part) -> int:
        return baseline_bytes(parts, mode, device_type="cuda", context_bytes=CONTEXT)

    plain, nodes = part("a", batch=64), part("a", batch=64, split=8, measured_bytes=9 * MIB)
    with_nodes = nodes.model_copy(update={"plain": plain.need})
    assert baseline(with_nodes, part("b")) == baseline(plain, part("b")) > baseline(nodes, part("b"))
    assert predicted([with_nodes]) == predicted([nodes]), "the hybrid uses them"
    smaller = with_nodes.changed(batch_size=16)
    assert baseline(smaller) == baseline(part("a", batch=16))
    assert Part.model_validate_json(with_nodes.model_dump_json()) == with_nodes


@given(hybrids(), POLICIES, DEVICES)
def test_a_hybrid_needs_at_least_what_each_needs_alone_and_what_the_paper_says(
    parts: tuple[Part, ...], policy: str, device: str
) -> None:
    found = predicted(parts, policy, device)
    assert found.peak_bytes == found.by_policy[policy]
    assert all(found.peak_bytes >= CONTEXT + alone.peak_bytes for alone in found.submodels)
    assert found.peak_bytes >= found.paper_bytes == max(alone.paper_bytes for alone in found.submodels)


@given(hybrids(), POLICIES, DEVICES)
def test_a_hybrid_never_needs_more_than_all_processes_of_the_concurrent_baseline_and_its_checkpoints(
    parts: tuple[Part, ...], policy: str, device: str
) -> None:
    concurrent = baseline_bytes(parts, "concurrent", device_type=device, context_bytes=CONTEXT)
    copies = 0 if device == "cuda" else sum(p.need.weights_bytes + p.need.optimizer_bytes for p in parts)
    assert predicted(parts, policy, device).peak_bytes <= concurrent + copies


@given(hybrids(), DEVICES)
def test_taking_turns_needs_at_least_what_one_after_the_other_needs(parts: tuple[Part, ...], device: str) -> None:
    found = predicted(parts, "fcfs", device).by_policy
    assert found["round_robin"] >= found["fcfs"]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 8), DEVICES, POLICIES)
def test_a_larger_batch_never_needs_less_and_a_larger_split_of_two_or_more_never_more(
    one: int, other: int, split: int, device: str, policy: str
) -> None:
    small, large = sorted((one, other))
    sizes = [
        predicted([part(batch=large).changed(batch_size=size)], policy, device).peak_bytes for size in (small, large)
    ]
    assert sizes[0] <= sizes[1]
    more, fewer = (predicted([part(batch=large, split=k)], policy, device).peak_bytes for k in (split + 2, split + 1))
    assert more <= fewer


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_a_measurement_there_is_a_context_for_every_kind_of_device(device: str) -> None:
    assert context_of(device, None) > 100 * MIB
