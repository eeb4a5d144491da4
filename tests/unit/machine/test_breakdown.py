from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.machine.breakdown import BY_SUBMODEL, SINGLE, Breakdown, Footprint, fitted, on_gpu, on_host, sum_of
from unifiednn_core.machine.gpu import GpuReading

SIZES = st.integers(0, 2**40)
NAMES = st.sampled_from(["lenet", "resnet", "transformer", "mlp"])
FOOTPRINTS = st.dictionaries(NAMES, st.builds(Footprint, SIZES, SIZES, SIZES, st.booleans()))
AT_WORK = st.dictionaries(NAMES, st.none() | SIZES)
ANY_BREAKDOWN = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(SINGLE, SIZES)
    | {kind: st.dictionaries(NAMES, SIZES) for kind in BY_SUBMODEL}
    | {"utilisation": st.floats(0.0, 1.0), "power_w": st.floats(0.0, 900.0)},
)


def parts(breakdown: Breakdown) -> list[int]:
    single = [breakdown[kind] for kind in SINGLE if kind in breakdown]
    return single + [size for kind in BY_SUBMODEL for size in breakdown.get(kind, {}).values()]


@given(total=SIZES, breakdown=ANY_BREAKDOWN)
def test_strata_never_come_to_more_than_the_total_and_none_is_negative(total: int, breakdown: dict[str, Any]) -> None:
    found = fitted(total, breakdown)
    assert all(size >= 0 for size in parts(found))
    assert sum_of(found) <= total
    assert found.keys() == breakdown.keys()
    if sum_of(breakdown) <= total:
        assert found == breakdown, "nothing gives way where nothing has to"
    else:
        assert total - sum_of(found) < 1 + len(parts(breakdown)), "no more gives way than has to, but for rounding"


def test_differences_of_readings_give_way_before_tensors_do() -> None:
    breakdown = {"context": 50, "slack": 10, "data": 20, "weights": {"a": 30}, "transient": {"a": 40}}
    assert fitted(150, breakdown) == breakdown
    assert fitted(120, breakdown) == breakdown | {"transient": {"a": 10}}
    assert fitted(105, breakdown) == breakdown | {"transient": {"a": 0}, "slack": 5}
    assert fitted(60, breakdown) == breakdown | {"transient": {"a": 0}, "slack": 0, "context": 10}
    gone = {"transient": {"a": 0}, "slack": 0, "context": 0}
    assert fitted(25, breakdown) == breakdown | gone | {"data": 10, "weights": {"a": 15}}


@given(total=SIZES, context=st.none() | SIZES, data=SIZES, footprints=FOOTPRINTS, at_work=AT_WORK)
def test_the_host_is_shown_as_far_as_it_is_known(
    total: int, context: int | None, data: int, footprints: dict[str, Footprint], at_work: dict[str, int | None]
) -> None:
    found = on_host(total, context_bytes=context, data_bytes=data, footprints=footprints, at_work=at_work)
    assert sum_of(found) <= total
    assert ("context" in found) == (context is not None)
    assert found.get("transient", {}).keys() == {name for name, size in at_work.items() if size is not None}
    assert "slack" not in found, "glibc does not tell"


@given(
    seen=st.builds(
        GpuReading, process_bytes=st.none() | SIZES, device_bytes=st.none() | SIZES, others_bytes=st.none() | SIZES
    ),
    by_torch=st.fixed_dictionaries(
        {"before_bytes": st.none() | SIZES, "reserved_bytes": SIZES, "allocated_bytes": SIZES}
    ),
    data=SIZES,
    footprints=FOOTPRINTS,
    at_work=AT_WORK,
)
def test_a_gpu_is_shown_as_far_as_it_is_known(
    seen: GpuReading,
    by_torch: dict[str, Any],
    data: int,
    footprints: dict[str, Footprint],
    at_work: dict[str, int | None],
) -> None:
    total, found = on_gpu(seen, **by_torch, data_bytes=data, footprints=footprints, at_work=at_work)
    assert all(size >= 0 for size in parts(found))
    assert total is None or sum_of(found) <= total
    shown = set(found["weights"]) | set(found["gradients"]) | set(found["optimizer"])
    assert all(footprints[name].placed for name in shown), "who is not there takes nothing there"


def test_a_gpu_where_nvml_tells_everything_is_explained_to_the_byte() -> None:
    footprints = {"a": Footprint(100, 100, 200, placed=True), "b": Footprint(70, 0, 0, placed=False)}
    seen = GpuReading(process_bytes=2000, device_bytes=3010, others_bytes=1000)
    by_torch = {"before_bytes": 900, "reserved_bytes": 1500, "allocated_bytes": 1200}
    assert on_gpu(seen, **by_torch, data_bytes=50, footprints=footprints, at_work={"a": 7}) == (
        3010,
        {
            "context": 500,
            "slack": 300,
            "data": 50,
            "weights": {"a": 100},
            "gradients": {"a": 100},
            "optimizer": {"a": 200},
            "transient": {"a": 750},
            "others": 1000,
        },
    ), "10 bytes are unexplained"


def test_where_no_process_is_told_apart_what_the_gpu_grew_by_is_ours() -> None:
    by_torch = {"before_bytes": 900, "reserved_bytes": 1500, "allocated_bytes": 1500}
    total, found = on_gpu(GpuReading(device_bytes=3000), **by_torch, data_bytes=1500, footprints={}, at_work={})
    assert (total, found["context"], found["others"]) == (3000, 600, 900)
    assert sum_of(found) == total


def test_a_gpu_of_which_nothing_is_known_has_no_total() -> None:
    by_torch = {"before_bytes": None, "reserved_bytes": 30, "allocated_bytes": 20}
    total, found = on_gpu(GpuReading(), **by_torch, data_bytes=20, footprints={}, at_work={"a": None})
    assert total is None
    assert found == {"data": 20, "slack": 10, "weights": {}, "gradients": {}, "optimizer": {}, "transient": {"a": 0}}
