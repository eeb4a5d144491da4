"""Public networks that nobody here wrote: packed, trained as one hybrid, and held against their authors' own code.

`python -m tools.public_networks FOLDER`, where FOLDER holds clones of the repositories; without one they are listed.
This runs their code. Each network is packed by `unifiednn pack`, all are trained by `unifiednn train` for two epochs of
random data, and each once more by a plain loop over the author's Python, in a process of its own, so that modules of
two repositories never meet. The loop shares nothing with the product but the hash of the weights.
docs/results/public-networks-cpu.json is of an earlier version, which tried 172 networks.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tools.bench import report, result
from unifiednn_core.base.files import write_text
from unifiednn_core.formats.weights import state_sha256

EPOCHS, BATCH, SAMPLES, SEED, RATE, WORDS = 2, 4, 7, 11, 1e-3, 8
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
PATIENCE_S = 600
_COMMAND = "from unifiednn_core.cli.main import main; main()"
_ROOT = Path(__file__).parents[1]
_GPT = """
from mingpt.model import GPT
def network():
    config = GPT.get_default_config()
    config.model_type, config.vocab_size, config.block_size = "gpt-nano", 32, 16
    return GPT(config)
"""


@dataclass(frozen=True, slots=True)
class Network:
    """One network, as its author has it."""

    repository: str
    commit: str
    place: str
    """As `unifiednn pack` takes it: `FILE.py:NAME` in the clone."""
    inputs: Mapping[str, str]
    """Sizes of one sample and type of each input, by its name."""
    targets: tuple[int, ...]
    """Classes, then sizes of one target; none if the network has its targets as an input, and its loss as output."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    """A file that defines `network()`, where the constructor takes what no command line can give."""

    @property
    def name(self) -> str:
        """Of a sub-model."""
        return f"{self.repository}-{self.place}".translate(str.maketrans("/.:", "---")).lower()

    @property
    def clone(self) -> str:
        """Name of the folder."""
        return self.repository.rpartition("/")[2]


_CIFAR = ("kuangliu/pytorch-cifar", "49b7aa97b0c12fe0d4054e670403a16b6b834ddd")
_TCN = ("locuslab/TCN", "2f8c2b817050206397458dfd1f5a25ce8a32fe65")
_RESNET = ("akamaster/pytorch_resnet_cifar10", "d5489e8995e81e91ce6b1d69dcc98ad579b0b153")
_UNET = ("milesial/Pytorch-UNet", "21d7850f2af30a9695bbeea75f3136aa538cfc4a")
_MINGPT = ("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26")
_IMAGE, _SIZES = {"x": "3,32,32"}, {"num_channels": [8, 8], "kernel_size": 3, "dropout": 0.1}
_CIFAR_PLACES = ("resnet.py:ResNet18", "mobilenetv2.py:MobileNetV2", "densenet.py:densenet_cifar", "senet.py:SENet18")
NETWORKS = (
    *(Network(*_CIFAR, f"models/{place}", _IMAGE, (10,)) for place in _CIFAR_PLACES),
    Network(*_RESNET, "resnet.py:resnet20", _IMAGE, (10,)),
    Network(*_UNET, "unet/unet_model.py:UNet", _IMAGE, (2, 32, 32), {"n_channels": 3, "n_classes": 2}),
    Network(
        *_TCN, "TCN/mnist_pixel/model.py:TCN", {"inputs": "1,20"}, (10,), _SIZES | {"input_size": 1, "output_size": 10}
    ),
    Network(*_MINGPT, "mingpt/model.py:GPT", {"idx": "16:int64", "targets": "16:int64"}, (), code=_GPT),
)


def main(
    clones: Annotated[Path | None, typer.Argument(help="Folder with the clones.", metavar="FOLDER")] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder to write the result file into.")] = Path("bench-results"),
) -> None:
    """Pack public networks, train them in one hybrid, and compare with plain loops over their authors' Python code."""
    if clones is None:
        listed = dict.fromkeys(f"https://github.com/{one.repository} {one.commit}\n" for one in NETWORKS)
        sys.stdout.write("".join(listed))
        return
    asked = result.environment("python -m tools.public_networks FOLDER", "cpu")
    with tempfile.TemporaryDirectory(prefix="unifiednn-public-") as place:
        rows = tried(clones.resolve(), Path(place))
    found = document(rows, asked)
    to.mkdir(parents=True, exist_ok=True)
    write_text(to / "public-networks-cpu.json", json.dumps(found, indent=2) + "\n")
    sys.stdout.write(report.section(found) + "\n")
    raise typer.Exit(0 if found["passed"] else 1)


def tried(clones: Path, folder: Path) -> list[dict[str, Any]]:
    """A row for each network: what came of packing, the hash of the hybrid's weights, and that of the plain loop's."""
    rows, parts = [], []
    for place, network in enumerate(NETWORKS):
        row = {"network": network.place, "source": network.repository, "refused": _pack(network, clones, folder)}
        rows.append(row)
        if row["refused"] is None:
            parts.append(_submodel(network, place, folder))
    spec = {"name": "public", "device": "cpu", "threads": 1, "policy": {"name": "round_robin"}, "submodels": parts}
    (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    done = _run("-c", _COMMAND, "train", str(folder / "spec.json"), "--json", home=folder / "home")
    trained = json.loads(done.stdout)["submodels"]
    for place, (network, row) in enumerate(zip(NETWORKS, rows, strict=True)):
        if row["refused"] is None:
            plain = _run("-m", "tools.public_networks", "plain", str(place), str(clones), str(folder))
            row["state_sha256"] = trained[network.name]["state_sha256"]
            row["plain_sha256"] = plain.stdout.strip().rpartition("\n")[2] or None
            row["trouble"] = trained[network.name].get("cause") or plain.stderr.strip().rpartition("\n")[2] or None
    return rows


def _run(*arguments: str, home: Path | None = None, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({} if home is None else {"UNIFIEDNN_HOME": str(home)})
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder or _ROOT, timeout=PATIENCE_S, check=False
    )


def _pack(network: Network, clones: Path, folder: Path) -> str | None:
    """Pack it in its clone; returns what the command says if it refuses."""
    place = network.place
    if network.code:
        (folder / f"{network.name}.py").write_text(network.code, encoding="utf-8")
        place = f"{folder / network.name}.py:network"
    words = ["pack", place, "--batch", "2", "--out", str(folder / f"{network.name}.pt2"), "--json"]
    for name, sizes in network.inputs.items():
        words += ["--input", f"{name}={sizes}" if len(network.inputs) > 1 else sizes]
    for name, value in network.arguments.items():
        words += ["--arg", f"{name}={json.dumps(value)}"]
    done = _run("-c", _COMMAND, *words, folder=clones / network.clone)
    said = json.loads(done.stdout) if done.stdout else {"findings": [{"message": done.stderr.strip()}]}
    return None if done.returncode == 0 else str((said["findings"] or [{"message": "It failed."}])[0]["message"])


def _submodel(network: Network, place: int, folder: Path) -> dict[str, Any]:
    """Draw its data, and describe its training."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = {name: _drawn(sizes, generator) for name, sizes in network.inputs.items()}
    if network.targets:
        classes, *sizes = network.targets
        drawn["targets"] = torch.randint(0, classes, (SAMPLES, *sizes), generator=generator)
    inputs, targets = drawn.values()
    save_file({"inputs": inputs, "targets": targets}, folder / f"{network.name}.safetensors")
    hyper: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, "seed": SEED}
    hyper |= {"optimizer": _optimizer(place), "criterion": "cross_entropy" if network.targets else "none"}
    part = {"name": network.name, "model": f"{network.name}.pt2", "train_data": f"{network.name}.safetensors"}
    return part | {"hyperparameters": hyper} | ({} if network.targets else {"output": "1"})


def _drawn(sizes: str, generator: torch.Generator) -> Tensor:
    shape, _, dtype = sizes.partition(":")
    whole = (SAMPLES, *map(int, shape.split(",")))
    return torch.randint(0, WORDS, whole, generator=generator) if dtype else torch.randn(whole, generator=generator)


def _optimizer(place: int) -> str:
    return list(OPTIMIZERS)[place % len(OPTIMIZERS)]


def plain(network: Network, place: int, clones: Path, folder: Path) -> str:
    """Train the author's own Python network in a plain loop, by the recipe; returns its `state_sha256`."""
    torch.manual_seed(0)  # as `unifiednn pack` begins: some constructors draw buffers that are in no file
    module = _built(network, clones, folder)
    weights = torch.export.load(folder / f"{network.name}.pt2").state_dict
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            tensor.copy_(weights[name])
    data = load_file(folder / f"{network.name}.safetensors")
    optimizer = OPTIMIZERS[_optimizer(place)](module.parameters(), lr=RATE)
    torch.manual_seed(SEED)
    order_of = torch.Generator().manual_seed(SEED)
    module.train()
    for _ in range(EPOCHS):
        for chosen in torch.split(torch.randperm(SAMPLES, generator=order_of), BATCH):
            optimizer.zero_grad(set_to_none=True)
            inputs, targets = data["inputs"][chosen], data["targets"][chosen]
            if network.targets:
                loss = nn.functional.cross_entropy(module(inputs), targets)
            else:
                loss = module(inputs, targets)[1]
            torch.autograd.backward(loss)
            optimizer.step()
    return state_sha256(module.state_dict())


def _built(network: Network, clones: Path, folder: Path) -> nn.Module:
    """Import the author's code as Python does, and call it."""
    os.chdir(clones / network.clone)
    file, _, name = network.place.partition(":")
    path = Path(file).with_suffix("")
    sys.path[:0] = [str(Path.cwd()), str(folder if network.code else path.resolve().parent)]
    if network.code:
        module, name = importlib.import_module(network.name), "network"
    else:
        is_package = "from ." in Path(file).read_text(encoding="utf-8")
        module = importlib.import_module(".".join(path.parts) if is_package else path.name)
    built: nn.Module = getattr(module, name)(**network.arguments)
    return built


def document(rows: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The result, with its table."""
    equal = [row for row in rows if row.get("plain_sha256") is not None and row["plain_sha256"] == row["state_sha256"]]
    said = ["yes" if row in equal else f"**no** {row.get('trouble', '')}" for row in rows]
    cells = [
        (row["source"], row["network"], row["refused"] or "yes", same) for row, same in zip(rows, said, strict=True)
    ]
    heads = ("source", "network", "packs", "bit-equal to the author's Python")
    return {
        "bench": "public-networks",
        "scale": "cpu",
        "about": "Public networks, packed, trained as one hybrid and held against a plain loop over the authors' code.",
        **asked,
        **{"threads": 1, "repeats_asked": 1, "repeats": 1, "complete": True, "thresholds": []},
        "passed": len(equal) == len(rows),
        "notes": ["Promised: all pack, and those trained have the bits of their authors' Python."],
        "tables": [{"title": f"{len(equal)} of {len(rows)} are equal:", "heads": heads, "rows": cells}],
        "networks": list(rows),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["plain"]:
        number = int(sys.argv[2])
        sys.stdout.write(plain(NETWORKS[number], number, Path(sys.argv[3]), Path(sys.argv[4])))
    else:
        typer.run(main)
