"""Runs a module as `python -m MODULE ...` does, but its workers and its readers of files are forked.

Use: `python -m tests.integration.forked_main HANDLE MODULE ...`, with the socket of a template. The module `unifiednn`
is the command line. SIGUSR1 has it write the stacks of its threads to its standard error.
"""

import faulthandler
import re
import runpy
import signal
import sys
from collections import Counter

from tests.integration import forking
from unifiednn_core.cli import main as cli
from unifiednn_core.service import facade


def watches(stacks: str) -> Counter[str]:
    """How many threads each part of the runtime has for its watch."""
    return Counter(re.findall(r'runtime/(\w+)\.py", line \d+ in _watch', stacks))


def main() -> None:
    """Replace launcher and template, then run the module."""
    faulthandler.register(signal.SIGUSR1)
    forking.borrow(int(sys.argv[1]))
    facade.LocalLauncher = forking.ForkingLauncher  # type: ignore[misc]
    del sys.argv[:2]
    if sys.argv[0] == "unifiednn":
        cli.main()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
