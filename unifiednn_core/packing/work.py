"""Packs one network: run the code, export, read back as a stranger would, compare, write."""

import json
import tempfile
from pathlib import Path

import torch

from unifiednn_core.durable import write_text
from unifiednn_core.errors import BadInput
from unifiednn_core.intake.exported import Exported
from unifiednn_core.intake.inspection import inspect_file
from unifiednn_core.packing.comparing import differences
from unifiednn_core.packing.exporting import exported
from unifiednn_core.packing.request import PackReport, PackRequest
from unifiednn_core.packing.source import network_of
from unifiednn_core.spec import Hyperparameters

SUFFIX = ".pt2"


def pack(request: PackRequest) -> PackReport:
    """Write the `.pt2` and, beside it, a file of hyper-parameters; nothing is written where anything is wrong."""
    out = request.out
    if out.suffix != SUFFIX or not out.parent.is_dir():
        raise BadInput.of(
            "Option",
            field="--out",
            message=f"{out} cannot be written.",
            remedy=f"Name a file that ends in {SUFFIX}, in a folder that there is.",
        )
    name = f"{request.source.path.name}:{request.source.factory}"
    network = network_of(request.source)
    program = exported(network, request.example, name)
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=out.parent) as folder:
        waiting = Path(folder) / out.name
        torch.export.save(program, waiting)
        report = inspect_file(waiting, out.name)
        if any(finding.severity == "error" for finding in report.findings):
            return PackReport(findings=report.findings)
        definition = Exported().read(waiting, None)
        if different := differences(network, definition, request.example):
            raise BadInput.of(
                "Computes something else",
                field=name,
                message=f"The exported network differs from the code in {', '.join(different)}.",
                remedy="Let forward draw random numbers, and change its buffers, with torch's own functions alone.",
            )
        waiting.replace(out)
    beside = out.with_suffix(".json")
    if not beside.exists():  # it may have been edited since the network was packed before
        write_text(beside, template())
    facts = {**report.facts, "size_bytes": report.size_bytes, "sha256": report.sha256}
    return PackReport(path=out, hyperparameters=beside, facts=facts, findings=report.findings)


def template() -> str:
    """Hyper-parameters with every field at its default, as the file that a user edits."""
    return json.dumps(Hyperparameters().model_dump(mode="json"), indent=2) + "\n"
