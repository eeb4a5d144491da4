import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tools.bench.kit import write_data
from tools.bench import gpu, scenarios

ROOT = gpu.REPOSITORY


def planned(tmp_path: Path, *, dry_run: bool) -> list[gpu.Step]:
    return gpu.steps(tmp_path, tmp_path / "data", dry_run=dry_run, repeats=3, only=())


def test_the_path_is_the_tests_and_every_workload(tmp_path: Path) -> None:
    assert [step.name for step in planned(tmp_path, dry_run=False)][:2] == ["gpu-probe", "gpu-tests"]
    names = {step.name for step in planned(tmp_path, dry_run=False)}
    assert names == {"gpu-probe", "gpu-tests", "replayed-steps", "techniques", *scenarios.names()}


def test_a_dry_run_needs_no_gpu(tmp_path: Path) -> None:
    _, tests, *benches = planned(tmp_path, dry_run=True)
    assert "--collect-only" in tests.command
    assert all("cpu" in bench.command and "paper" not in bench.command for bench in benches)
    _, tests, *benches = planned(tmp_path, dry_run=False)
    assert "--collect-only" not in tests.command
    assert all("paper" in bench.command for bench in benches)


def step(code: str, share: float = 1.0) -> gpu.Step:
    return gpu.Step("step", share, (sys.executable, "-c", code), takes_time=False)


def test_what_does_not_end_in_its_time_is_ended_and_the_next_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "LEAST_S", 0.0)
    endless = step("import time; print('begun', flush=True); time.sleep(600)", share=0.1)
    log = gpu.carry_out([endless, step("print('second')")], tmp_path, os.environ, budget_s=20)
    assert str(log[0]["outcome"]).startswith("ended after 2 s")
    assert log[0]["output"][0] == "begun"  # type: ignore[index]
    assert (log[1]["outcome"], log[1]["output"]) == ("exit code 0", ["second"])
    assert json.loads((tmp_path / gpu.LOG).read_text())["steps"] == log


def test_nothing_is_begun_without_time(tmp_path: Path) -> None:
    log = gpu.carry_out([step("raise SystemExit(1)")], tmp_path, os.environ, budget_s=1)
    assert log == [{"step": "step", "outcome": "not started: no time left"}]


def test_wheels_become_importable_and_the_project_has_its_version(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "thing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("thing.py", "found = True\n")
    gpu.unpack(tmp_path / "wheels", tmp_path / "packages")
    code = "import thing; from importlib.metadata import version; print(thing.found, version('unifiednn'))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "packages")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True ")


def test_a_report_of_pytest_becomes_a_result(tmp_path: Path) -> None:
    (tmp_path / "gpu-tests.xml").write_text(
        '<testsuites><testsuite><testcase name="a" time="1.5"/><testcase name="b" time="0">'
        '<skipped message="no GPU"/></testcase></testsuite></testsuites>'
    )
    gpu._keep_tests(tmp_path)
    found = json.loads((tmp_path / "gpu-tests.json").read_text())
    assert [case["outcome"] for case in found["tests"]] == ["passed", "skipped: no GPU"]
    assert found["passed"] is False


@pytest.mark.slow
def test_the_dry_run_collects_the_tests_with_the_standard_library_alone(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    code = "import sys; sys.argv[0] = 'gpu'; from tools.bench import gpu; done = gpu.main(sys.argv[1:]);"
    code += "bad = {'torch', 'numpy', 'pydantic', 'typer'} & set(sys.modules); sys.exit(str(bad) if bad else done)"
    arguments = ["--dry-run", "--only", "gpu-tests", "--out", str(tmp_path / "out"), "--data", str(tmp_path / "data")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    (entry,) = json.loads((tmp_path / "out" / gpu.LOG).read_text())["steps"]
    assert entry["outcome"] == "exit code 0"
    assert any(re.search(r"[1-9]\d+ tests collected", line) for line in entry["output"])
