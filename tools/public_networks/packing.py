"""Packs a network as `unifiednn pack` does, and draws data for it."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tools.public_networks.networks import Network, call_of
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.preflight.pack import work
from unifiednn_core.preflight.pack.request import Example, PackReport, PackRequest, parse_example, parse_source

SAMPLES, TEST_SAMPLES, IDS = 7, 2, 8
_BATCH, _SEED = 2, 3


def request_of(network: Network, code: Path | None, out: Path) -> PackRequest:
    """What the command line asks for."""
    place, arguments = call_of(network, code)
    source = parse_source(place).model_copy(update={"arguments": arguments})
    return PackRequest(source=source, example=parse_example(network.inputs, batch=_BATCH), out=out)


def pack(network: Network, clones: Path, code: Path | None, out: Path) -> dict[str, Any]:
    """Pack it, in a process of its own: the code is imported here.

    The process is the one that the command line starts, from its first line on.
    """
    asked = request_of(network, code, out)
    start_in(network, clones)
    with tempfile.TemporaryFile("w+b") as document:
        os.dup2(document.fileno(), 1)
        sys.argv[:] = ["", asked.model_dump_json()]
        work.main()
        document.seek(0)
        report = PackReport.model_validate_json(document.read())
    return {
        "packed": report.path is not None,
        "findings": [finding.model_dump() for finding in report.findings],
        "facts": dict(report.facts),
    }


def start_in(network: Network, clones: Path) -> None:
    """Make this process look as if it was started in the folder of that network, with nothing of ours loaded."""
    os.chdir(network.source.folder(clones) / network.folder)
    sys.argv[:] = [""]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"tools", "tests"}]:
        del sys.modules[name]
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != _ROOT]


_ROOT = Path(__file__).resolve().parents[2]


def data_for(network: Network, path: Path, folder: Path) -> dict[str, Any]:
    """Draw data for a packed network, and write `train.safetensors` and `test.safetensors`.

    Returns `criterion`. Targets follow from the output that the criterion gets: none for a
    loss, class numbers for [batch, classes], else numbers of its shape. Raises `ValueError` for any other output.
    """
    definition, example = ExportedFormat().read(path, None), parse_example(network.inputs, batch=_BATCH)
    generator = torch.Generator().manual_seed(_SEED)
    inputs = _inputs([one.name for one in definition.inputs], example, SAMPLES + TEST_SAMPLES, generator)
    module = definition.build()
    module.train()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        outputs = module(*(one[:_BATCH].clone() for one in inputs.values()))
    place = 0 if network.output is None else definition.outputs.index(network.output)
    output = outputs[place] if isinstance(outputs, tuple) else outputs
    criterion, targets = _targets(output, SAMPLES + TEST_SAMPLES, generator)
    of_graph = inputs.pop("targets", None)  # an input of that name gets the targets
    named = {f"inputs.{name}" if len(inputs) > 1 else "inputs": one for name, one in inputs.items()}
    targets = targets if of_graph is None else of_graph
    entries = named if targets is None else {**named, "targets": targets}
    for file, part in (("train", slice(None, SAMPLES)), ("test", slice(SAMPLES, None))):
        save_file({name: one[part].contiguous() for name, one in entries.items()}, folder / f"{file}.safetensors")
    return {"criterion": criterion}


def drawn_inputs(network: Network) -> Mapping[str, Tensor]:
    """A small batch of each input, by the names that it has on the command line."""
    example = parse_example(network.inputs, batch=_BATCH)
    return _inputs([one.name for one in example.inputs], example, _BATCH, torch.Generator().manual_seed(_SEED))


def _inputs(names: list[str], example: Example, samples: int, generator: torch.Generator) -> dict[str, Tensor]:
    given = {one.name or names[place]: one for place, one in enumerate(example.inputs)}
    return {name: _drawn((samples, *given[name].shape), given[name].dtype, generator) for name in names}


def _drawn(shape: tuple[int, ...], dtype: str, generator: torch.Generator) -> Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    return torch.randint(0, 2 if kind is torch.bool else IDS, shape, generator=generator).to(kind)


def _targets(output: Tensor, samples: int, generator: torch.Generator) -> tuple[str, Tensor | None]:
    if not output.is_floating_point():
        raise ValueError(f"the output is {output.dtype}; nothing can be learned from it")
    if output.dim() == 0 or (output.dim() == 1 and len(output) == _BATCH):
        return "none", None
    if len(output) != _BATCH:
        raise ValueError(f"the output {[*output.shape]} has not the batch as its first dimension")
    if output.dim() == 2 and output.shape[1] > 1:
        return "cross_entropy", torch.randint(0, output.shape[1], (samples,), generator=generator)
    return "mse", torch.rand((samples, *output.shape[1:]), generator=generator)
