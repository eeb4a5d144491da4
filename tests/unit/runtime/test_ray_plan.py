from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rows import run_of
from unifiednn_core.runtime.ray_plan import (
    GRANT_S,
    REST_S,
    ClusterView,
    Reservation,
    Reservations,
    TrainingNode,
    demand_of,
    next_plan,
)

IDLE_S = 300.0


def gpus(name: str, units: int) -> TrainingNode:
    return TrainingNode(id=name, host=name, resource="GPU", units=units)


def seen(
    now_s: float, *nodes: TrainingNode, waits: int = 0, used: set[str] | None = None, ready: set[str] | None = None
) -> ClusterView:
    asked = {f"run{number}": 1 for number in range(waits)}
    return ClusterView(now_s=now_s, nodes=nodes, waits=asked, used=used or set(), ready=ready or set())


def granted(plan: Reservations, at_s: float = 0.0) -> Reservations:
    """The plan once Ray has granted everything."""
    groups = (
        Reservation(
            node=one.node,
            number=one.number,
            since_s=at_s,
            devices=one.devices or frozenset({f"{one.node}/cuda:{one.number}"}),
            withdrawn=one.withdrawn,
        )
        for one in plan.groups
    )
    return Reservations(groups=tuple(groups), resting=plan.resting, unserved=plan.unserved)


def test_nothing_is_reserved_while_nothing_waits() -> None:
    assert next_plan(Reservations(), seen(0.0, gpus("a", 8)), IDLE_S) == Reservations()


def test_what_waits_gets_as_many_devices_as_it_can_use() -> None:
    plan = next_plan(Reservations(), seen(0.0, gpus("a", 2), gpus("b", 2), waits=3), IDLE_S)
    assert [(group.node, group.number) for group in plan.groups] == [("a", 0), ("a", 1), ("b", 0)]
    assert plan.short == 0
    assert next_plan(plan, seen(1.0, gpus("a", 2), gpus("b", 2), waits=3), IDLE_S).groups == plan.groups


def test_what_no_node_has_is_told_to_the_autoscaler() -> None:
    assert next_plan(Reservations(), seen(0.0, gpus("a", 2), waits=5), IDLE_S).short == 3


def test_a_node_whose_gpus_others_use_is_left_alone_for_a_while() -> None:
    view = (gpus("a", 1),)
    plan = next_plan(Reservations(), seen(0.0, *view, waits=1), IDLE_S)
    plan = next_plan(plan, seen(GRANT_S, *view, waits=1), IDLE_S)
    assert plan.groups == () and plan.short == 1
    assert next_plan(plan, seen(GRANT_S + REST_S / 2, *view, waits=1), IDLE_S).groups == ()
    assert len(next_plan(plan, seen(GRANT_S + REST_S, *view, waits=1), IDLE_S).groups) == 1


def test_an_idle_device_is_withdrawn_first_and_given_back_once_nothing_can_be_placed_there() -> None:
    node = gpus("a", 1)
    plan = granted(next_plan(Reservations(), seen(0.0, node, waits=1), IDLE_S))
    assert plan.offered("a") == {"a/cuda:0"}
    plan = next_plan(plan, seen(IDLE_S, node, ready={"a/cuda:0"}), IDLE_S)
    assert plan.groups and plan.offered("a") == frozenset()
    plan = next_plan(plan, seen(IDLE_S + 1, node, ready={"a/cuda:0"}), IDLE_S)
    assert plan.groups, "its agent may still start a worker there"
    assert next_plan(plan, seen(IDLE_S + 2, node), IDLE_S).groups == ()


def test_a_device_that_gets_work_at_the_last_moment_stays() -> None:
    node = gpus("a", 1)
    plan = granted(next_plan(Reservations(), seen(0.0, node, waits=1), IDLE_S))
    plan = next_plan(plan, seen(IDLE_S, node, ready={"a/cuda:0"}), IDLE_S)
    plan = next_plan(plan, seen(IDLE_S + 1, node, used={"a/cuda:0"}), IDLE_S)
    assert plan.offered("a") == {"a/cuda:0"}


def test_runs_that_leave_devices_idle_are_not_counted_again() -> None:
    node = gpus("a", 1)
    plan = granted(next_plan(Reservations(), seen(0.0, node, waits=1), IDLE_S))
    plan = next_plan(plan, seen(IDLE_S, node, waits=1, ready={"a/cuda:0"}), IDLE_S)
    plan = next_plan(plan, seen(IDLE_S + 1, node, waits=1), IDLE_S)
    assert plan.groups == () and plan.short == 0
    assert len(next_plan(plan, seen(IDLE_S + 2, node, waits=2), IDLE_S).groups) == 1, "another run waits"


def test_groups_of_a_dead_node_are_forgotten() -> None:
    plan = granted(next_plan(Reservations(), seen(0.0, gpus("a", 1), waits=1), IDLE_S))
    assert next_plan(plan, seen(1.0, used={"a/cuda:0"}), IDLE_S).groups == ()


def test_a_group_is_known_by_its_name() -> None:
    group = Reservation(node="0123abc", number=7, since_s=5.0)
    assert Reservation.named(group.name, 5.0) == group
    assert Reservation.named("somebody", 0.0) is None
    assert Reservation.named("somebody/else/7", 0.0) is None
    assert Reservation.named("unifiednn/node/x", 0.0) is None


def test_demand_is_what_runs_claim_and_one_device_for_all_that_share() -> None:
    placed = [{"placement": {"devices": 2, "claim": True}}]
    runs = [
        run_of(id="pair", device="cuda", shared=False, mode="hybrid", spec={"submodels": placed}),
        run_of(id="one", device="auto", shared=False, mode="hybrid", spec={"submodels": [{}]}),
        run_of(id="s1", device="auto", shared=True, mode="hybrid", spec={"submodels": [{}]}),
        run_of(id="s2", device="H200", shared=True, mode="hybrid", spec={"submodels": [{}]}),
        run_of(id="slow", device="cpu", shared=False, mode="hybrid", spec={"submodels": [{}]}),
        run_of(id="far", device="a/cpu:1", shared=False, mode="hybrid", spec={"submodels": [{}]}),
    ]
    assert demand_of(runs, "cuda") == {"pair": 2, "one": 1, "s1": 1, "s2": 0}
    assert demand_of(runs, "cpu") == {"one": 1, "s1": 1, "s2": 0, "slow": 1, "far": 1}


moments = st.lists(
    st.tuples(
        st.integers(0, 400),  # seconds since the last moment
        st.integers(0, 5),  # runs that wait
        st.sets(st.sampled_from(["a/cuda:0", "a/cuda:1", "b/cuda:0"])),  # in use, where granted
        st.booleans(),  # whether Ray grants what is asked
        st.booleans(),  # whether node b lives
    ),
    max_size=30,
)


@given(moments)
def test_whatever_happens_nothing_in_use_is_given_back(story: list[tuple[int, int, set[str], bool, bool]]) -> None:
    plan, now_s = Reservations(), 0.0
    for after_s, waits, asked, grants, b_lives in story:
        now_s += after_s
        nodes = (gpus("a", 2), *([gpus("b", 1)] if b_lives else []))
        reserved = {name for group in plan.groups for name in group.devices or ()}
        used = asked & reserved
        before, plan = plan, next_plan(plan, seen(now_s, *nodes, waits=waits, used=used, ready=reserved), IDLE_S)
        names = [group.name for group in plan.groups]
        assert len(names) == len(set(names))
        assert all(group.number < node.units for node in nodes for group in plan.groups if group.node == node.id)
        kept = {name for group in plan.groups for name in group.devices or ()}
        assert {name for name in used if b_lives or name.startswith("a")} <= kept
        assert used & kept <= plan.offered("a") | plan.offered("b")
        ready_before = {name for group in before.groups for name in group.devices or ()}
        gone = ready_before - kept
        assert all(name.startswith("b") and not b_lives for name in gone), "it may still be used"
        plan = granted(plan, now_s) if grants else plan
    for _ in range(4):  # nothing waits any more, and agents have heard
        now_s += 1000
        plan = next_plan(granted(plan, 0.0), seen(now_s, gpus("a", 2), gpus("b", 1)), IDLE_S)
    assert plan.groups == ()
