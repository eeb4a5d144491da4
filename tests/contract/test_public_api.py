"""The public API: few names, all documented, cheap to import, and as the README shows them."""

import re
import subprocess
import sys
from pathlib import Path

import unifiednn_core

README = Path(__file__).parents[2] / "README.md"


def test_every_public_name_exists_and_is_documented() -> None:
    assert len(unifiednn_core.__all__) <= 15
    table = unifiednn_core.__doc__ or ""
    for name in unifiednn_core.__all__:
        assert getattr(unifiednn_core, name).__doc__, name
        assert f"`{name}`" in table, name


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, unifiednn_core; from unifiednn_core import RoundRobin; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_example_of_the_readme_trains_two_networks() -> None:
    [example] = re.findall(
        r"```python\n(import torch\nfrom unifiednn_core.*?)```", README.read_text("utf-8"), re.DOTALL
    )
    assert len(example.strip().splitlines()) <= 10
    found: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), found)  # noqa: S102  (our own page)
    assert set(found["ends"]) == {"small", "large"}  # type: ignore[call-overload]
