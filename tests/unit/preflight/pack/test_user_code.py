"""People's code as it lies in their folders: packages, scripts, configurations, and code of other kinds of job."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.preflight.pack.request import parse_source
from unifiednn_core.preflight.pack.source import network_of

NET = """
from torch import nn
from {layers} import Layer
class Net(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.layer = Layer(width)
"""
LAYER = """
from torch import nn
class Layer(nn.Linear):
    def __init__(self, width):
        super().__init__(width, 2)
"""
Make = Callable[..., nn.Module]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Write files, and make a network in the folder `here` as `unifiednn pack` does; what this loads is undone."""

    def made(files: dict[str, str], network: str, here: str = "", *arguments: str) -> nn.Module:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(dedent(text))
        monkeypatch.chdir(tmp_path / here)
        return network_of(parse_source(network, arguments))

    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(sys, "argv", ["model.py"])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with torch.random.fork_rng(devices=[]):
        yield made
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or tmp_path).startswith(str(tmp_path)):
            del sys.modules[name]


def refusal(make: Make, text: str, network: str = "model.py:Net", *arguments: str) -> str:
    with pytest.raises(BadInput) as caught:
        make({network.partition(":")[0]: text}, network, "", *arguments)
    [finding] = caught.value.findings
    return f"{finding.title}: {finding.message} {finding.remedy}"


RELATIVE, SIBLING, ABSOLUTE = (
    NET.format(layers=".parts.layers"),
    NET.format(layers="layers"),
    NET.format(layers="own.parts.layers"),
)
PACKAGE = {"own/__init__.py": "", "own/parts/__init__.py": "", "own/parts/layers.py": LAYER}


@pytest.mark.parametrize(
    ("files", "network", "here"),
    [
        ({**PACKAGE, "own/net.py": RELATIVE}, "own.net:Net", ""),
        ({**PACKAGE, "own/net.py": RELATIVE}, "own/net.py:Net", ""),
        ({**PACKAGE, "own/net.py": RELATIVE}, "net.py:Net", "own"),
        ({**PACKAGE, "own/__init__.py": RELATIVE}, "own:Net", ""),
        ({**PACKAGE, "own/__init__.py": RELATIVE}, "own/__init__.py:Net", ""),
        ({**PACKAGE, "own/net.py": ABSOLUTE}, "own.net:Net", ""),
        ({**PACKAGE, "own/net.py": ABSOLUTE}, "net.py:Net", "own"),
        ({"own/parts/layers.py": LAYER, "own/net.py": RELATIVE}, "own/net.py:Net", ""),
        ({"own/parts/layers.py": LAYER, "own/net.py": RELATIVE}, "own.net:Net", ""),
        ({"own/layers.py": LAYER, "own/nets/net.py": NET.format(layers="..layers")}, "own/nets/net.py:Net", ""),
        ({"own-v1/layers.py": LAYER, "own-v1/net.py": NET.format(layers=".layers")}, "own-v1/net.py:Net", ""),
        ({"own/__init__.py": "1 / 0", "own/layers.py": LAYER, "own/net.py": SIBLING}, "own/net.py:Net", ""),
        ({"layers.py": LAYER, "my-net.v2.py": SIBLING}, "my-net.v2.py:Net", ""),
        ({"layers.py": LAYER, "net.py": f"{SIBLING}\nready = Net()"}, "net.py:ready", ""),
    ],
)
def test_networks_are_found_in_packages_folders_and_files(
    make: Make, files: dict[str, str], network: str, here: str
) -> None:
    assert [*make(files, network, here).state_dict()] == ["layer.weight", "layer.bias"]


def test_modules_that_are_installed_are_packages_too(make: Make) -> None:
    assert isinstance(make({}, "torch.nn:Linear", "", "in_features=3", "out_features=2"), nn.Linear)


CONFIG = """
from dataclasses import dataclass, field
from torch import nn
@dataclass
class Sizes:
    width: int = 4
@dataclass
class NetConfig:
    classes: int{classes}
    sizes: Sizes = field(default_factory=Sizes)
class Net(nn.Linear):
    def __init__(self, config{annotation}, bias=True):
        super().__init__(config.sizes.width, config.classes, bias)
"""


@pytest.mark.parametrize("annotation", [": NetConfig", ": 'NetConfig'"])
def test_a_configuration_that_has_only_defaults_is_made(make: Make, annotation: str) -> None:
    code = CONFIG.format(classes=" = 3", annotation=annotation)
    assert make({"model.py": code}, "model.py:Net", "", "bias=false").state_dict()["weight"].shape == (3, 4)


@pytest.mark.parametrize(
    ("classes", "annotation", "call"), [("", ": NetConfig", "NetConfig(classes=3)"), (" = 3", "", "NetConfig()")]
)
def test_a_configuration_is_asked_for_with_a_function_that_works_once_it_is_filled_in(
    make: Make, tmp_path: Path, classes: str, annotation: str, call: str
) -> None:
    code = CONFIG.format(classes=classes, annotation=annotation)
    said = refusal(make, code, "model.py:Net", "bias=false")
    assert "Net needs 'config'. An object cannot be given with --arg." in said
    assert "into my_network.py, and pack my_network.py:make_network" in said
    function = said[said.index("from model import Net, NetConfig") :].replace("=...", "=3")
    assert f"return Net(config={call}, bias=False)" in function
    del sys.modules["model"]
    assert make({"my_network.py": function}, "my_network.py:make_network").state_dict()["weight"].shape == (3, 4)


def test_a_configuration_of_a_package_is_imported_by_its_full_name(make: Make) -> None:
    code = f"from . import parts\n{CONFIG.format(classes='', annotation='')}"
    with pytest.raises(BadInput) as caught:
        make({"own/__init__.py": "", "own/parts.py": "", "own/net.py": code}, "net.py:Net", "own")
    assert "into ../my_network.py" in str(caught.value)
    assert "from own.net import Net, NetConfig" in str(caught.value)


def test_a_class_that_functions_make_is_asked_for_with_their_names(make: Make) -> None:
    code = f"""{LAYER}
Net = Layer
def net18():
    return Net(4)
def net_wide(width):
    return Net(width)
"""
    assert "needs 'width'. Name a function that needs no argument: net18. Or add --arg width=VALUE." in refusal(
        make, code
    )
    assert "def make_network():\n    return Net(width=...)" in refusal(make, code, "again.py:Net")
    assert refusal(make, code.replace("self, width)", "self, width: int)"), "plain.py:Net").endswith(
        "add --arg width=VALUE."
    )
    assert "has no argument 'size'. Its arguments are: width." in refusal(make, code, "wrong.py:Net", "size=3")


WHOLE = """
import torch
from torch import nn
from models.nets import Net
def make(kind, path):
    network = Net(5)
    network = {"net": network, "parallel": nn.DataParallel(network), "list": nn.Sequential(network)}[kind]
    torch.save(network, path)
    return network
"""


@pytest.mark.parametrize(("kind", "remedy"), [("net", 1), ("net", 2), ("parallel", 1), ("parallel", 2), ("list", 1)])
def test_the_command_shown_for_a_pickle_of_own_classes_makes_its_network(
    make: Make, tmp_path: Path, kind: str, remedy: int
) -> None:
    """With the weights of the file where a command promises it."""
    own = NET.format(layers="torch.nn").replace("Layer", "Linear").replace("(width)", "(width, 2)")
    files = {"models/nets.py": own, "saving.py": WHOLE}
    saved = make(files, "saving.py:make", "", f"kind={kind}", f"path={tmp_path / 'whole.pt'}")
    with pytest.raises(BadInput) as caught:
        PickledModule().read(tmp_path / "whole.pt", None)
    said = caught.value.findings[0].remedy
    assert "in the folder that holds 'models'" in said
    command = said.split("`")[2 * remedy - 1].replace("FILE", "whole").split()
    assert (command[:2], command[3:]) == (["unifiednn", "pack"], ["--input", "5"])
    if "nets:Net" in command[2]:
        assert make({}, command[2], "", "width=5").state_dict().keys() == {"layer.weight", "layer.bias"}
    else:
        assert command[2] == "whole.pt"
        again = make({}, command[2]).state_dict()
        assert [*map(torch.Tensor.tolist, again.values())] == [*map(torch.Tensor.tolist, saved.state_dict().values())]


def test_a_pickle_of_a_script_and_one_without_a_network_are_told(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        make({}, "none.pt")
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.pt")
    with pytest.raises(BadInput, match=r"weights.pt gives a dict, not a torch\.nn\.Module"):
        make({}, "weights.pt")
    saving = f"""{LAYER}
import __main__, torch
Layer.__module__ = '__main__'
def make(path):
    __main__.Layer = Layer
    network = Layer(3)
    network.inner = torch.nn.Linear(3, 2)
    torch.save(network, path)
    del __main__.Layer
    return network
"""
    make({"saving.py": saving}, "saving.py:make", "", f"path={tmp_path / 'script.pt'}")
    with pytest.raises(BadInput, match=r"name both, SCRIPT\.py:NAME"):
        make({}, "script.pt")
    with pytest.raises(BadInput, match=r"`unifiednn pack YOUR_SCRIPT\.py:Layer --input 3`"):
        PickledModule().read(tmp_path / "script.pt", None)


LINEAR = "from torch import nn\nNet = lambda: nn.Linear(4, 2)\n"
GUARD = '`if __name__ == "__main__":`'


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
            "args = parser.parse_args()",
            ("reads a command line while it is imported, line 4 of model.py", GUARD, "default"),
        ),
        ("import sys\nsys.exit(0)", ("ends its process while it is imported, line 2 of model.py", GUARD)),
        (
            "import torch\nfrom torch import nn\nnet = nn.Linear(2, 1)\n"
            "optimizer = torch.optim.SGD(net.parameters())\ntry:\n    optimizer.step()\n"
            "except Exception:\n    pass",
            ("trains while it is imported, line 6 of model.py", GUARD),
        ),
        ("import torch\nx = torch.zeros(1).cuda()", ("line 2 of model.py", "torch.cuda.is_available()")),
        ("import no_such_module.parts", ("'no_such_module'", "line 1 of model.py", "Install it", sys.executable)),
        ("print 'two'", ("SyntaxError", "Correct the code")),
        ("open('no_such_data.csv')", ("FileNotFoundError", "line 1 of model.py", GUARD)),
    ],
)
def test_code_that_cannot_be_imported_is_told_with_its_line(make: Make, code: str, says: tuple[str, ...]) -> None:
    said = refusal(make, f"{code}\n{LINEAR}")
    assert [words for words in says if words not in said] == [], said


@pytest.mark.parametrize(
    "code",
    [
        "net = Net()\noptimizer = torch.optim.SGD(net.parameters())\noptimizer.step()\nnet.layer = None",
        "open('no_such_data.csv')",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
        "parser.parse_args()",
    ],
)
def test_a_script_that_fails_after_its_network_is_defined_gives_the_network(make: Make, code: str) -> None:
    network = "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(4, 2)\n"
    assert make({"model.py": f"{network}{code}"}, "model.py:Net").weight.shape == (2, 4)
    assert "Code: " in refusal(make, f"{network}{code}\nLater = Net", "script.py:Later")


def test_the_hook_against_training_is_gone_after_the_import(make: Make) -> None:
    network = make({"model.py": LINEAR}, "model.py:Net")
    torch.optim.SGD(network.parameters()).step()


def test_a_part_that_lies_elsewhere_is_named_with_its_folder(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"'parts' lies in {tmp_path}: start unifiednn pack in that folder"):
        make({"parts/x.py": "", "own/net.py": "from parts import x"}, "net.py:Net", "own")


def test_a_package_that_is_imported_in_parts_is_told_how_to_be_named(make: Make) -> None:
    with pytest.raises(BadInput, match=r"attempted relative import .* unifiednn pack package\.module:Net"):
        make({"own/net.py": "import parts", "own/parts.py": "from . import net"}, "own/net.py:Net")


def test_a_module_that_is_not_there_is_told_apart_from_one_that_it_imports(make: Make) -> None:
    with pytest.raises(BadInput, match=r"no module 'own\.net'"):
        make({"own/__init__.py": ""}, "own.net:Net")
    with pytest.raises(BadInput, match="imports 'no_such_module'"):
        make({"own/net.py": "import no_such_module"}, "own.net:Net")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("return nn.Linear(4, 2), nn.Linear(2, 4)", "gives 2 networks (Linear, Linear)"),
        ("return {'generator': nn.Linear(4, 2), 'critic': nn.Conv1d(1, 1, 1)}", "gives 2 networks (Linear, Conv1d)"),
        ("return Adversaries()", "has 2 optimizers"),
        ("return LayerByLayer()", "has 2 optimizers"),
    ],
)
def test_other_kinds_of_job_are_refused_in_one_sentence(make: Make, code: str, says: str) -> None:
    said = refusal(make, OTHERS.format(code=code), "model.py:make")
    assert said.startswith("Another kind of job: ")
    assert says in said and "A GAN" in said and "reinforcement learning" in said


@pytest.mark.parametrize("network", ["Plain", "Scheduled", "Late"])
def test_one_optimizer_beside_a_network_is_no_other_job(make: Make, network: str) -> None:
    assert make({"model.py": OTHERS.format(code=f"return {network}()")}, "model.py:make")


OTHERS = """
import torch
from torch import nn
from torch.optim import SGD
class Plain(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
        self.optimizer = SGD(self.parameters())
class Training(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
    def training_step(self, batch):
        ...
class Adversaries(Training):
    def configure_optimizers(self):
        return [SGD(self.parameters()), SGD(self.parameters())], []
class Scheduled(Training):
    def configure_optimizers(self):
        one = SGD(self.parameters())
        return [one], [torch.optim.lr_scheduler.StepLR(one, 1)]
class Late(Training):
    def configure_optimizers(self):
        return SGD(self.parameters(), lr=self.trainer.lr)
class LayerByLayer(nn.Sequential):
    def __init__(self):
        super().__init__(Plain(), Plain())
def make():
    {code}
"""
