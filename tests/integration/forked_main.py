"""Runs a module as `python -m MODULE ...` does, but its workers are forked.

Use: `python -m tests.integration.forked_main SOCKET MODULE ...`, with the socket of a zygote. The module `unifiednn`
is the command line.
"""

import runpy
import sys
from pathlib import Path

from tests.integration.zygote import ZygoteLauncher
from unifiednn_core.cli import main as cli
from unifiednn_core.service import facade


def main() -> None:
    """Replace the launcher, then run the module."""
    zygote = Path(sys.argv[1])
    facade.LocalLauncher = lambda home: ZygoteLauncher(home, zygote, {})  # type: ignore[assignment, misc]
    del sys.argv[:2]
    if sys.argv[0] == "unifiednn":
        cli.main()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
