"""What placement decides, by examples."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.scheduling.placement_kit import GIB, MIB, device, entry, need
from unifiednn_core.scheduling.line import DeviceView, FleetView, HybridView, Placed, Plan, Waiting
from unifiednn_core.scheduling.placement import decide
from unifiednn_core.spec.sharing import Sharing, SharingRule

ONE, TWO = device("cuda:0"), device("cuda:1")
CPU = device("cpu", type="cpu")
EVERYONE = SharingRule(Sharing.EVERYONE)


def fleet(devices: Sequence[DeviceView], *waiting: Waiting, **given: object) -> FleetView:
    plain = {"now_s": 10.0, "devices": tuple(devices), "waiting": waiting, "rule": EVERYONE}
    return FleetView(**{**plain, **given})  # type: ignore[arg-type]


def hybrid(
    on: DeviceView, *lefts_s: float | None, there: Sequence[DeviceView] = (ONE, TWO), **given: object
) -> HybridView:
    """A hybrid whose members have so many seconds left."""
    members = tuple(
        Placed(
            key=f"{on.name}/{place}",
            run_id=on.name,
            devices=frozenset(one.name for one in there),
            people=("ann-zz",),
            need=need(100, 100),
            left_s=left_s,
        )
        for place, left_s in enumerate(lefts_s)
    )
    plain = {
        "id": f"h{on.name}",
        "device": on.name,
        "private": False,
        "threads": 1,
        "profile": "exact",
        "members": members,
    }
    return HybridView(**{**plain, **given})  # type: ignore[arg-type]


def places(plan: Plan) -> list[tuple[str, str | None, int]]:
    return [(one.device, one.hybrid_id, len(one.keys)) for one in plan.placements]


def test_two_people_on_one_gpu_are_one_hybrid_and_two_gpus_train_one_each() -> None:
    one = [entry(place, [ONE], people=(person,)) for place, person in enumerate(("ann-zz", "bob-zz"))]
    assert places(decide(fleet([ONE], *one))) == [("cuda:0", None, 2)]
    both = [replace(two, devices=frozenset(("cuda:0", "cuda:1"))) for two in one]
    assert places(decide(fleet([ONE, TWO], *both))) == [("cuda:0", None, 1), ("cuda:1", None, 1)]


def test_keys_of_one_placement_are_in_the_order_of_the_line() -> None:
    entries = [entry(place, [ONE, TWO], left_s=10.0 + place) for place in range(6)]
    for placement in decide(fleet([ONE, TWO], *reversed(entries))).placements:
        assert list(placement.keys) == sorted(placement.keys) and len(placement.keys) == 3


def test_who_may_not_share_a_process_never_does() -> None:
    both = [entry(place, [ONE], people=(person,)) for place, person in enumerate(("ann-zz", "bob-zz"))]
    plan = decide(fleet([ONE], *both, rule=SharingRule(Sharing.OWN)))
    assert places(plan) == [("cuda:0", None, 1)]
    assert plan.waits == {"s1zz/netzz": "any device to be free; cuda:0 is the first"}
    lent = entry(0, [ONE], people=("ann-zz", "bob-zz"))
    plan = decide(fleet([ONE], lent, entry(1, [ONE]), rule=SharingRule(Sharing.OWN)))
    assert plan.waits["s0zz/netzz"].startswith("permission to share a process: an admin")
    assert places(plan) == [("cuda:0", None, 1)]  # it keeps nobody waiting


@pytest.mark.parametrize(
    ("on", "other"), [(CPU, {"threads": 2}), (ONE, {"profile": "fast"}), (ONE, {"private": True, "peak_bytes": GIB})]
)
def test_another_recipe_needs_a_hybrid_of_its_own(on: DeviceView, other: dict[str, object]) -> None:
    plan = decide(fleet([on], entry(0, [on]), entry(1, [on], **other)))
    assert (places(plan), list(plan.waits)) == ([(on.name, None, 1)], ["s1zz/netzz"])


def test_on_a_gpu_the_number_of_cpu_threads_parts_nobody() -> None:
    there = hybrid(ONE, 50.0, there=[ONE], threads=15)
    plan = decide(fleet([ONE], entry(0, [ONE], threads=2), entry(1, [ONE]), hybrids=(there,)))
    assert places(plan) == [("cuda:0", "hcuda:0", 2)] and plan.placements[0].threads == 15


def test_one_alone_may_take_the_whole_device_and_several_nine_tenths() -> None:
    whole = need(7600 // 2, 0)  # and as much again while its checkpoint is written; the context is 512 MiB
    assert places(decide(fleet([ONE], entry(0, [ONE], need=whole)))) == [("cuda:0", None, 1)]
    halves = [entry(place, [ONE], need=need(size, 0)) for place, size in enumerate((1700, 1700))]
    assert places(decide(fleet([ONE], *halves))) == [("cuda:0", None, 2)]
    more = [entry(place, [ONE], need=need(size, 0)) for place, size in enumerate((1700, 1800))]
    assert places(decide(fleet([ONE], *more))) == [("cuda:0", None, 1)]


def test_memory_of_other_programs_counts() -> None:
    busy = replace(ONE, free_bytes=700 * MIB)
    assert decide(fleet([busy], entry(0, [ONE]))).waits == {
        "s0zz/netzz": "762 MiB on any device; cuda:0 has 700 MiB free"
    }
    assert places(decide(fleet([busy, TWO], entry(0, [ONE, TWO])))) == [("cuda:1", None, 1)]


def test_what_a_hybrid_is_promised_and_has_not_taken_yet_is_not_free() -> None:
    members = hybrid(ONE, 50.0, 50.0, there=[ONE])
    free = replace(ONE, free_bytes=400 * MIB)
    assert places(decide(fleet([free], entry(0, [ONE]), hybrids=(members,)))) == [("cuda:0", "hcuda:0", 1)]
    starting = replace(members, used_bytes=300 * MIB)
    assert places(decide(fleet([free], entry(0, [ONE]), hybrids=(starting,)))) == []


def test_logical_cpus_share_the_memory_of_their_host() -> None:
    cpus = [device(name, type="cpu", pool="host", free_bytes=3 * GIB) for name in ("cpu", "cpu:1")]
    entries = [entry(place, cpus, need=need(700, 0)) for place in range(2)]
    plan = decide(fleet(cpus, *entries))
    assert places(plan) == [("cpu", None, 1)]
    assert plan.waits == {"s1zz/netzz": "1,400 MiB on any device; cpu has 1,160 MiB free"}


def test_a_network_of_unknown_memory_trains_alone() -> None:
    unknown = entry(0, [ONE], need=None)
    assert places(decide(fleet([ONE], unknown, entry(1, [ONE])))) == [("cuda:0", None, 1)]
    assert places(decide(fleet([ONE], unknown, hybrids=(hybrid(ONE, 5.0),)))) == []
    alone = hybrid(ONE, 5.0)
    alone = replace(alone, members=tuple(replace(one, need=None) for one in alone.members))
    assert places(decide(fleet([ONE], entry(1, [ONE]), hybrids=(alone,)))) == []


def test_newcomers_join_the_hybrid_with_the_least_left_unless_another_one_has_their_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = (hybrid(ONE, 100.0), hybrid(TWO, 40.0, 40.0))
    assert places(decide(fleet([ONE, TWO], entry(0, [ONE, TWO]), hybrids=busy))) == [("cuda:1", "hcuda:1", 1)]
    with_data = need(100, 100, {"x": 500})
    holds = replace(busy[0], members=tuple(replace(one, need=with_data) for one in busy[0].members))
    view = fleet([ONE, TWO], entry(0, [ONE, TWO], need=with_data), hybrids=(holds, busy[1]))
    assert places(decide(view)) == [("cuda:1", "hcuda:1", 1)]  # a fast disk saves little
    monkeypatch.setattr("unifiednn_core.scheduling.placement.READ_BYTES_PER_S", 10 * MIB)
    assert places(decide(view)) == [("cuda:0", "hcuda:0", 1)]


def test_free_devices_are_left_to_those_who_can_use_no_other() -> None:
    plan = decide(fleet([ONE, TWO], entry(0, [ONE, TWO]), entry(1, [ONE]), mode="private"))
    assert places(plan) == [("cuda:0", None, 1), ("cuda:1", None, 1)]


def test_those_who_gather_start_together_and_nobody_joins_them() -> None:
    def gathered(*waiting: Waiting, **given: object) -> Plan:
        return decide(fleet([ONE, TWO], *waiting, mode="gathered", gather_n=3, gather_s=60.0, **given))

    first, second, third = (entry(place, [ONE, TWO]) for place in range(3))
    assert gathered(first).waits == {"s0zz/netzz": "2 more submissions or 50 s"}
    assert gathered(first, second).waits["s1zz/netzz"] == "1 more submission or 50 s"
    assert places(gathered(first, second, third)) == [("cuda:0", None, 3)]
    assert places(gathered(first, now_s=61.0)) == [("cuda:0", None, 1)]
    private = entry(0, [ONE, TWO], private=True, peak_bytes=GIB)
    assert places(gathered(private)) == [("cuda:0", None, 1)]
    running = hybrid(ONE, 50.0)
    assert places(gathered(first, second, third, hybrids=(running,))) == [("cuda:1", None, 3)]
    other = replace(second, profile="fast")
    assert len(gathered(first, other).waits) == 2


def test_in_private_mode_each_has_a_hybrid_of_its_own() -> None:
    plan = decide(fleet([ONE], entry(0, [ONE]), entry(1, [ONE]), mode="private"))
    assert (places(plan), list(plan.waits)) == ([("cuda:0", None, 1)], ["s1zz/netzz"])


def test_everybody_leaves_a_device_that_is_drained_and_nobody_comes() -> None:
    drained = replace(ONE, state="draining")
    plan = decide(fleet([drained], entry(0, [ONE], asked="cuda:0"), hybrids=(hybrid(ONE, 50.0, None),)))
    assert [move.key for move in plan.moves] == ["cuda:0/0", "cuda:0/1"]
    assert plan.waits == {"s0zz/netzz": "cuda:0; cuda:0 is drained"}
    told = hybrid(ONE, 50.0)
    told = replace(told, members=tuple(replace(one, leaving=True) for one in told.members))
    assert decide(fleet([drained], hybrids=(told,))).moves == ()


def test_a_hybrid_of_several_shares_out_to_a_free_device_where_that_pays() -> None:
    busy = hybrid(ONE, 300.0, 300.0, 300.0, 300.0)
    moves = decide(fleet([ONE, TWO], hybrids=(busy,))).moves
    assert [(move.hybrid_id, move.reason) for move in moves] == [("hcuda:0", "cuda:1 is free.")] * 2
    assert len(decide(fleet([ONE, TWO], hybrids=(hybrid(ONE, 300.0, 30.0),))).moves) == 0  # it saves 30 s, less 5 s
    assert len(decide(fleet([ONE, TWO], hybrids=(hybrid(ONE, 300.0, 31.0),))).moves) == 1
    for still in ({"left_s": None}, {"moved_at_s": 0.0}, {"devices": frozenset(["cuda:0"])}):
        stays = replace(busy, members=tuple(replace(one, **still) for one in busy.members))  # type: ignore[arg-type]
        assert decide(fleet([ONE, TWO], hybrids=(stays,))).moves == ()
    only = entry(0, [TWO], need=None, asked="cuda:1")
    view = fleet([ONE, replace(TWO, resting=True)], only, hybrids=(busy,))
    assert decide(view).moves == ()
    assert decide(replace(view, mode="private", waiting=())).moves == ()


def test_what_each_one_waits_for() -> None:
    hopeless = entry(0, [ONE], need=need(9000, 0))
    assert decide(fleet([ONE], hopeless)).waits["s0zz/netzz"] == (
        "18.1 GiB on any device; cuda:0 has 8,192 MiB in all. Stop it, and submit it with smaller batches"
    )
    assert decide(fleet([ONE], replace(hopeless, private=True))).waits  # its need counts where no peak is predicted
    nowhere = entry(0, [], asked="H200")
    assert decide(fleet([ONE], nowhere)).waits["s0zz/netzz"] == "any H200, which this server does not have now"
    began = replace(nowhere, kind="H200, driver 570")
    like = "a device like the one it began on (H200, driver 570), so that its bits stay the same; "
    allow = "'unifiednn edit s0zz --moves any' lets it use another kind"
    assert decide(fleet([ONE], began)).waits["s0zz/netzz"] == f"{like}none is there now. {allow}"
    away = replace(ONE, name="n7/cuda:0", state="away")
    for asked, told in [
        ("auto", f"{like}n7/cuda:0 is away. {allow}"),
        ("n7", "a device of n7; n7/cuda:0 is away"),
        ("n7/cuda:0", "n7/cuda:0; n7/cuda:0 is away"),
    ]:
        gone = replace(began, asked=asked, devices=frozenset([away.name]))
        assert decide(fleet([TWO, away], gone)).waits["s0zz/netzz"] == told
    busy = hybrid(ONE, 120.0, 80.0, private=True, there=[ONE])
    waiting = [entry(place, [ONE], asked="cuda", kind="H200") for place in range(3)]
    assert list(decide(fleet([ONE], *waiting, hybrids=(busy,))).waits.values()) == [
        "any H200 to be free; cuda:0 is the first",
        "its turn; 1 is before it in line",
        "its turn; 2 are before it in line",
    ]
    starting = replace(ONE, resting=True)
    waits = decide(fleet([starting], entry(0, [ONE]), hybrids=(hybrid(ONE, 5.0),))).waits
    assert waits["s0zz/netzz"] == "cuda:0, which starts in a moment"


def test_a_smaller_one_overtakes_only_where_the_first_does_not_start_earlier() -> None:
    large = entry(0, [ONE, TWO], private=True, peak_bytes=7 * GIB)
    small = entry(1, [ONE, TWO], left_s=5.0)
    only_one = entry(2, [ONE], left_s=5.0, asked="cuda:0")
    soon, late = hybrid(ONE, 20.0), hybrid(TWO, 30.0)
    plan = decide(fleet([ONE, TWO], large, small, only_one, hybrids=(soon, late)))
    assert places(plan) == [("cuda:1", "hcuda:1", 1)]  # the first will take cuda:0, in 20 s
    assert set(plan.waits) == {"s0zz/netzz", "s2zz/netzz"}
    unknown = hybrid(ONE, None)
    assert places(decide(fleet([ONE, TWO], large, small, hybrids=(unknown, hybrid(TWO, None))))) == []
    elsewhere = entry(0, [ONE], private=True, peak_bytes=7 * GIB, asked="cuda:0")
    assert places(decide(fleet([ONE, TWO], elsewhere, small, hybrids=(unknown, late)))) == [("cuda:1", "hcuda:1", 1)]
