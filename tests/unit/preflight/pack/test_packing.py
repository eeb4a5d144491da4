import copy
import json
import random
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.preflight.pack import work
from unifiednn_core.preflight.pack.calling import stored, with_data
from unifiednn_core.preflight.pack.exporting import exported
from unifiednn_core.preflight.pack.request import (
    Example,
    PackReport,
    PackRequest,
    Source,
    parse_arguments,
    parse_example,
    parse_source,
)
from unifiednn_core.preflight.pack.source import network_of
from unifiednn_core.preflight.pack.work import differences
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import parse_hyperparameters, parse_json

NETWORKS = Path(__file__).with_name("networks.py")
IMAGES = parse_example(["1,6,6"], batch=3)
NUMBERS = parse_example(["4"])
SEQUENCES = parse_example(["5,4"], batch=3)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's file in a folder of its own; what its import leaves behind is taken back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "a_users_networks.py"
    shutil.copyfile(NETWORKS, file)
    with torch.random.fork_rng(devices=[]):
        yield file
    sys.modules.pop(file.stem, None)


def pack(path: Path, factory: str, example: Example, **arguments: object) -> PackReport:
    source = Source(path=path, factory=factory, arguments=arguments)
    return work.pack(PackRequest(source=source, example=example, out=path.parent / "out.pt2"))


def refusal(path: Path, factory: str, example: Example, **arguments: object) -> str:
    """What is said; nothing is written."""
    with pytest.raises(BadInput) as caught:
        pack(path, factory, example, **arguments)
    assert [file.name for file in path.parent.iterdir() if file.name != "__pycache__"] == [path.name]
    [finding] = caught.value.findings
    assert finding.field.startswith("a_users_networks.py")
    assert finding.remedy
    return f"{finding.message} {finding.remedy}"


def trained(network: nn.Module, example: Example, steps: int) -> tuple[str, list[bytes]]:
    """Train by a plain loop, with batches of changing size; the bits of weights and losses."""
    torch.manual_seed(11)
    optimizer, losses = torch.optim.Adam(network.parameters(), lr=0.01), []
    for step in range(steps):
        inputs = torch.rand((2 + step, *example.inputs[0].shape))
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(network(inputs), torch.arange(2 + step) % 3)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().numpy().tobytes())
    return state_sha256(network.state_dict()), losses


def test_a_packed_network_trains_bit_for_bit_as_its_code_does(path: Path) -> None:
    report = pack(path, "Net", IMAGES, width=5)
    assert report.path is not None and not report.findings
    packed = ExportedFormat().read(report.path, None).build()
    module = sys.modules[path.stem]
    code = module.Net(width=5)
    code.load_state_dict(packed.state_dict())
    assert code.second.weight is code.first.weight
    before = state_sha256(code.state_dict())
    assert trained(packed.train(), IMAGES, 4) == trained(code.train(), IMAGES, 4)
    assert state_sha256(code.state_dict()) != before
    assert report.facts["input_shape"] == [1, 6, 6]
    assert inspect_file(report.path, "out.pt2").sha256 == report.facts["sha256"]


def test_ids_of_any_length_are_packed(path: Path) -> None:
    example = parse_example(["12"], dtype="int64", free=["1"])
    report = pack(path, "Words", example)
    assert report.path is not None
    definition = ExportedFormat().read(report.path, None)
    assert definition.build()(torch.zeros((4, 7), dtype=torch.int64)).shape == (4, 4)


def test_the_seed_gives_the_initial_weights(path: Path) -> None:
    def initial(seed: int) -> str:
        sys.modules.pop(path.stem, None)
        source, torch_seed = Source(path=path, factory="Net"), torch.initial_seed()
        assert torch_seed != seed
        report = work.pack(PackRequest(source=source, example=IMAGES, out=path.parent / "out.pt2", seed=seed))
        torch.manual_seed(torch_seed)
        assert report.path is not None
        return state_sha256(ExportedFormat().read(report.path, None).build().state_dict())

    torch.manual_seed(9)  # an earlier test may have left another
    first = initial(3)
    torch.manual_seed(3)
    assert state_sha256(sys.modules[path.stem].Net().state_dict()) == first
    torch.manual_seed(9)
    assert (initial(3), initial(4) == first) == (first, False)


@pytest.mark.parametrize("options", [[], ["--dtype", "float64"], ["--input", "6"]])
def test_the_first_samples_of_a_data_file_are_the_inputs(path: Path, options: list[str]) -> None:
    """The network asks for inputs from 0 to 1, which drawn ones are not."""
    dtype = options[-1] if "--dtype" in options else ""
    bytes_ = torch.randint(0, 256, (3, 6), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    torch.save({"inputs": bytes_, "targets": torch.arange(3)}, path.parent.parent / "data.pt")
    shapes = [options[-1]] if "--input" in options else []
    example = parse_example(shapes, dtype=dtype, data=path.parent.parent / "data.pt")
    filled = with_data(example)
    [one] = filled.inputs
    assert (one.shape, one.dtype) == ((6,), dtype or "float32")
    assert torch.equal(stored(filled, one, 4), bytes_[[0, 1, 2, 0]].to(getattr(torch, one.dtype)) / 255)
    if not dtype:
        assert exported(network_of(Source(path=path, factory="Probabilities")), filled, "network")


def test_without_its_data_the_same_network_is_refused(path: Path) -> None:
    assert "between 0 and 1" in refusal(path, "Probabilities", parse_example(["6"]))


def test_samples_of_several_inputs_are_found_by_name(tmp_path: Path) -> None:
    file = tmp_path / "data.pt"
    columns = {"ids": torch.arange(12).reshape(4, 3), "mask": torch.ones(4, 2), "targets": torch.arange(4)}
    torch.save({key if key == "targets" else f"inputs.{key}": value for key, value in columns.items()}, file)
    filled = with_data(parse_example([], data=file, free=["ids:1"]))
    assert [(one.name, one.shape, one.dtype, one.free) for one in filled.inputs] == [
        ("ids", (3,), "int64", {1}),
        ("mask", (2,), "float32", set()),
    ]
    given = parse_example(["targets=:int64", "ids=3:int64", "more=5"], data=file)
    values = [stored(with_data(given), one, 2) for one in given.inputs]
    assert torch.equal(values[0], columns["targets"][:2]) and torch.equal(values[1], columns["ids"][:2])
    assert values[2] is None
    for shapes, free, says in ((["ids=4"], [], r"\[3\], not \[4\]"), ([], ["ids:2"], "--free ids:1;")):
        with pytest.raises(BadInput, match=says):
            with_data(parse_example(shapes, data=file, free=free))
    torch.save({"targets": torch.arange(4)}, tmp_path / "none.pt")
    with pytest.raises(BadInput, match="holds no inputs"):
        with_data(parse_example([], data=tmp_path / "none.pt"))


def test_data_files_as_people_have_them_give_their_training_samples(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for part, grey in (("test", 0), ("train", 255)):
            for kind in "ab":
                with archive.open(f"{part}/{kind}/1.png", "w") as file:
                    Image.new("L", (4, 3), grey).save(file, "PNG")
    torch.save((torch.ones(3, 2), torch.arange(3)), tmp_path / "pair.pt")
    (tmp_path / "table.csv").write_text("a,b,target\n1,1,0\n1,1,1\n")
    for name, shape in (("images.zip", (1, 3, 4)), ("pair.pt", (2,)), ("table.csv", (2,))):
        example = with_data(parse_example([], data=tmp_path / name))
        samples = stored(example, example.inputs[0], 2)
        assert samples is not None and torch.equal(samples, torch.ones(2, *shape)), name


@pytest.mark.parametrize("factory", ["Sampling", "Twins", "Seen", "Rewriting", "Modes", "SeenInTraining"])
def test_what_evaluation_draws_and_counts_as_the_code_does_is_packed(path: Path, factory: str) -> None:
    assert pack(path, factory, NUMBERS).path is not None


def test_draws_of_an_evaluation_count_even_if_its_outputs_hardly_change(path: Path) -> None:
    """Stochastic depth behind a tiny scale; a file that drew in evaluation would shift all later draws."""
    report = pack(path, "TinyDepth", NUMBERS)
    module = ExportedFormat().read(report.path or path, None).build().eval()
    before = torch.get_rng_state()
    module(torch.ones(3, 4))
    assert torch.equal(before, torch.get_rng_state())


def test_code_that_computes_otherwise_while_it_is_exported_is_exported_as_it_trains(path: Path) -> None:
    assert pack(path, "Otherwise", NUMBERS).path is not None


def test_a_buffer_that_is_assigned_to_itself_stays_as_it_is(path: Path) -> None:
    assert pack(path, "Moved", NUMBERS).path is not None


@pytest.mark.long
def test_a_decoder_of_transformers_that_trains_otherwise_is_told_which_attention_does_not(path: Path) -> None:
    ids = parse_example(["12:int64"])
    assert 'attn_implementation="eager"' in refusal(path, "decoder", ids)
    del sys.modules[path.stem]
    assert pack(path, "decoder", ids, attention="eager").path is not None


def test_the_hyperparameters_beside_it_are_the_specs_own_and_stay_when_edited(path: Path) -> None:
    report = pack(path, "Words", parse_example(["3:int64"]))
    assert report.hyperparameters is not None
    text = report.hyperparameters.read_text()
    assert parse_hyperparameters(parse_json(text, field="hyperparameters")) == Hyperparameters()
    assert set(json.loads(text)) == set(Hyperparameters.model_fields)
    edited = text.replace('"epochs": 1', '"epochs": 7')
    report.hyperparameters.write_text(edited)
    del sys.modules[path.stem]
    pack(path, "Words", parse_example(["3:int64"]))
    assert report.hyperparameters.read_text() == edited


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize(
    ("factory", "example", "says"),
    [
        ("Branching", NUMBERS, ("depends on the values", "if x.sum() > 0", "torch.where")),
        ("Texts", NUMBERS, ("gives no tensor",)),
        ("Mean", NUMBERS, ("For a batch of 8 forward gives [2]", "a row for each sample")),
        ("OneBatch", NUMBERS, ("only one batch size", "x.shape[0]")),
        ("Outside", NUMBERS, ("NumPy",)),
        ("Dividing", NUMBERS, ("div.Tensor_mode", "what may be 0 or -1", "docs/generated/OPERATORS.md")),
        ("Noisy", NUMBERS, ("differs from the code in", "the output of a batch of 8", "torch's own functions")),
        ("Counting", NUMBERS, ("differs from the code",)),
        ("Recurrent", parse_example(["5,4"], batch=3, free=["1"]), ("dimension 1", "--free")),
        ("Masked", SEQUENCES, ("is causal", "is_causal=True")),
        ("Untrainable", NUMBERS, ("no trainable weight",)),
        ("Scripted", NUMBERS, ("is TorchScript", "as Python code")),
        ("Net", NUMBERS, ("does not take a batch [8, 4] of float32", "--input")),
        ("number", NUMBERS, ("gives a int", "torch.nn.Module")),
        ("broken", NUMBERS, ("needs 'width'", "--arg width=VALUE")),
        ("Assigning", NUMBERS, ("the weights after a training step", "in place: `buffer.add_(1)`")),
        ("Attending", NUMBERS, ("the weights after a training step", 'attn_implementation="eager"')),
        ("Averaging", NUMBERS, ("momentum=None", "such as 0.1")),
        ("State", NUMBERS, ("missing 1 required positional argument", "--input x=4:float32 --input state=")),
        (
            "Lengths",
            parse_example(["4:int64"]),
            ("pack_padded_sequence", "return self.layer(packed)", "gather or a mask"),
        ),
        ("Blank", NUMBERS, ("'layer:1.weight'", "Rename the layer")),
        ("OnGpu", NUMBERS, ("line ", "the device of the input in forward")),
        ("Missing", NUMBERS, ("no class or function 'Missing'", "Networks in it: Net")),
    ],
)
def test_what_cannot_be_packed_is_told_with_its_remedy(
    path: Path, factory: str, example: Example, says: tuple[str, ...]
) -> None:
    random.seed(1)
    said = refusal(path, factory, example)
    assert [words for words in says if words not in said] == [], said


def test_a_failure_of_the_users_code_names_its_line(path: Path) -> None:
    said = refusal(path, "broken", NUMBERS, width=2)
    line = NETWORKS.read_text().splitlines().index("    raise KeyError(width)") + 1
    assert f"KeyError: 2, line {line} of a_users_networks.py" in said
    path.write_text("import no_such_module\n")
    del sys.modules[path.stem]
    assert "imports 'no_such_module', which is not there, line 1" in refusal(path, "Net", NUMBERS)


def test_a_file_that_is_wrong_is_told_before_anything_runs(tmp_path: Path) -> None:
    for file, says in ((tmp_path / "none.py", "not a Python file"), (tmp_path / "json.py", "loaded already")):
        if file.name == "json.py":
            file.write_text("raise SystemExit")
        with pytest.raises(BadInput, match=says):
            network_of(Source(path=file, factory="Net"))
    with pytest.raises(BadInput, match="cannot be written"):
        work.pack(
            PackRequest(source=Source(path=tmp_path / "m.py", factory="N"), example=NUMBERS, out=tmp_path / "no" / "x")
        )


def test_a_packed_file_that_computes_something_else_is_not_equal(path: Path) -> None:
    report = pack(path, "Net", IMAGES)
    assert report.path is not None
    definition = ExportedFormat().read(report.path, None)
    code = sys.modules[path.stem].Net()
    code.load_state_dict(definition.build().state_dict())
    other = copy.deepcopy(code)
    assert differences(code, definition, IMAGES) == []
    with torch.no_grad():
        other.head.bias += 2**-20
    assert "the initial weights" in differences(other, definition, IMAGES)


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: parse_source("model.py"), "FILE.py:NAME"),
        (lambda: parse_source("model.py:no name"), "FILE.py:NAME"),
        (lambda: parse_arguments(["width"]), "--arg width=16"),
        (lambda: parse_example([]), "--example"),
        (lambda: parse_example(["1,a"]), "sizes of one sample"),
        (lambda: parse_example(["0,3"]), "size of 0"),
        (lambda: parse_example([",".join("1" * 9)]), "at most 8"),
        (lambda: parse_example(["4"], dtype="float31"), "Choose one of: float32"),
        (lambda: parse_example(["4:int"]), "Choose one of: float32"),
        (lambda: parse_example(["4"], batch=1), "from 2 to 65536"),
        (lambda: parse_example(["4"], free=["2"]), "--free 1;"),
        (lambda: parse_example(["a=4", "b=4"], free=["1"]), "--free a:1;"),
        (lambda: parse_example(["a=4", "b=4"], free=["c:1"]), "--free a:1;"),
        (lambda: parse_example(["4", "b=4"]), "different names"),
        (lambda: parse_example(["a=4", "a=4"]), "different names"),
        (lambda: parse_example(["a b=4"]), "argument of forward"),
    ],
)
def test_options_that_cannot_be_meant_say_what_to_write(read, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput) as caught:
        read()
    assert says in str(caught.value)


def test_several_inputs_are_named_in_any_order_with_their_types_and_sizes_that_vary() -> None:
    read = parse_example(["src=12:int64", "mask=12", "rate="], dtype="float64", free=["mask:1"])
    given = [(one.name, one.shape, one.dtype, one.free) for one in read.inputs]
    assert given == [("src", (12,), "int64", set()), ("mask", (12,), "float64", {1}), ("rate", (), "float64", set())]


def test_a_network_is_named_by_file_or_module() -> None:
    assert parse_source("a/net.py:Net") == Source(path=Path("a/net.py"), factory="Net")
    assert parse_source("a.net:Net") == Source(path=Path("a/net.py"), module="a.net", factory="Net")
    assert parse_source("./a-b/my.net.py:Net").path == Path("a-b/my.net.py")


def test_arguments_are_json_where_they_can_be() -> None:
    read = parse_arguments(["width=16", "rate=0.5", "name=net", "sizes=[1, 2]", "bias=false", "text=a=b"])
    assert read == {"width": 16, "rate": 0.5, "name": "net", "sizes": [1, 2], "bias": False, "text": "a=b"}
