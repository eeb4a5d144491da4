"""A whole bench through real processes, as small as it can be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from sample_models import paper
from tests.tools.bench.kit import ASKED, CASE, SCENARIO, measured, write_data
from tools.bench import command, report, result, scenarios, weights
from tools.bench.networks import NETWORKS
from tools.bench.prepare import prepare
from tools.bench.runner import BenchArm, arms_of, rotated
from unifiednn_core.formats.architectures import registry
from unifiednn_core.spec.run import load_run


def test_arms_come_in_rotating_order() -> None:
    arms = [BenchArm("concurrent"), BenchArm("sequential"), BenchArm("hybrid")]
    orders = [rotated(arms, repeat) for repeat in range(3)]
    assert [order[0] for order in orders] == arms
    assert all(sorted(order, key=arms.index) == arms for order in orders)
    assert rotated(arms, 3) == orders[0]


@pytest.mark.slow
def test_a_case_is_written_as_a_user_would_have_it(tmp_path: Path) -> None:
    prepared = prepare(SCENARIO, CASE, write_data(tmp_path / "data"), tmp_path)
    assert load_run(tmp_path / "spec-two.json") == prepared.spec
    for part in prepared.spec.submodels:
        assert (tmp_path / part.model).is_file()
        assert (tmp_path / part.train_data).is_file()
    first, second = (load_file(tmp_path / part.model) for part in prepared.spec.submodels)
    assert (first["features.0.weight"] != second["features.0.weight"]).any()
    assert [arm.mode for arm in arms_of(prepared)] == ["concurrent", "hybrid"]


def test_weights_follow_from_their_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        weights.write(tmp_path / name, "mlp", {}, seed, (64,), "float32")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    assert len(list(tmp_path.iterdir())) == 3


def test_networks_of_the_paper_are_written_on_demand_alone(tmp_path: Path) -> None:
    assert paper.main(["lenet"], tmp_path) == [tmp_path / "paper_lenet.safetensors"]
    (written,) = tmp_path.iterdir()
    network = registry.build("lenet", NETWORKS["lenet"].args("paper"))
    network.load_state_dict({name: torch.from_numpy(array) for name, array in load_file(written).items()})
    before = written.stat().st_mtime_ns
    paper.main(["lenet"], tmp_path)
    assert written.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_shortened_case_keeps_an_epoch(tmp_path: Path) -> None:
    prepared = prepare(SCENARIO, CASE, write_data(tmp_path / "data"), tmp_path)
    assert [part.hyperparameters.epochs for part in prepared.shortened(0.0).spec.submodels] == [1, 1]
    assert prepared.shortened(1.0) == prepared


def run(*arguments: str) -> tuple[int, str]:
    import typer

    app = typer.Typer()
    app.command()(command.bench)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_an_unknown_bench_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    code, output = run("nope", "--json", "--out", str(tmp_path / "out"))
    assert code == command.BAD_INPUT
    assert all(name in output for name in (*scenarios.names(), "engine-overhead"))
    assert not (tmp_path / "out").exists()


def test_missing_data_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    code, output = run("paper-vision", "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path), "--json")
    assert code == command.BAD_INPUT
    code, output = run("paper-vision", "--data", str(tmp_path), "--out", str(tmp_path), "--json")
    assert code == command.BAD_INPUT
    assert "mnist.npz" in output and "cifar10_12k.npz" in output


def test_a_result_is_kept_with_its_page(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    promises, ratios = (report.PROMISES_BEGIN, report.PROMISES_END), (report.RATIOS_BEGIN, report.RATIOS_END)
    (tmp_path / report.PAGE).write_text("\n".join([*promises, *ratios, report.BEGIN, report.END]))
    found = result.document(SCENARIO, measured(), ASKED, 2)
    command._keep(tmp_path / "results", found)
    assert json.loads((tmp_path / "results" / "tiny-cpu.json").read_text()) == found
    assert "results/tiny-cpu.json" in (tmp_path / report.PAGE).read_text()


@pytest.mark.slow
def test_the_command_loads_no_torch() -> None:
    code = "import sys; import tools.bench.command; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("busy", [0.5, 0.0])
def test_a_busy_machine_is_said(busy: float) -> None:
    notes = result.document(SCENARIO, measured(), {**ASKED, "busy_before": busy}, 2)["notes"]
    assert any("busy before: 50%" in note for note in notes) is (busy > 0)
