from dataclasses import replace

import pytest

from tests.clock import SimulatedClock
from tests.unit.service.kit import ALICE, OPERATOR, VIEWER, World
from tests.unit.store.test_store import BERTH, add_run
from unifiednn_core.base.errors import Forbidden
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.devices import Device, on_host
from unifiednn_core.store import Store
from unifiednn_core.store.devices import FRESH_S
from unifiednn_core.views import device_text

GPU = Device(
    name="cuda:0",
    type="cuda",
    host="h",
    index=0,
    kind="H200, driver 570",
    total_bytes=2**37,
    threads=8,
    uuid="GPU-1",
    cpus=(3, 4),
)
CPU = Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC, AVX2, 7 threads", total_bytes=2**35, threads=7)


def test_a_list_is_current_also_where_no_supervisor_runs(here: World, clock: SimulatedClock) -> None:
    own = {one.name for one in devices_of_host()}
    here.store.devices.write((replace(GPU, name="cuda:9"),))
    assert [view.name for view in here.of(OPERATOR).devices.devices()] == ["cuda:9"], "somebody looked just now"
    clock.advance(FRESH_S)
    later = Service(here.home, Store.open(here.home, clock), here.service._supervisor, clock).devices.devices()
    assert {view.name: view.state for view in later} == {"cuda:9": "away"} | dict.fromkeys(own, "ready")


def test_operators_see_devices_and_submitters_what_they_can_ask_for(here: World) -> None:
    here.store.devices.write((GPU, CPU))
    first, second = here.of(OPERATOR).devices.devices()
    assert (first.name, first.type, first.kind, first.uuid, first.cpus) == ("cuda:0", "cuda", GPU.kind, "GPU-1", (3, 4))
    assert (second.total_bytes, second.limit_bytes, second.threads, second.state) == (2**35, None, 7, "ready")
    here.of(OPERATOR).devices.drain_device("cpu")
    choices = here.of(ALICE).devices.device_choices()
    assert [(one.name, one.kind) for one in choices] == [(GPU.name, GPU.kind), (CPU.name, CPU.kind)]
    assert "draining" not in repr(choices) and str(GPU.total_bytes) not in repr(choices)
    here.store.devices.write((CPU,))
    assert [one.name for one in here.of(ALICE).devices.device_choices()] == ["cpu"], "the other one is away"
    for call in (here.of(ALICE).devices.devices, here.of(VIEWER).devices.device_choices):
        with pytest.raises(Forbidden):
            call()


def test_devices_are_listed_host_by_host_gpus_first(here: World) -> None:
    here.store.devices.write([on_host(one, "a") for one in (CPU, GPU, replace(GPU, name="cuda:1", index=1))], "a")
    here.store.devices.write((GPU, CPU))
    names = [one.name for one in here.of(OPERATOR).devices.devices()]
    assert names == ["cuda:0", "a/cuda:0", "a/cuda:1", "cpu", "a/cpu"]
    assert [one.name for one in here.of(OPERATOR).devices.cards()] == names


PROCESS = {"pid": 1234, "user": "mallory", "name": "secret_job.py", "size_bytes": 333_333}
USED = {
    "total_bytes": 2**37,
    "own_bytes": 222_222,
    "free_bytes": 2**36 + 111,
    "utilisation": 0.4321,
    "power_w": 301.5,
    "temperature_c": 61.5,
    "others": [PROCESS],
}


def sampled(here: World, clock: SimulatedClock) -> None:
    for _ in range(30):
        clock.advance(2)
        here.store.devices.write((GPU, CPU))
        here.store.device_samples.write([{"device": "cuda:0", **USED}])


def test_operators_see_how_devices_are_used_and_by_whom(here: World, clock: SimulatedClock) -> None:
    sampled(here, clock)
    card, cpu = here.of(OPERATOR).devices.cards()
    assert (card.name, card.model, card.own_bytes, card.free_bytes) == ("cuda:0", "H200", 222_222, 2**36 + 111)
    assert card.own_bytes + (card.others_bytes or 0) + card.free_bytes == card.total_bytes
    assert [(one.user, one.name, one.size_bytes) for one in card.others] == [("mallory", "secret_job.py", 333_333)]
    past = card.over_time
    assert len(past.before_s) == len(past.utilisation) == len(past.memory) >= 6
    assert past.before_s == tuple(sorted(past.before_s, reverse=True)) and max(past.before_s) <= 60
    assert {round(share or 0, 4) for share in past.utilisation} == {0.4321}
    assert (cpu.total_bytes, cpu.free_bytes, cpu.utilisation, cpu.over_time.before_s) == (2**35, None, None, ())


def test_an_old_sample_says_nothing_about_now(here: World, clock: SimulatedClock) -> None:
    sampled(here, clock)
    clock.advance(FRESH_S - 1)
    here.store.devices.write((GPU, CPU))
    card = here.of(OPERATOR).devices.cards()[0]
    assert (card.total_bytes, card.utilisation, card.others) == (GPU.total_bytes, None, ())
    assert card.over_time.before_s, "the past is known"


def test_a_device_that_was_just_claimed_does_not_say_that_nothing_is_ours(here: World, clock: SimulatedClock) -> None:
    sampled(here, clock)
    clock.advance(2)
    here.store.device_samples.write([{"device": "cuda:0", **USED, "own_bytes": 0}])
    [idle, _] = here.of(OPERATOR).devices.cards()
    assert idle.own_bytes == 0 and "0 MiB ours" in device_text.memory(idle)
    add_run(here.store, "r")
    here.store.workers.claim("r", replace(BERTH, device="cuda:0"))
    [claimed, _] = here.of(OPERATOR).devices.cards()
    assert claimed.own_bytes is None and device_text.memory(claimed).startswith("about")


def test_nobody_below_operators_learns_of_processes_and_submitters_only_whether_there_is_room(
    here: World, clock: SimulatedClock
) -> None:
    sampled(here, clock)
    viewed, own = here.of(VIEWER).devices.cards()[0], here.of(ALICE).devices.cards()[0]
    assert viewed.others == () and viewed.own_bytes == 222_222
    assert own.used_bytes == round(0.5 * 2**37) and own.utilisation == pytest.approx(0.4)
    for secret in ("mallory", "secret_job", "222222", "333333", "0.4321", "301.5", "61.5", str(2**36 + 111)):
        assert secret not in repr(here.of(ALICE).devices.cards()), secret
    assert "mallory" in repr(here.of(OPERATOR).devices.cards()), "the leak would be noticed"


def test_without_a_server_memory_is_read_at_once(here: World) -> None:
    [*_, cpu] = here.of(OPERATOR).devices.cards()
    assert cpu.total_bytes and cpu.free_bytes and 0 < cpu.free_bytes < cpu.total_bytes
