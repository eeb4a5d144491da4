import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORT_ALL = """
import importlib, pathlib, sys
for path in sorted(pathlib.Path("pages").rglob("*.py")):
    importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
import unifiednn_core.cli.main, unifiednn_core.service.facade  # which the frame imports when the first page is drawn
print("torch" in sys.modules)
"""


def test_pages_commands_and_their_service_load_no_torch():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "False"
