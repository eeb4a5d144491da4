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
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, ContractBroken
from unifiednn_core.base.files import write_text
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.exported import ExportedFormat, write_both
from unifiednn_core.formats.signature import in_the_place_of
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.preflight.pack.calling import Outputs, call, in_order, with_data
from unifiednn_core.preflight.pack.exporting import example_inputs, exported, unnoticed
from unifiednn_core.preflight.pack.request import Example, PackReport, PackRequest
from unifiednn_core.preflight.pack.source import network_of
from unifiednn_core.spec.run import Hyperparameters

SUFFIX = ".pt2"
_ROOT = str(Path(__file__).resolve().parents[3])
_OUTPUT, _BUFFERS = "the output in evaluation", "the buffers after an evaluation"
_DRAWS = "the random numbers of an evaluation"
_OF_EVALUATION = {_OUTPUT, _BUFFERS, _DRAWS}
_OWN_FUNCTIONS = "Draw random numbers only with torch's own functions, and change buffers in place: `buffer.add_(1)`."
_EAGER = (
    'Make the network of transformers with `attn_implementation="eager"`: of its other attentions the file adds up '
    f"gradients in another order. If it still differs: {_OWN_FUNCTIONS}"
)
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
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=out.parent) as folder:
        written = Path(folder) / out.name
        write_file(network, example, name, written)
        report = inspect_file(written, out.name)
        if any(finding.severity == "error" for finding in report.findings):
            return PackReport(findings=report.findings)
        written.replace(out)
    hyperparameters = out.with_suffix(".json")
    if not hyperparameters.exists():  # it may have been edited since the network was packed before
        write_text(hyperparameters, json.dumps(Hyperparameters().model_dump(mode="json"), indent=2) + "\n")
    facts = {**report.facts, "size_bytes": report.size_bytes, "sha256": report.sha256}
    return PackReport(path=out, hyperparameters=hyperparameters, facts=facts, findings=report.findings)


def write_file(network: nn.Module, example: Example, name: str, path: Path) -> None:
    """Write the `.pt2` of a network to `path`, with another graph for evaluation where one does not serve both.

    It computes what the code does. Raises `BadInput` on `name` if it cannot.
    """
    example = in_order(network, example)
    start = [(tensor, tensor.detach().clone()) for tensor in (*network.parameters(), *network.buffers())]
    different = list[str]()
    for way in (nullcontext, unnoticed):
        try:
            with way():
                program = exported(network, example, name)
        except BadInput:
            if not different:
                raise
            break
        torch.export.save(program, path)
        different = _differences(network, path, example, name)
        _put_back(network, start)
        if different and {*different} <= _OF_EVALUATION:
            evaluation, both = path.with_suffix(f".evaluation{SUFFIX}"), path.with_suffix(f".both{SUFFIX}")
            with way():
                program = exported(network, example, name, "eval")
            torch.export.save(program, evaluation)
            write_both(path, evaluation, both)
            both.replace(path)
            different = _differences(network, path, example, name)
            _put_back(network, start)
        if not different:
            return
    message = f"The exported network differs from the code in {', '.join(different)}."
    raise BadInput.of("Computes something else", name, message, _remedy(network))


def _remedy(network: nn.Module) -> str:
    """What to change in a network that a file does not compute; transformers names its attention in each config."""
    named = (getattr(getattr(part, "config", None), "_attn_implementation", None) for part in network.modules())
    return _EAGER if any(isinstance(one, str) and one != "eager" for one in named) else _OWN_FUNCTIONS


@torch.no_grad()
def _put_back(network: nn.Module, start: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Give a network that was trained its first weights and buffers again."""
    network.zero_grad()
    for tensor, values in start:
        tensor.copy_(values)


def _differences(network: nn.Module, path: Path, example: Example, name: str) -> list[str]:
    try:
        return differences(network, ExportedFormat().read(path, None), example)
    except ContractBroken as broken:
        raise BadInput.of("Operator refused", name, str(broken), broken.remedy) from None


def differences(network: nn.Module, definition: Definition, example: Example) -> list[str]:
    """Where the packed network differs from `network`, which this trains.

    Training must give equal bits, evaluation equal numbers up to rounding, and an evaluation must leave equal states.
    """
    with torch.random.fork_rng(devices=[]):
        return [*dict.fromkeys(what for what, equal in _compared(network, definition, example) if not equal)]


def _compared(network: nn.Module, definition: Definition, example: Example) -> Iterator[tuple[str, bool]]:
    packed = definition.build()
    both = (network, partial(call, network, example)), (packed, partial(_called, packed, definition.outputs))

    def equal_states() -> bool:
        return state_sha256(network.state_dict()) == state_sha256(packed.state_dict())

    def in_evaluation() -> Iterator[tuple[str, bool]]:
        network.eval(), packed.eval()
        (code, of_code), (file, of_file) = (_evaluated(run, example_inputs(example)) for _, run in both)
        yield _OUTPUT, _are_close(code, file, definition.outputs)
        yield _DRAWS, torch.equal(of_code, of_file)
        yield _BUFFERS, equal_states()

    yield "the initial weights", equal_states()
    yield from in_evaluation()  # before training, too: numbers that have become infinite are all alike
    packed.load_state_dict(network.state_dict())
    for batch in (example.batch, example.batch + 1):
        inputs = example_inputs(example, batch)
        outputs = [state_sha256(_stepped(module.train(), run, inputs)) for module, run in both]
        yield f"the output of a batch of {batch}", outputs[0] == outputs[1]
        yield f"the weights after a training step with a batch of {batch}", equal_states()
    yield from in_evaluation()


def _called(packed: nn.Module, names: Sequence[str], inputs: Sequence[Tensor]) -> Outputs:
    """Call a packed network, and name its outputs; in evaluation it may have fewer."""
    results = packed(*inputs)
    outputs = results if isinstance(results, tuple) else (results,)
    return {name: tensor for name, tensor in zip(names, outputs, strict=True) if tensor is not None}


def _are_close(code: Outputs, file: Outputs, names: Sequence[str]) -> bool:
    """Whether evaluations give equal numbers; for some layers of Python code torch has kernels that round otherwise."""
    of_code = {name: key for name, key in zip(names, in_the_place_of(names, [*code]), strict=True) if key is not None}
    return of_code.keys() == file.keys() and all(
        code[key].shape == file[name].shape
        and torch.allclose(code[key], file[name], rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
        for name, key in of_code.items()
    )


@torch.no_grad()
def _evaluated(run: Callable[[Sequence[Tensor]], Outputs], inputs: Sequence[Tensor]) -> tuple[Outputs, Tensor]:
    """Outputs, and the state of random numbers: a dropped path may change the outputs by next to nothing."""
    torch.manual_seed(0)  # some networks draw random numbers in evaluation, too
    return run([tensor.clone() for tensor in inputs]), torch.get_rng_state()


def _stepped(network: nn.Module, run: Callable[[Sequence[Tensor]], Outputs], inputs: Sequence[Tensor]) -> Outputs:
    """Train on the squares of all outputs; returns the outputs."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    outputs = run([tensor.clone() for tensor in inputs])
    loss = torch.stack([output.float().square().mean() for output in outputs.values()]).sum()
    if loss.requires_grad:
        (loss / loss.detach().clamp(min=1)).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return {name: output.detach() for name, output in outputs.items()}
