import pytest

from tests.integration.kit import CPU
from tests.unit.engine.recorders import FakeRecorder
from tools.bench import replays


@pytest.mark.slow
def test_both_arms_train_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "NETWORKS", {name: replays.NETWORKS[name] for name in ("lenet", "transformer_lm")})
    monkeypatch.setattr(replays, "STEPS", 2)
    recorders: list[FakeRecorder] = []

    def recorder_of(submodel: replays.SubModel) -> FakeRecorder:
        recorders.append(FakeRecorder(submodel))
        return recorders[-1]

    found = replays.measure(2, CPU, recorder_of)
    assert [len({arm.sha256 for arm in arms}) for arms in found.values()] == [1, 1]
    lenet, model = recorders
    assert (lenet.replays, lenet.recorded) == (2 * replays.graphs.CHECKED_STEPS + 1 + 2 * 2, 1)
    assert found["transformer_lm"][1].refused is not None and not model.recorded  # on a CPU the host draws
    told = replays.described(found)
    assert [row[-1] for row in told["tables"][0]["rows"]] == ["same", "same"]
    assert all(len(row) == len(replays.HEADS) for row in told["tables"][0]["rows"])
