from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.start_kit import submodel, trained
from tests.unit.formats import kit
from unifiednn_core.base.errors import OtherKind
from unifiednn_core.engine import kinds
from unifiednn_core.engine.checkpoint_check import recipe_of
from unifiednn_core.engine.job import reasons
from unifiednn_core.engine.kinds import MOST_KINDS, Kind, differences, joined
from unifiednn_core.engine.submodel import SubModel

H200 = Kind(type="cuda", torch="2.9", name="NVIDIA H200", driver="570.86", cuda="12.8", cudnn="91002")
XEON = Kind(type="cpu", torch="2.9", name="Xeon", instructions="x86_64 AVX512", threads=3)
HERE = kinds.current_kind(torch.device("cpu"), torch.get_num_threads())
KINDS = st.builds(
    Kind,
    type=st.sampled_from(["cpu", "cuda"]),
    torch=st.sampled_from(["2.8", "2.9"]),
    name=st.sampled_from([None, "a", "b"]),
    threads=st.sampled_from([None, 1, 2]),
    driver=st.sampled_from([None, "1", "2"]),
)


def restored(recipe_kinds: list[dict[str, object]], moves: str = "any") -> SubModel:
    """A sub-model that went on from a checkpoint of these kinds."""
    network = submodel(lambda: kit.network("cnn", seed=5))
    network.restore(trained(kinds=recipe_kinds, device_type=recipe_kinds[-1]["type"]), moves=moves)  # type: ignore[arg-type]
    return network


def rows(*listed: Kind) -> list[dict[str, object]]:
    return [dict(kind.row) for kind in listed]


@pytest.mark.parametrize("base", [H200, XEON], ids=["GPU", "CPU"])
def test_every_fact_tells_kinds_apart(base: Kind) -> None:
    assert differences(base, base) == ()
    for field in fields(Kind):
        value = getattr(base, field.name)
        if value is None or field.name == "type":
            continue
        other = replace(base, **{field.name: value + 1 if isinstance(value, int) else f"{value}x"})
        [said] = differences(base, other)
        assert str(value) in said and str(getattr(other, field.name)) in said
        assert differences(base, replace(base, **{field.name: None})) == ()
    assert differences(base, replace(base, type="tpu"))[0].startswith(f"It was trained on {base.text}; this is")


@given(st.lists(KINDS, max_size=40), KINDS)
def test_the_list_of_kinds_is_short_and_ends_here(earlier: list[Kind], last: Kind) -> None:
    found = joined(tuple(earlier), last)
    assert found[-1] == last
    assert len(found) <= MOST_KINDS
    assert set(found) <= {*earlier, last}
    assert joined(found, last) == found
    assert all(differences(kind, last) for kind in found[:-1])


def test_a_checkpoint_says_where_it_was_trained() -> None:
    checkpoint = trained()
    assert recipe_of(checkpoint).kinds == (HERE,)
    assert HERE.threads == torch.get_num_threads()
    assert HERE.instructions is not None and torch.backends.cpu.get_cpu_capability() in HERE.instructions
    assert restored(rows(HERE), "same").kinds == (HERE,)


def test_one_of_before_goes_on_and_says_it_from_then_on() -> None:
    checkpoint = trained()
    old = replace(checkpoint, recipe={key: value for key, value in checkpoint.recipe.items() if key != "kinds"})
    network = submodel(lambda: kit.network("cnn", seed=5))
    network.restore(old, moves="same")
    assert network.kinds == (HERE,)
    foreign = replace(old, recipe={**old.recipe, "torch": "1.0"})
    with pytest.raises(OtherKind, match=r"torch was 1\.0; here it is"):
        submodel(lambda: kit.network("cnn", seed=5)).restore(foreign, moves="same")


def test_the_same_kind_alone_may_go_on_unless_the_spec_allows_any() -> None:
    other = replace(HERE, threads=(HERE.threads or 1) + 1)
    with pytest.raises(OtherKind, match="number of threads per step was") as caught:
        restored(rows(other), "same")
    cause, remedy = reasons(caught.value)
    assert "another kind of device" in cause and "--moves any" in remedy
    assert restored(rows(other), "any").kinds == (other, HERE)


def test_a_refused_checkpoint_changes_nothing() -> None:
    network = submodel(lambda: kit.network("cnn", seed=5))
    before = [parameter.clone() for parameter in network.module.parameters()]
    with pytest.raises(OtherKind):
        network.restore(trained(kinds=rows(H200), device_type="cuda"), moves="same")
    assert network.steps_done == 0
    assert all(map(torch.equal, before, network.module.parameters()))


def test_the_mark_survives_every_further_move() -> None:
    gone = restored(rows(XEON, H200))
    with gone.world():
        gone.step()
    kept = gone.capture()
    assert recipe_of(kept).kinds == (replace(XEON), replace(H200, torch=str(torch.__version__)), HERE)
    later = submodel(lambda: kit.network("cnn", seed=5))
    later.restore(kept, moves="same")
    assert later.kinds == gone.kinds


def test_a_kind_reads_well() -> None:
    assert H200.text == "NVIDIA H200, driver 570.86, CUDA 12.8, cuDNN 91002, torch 2.9"
    assert XEON.text == "Xeon, x86_64 AVX512, 3 threads, torch 2.9"
    assert replace(XEON, name=None, threads=1).text == "cpu, x86_64 AVX512, 1 thread, torch 2.9"
