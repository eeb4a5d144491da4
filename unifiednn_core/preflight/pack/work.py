"""Packs one network: run its code, export it, read the file as the server will, compare, write.

It runs in a separate process, which prints a report as JSON on stdout.
"""

import json
import logging
import os
import random
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, ContractBroken
from unifiednn_core.base.files import write_text
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.preflight.pack.exporting import example_input, exported
from unifiednn_core.preflight.pack.request import Example, PackReport, PackRequest
from unifiednn_core.preflight.pack.samples import with_data
from unifiednn_core.preflight.pack.source import network_of
from unifiednn_core.spec.run import Hyperparameters

SUFFIX = ".pt2"
_ROOT = str(Path(__file__).resolve().parents[3])
_EVALUATION = ("the output in evaluation", "the buffers after an evaluation")
_ONE_GRAPH = "One graph serves training and evaluation: use torch's own layers instead of `if self.training`."
_OWN_FUNCTIONS = "Draw random numbers only with torch's own functions, and change buffers in place: `buffer.add_(1)`."
_ROUNDING = 1e-4


def main() -> None:
    """Carry out the request of the command line. The user's code sees its own command line and import path."""
    request = PackRequest.model_validate_json(sys.argv[1])
    sys.argv[:] = [str(request.source.path)]
    # What the user's code prints must not end up in the document.
    document = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)  # torch logs the whole graph when it cannot export it
    torch.set_num_threads(1)
    sys.path[:] = ["", *(place for place in sys.path if place != _ROOT or place == sysconfig.get_path("purelib"))]
    try:
        report = pack(request)
    except BadInput as error:
        report = PackReport(findings=error.findings)
    document.write(report.model_dump_json())
    document.close()


def pack(request: PackRequest) -> PackReport:
    """Write the `.pt2` and, next to it, a file of hyper-parameters; raises `BadInput` and then writes nothing."""
    out = request.out
    if out.suffix != SUFFIX or not out.parent.is_dir():
        remedy = f"Name a file that ends in {SUFFIX}, in an existing folder."
        raise BadInput.of("Option", "--out", f"{out} cannot be written.", remedy)
    name, example = request.source.title, with_data(request.example)
    torch.manual_seed(request.seed)
    random.seed(request.seed)
    np.random.seed(request.seed % 2**32)
    network = network_of(request.source)
    program = exported(network, example, name)
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=out.parent) as folder:
        waiting = Path(folder) / out.name
        torch.export.save(program, waiting)
        report = inspect_file(waiting, out.name)
        if any(finding.severity == "error" for finding in report.findings):
            return PackReport(findings=report.findings)
        try:
            different = differences(network, ExportedFormat().read(waiting, None), example)
        except ContractBroken as broken:
            raise BadInput.of("Operator refused", name, str(broken), broken.remedy) from None
        if different:
            message = f"The exported network differs from the code in {', '.join(different)}."
            remedy = _ONE_GRAPH if {*different} <= {*_EVALUATION} else _OWN_FUNCTIONS
            raise BadInput.of("Computes something else", name, message, remedy)
        waiting.replace(out)
    hyperparameters = out.with_suffix(".json")
    if not hyperparameters.exists():  # it may have been edited since the network was packed before
        write_text(hyperparameters, json.dumps(Hyperparameters().model_dump(mode="json"), indent=2) + "\n")
    facts = {**report.facts, "size_bytes": report.size_bytes, "sha256": report.sha256}
    return PackReport(path=out, hyperparameters=hyperparameters, facts=facts, findings=report.findings)


def differences(network: nn.Module, definition: Definition, example: Example) -> list[str]:
    """Where the packed network differs from `network`, which this trains.

    Training must give equal bits, evaluation equal numbers up to rounding, and an evaluation must leave equal states.
    """
    with torch.random.fork_rng(devices=[]):
        compared = _compared(network.train(), definition.build().train(), example)
        return [what for what, equal in compared if not equal]


def _compared(network: nn.Module, packed: nn.Module, example: Example) -> Iterator[tuple[str, bool]]:
    def equal_states() -> bool:
        return state_sha256(network.state_dict()) == state_sha256(packed.state_dict())

    yield "the initial weights", equal_states()
    for batch in (example.batch, example.batch + 1):
        results = (_stepped(module, example_input(example, batch)) for module in (network, packed))
        outputs = [state_sha256({"output": result}) for result in results]
        yield f"the output of a batch of {batch}", outputs[0] == outputs[1]
        yield f"the weights after a training step with a batch of {batch}", equal_states()
    first, second = (_evaluated(module, example_input(example)) for module in (network, packed))
    # In evaluation torch uses other kernels for some layers of Python code, which round differently.
    yield _EVALUATION[0], torch.allclose(first, second, rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
    yield _EVALUATION[1], equal_states()


@torch.no_grad()
def _evaluated(network: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(0)  # some networks draw random numbers in evaluation, too
    outputs: Tensor = network.eval()(inputs)
    return outputs


def _stepped(network: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    outputs: Tensor = network(inputs)
    outputs.float().square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return outputs.detach()
