"""Carries out commands, in this process or, where a test needs a true one, in a process of its own."""

import os
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.testing

from unifiednn_core.base.paths import Home
from unifiednn_core.cli import main as cli

COMMAND = (sys.executable, "-c", "from unifiednn_core.cli.main import main; main()")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def unifiednn(home: Home, *arguments: str, cwd: Path = Path()) -> Done:
    """Carry out a command in this process; any exception but an exit reaches the test."""
    environment = {"UNIFIEDNN_HOME": str(home.root), "COLUMNS": "200"}
    with chdir(cwd):
        done = typer.testing.CliRunner().invoke(cli.app, list(arguments), env=environment, catch_exceptions=False)
    return Done(done.exit_code, done.stdout, done.stderr)


def unifiednn_process(home: Home, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Carry out a command in a process of its own."""
    environment = dict(os.environ, UNIFIEDNN_HOME=str(home.root), COLUMNS="200")
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, stdout=pipe, stderr=pipe, stdin=nothing, text=True, check=False, **more
    )
