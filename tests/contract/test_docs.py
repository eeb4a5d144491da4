"""The pages are of this version: what is generated, and the commands, settings, files and links that they name."""

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tools import generate_docs
from unifiednn_core.cli.main import app
from unifiednn_core.service.roles import Role

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
OF_NOW = sorted(TEXTS.keys() - {"CHANGELOG.md", "LOG.md"})
"""All pages but those that tell of earlier versions."""
SETTING = r"UNIFIEDNN_[A-Z_]+"
COMMAND = r"^\s*(?:exec |sudo -Hu unifiednn )?(?:/opt/unifiednn/bin/)?unifiednn ([^\n]*)"
RAY = r"^\s*(?:exec )?ray start ([^\n]*)"
COMPOSITION = ROOT / "docker-compose.yml"


@pytest.mark.parametrize("name", generate_docs.PAGES)
def test_a_generated_page_says_what_the_program_says(name: str) -> None:
    committed = (generate_docs.FOLDER / name).read_text(encoding="utf-8")
    assert committed == generate_docs.PAGES[name](), "python -m tools.generate_docs"


def test_nothing_else_is_in_the_folder_of_generated_pages() -> None:
    assert {path.name for path in generate_docs.FOLDER.iterdir()} == generate_docs.PAGES.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page.name]):
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" not in link and not (target.exists() and (not heading or heading in anchors(target))):
            wrong.append(link)
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The headings of a page as the ends of links."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", OF_NOW)
def test_each_file_and_setting_that_a_page_names_is_there(name: str) -> None:
    files = re.findall(r"`((?:tests|tools|docs|unifiednn_core|pages|sample_models)/[\w/.]+\.\w+)`", TEXTS[name])
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert set(re.findall(SETTING, TEXTS[name])) <= settings()


@cache
def settings() -> set[str]:
    """The variables of the environment that anything reads."""
    sources = (*(ROOT / "unifiednn_core").rglob("*.py"), *(ROOT / "tools").rglob("*.py"), COMPOSITION)
    return {name for path in sources for name in re.findall(SETTING, path.read_text(encoding="utf-8"))}


def require(words: list[str]) -> None:
    """Raises if this version does not take these words behind `unifiednn`."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        name, *words = words
        command = command.commands[name]
    command.make_context("unifiednn", words)


@pytest.mark.parametrize("line", ["people give --no-such thing", "no-such", "queue mode"])
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"no-such|name"):
        require(line.split())


@pytest.mark.parametrize("name", ["README.md", "TUTORIAL.md", "OPERATE.md", "CLUSTER.md"])
def test_each_command_of_a_page_is_one_of_this_version(name: str) -> None:
    found = re.findall(COMMAND, "\n".join(blocks(name, "", "sh", "bash")), re.MULTILINE)
    assert found
    for line in found:
        require(shlex.split(line, comments=True))


def blocks(name: str, *languages: str) -> list[str]:
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```", TEXTS[name], re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def test_workers_outlive_what_the_systemd_unit_starts() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string("\n".join(blocks("OPERATE.md", "ini")))
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/unifiednn") and unit["Service"]["KillMode"] == "process"
    assert words == ["app"]


def test_the_settings_of_the_sign_in_can_be_read() -> None:
    [settings] = blocks("OPERATE.md", "toml")
    read = tomllib.loads(settings)
    assert set(read) == {"auth", "access"}
    assert set(read["access"]) == {"admins", "role_claim", "sign_in_hours", "roles"}
    assert [Role.of(role) for role in read["access"]["roles"].values()]


def services() -> dict[str, Any]:
    """The services of docker-compose.yml."""
    found: dict[str, Any] = yaml.safe_load(COMPOSITION.read_text(encoding="utf-8"))["services"]
    return found


def test_docker_compose_opens_ports_to_this_machine_alone() -> None:
    published = [port for service in services().values() for port in service.get("ports", ())]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_what_docker_compose_starts_is_there() -> None:
    lines = "\n".join(line for service in services().values() for line in service["command"])
    [ours] = re.findall(COMMAND, lines, re.MULTILINE)
    require(shlex.split(ours))
    require_ray(lines)


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_docker_compose_takes_its_file() -> None:
    done = subprocess.run(
        ["docker-compose", "--file", COMPOSITION, "config", "--quiet"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_cluster_is_joined_by_options_that_ray_has() -> None:
    require_ray("\n".join(blocks("CLUSTER.md", "sh")))


def require_ray(text: str) -> None:
    """Raises if the installed Ray does not take what a text starts it with."""
    from ray.scripts.scripts import start  # takes seconds

    found = [shlex.split(line, comments=True) for line in re.findall(RAY, text, re.MULTILINE)]
    assert [words[0].partition("=")[0] for words in found] == ["--head", "--address"]
    for words in found:
        start.make_context("start", words)
