"""Each recipe of docs/CLUSTER.md: its commands are of this version, its files are what their readers expect."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.composing import Composition, entry_point
from unifiednn_core.base.paths import DATABASE_SETTING
from unifiednn_core.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "CLUSTER.md").read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app)
WITHOUT_SETTINGS = {key: value for key, value in os.environ.items() if not key.startswith(("UNIFIEDNN_", "COMPOSE_"))}


@pytest.fixture(autouse=True)
def _joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATABASE_SETTING, "postgresql://nobody@nowhere/nothing")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)


def require_command(words: list[str]) -> None:
    """Raises if this version does not take these words behind `unifiednn`."""
    name, *arguments = words
    COMMANDS.commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


def require_commands(text: str) -> int:
    """Require all commands of a script; returns how many there are."""
    found = re.findall(r"^\s*(?:exec )?unifiednn ([^#\n]*)", text, re.MULTILINE)
    for line in found:
        require_command(shlex.split(line))
    return len(found)


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(Exception, match="--no-such"):
        require_commands("unifiednn agent --no-such thing")


def test_each_command_is_one_of_this_version() -> None:
    assert sum(require_commands(script) for script in (*blocks("sh"), *blocks("bash"))) >= 4
    for words in re.findall(r"`unifiednn ([a-z]+ --[^`]*)`", PAGE):
        require_command(shlex.split(words))


def test_the_systemd_unit_starts_an_agent_whose_workers_outlive_it() -> None:
    [text] = blocks("ini")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/unifiednn")
    require_command(words)
    assert unit["Service"]["KillMode"] == "process"
    assert int(unit["Service"]["TimeoutStopSec"]) > 60, "parking takes up to a minute"


def test_the_deployment_is_one_and_its_arguments_are_those_of_an_agent() -> None:
    deployment = next(found for found in map(yaml.safe_load, blocks("yaml")) if "kind" in found)
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > 60
    [container] = pod["spec"]["containers"]
    names = {one["name"] for one in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= names
    require_command([re.sub(r"\$\((\w+)\)", "agents-7d9f-x2k", word) for word in container["args"]])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["spec"]["volumes"]}


def test_the_sky_task_runs_an_agent() -> None:
    task = next(found for found in map(yaml.safe_load, blocks("yaml")) if "run" in found)
    assert require_commands(task["run"]) == 1
    assert DATABASE_SETTING in task["secrets"]


@pytest.mark.slow
def test_compose_accepts_the_file_and_reads_what_we_read() -> None:
    command = [shutil.which("docker-compose") or pytest.skip("docker-compose is missing"), "config"]
    accepted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=WITHOUT_SETTINGS)
    assert accepted.returncode == 0, accepted.stderr
    composition = Composition.read(ROOT / "docker-compose.yml")
    services = yaml.safe_load(accepted.stdout)["services"]
    assert services.keys() == composition.services.keys()
    for name, service in services.items():
        assert service.get("environment", {}) == composition.environment(name)
        program = service.get("entrypoint", entry_point() if service["image"] == "unifiednn" else [])
        assert [*program, *service.get("command", ())] == composition.command(name)


def test_compose_refuses_a_misspelt_file(tmp_path: Path) -> None:
    program = shutil.which("docker-compose") or pytest.skip("docker-compose is missing")
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    (tmp_path / "docker-compose.yml").write_text(text.replace("healthcheck:", "healthchekc:"), encoding="utf-8")
    refused = subprocess.run([program, "config", "-q"], cwd=tmp_path, capture_output=True, check=False)
    assert refused.returncode != 0


def test_the_services_run_commands_of_this_version_and_are_open_to_this_machine_alone() -> None:
    composition = Composition.read(ROOT / "docker-compose.yml")
    for name in ("server", "agent-1", "agent-2"):
        require_command(composition.command(name)[1:])
    published = [port for service in composition.services.values() for port in service.get("ports", ())]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_all_agents_know_the_database_and_the_objects_as_the_server_does() -> None:
    composition = Composition.read(ROOT / "docker-compose.yml")
    server = composition.environment("server")
    for name in ("agent-1", "agent-2"):
        assert composition.environment(name).items() <= server.items()
    assert {"postgres", "objects"} <= set(re.findall(r"(?<=@|/)[a-z]+(?=:\d)", " ".join(server.values())))
