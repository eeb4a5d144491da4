import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "access",
    "service",
    "views",
    "hyperparameters",
    "figures",
    "report",
    "spec",
    "choices",
    "spec_findings",
    "lifecycle",
    "errors",
    "units",
}

IMPORT_ALL = """
import importlib, pathlib, sys
for path in sorted(pathlib.Path("pages").rglob("*.py")):
    importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
rooms = sorted(name.split(".")[1] for name in sys.modules if name.startswith("unifiednn_core."))
import unifiednn_core.service  # which the frame imports when the first page is drawn
print(sorted(name for name in ("torch",) if name in sys.modules))
print(rooms)
"""


def test_the_pages_load_no_torch_and_only_the_rooms_that_they_may():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    heavy, rooms = done.stdout.strip().splitlines()
    assert heavy == "[]"
    assert set(list_of(rooms)) <= ALLOWED


def list_of(text: str) -> list[str]:
    return [part.strip(" '") for part in text.strip("[]").split(",") if part.strip()]
