"""The checks themselves; each takes the device that it is made on."""

import itertools
from collections.abc import Iterator, Sequence

import torch

from tests.gpu import poisoned
from tests.gpu.kit import KINDS, Bench, alone, hash_of, spec_of
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.events import Captured, DataChanged, Left, ProcessChanged, Report, Stepped
from unifiednn_core.engine.orders import Order
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import Event

IN_TURNS = policy_named("round_robin", {"unit": "steps", "amount": 1})


def equality(device: torch.device, names: Sequence[str]) -> None:
    """Sub-models that take turns of one step end with the bits that each has alone."""
    networks = [(name, KINDS[name], spec_of(name, KINDS[name])) for name in names]
    ended = Bench(device, networks, IN_TURNS).run()
    assert {name: hash_of(end) for name, end in ended.items()} == {
        name: alone(kind, spec, device) for name, kind, spec in networks
    }


def repeatable(device: torch.device, name: str) -> None:
    """Alone twice gives the same bits twice; without that, equality says nothing."""
    kind = KINDS[name]
    assert alone(kind, spec_of(name, kind), device) == alone(kind, spec_of(name, kind), device)


def memory_is_contained(device: torch.device) -> None:
    """A sub-model that asks for more than there is fails alone, and the other one ends with its own bits."""
    kind = KINDS["lenet"]
    networks = [("ravenous", None, spec_of("ravenous", kind)), ("lenet", kind, spec_of("lenet", kind))]
    bench = Bench(device, networks, IN_TURNS)
    ended = bench.run()
    assert bench.engine.device_lost is None
    assert ended["ravenous"].event is Event.FAIL
    assert ended["ravenous"].cause is not None
    assert "alloc" in ended["ravenous"].cause
    assert ended["lenet"].event is Event.COMPLETE
    assert hash_of(ended["lenet"]) == alone(kind, spec_of("lenet", kind), device)


def divergence_is_noticed(device: torch.device) -> None:
    """A loss that is not a number ends its sub-model, and nobody else."""
    kind = KINDS["lenet"]
    networks = [("wild", kind, spec_of("wild", kind, learning_rate=1e30)), ("lenet", kind, spec_of("lenet", kind))]
    ended = Bench(device, networks, IN_TURNS).run()
    assert ended["wild"].event is Event.FAIL
    assert "The loss of wild is" in (ended["wild"].cause or "")
    assert hash_of(ended["lenet"]) == alone(kind, spec_of("lenet", kind), device)


def restored_state_is_on_the_device(device: torch.device) -> None:
    """A checkpoint of the middle of an epoch, put into a new sub-model, goes on there and ends with the same bits."""
    kind = KINDS["resnet"]
    spec = spec_of("resnet", kind)
    first = Bench(device, [("resnet", kind, spec)], IN_TURNS).submodels[0]
    with exact_profile(device, 1), first.world():
        for _ in range(3):
            first.step()
        kept = first.capture()
    second = Bench(device, [("resnet", kind, spec)], IN_TURNS)
    submodel = second.submodels[0]
    submodel.restore(kept)
    with exact_profile(device, 1), submodel.world():
        submodel.step()
        moments = list(_moments(submodel.optimizer))
        assert moments
        assert {moment.device.type for moment in moments} == {device.type}
    assert hash_of(second.run()["resnet"]) == alone(kind, spec, device)


def parked_and_placed_again(device: torch.device) -> None:
    """A sub-model that is parked after each step ends with the bits that it has without."""
    kind = KINDS["resnet"]
    spec = spec_of("resnet", kind)
    bench = Bench(device, [("resnet", kind, spec)], IN_TURNS)
    submodel = bench.submodels[0]
    for _ in range(4):
        with exact_profile(device, 1), submodel.world():
            submodel.step()
        submodel.park()
        assert {weight.device.type for weight in submodel.module.parameters()} == {"cpu"}
        assert {moment.device.type for moment in _moments(submodel.optimizer)} == {"cpu"}
    assert hash_of(bench.run()["resnet"]) == alone(kind, spec, device)


def leaves_and_goes_on(device: torch.device) -> None:
    """A sub-model that leaves a hybrid inside an epoch ends in another one with the bits that it has alone."""
    networks = [(name, KINDS[name], spec_of(name, KINDS[name])) for name in ("transformer", "lenet")]

    def release(bench: Bench, report: Report) -> None:
        if isinstance(report, Stepped) and (report.submodel, report.step) == ("transformer", 3):
            bench.engine.post(Order(Event.RELEASE, "transformer"))

    first, second = Bench(device, networks, IN_TURNS, then=release), Bench(device, networks[:1], IN_TURNS)
    stayed = first.run()
    assert Left("transformer") in first.reports
    [kept] = [report.checkpoint for report in first.reports if isinstance(report, Captured)]
    [trained_on] = kept.recipe["kinds"]
    assert trained_on["type"] == device.type
    assert device.type == "cpu" or {"name", "driver", "cuda", "cudnn", "torch"} <= trained_on.keys()
    second.submodels[0].restore(kept, moves="same")
    ended = {**stayed, **second.run()}
    assert {name: hash_of(end) for name, end in ended.items()} == {
        name: alone(kind, spec, device) for name, kind, spec in networks
    }


def randomness_is_each_ones_own(device: torch.device) -> None:
    """LeNet shares none and steps beside a Transformer, which on CUDA shares its own; both have the bits of alone."""
    names = ("lenet", "transformer")

    def submodels() -> list[SubModel]:
        return Bench(device, [(name, KINDS[name], spec_of(name, KINDS[name])) for name in names], IN_TURNS).submodels

    def captured(submodel: SubModel) -> tuple[str, ...]:
        state = submodel.capture().state
        rng = {name: value for name, value in state["rng"].items() if value is not None}
        return state_sha256(state["model"]), state_sha256(rng), *sorted(rng)

    together, one_by_one = submodels(), submodels()
    assert [one.shares_randomness for one in together] == [False, device.type == "cuda"]
    with exact_profile(device, 1), together[0].world(), together[1].world():
        for submodel in together * 3:
            submodel.step()
    for submodel in one_by_one:
        with exact_profile(device, 1), submodel.world():
            for _ in range(3):
                submodel.step()
    assert list(map(captured, together)) == list(map(captured, one_by_one))


def settings_are_put_back(device: torch.device) -> None:
    """A network that lets products be rounded harder, at every call, changes nothing for its neighbour."""
    kind = KINDS["lenet"]
    bench = Bench(device, [(name, kind, spec_of(name, kind)) for name in ("rude", "lenet")], IN_TURNS)
    bench.submodels[0].module.register_forward_pre_hook(lambda *_: torch.set_float32_matmul_precision("medium"))
    with ProcessState(device) as before:
        precisions = precision_of_each_place()
        ended = bench.run()
        assert (before.restore(), precision_of_each_place()) == ((), precisions)
    assert hash_of(ended["lenet"]) == alone(kind, spec_of("lenet", kind), device)
    [changed] = [report for report in bench.reports if isinstance(report, ProcessChanged)]
    assert (changed.submodel, changed.settings) == ("rude", ("precision of float32",))


def precision_of_each_place() -> dict[object, object]:
    """To what float32 may be rounded, by torch's older API and by each place of its newer one."""
    places = [("generic", "all"), *itertools.product(("mkldnn", "cuda"), ("all", "matmul", "conv", "rnn"))]
    newer: dict[object, object] = {place: torch._C._get_fp32_precision_getter(*place) for place in places}
    older = (torch.get_float32_matmul_precision, torch._C._get_cublas_allow_tf32, torch._C._get_cudnn_allow_tf32)
    return newer | {read.__name__: read() for read in older}


def damaged_data_are_noticed(device: torch.device) -> None:
    """One number that changes in a data set on the device ends its sub-model."""
    kind = KINDS["lenet"]
    for damage, event in ((0.0, Event.COMPLETE), (1.0, Event.FAIL)):
        bench = Bench(device, [("lenet", kind, spec_of("lenet", kind))], IN_TURNS)
        inputs = bench.submodels[0].leases[1].use().inputs["inputs"]
        assert inputs.device.type == device.type
        inputs.view(-1)[7] += damage
        assert bench.run()["lenet"].event is event
        assert [type(report) for report in bench.reports].count(DataChanged) == damage


def _moments(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """State of an optimizer but for step counters, which torch keeps on the host."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.dim():
                yield value


def harm_is_noticed(device: torch.device) -> None:
    """Of functions in place of operators, one that reads and one that writes beyond its argument is found."""
    relu, tanh, sine = (f"torch.ops.aten.{name}.default" for name in ("relu", "tanh", "sin"))

    def reads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor + tensor.as_strided((1,), (1,), tensor.storage_offset() + tensor.numel())

    def writes(tensor: torch.Tensor) -> torch.Tensor:
        tensor.detach().as_strided((1,), (1,), tensor.storage_offset() + tensor.numel()).fill_(0.25)
        return tensor.clone()

    found = poisoned.harmful(device, {relu: reads, tanh: writes, sine: torch.sin})
    assert [one.partition(" ")[0] for one in found] == [relu, relu, tanh, tanh]
