"""The product's worker of a baseline, with a script of the bench: `python -m tools.bench.worker HOME RUN`. No torch."""

import os

from tools.bench.arms import SCRIPT
from unifiednn_core.compare import processes, runner

if __name__ == "__main__":
    processes.SCRIPT = os.environ[SCRIPT]
    runner.main()
