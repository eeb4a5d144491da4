"""Networks with several inputs and outputs, with regions without gradients, and with another course in evaluation."""

import copy
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.draws import own_draws
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.signature import in_the_place_of
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.oracle import first_difference
from unifiednn_core.preflight.pack import work
from unifiednn_core.preflight.pack.calling import named
from unifiednn_core.preflight.pack.request import Example, ExampleInput, PackRequest, Source
from unifiednn_core.preflight.pack.source import network_of

FORMAT = ExportedFormat()
Inputs = dict[str, Tensor]


def example(**inputs: str | tuple[int, ...]) -> Example:
    """Sizes of each input; with the last one free and ids where they are written as text."""
    made = [
        ExampleInput(name=name, shape=(int(sizes),), dtype="int64", free=frozenset({1}))
        if isinstance(sizes, str)
        else ExampleInput(name=name, shape=sizes)
        for name, sizes in inputs.items()
    ]
    return Example(inputs=tuple(made), batch=3)


CALLS = {
    "EncoderDecoder": "model(src, tgt)",
    "Keywords": "model(x=x, mask=mask, targets=targets)",
    **dict.fromkeys(("Auxiliary", "DropPath", "Variational", "Momentum", "Exploding"), "model(x)"),
}
ONE = Example(inputs=(ExampleInput(shape=(4,)),), batch=3)
# Network, its example, the outputs of its file, and whether evaluation has a graph of its own.
NETWORKS: dict[str, tuple[Example, tuple[str, ...], bool]] = {
    "EncoderDecoder": (example(tgt="4", src="5"), ("outputs",), False),
    "Keywords": (example(targets=(3,), x=(4,), mask=(4,)), ("loss", "scores", "parts.1"), False),
    "Auxiliary": (ONE, ("logits", "aux"), True),
    "DropPath": (ONE, ("outputs",), True),
    "Variational": (ONE, ("image", "loss"), True),
    "Momentum": (ONE, ("outputs",), False),
    "Exploding": (ONE, ("outputs",), True),
}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's file, imported once."""
    path = tmp_path_factory.mktemp("code") / "several_networks.py"
    shutil.copyfile(Path(__file__).with_name("networks.py"), path)
    known = list(sys.path)
    with torch.random.fork_rng(devices=[]):
        yield path
    sys.path[:] = known
    sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def files(code: Path) -> dict[str, Path]:
    made = {}
    for name, (inputs, _, _) in NETWORKS.items():
        sys.modules.pop(code.stem, None)
        out = code.with_name(f"{name}.pt2")
        report = work.pack(PackRequest(source=Source(path=code, factory=name), example=inputs, out=out))
        assert report.path is not None, (name, report.findings)
        made[name] = report.path
    return made


def network(code: Path, name: str) -> nn.Module:
    sys.modules.pop(code.stem, None)
    return network_of(Source(path=code, factory=name))


def batch(definition: Definition, samples: int, seed: int) -> Inputs:
    """Inputs by name; free sizes differ from those that the network was packed with."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for place, one in enumerate(definition.inputs):
        assert one.shape is not None
        sizes = (samples, *(size or 2 + place + seed % 3 for size in one.shape))
        is_ids = one.dtype == "int64"
        made[one.name] = (
            torch.randint(0, 9, sizes, generator=generator) if is_ids else torch.randn(sizes, generator=generator)
        )
    return made


def called(module: nn.Module, inputs: Inputs, definition: Definition | None) -> dict[str, Tensor]:
    """The outputs by name, of the packed network or (no definition) of the author's code."""
    torch.manual_seed(7)
    if definition is None:
        return named(module(**inputs))
    results = module(*inputs.values())
    results = results if isinstance(results, tuple) else (results,)
    return {name: one for name, one in zip(definition.outputs, results, strict=True) if one is not None}


def trained(module: nn.Module, definition: Definition, own: bool) -> dict[str, dict[str, str]]:
    """Hashes of weights and outputs of steps and evaluations in turn, with batches of changing size."""
    optimizer, found = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.01), {}
    known = definition if own else None
    for step in range(3):
        module.train()
        optimizer.zero_grad()
        outputs = called(module, batch(definition, 1 + 2 * step + 1, step), known)
        torch.stack([output.square().mean() for output in outputs.values()]).sum().backward()
        optimizer.step()
        module.eval()
        with torch.no_grad():
            judged = called(module, batch(definition, 4, 9 + step), known)
        places = zip(definition.outputs, in_the_place_of(definition.outputs, [*judged]), strict=True)
        shown = judged if own else {name: judged[key] for name, key in places if key is not None}
        found[f"step {step}"] = {
            "weights": state_sha256(module.state_dict()),
            "outputs": state_sha256(outputs),
            "evaluation": state_sha256(shown),
        }
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_the_bits_are_those_of_the_authors_code_in_training_and_evaluation(
    name: str, code: Path, files: dict[str, Path]
) -> None:
    definition = FORMAT.read(files[name], None)
    _, outputs, has_two = NETWORKS[name]
    assert definition.outputs == outputs
    assert any("evaluation" in entry for entry in zipfile.ZipFile(files[name]).namelist()) == has_two
    author, packed = network(code, name), definition.build()
    author.load_state_dict(packed.state_dict())
    expected = trained(author, definition, own=False)
    assert first_difference(trained(packed, definition, own=True), expected) is None
    assert len({hashes["weights"] for hashes in expected.values()}) == len(expected)


@pytest.mark.parametrize("name", NETWORKS)
def test_delivered_files_compute_what_the_authors_code_does_in_each_mode(
    name: str, code: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    definition, author = FORMAT.read(files[name], None), network(code, name)
    packed = definition.build()
    trained(packed, definition, own=True)
    delivery = FORMAT.write(definition, packed.state_dict(), tmp_path, "done")
    again = FORMAT.read(delivery.files[0], None)
    assert (again.inputs, again.outputs) == (definition.inputs, definition.outputs)
    inputs = batch(definition, 5, 3)
    for path, training in zip(delivery.files, (True, False), strict=True):
        author.load_state_dict(packed.state_dict())
        loaded = torch.export.load(path).module(check_guards=False)
        torch.manual_seed(7)
        found = named(loaded(**inputs) if "=" in CALLS[name] else loaded(*inputs.values()))
        expected = called(author.train(training), inputs, None)
        assert state_sha256(found) == state_sha256(expected), path.name
        ours = called(again.build().train(training), inputs, definition)
        assert [*map(torch.equal, ours.values(), found.values())] == [True] * len(found), path.name
    assert f"# Call it as {CALLS[name]}." in delivery.load_script


def test_a_copy_keeps_both_graphs_and_has_tensors_of_its_own(files: dict[str, Path]) -> None:
    definition = FORMAT.read(files["DropPath"], None)
    packed = definition.build()
    copied = copy.deepcopy(packed)
    inputs = batch(definition, 4, 1)
    trained(packed, definition, own=True)
    assert state_sha256(copied.state_dict()) != state_sha256(packed.state_dict())
    copied.load_state_dict(packed.state_dict())
    for module in (packed, copied):
        module.eval().double()
    inputs = {name: tensor.double() for name, tensor in inputs.items()}
    assert torch.equal(packed(*inputs.values()), copied(*inputs.values()))
    assert not torch.equal(packed(*inputs.values()), packed.train()(*inputs.values()))


def test_draws_of_its_own_reach_the_graph_of_each_mode(code: Path, files: dict[str, Path]) -> None:
    definition = FORMAT.read(files["Variational"], None)
    packed, inputs = definition.build(), batch(definition, 4, 1)
    torch.manual_seed(3)
    expected = packed(*inputs.values())
    own = own_draws(packed)
    assert own is not None
    own.generator.manual_seed(3)
    own.begin()
    found = packed(*inputs.values())
    own.end()
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("name", "inputs", "says"),
    [
        ("EncoderDecoder", example(src="5", target="4"), ("no input 'target'", "src, tgt")),
        (
            "EncoderDecoder",
            example(src="5"),
            ("missing 1 required positional argument: 'tgt'", "--input src=5:int64 --input tgt=SIZES:DTYPE"),
        ),
        ("EncoderDecoder", example(src="5", tgt=(4,)), ("batch [3, 5] of int64 and [3, 4] of float32",)),
    ],
)
def test_inputs_that_do_not_fit_are_told(
    name: str, inputs: Example, says: tuple[str, ...], code: Path, tmp_path: Path
) -> None:
    sys.modules.pop(code.stem, None)
    with pytest.raises(BadInput) as caught:
        work.pack(PackRequest(source=Source(path=code, factory=name), example=inputs, out=tmp_path / "m.pt2"))
    assert [words for words in says if words not in str(caught.value)] == [], str(caught.value)
