"""The command that writes a `.pt2` file from your own Python code."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import BAD_INPUT, DONE, AsJson
from unifiednn_core.preflight.pack import request

Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="Sizes of one sample, without the batch: 1,28,28; of several inputs: src=12:int64."),
]
Dtype = Annotated[str, typer.Option(help="Type of the inputs: float32 (default), int64 for ids, ...")]
Batch = Annotated[int, typer.Option(help="Batch size of the trial; other sizes work too.")]
Free = Annotated[list[str] | None, typer.Option(help="Another size that may vary; 1 is the first of a sample; src:1.")]
Arguments = Annotated[list[str] | None, typer.Option("--arg", help="Argument, such as width=16; repeatable.")]


def pack(
    network: Annotated[str, typer.Argument(help="FILE.py:NAME, MODULE:NAME, or your own .pt file of a whole network.")],
    inputs: Inputs = None,
    example_file: Annotated[
        Path | None, typer.Option("--example", help="Data file; its first samples are the inputs of the trial.")
    ] = None,
    dtype: Dtype = "",
    batch: Batch = 8,
    free: Free = None,
    arguments: Arguments = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the initial weights.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File to write; by default NAME.pt2 here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Turn your own network into a .pt2 file to submit, with a file of hyper-parameters.

    Runs your code on this machine, exports it in train mode with a free batch size, reads it back as the server will,
    and compares a training step bit for bit.
    """
    try:
        source = request.parse_source(network, arguments or ())
        shapes = inputs or ()
        example = request.parse_example(shapes, dtype=dtype, batch=batch, free=free or (), data=example_file)
        out = out or Path(f"{source.factory or source.path.stem}.pt2")
        report = _packed(request.PackRequest(source=source, example=example, out=out, seed=seed))
    except BadInput as error:
        report = request.PackReport(findings=error.findings)
    if as_json:
        terminal.print_json(report.model_dump(mode="json"))
    else:
        terminal.print_findings(report.findings)
        _print_packed(report)
    raise typer.Exit(BAD_INPUT if report.path is None else DONE)


def _packed(asked: request.PackRequest) -> request.PackReport:
    """Pack in a separate process: it loads torch, and the network's code may end it."""
    root = str(Path(__file__).resolve().parents[2])
    start = f"import sys; sys.path.append({root!r}); from unifiednn_core.preflight.pack.work import main; main()"
    command = [sys.executable, "-P", "-W", "ignore", "-c", start, asked.model_dump_json()]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    try:
        return request.PackReport.model_validate_json(done.stdout)
    except ValidationError:
        message = f"The code ended its process with code {done.returncode} before the network was exported."
        remedy = "Remove exits from the code; its output is above."
        if done.returncode < 0:
            message = f"The process was ended by signal {-done.returncode} before the network was exported."
            remedy = "Signal 9 mostly means too little memory: pack a smaller batch with --batch 2."
        finding = Finding(title="Code", field=asked.source.title, message=message, remedy=remedy)
        return request.PackReport(findings=(finding,))


def _print_packed(report: request.PackReport) -> None:
    if report.path is None:
        return
    terminal.say(f"{report.path}: {report.facts.get('parameters', 0):,} weights; trains bit for bit as your code does.")
    terminal.say(f"{_signature(report.facts)} Name a size that may vary with --free.")
    terminal.say(f"{report.hyperparameters}: edit the hyper-parameters, then submit both files.")


def _signature(facts: Mapping[str, object]) -> str:
    """What the network takes, and the outputs that it names."""
    outputs = facts.get("outputs")
    last = f" Outputs: {', '.join(map(str, outputs))}; a criterion gets the first." if isinstance(outputs, list) else ""
    if isinstance(several := facts.get("inputs"), Mapping):
        taken = ", ".join(f"{name} ({text})" for name, text in several.items()).replace("None", "any")
        return f"Inputs: {taken}.{last}"
    shape = facts.get("input_shape")
    sizes = ["any" if size is None else str(size) for size in shape] if isinstance(shape, list) else []
    return f"Samples are {' x '.join(sizes) or 'single numbers'} of {facts.get('input_dtype')}.{last}"
