import json
from pathlib import Path

import pytest

from tests.integration.cli_kit import unifiednn
from unifiednn_core.base.paths import Home
from unifiednn_core.cli.shared import TOKEN_VARIABLE
from unifiednn_core.service.shared_spec import as_shared
from unifiednn_core.spec.run import load_json

SAMPLES = Path("sample_models").resolve()
NETWORK = {
    "name": "lenet",
    "model": f"{SAMPLES}/lenet.pt2",
    "train_data": f"{SAMPLES}/digits-train.npz",
    "hyperparameters": {"epochs": 1, "batch_size": 64, "learning_rate": 0.1},
}


@pytest.fixture
def network(samples: Path, tmp_path: Path) -> Path:
    demo = json.loads((samples / "demo.json").read_text())
    part = demo["submodels"][0]
    files = {entry: str(samples / part[entry]) for entry in ("model", "train_data") if entry in part}
    part = {**part, **files, "name": "one", "hyperparameters": {**part["hyperparameters"], "epochs": 1}}
    part.pop("test_data", None)
    part.pop("priority", None)
    path = tmp_path / "net.json"
    path.write_text(json.dumps(part))
    return path


def test_a_file_of_one_network_or_of_a_whole_spec_becomes_a_shared_submission(tmp_path: Path, network: Path) -> None:
    one = as_shared(load_json(network), network.stem, "cpu")
    assert (one.hybrid, one.device, one.name, [part.name for part in one.submodels]) == (
        "shared",
        "cpu",
        "one",
        ["one"],
    )
    nameless = tmp_path / "nameless.json"
    nameless.write_text(json.dumps({"model": "m.pt2", "train_data": "d.npz"}))
    assert [part.name for part in as_shared(load_json(nameless), nameless.stem).submodels] == ["nameless"]
    whole = tmp_path / "spec.json"
    whole.write_text(json.dumps({"name": "sweep", "submodels": [{**NETWORK, "name": name} for name in "ab"]}))
    spec = as_shared(load_json(whole), whole.stem)
    assert (spec.hybrid, spec.name, len(spec.submodels)) == ("shared", "sweep", 2)


@pytest.mark.slow
def test_a_submission_stands_in_line_and_says_where(home: Home, network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = unifiednn(home, "submit", str(network), "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert first["run_id"].startswith("s") and first["line"][0]["place"] == 1
    said = unifiednn(home, "submit", str(network)).stdout
    assert "It is number 2 in line." in said
    found = json.loads(unifiednn(home, "queue", "--json").stdout)
    assert [entry["place"] for entry in found["line"]] == [1, 2]
    assert found["hybrids"] == [] and found["pooling"]["mode"] == "pooled"
    behind = found["line"][1]["run_id"]
    assert "is number 1 in line" in unifiednn(home, "queue", "move", behind, "1").stdout
    assert [entry["run_id"] for entry in json.loads(unifiednn(home, "queue", "--json").stdout)["line"]] == [
        behind,
        first["run_id"],
    ]
    table = unifiednn(home, "queue").stdout
    assert first["run_id"] in table and "Nothing trains." in table and "Mode: pooled" in table
    network.write_text(json.dumps({**json.loads(network.read_text()), "optimiser": "sgd"}))
    refused = unifiednn(home, "submit", str(network))
    assert refused.returncode == 2 and "optimiser" in refused.stderr
    token = unifiednn(home, "token", "create", "--for", "alice@example.org", "--role", "submitter").stdout.strip()
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    assert json.loads(unifiednn(home, "queue", "--json").stdout) == {"line": []}
    assert "Nothing waits for a device." in unifiednn(home, "queue").stdout


def test_an_operator_sets_the_mode(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    said = unifiednn(home, "queue", "mode", "gathered", "--after", "90", "--count", "3", "--policy", "sjf").stdout
    assert "3 submissions, or 1 min 30 s after the first" in said and "policy sjf" in said
    pooling = json.loads(unifiednn(home, "queue", "--json").stdout)["pooling"]
    assert (pooling["mode"], pooling["gather_s"], pooling["gather_n"]) == ("gathered", 90.0, 3)
    assert "pooled:" in unifiednn(home, "queue", "mode", "pooled").stdout
    assert json.loads(unifiednn(home, "queue", "--json").stdout)["pooling"]["gather_n"] == 3, "the rest stays"
    for words, told in (
        (("shared",), "'shared' is no mode."),
        (("gathered", "--count", "0"), "gather_n"),
        (("pooled", "--policy", "nothing"), "nothing"),
        (("pooled", "--lanes", "99"), "lanes"),
    ):
        done = unifiednn(home, "queue", "mode", *words)
        assert done.returncode == 2 and told in done.stderr, done.stderr
    token = unifiednn(home, "token", "create", "--for", "alice@example.org", "--role", "submitter").stdout.strip()
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    refused = unifiednn(home, "queue", "mode", "private")
    assert refused.returncode == 2 and "needs the role operator" in refused.stderr
