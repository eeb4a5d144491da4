"""`python -m unifiednn_core.intake inspect FILE` · `check` · `admit`: one JSON document on stdout, logs on stderr."""

import argparse
import json
import logging
import os
import sys
from pathlib import Path

from pydantic import BaseModel

from unifiednn_core.home import Home
from unifiednn_core.spec import parse_run
from unifiednn_core.views.data import SplitPlan


def main(arguments: list[str] | None = None) -> int:
    """Do one piece of work and print its report."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    # Whatever a library prints must not end up in the document.
    document = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    document.write(_work(options).model_dump_json())
    document.close()
    return 0


def _work(options: argparse.Namespace) -> BaseModel:
    import torch  # after the command line was understood

    from unifiednn_core.intake import process

    torch.set_num_threads(1)
    process.limit_resources()
    if options.action == "inspect":
        return process.run_inspect(options.file, options.filename or options.file.name, options.convert_to)
    if options.action == "split":
        plan = SplitPlan.model_validate_json(sys.stdin.read())
        return process.run_split(options.file, options.filename or options.file.name, plan, Home(options.home))
    spec = parse_run(json.load(sys.stdin))
    run = process.run_admit if options.action == "admit" else process.run_check
    return run(spec, options.base, Home(options.home))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m unifiednn_core.intake", description="Reads model and data files.")
    actions = parser.add_subparsers(dest="action", required=True)
    inspect = actions.add_parser("inspect", help="say what a file is")
    inspect.add_argument("--convert-to", type=Path, help="write a data set that cannot be mapped as safetensors there")
    split = actions.add_parser("split", help="part a data set in two and keep both; the plan is read from stdin")
    split.add_argument("--home", type=Path, required=True)
    for action in (inspect, split):
        action.add_argument("file", type=Path)
        action.add_argument("--filename", help="name to tell the person, where the file lies under another")
    for name, help_text in (("check", "hold a spec against its files"), ("admit", "check, then take the files in")):
        action = actions.add_parser(name, help=f"{help_text}; the spec is read from stdin")
        action.add_argument("--home", type=Path, required=True)
        action.add_argument("--base", type=Path, default=Path())
    return parser


if __name__ == "__main__":
    sys.exit(main())
