"""What README.md and docs/OPERATE.md tell operators to type and to set is of this version, and links lead somewhere."""

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from unifiednn_core.base import failpoints
from unifiednn_core.cli.main import app

ROOT = Path(__file__).parents[2]
README, OPERATE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/OPERATE.md"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
COMMAND = r"^(?:sudo -Hu unifiednn )?(?:/opt/unifiednn/bin/)?unifiednn ([^\n]*)"
SETTING = r"UNIFIEDNN_[A-Z_]+"


def blocks(page: str, *languages: str) -> str:
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    return "\n".join(text for language, text in found if language in languages)


def commands_of(page: str) -> list[list[str]]:
    return [shlex.split(line, comments=True) for line in re.findall(COMMAND, blocks(page, "", "sh"), re.MULTILINE)]


def require(words: list[str]) -> str:
    """The first command that these words name; raises if this version does not take them."""
    command: Any = typer.main.get_command(app)
    named = []
    while hasattr(command, "commands") and words:
        name, *words = words
        command = command.commands[name]
        named.append(name)
    command.make_context(" ".join(named), words)
    return named[0]


@pytest.mark.parametrize("line", ["people give --no-such thing", "no-such", "queue mode"])
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"no-such|name"):
        require(line.split())


@pytest.mark.parametrize("page", [README, OPERATE], ids=["README", "OPERATE"])
def test_each_command_is_one_of_this_version(page: str) -> None:
    found = [require(words) for words in commands_of(page)]
    assert len(found) > 5


def test_the_readme_names_each_command() -> None:
    named = {words[0] for words in commands_of(README)}
    others = set(re.findall(r"[a-z]+", re.search(r"list runs; then ([a-z, ]+)", README).group(1)))  # type: ignore[union-attr]
    assert set(typer.main.get_command(app).commands) == named | others  # type: ignore[attr-defined]


def test_the_readme_names_each_setting() -> None:
    table = set(re.findall(rf"^\| `({SETTING})`", README, re.MULTILINE))
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "unifiednn_core").rglob("*.py")]
    assert table == {name for text in texts for name in re.findall(SETTING, text)} - {failpoints.VARIABLE}


def test_the_systemd_unit_starts_a_server_whose_workers_outlive_it() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(blocks(OPERATE, "ini"))
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/unifiednn") and require(words) == "app"
    assert unit["Service"]["KillMode"] == "process"


@pytest.mark.parametrize("page", PAGES, ids=[path.name for path in PAGES])
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" not in link and not (target.exists() and (not heading or heading in anchors(target))):
            wrong.append(link)
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """The headings of a page as the ends of links."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
