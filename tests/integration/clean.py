"""What delivered folders say of themselves in a process that has torch alone."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CODE = """
import json, os, sys, torch
torch.set_num_threads(1)
data_file, *folders = sys.argv[1:]
data, told = torch.load(data_file, weights_only=True), []
for folder in folders:
    os.chdir(folder)
    own = {}
    exec(open("load.py").read(), own)
    with torch.no_grad():
        right = (own["answer"](data["inputs"]).argmax(1) == data["targets"]).sum().item()
    told.append(right / len(data["targets"]))
assert not [name for name in sys.modules if name.startswith("unifiednn")]
print(json.dumps(told))
"""


def accuracies_in_a_clean_process(folders: Sequence[Path], data_file: Path) -> list[float]:
    """Load each folder's network as its `load.py` does, in the folder, and have it classify the digits."""
    command = [sys.executable, "-I", "-W", "ignore", "-c", "import sys; sys.path.insert(0, '')\n" + CODE]
    command += [str(data_file.resolve()), *map(str, folders)]
    done = subprocess.run(command, cwd=folders[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))
