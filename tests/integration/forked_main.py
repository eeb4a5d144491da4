"""Runs a module as `python -m MODULE ...` does, but its workers and its readers of files are forked.

Use: `python -m tests.integration.forked_main HANDLE MODULE ...`, with the socket of a template. The module `unifiednn`
is the command line.
"""

import runpy
import sys

from tests.integration import forking
from unifiednn_core.cli import main as cli
from unifiednn_core.service import facade


def main() -> None:
    """Replace launcher and template, then run the module."""
    forking.borrow(int(sys.argv[1]))
    facade.LocalLauncher = forking.ForkingLauncher  # type: ignore[misc]
    del sys.argv[:2]
    if sys.argv[0] == "unifiednn":
        cli.main()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
