"""The contract of layers names each package, and the security page files that there are."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_that_the_security_page_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 10 and [name for name in named if not (ROOT / name).is_file()] == []


def test_every_package_has_a_place_in_the_contract() -> None:
    packages = {path.parent.name for path in (ROOT / "unifiednn_core").glob("*/__init__.py")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    named = {name.strip().removeprefix("unifiednn_core.") for layer in layers for name in layer.split("|")}
    assert packages == named - {"pages"}
