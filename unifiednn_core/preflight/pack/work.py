"""Packs one network: run its code, export it, read the file as the server will, compare, write.

It runs in a process of its own, which prints a report as JSON on stdout.
"""

import json
import logging
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.files import write_text
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.preflight.pack.comparing import EVALUATION, differences
from unifiednn_core.preflight.pack.exporting import exported
from unifiednn_core.preflight.pack.request import PackReport, PackRequest
from unifiednn_core.preflight.pack.source import network_of
from unifiednn_core.spec.run import Hyperparameters

SUFFIX = ".pt2"
_ROOT = str(Path(__file__).resolve().parents[3])
ONE_GRAPH = "One graph serves training and evaluation: use torch's own layers instead of `if self.training`."
OWN_FUNCTIONS = "Draw random numbers, and change buffers, with torch's own functions alone."


def main() -> None:
    """Do what the command line asks for. The user's code sees its own command line and import path, none of ours."""
    request = PackRequest.model_validate_json(sys.argv[1])
    sys.argv[:] = [str(request.source.path)]
    # What the user's code prints must not end up in the document.
    document = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)  # torch logs whole graphs where it cannot export one
    torch.set_num_threads(1)
    sys.path[:] = ["", *(place for place in sys.path if place != _ROOT or place == sysconfig.get_path("purelib"))]
    try:
        report = pack(request)
    except BadInput as error:
        report = PackReport(findings=error.findings)
    document.write(report.model_dump_json())
    document.close()


def pack(request: PackRequest) -> PackReport:
    """Write the `.pt2` and, beside it, a file of hyper-parameters; raises `BadInput` and then writes nothing."""
    out = request.out
    if out.suffix != SUFFIX or not out.parent.is_dir():
        remedy = f"Name a file that ends in {SUFFIX}, in an existing folder."
        raise BadInput.of("Option", field="--out", message=f"{out} cannot be written.", remedy=remedy)
    name = f"{request.source.path.name}:{request.source.factory}"
    network = network_of(request.source)
    program = exported(network, request.example, name)
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=out.parent) as folder:
        waiting = Path(folder) / out.name
        torch.export.save(program, waiting)
        report = inspect_file(waiting, out.name)
        if any(finding.severity == "error" for finding in report.findings):
            return PackReport(findings=report.findings)
        definition = ExportedFormat().read(waiting, None)
        if different := differences(network, definition, request.example):
            message = f"The exported network differs from the code in {', '.join(different)}."
            remedy = ONE_GRAPH if different == [EVALUATION] else OWN_FUNCTIONS
            raise BadInput.of("Computes something else", field=name, message=message, remedy=remedy)
        waiting.replace(out)
    beside = out.with_suffix(".json")
    if not beside.exists():  # it may have been edited since the network was packed before
        write_text(beside, json.dumps(Hyperparameters().model_dump(mode="json"), indent=2) + "\n")
    facts = {**report.facts, "size_bytes": report.size_bytes, "sha256": report.sha256}
    return PackReport(path=out, hyperparameters=beside, facts=facts, findings=report.findings)
