"""Files with a graph of their own for evaluation: the second one is checked as the first, and is the same network."""

import copy
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.hostile.corpus.archives import EDITS
from tests.hostile.marks import payload
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats.draws import own_draws
from unifiednn_core.formats.exported import ExportedFormat, write_both, write_checked

FORMAT = ExportedFormat()
MODEL = "archive/models/evaluation.json"
WEIGHTS = "archive/data/weights/evaluation_weights_config.json"
CONSTANTS = "archive/data/constants/evaluation_constants_config.json"
SAMPLES = "archive/data/sample_inputs/evaluation.pt"


class TwoCourses(kit.Residual):
    """Other constants in evaluation, of the same names in the graph."""

    def forward(self, images: Tensor) -> Tensor:
        scores = super().forward(images)
        return scores if self.training else scores * torch.tensor([3.0, 2.0, 1.0])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TwoCourses()
    for name, training in (("training", True), ("evaluation", False)):
        kit.export(folder / f"{name}.pt2", network.train(training), kit.batch("residual", 3))
    write_both(folder / "training.pt2", folder / "evaluation.pt2", folder / "archive.pt2")
    return folder / "archive.pt2"


def test_each_mode_has_its_graph_and_both_have_the_same_tensors(good: Path, tmp_path: Path) -> None:
    built, inputs = FORMAT.read(good, None).build(), kit.batch("residual", 4)
    eager = TwoCourses()
    eager.load_state_dict(built.state_dict())
    for training in (True, False):
        assert torch.equal(built.train(training)(inputs), eager.train(training)(inputs))
    assert built.state_dict().keys() == eager.state_dict().keys()
    assert {name for name, _ in built.named_parameters()} == {name for name, _ in eager.named_parameters()}
    write_checked(good, tmp_path / "checked.pt2")
    for path in (good, tmp_path / "checked.pt2"):
        assert torch.equal(torch.export.load(path).module()(inputs), built.train()(inputs))


def test_a_file_of_one_graph_knows_nothing_of_a_second(good: Path) -> None:
    """Control: without the entries of evaluation the output in evaluation is another."""
    built = FORMAT.read(good.with_name("training.pt2"), None).build().eval()
    both = FORMAT.read(good, None).build().eval()
    assert not torch.equal(built(kit.batch("residual", 4)), both(kit.batch("residual", 4)))


class Drawing(nn.Linear):
    """Draws in both modes, each with other constants."""

    def forward(self, input: Tensor) -> Tensor:
        scores = super().forward(input) + torch.randn_like(super().forward(input))
        return scores if self.training else scores * torch.tensor([3.0, 2.0, 1.0]) + torch.tensor([5.0, 6.0, 7.0])


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawing")
    for name, training in (("training", True), ("evaluation", False)):
        torch.manual_seed(0)
        kit.export(folder / f"{name}.pt2", Drawing(4, 3).train(training), torch.ones(3, 4))
    write_both(folder / "training.pt2", folder / "evaluation.pt2", folder / "both.pt2")
    return folder


def test_a_copy_draws_in_evaluation_from_the_generator_of_its_network(drawing: Path) -> None:
    built = FORMAT.read(drawing / "both.pt2", None).build()
    own = own_draws(built)
    assert own is not None
    own.begin()
    copied, before, drawn = copy.deepcopy(built), torch.get_rng_state(), own.generator.get_state()
    for network in (built.eval(), copied.eval(), copy.deepcopy(copied)):
        network(torch.ones(3, 4))
        assert not torch.equal(own.generator.get_state(), drawn)
        drawn = own.generator.get_state()
    assert torch.equal(torch.get_rng_state(), before)


def test_constants_of_evaluation_stay_apart_in_any_order(drawing: Path, tmp_path: Path) -> None:
    def turn(table: Any) -> None:
        table["config"] = dict(reversed(table["config"].items()))

    entry = "archive/data/constants/model_constants_config.json"
    turned = kit.mutated(drawing / "evaluation.pt2", tmp_path / "turned.pt2", turn, entry=entry)
    write_both(drawing / "training.pt2", turned, tmp_path / "both.pt2")
    outputs = []
    for path in (drawing / "both.pt2", tmp_path / "both.pt2"):
        torch.manual_seed(1)
        outputs.append(FORMAT.read(path, None).build().eval()(torch.ones(3, 4)))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("edit", EDITS)
def test_the_graph_of_evaluation_is_checked_as_that_of_training(
    edit: Callable[[Any, Path], None], good: Path, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    hostile = kit.mutated(good, tmp_path / "m.pt2", lambda document: edit(document, canary), entry=MODEL)
    with pytest.raises((HostileFile, BadInput)):
        FORMAT.read(hostile, None)
    assert not canary.exists()


def other_weight(document: Any) -> None:
    table = document["config"]
    table["norm1.weight"]["path_name"], table["norm2.weight"]["path_name"] = (
        table["norm2.weight"]["path_name"],
        table["norm1.weight"]["path_name"],
    )


def other_buffer(document: Any) -> None:
    table = document["config"]
    place = next(name for name in table if table[name]["tensor_meta"]["sizes"] == [{"as_int": 3}])
    table["shift"]["path_name"] = table[place]["path_name"]
    table["shift"]["tensor_meta"].update(table[place]["tensor_meta"])


def no_weight(document: Any) -> None:
    del document["config"]["norm1.weight"]


def other_input(document: Any) -> None:
    kit.graph_of(document)["tensor_values"]["images"]["dtype"] = 8


def fixed_batch(document: Any) -> None:
    kit.graph_of(document)["tensor_values"]["images"]["sizes"][0] = {"as_int": 3}


@pytest.mark.parametrize(
    ("entry", "edit", "says"),
    [
        (WEIGHTS, other_weight, "has other weights"),
        (WEIGHTS, no_weight, "holds no parameter 'norm1.weight'"),
        (CONSTANTS, other_buffer, "another tensor 'shift'"),
        (MODEL, other_input, "take other inputs"),
        (MODEL, fixed_batch, "one batch size only"),
    ],
)
def test_a_graph_of_another_network_is_refused(
    entry: str, edit: Callable[[Any], None], says: str, good: Path, tmp_path: Path
) -> None:
    with pytest.raises((BadInput, HostileFile), match=says):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit, entry=entry), None)


@pytest.mark.parametrize("missing", [WEIGHTS, CONSTANTS])
def test_a_graph_without_its_tables_is_refused(missing: str, good: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        for name, content in kit.entries_of(good).items():
            if name != missing:
                archive.writestr(name, content)
    with pytest.raises(BadInput, match="The archive lacks"):
        FORMAT.read(tmp_path / "m.pt2", None)


def test_samples_of_a_call_in_evaluation_are_never_opened_nor_passed_on(good: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    path = kit.mutated(good, tmp_path / "m.pt2", replace={SAMPLES: pickle.dumps(payload(tmp_path))})
    definition = FORMAT.read(path, None)
    delivery = FORMAT.write(definition, definition.build().state_dict(), tmp_path, "a")
    assert [name for name in kit.entries_of(delivery.files[1]) if "evaluation" in name] == []
    assert kit.entries_of(delivery.files[0])["a/data/sample_inputs/evaluation.pt"] == b""
    assert not canary.exists()


def keyword_that_is_code(document: Any) -> None:
    call = document["graph_module"]["module_call_graph"][0]["signature"]
    call["in_spec"] = (
        call["in_spec"]
        .replace('"context": "[]"', r'"context": "[\"x\\nimport os\"]"')
        .replace(
            '"children_spec": []}]}]', '"children_spec": [{"type": null, "context": null, "children_spec": []}]}]}]'
        )
    )


def output_that_is_code(document: Any) -> None:
    leaf = '{"type": null, "context": null, "children_spec": []}'
    call = document["graph_module"]["module_call_graph"][0]["signature"]
    call["out_spec"] = f'[1, {{"type": "builtins.dict", "context": "[\\"a\\\\nb\\"]", "children_spec": [{leaf}]}}]'


def output_of_a_class(document: Any) -> None:
    leaf = '{"type": null, "context": null, "children_spec": []}'
    call = document["graph_module"]["module_call_graph"][0]["signature"]
    call["out_spec"] = f'[1, {{"type": "os.system", "context": "null", "children_spec": [{leaf}]}}]'


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (keyword_that_is_code, "differ"),
        (output_that_is_code, r"is called 'a\\nb'"),
        (output_of_a_class, "takes or returns a 'os.system'"),
    ],
)
def test_names_of_inputs_and_outputs_are_plain(
    edit: Callable[[Any], None], says: str, good: Path, tmp_path: Path
) -> None:
    for entry in ("archive/models/model.json", MODEL):
        with pytest.raises(BadInput, match=says):
            FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit, entry=entry), None)


def older(document: Any) -> None:
    document["schema_version"]["major"] = 7


def odd_name(document: Any) -> None:
    document["graph_module"]["signature"]["input_specs"][0]["parameter"]["parameter_name"] = "a$b"


def lowered(document: Any) -> None:
    document["verifiers"] = ["ATEN"]


def on_a_mac(document: Any) -> None:
    kit.graph_of(document)["tensor_values"]["images"]["device"]["type"] = "mps"


def region(document: Any) -> None:
    node = kit.graph_of(document)["nodes"][0]
    node["target"] = "torch.ops.higher_order.wrap_with_set_grad_enabled"
    node["inputs"][0]["name"] = ""


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (older, "version 7 wrote it"),
        (odd_name, r"called 'a\$b'.* blanks"),
        (lowered, "run_decompositions"),
        (on_a_mac, "on the device 'mps'"),
        (region, r"wrap_with_set_grad_enabled.*unifiednn pack"),
    ],
)
def test_what_is_not_known_is_told_in_the_words_of_a_networks_author(
    edit: Callable[[Any], None], says: str, good: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit), None)
    assert "pattern" not in str(caught.value) and "Input should" not in str(caught.value)
