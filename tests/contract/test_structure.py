"""The contract of layers names each package, and the security page files that there are."""

import re
from pathlib import Path

from tools import architecture

ROOT = Path(__file__).parents[2]


def test_the_tests_that_the_security_page_names_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 10 and [name for name in named if not (ROOT / name).is_file()] == []


def test_every_package_has_a_place_in_the_contract() -> None:
    packages = {path.parent.name for path in (ROOT / "unifiednn_core").glob("*/__init__.py")}
    named = {name.removeprefix(f"{architecture.PACKAGE}.") for row in architecture.layers() for name in row}
    assert packages == named - {"pages"}
