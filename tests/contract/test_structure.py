"""The contract of layers names each package."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_package_has_a_place_in_the_contract() -> None:
    packages = {path.parent.name for path in (ROOT / "unifiednn_core").glob("*/__init__.py")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [one["layers"] for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    named = {name.strip().rpartition(".")[2] for row in layers for name in row.split("|")}
    assert packages == named - {"pages"}
