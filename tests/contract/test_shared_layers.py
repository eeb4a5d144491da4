"""Layers that a network uses more than once: the bits of the author's Python, in training and after evaluation."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.contract import format_table
from tests.contract.shared_networks import SHARED
from tests.unit.compare.test_verdict import CONCURRENT, HYBRID, NAMES, comparison
from unifiednn_core.base.paths import Home
from unifiednn_core.compare import oracle
from unifiednn_core.formats import graph
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.sanitize import ExportedNetwork
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight import client
from unifiednn_core.preflight.oracle import ask_torch
from unifiednn_core.preflight.report import OracleJob
from unifiednn_core.spec.run import SubModelSpec, parse_run
from unifiednn_core.views.comparison import Verdict

QUICK = ["shared head", "tied autoencoder"]
"""Those with which `make test` makes do."""


def old_counters(network: ExportedNetwork) -> frozenset[str]:
    """Take only the first addition to a buffer for that of a counter."""
    return frozenset(entry.value for entry in network.held if entry.name.endswith("num_batches_tracked"))


@pytest.mark.parametrize(
    "name", QUICK + [pytest.param(name, marks=pytest.mark.slow) for name in SHARED if name not in QUICK]
)
def test_a_shared_layer_has_the_bits_of_the_authors_python(name: str, tmp_path: Path) -> None:
    case = SHARED[name]
    assert format_table.cell(case, "pt2", tmp_path) == format_table.EQUAL
    inputs, targets = case.data(1)
    torch.save({"inputs": inputs, "targets": targets}, tmp_path / "data.pt")
    submodel = SubModelSpec(name="one", model="m.pt2", train_data="data.pt")
    job = OracleJob(model=tmp_path / "m.pt2", train_data=tmp_path / "data.pt", submodel=submodel, scratch=tmp_path)
    assert ask_torch(job).answer == "same"
    known = ExportedFormat()
    definition = known.read(job.model, None)
    delivered = torch.export.load(known.write(definition, definition.build().state_dict(), tmp_path, "x").files[1])
    network, before = delivered.module(), state_sha256(delivered.state_dict)
    for _ in range(2):
        network(inputs)
    assert state_sha256(network.state_dict()) == before


def test_with_the_old_counter_the_comparison_withholds_its_verdict(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raised the counter of a layer that is used twice in evaluation, too, in hybrid and baseline alike."""
    case = SHARED["siamese"]
    format_table.written(case, "pt2", tmp_path)
    torch.save(dict(zip(("inputs", "targets"), case.data(1), strict=True)), tmp_path / "data.pt")
    references = {"model": tmp_path / "m.pt2", "train_data": tmp_path / "data.pt"}
    for number, (entry, path) in enumerate(references.items()):
        stored = home.file(str(number) * 64)
        stored.parent.mkdir()
        path.rename(stored)
        references[entry] = f"sha256:{stored.name}"
    spec = parse_run({"submodels": [{"name": NAMES[0], **references}]})
    monkeypatch.setattr(client, "ask_torch", ask_torch)

    def verdict() -> Verdict:
        answers = oracle.ask_torch(home, spec, {NAMES[0]: "pt2"})
        asked = replace(CONCURRENT, oracle=answers)
        return comparison(HYBRID, asked).verdicts["concurrent"]

    with monkeypatch.context() as old:
        old.setattr(graph, "_counters", old_counters)
        with pytest.raises(AssertionError, match="num_batches_tracked differs"):
            format_table.cell(case, "pt2", tmp_path)
        found = verdict()
    assert found.identical_weights
    assert found.memory_ratio is None
    counters = "backbone.1.num_batches_tracked, backbone.6.num_batches_tracked"
    assert f"the bits of {counters} differ after the first evaluation" in str(found.withheld_because)
