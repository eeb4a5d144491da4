"""Golden answers of the command line: `python -m tools.goldens record FILE`, and `compare FILE` after a change.

The specs of `tests/golden/specs.json` go through `train`, `compare` and `check`; `import`, `inspect`, `pack`, `pause`
and `resume` are asked beside them. A golden keeps values, codes, fields and bits; no sentence, time, memory, id, path
or version. Bits and figures are those of one kind of machine: on another kind only the rest is compared, and the
command says so.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import typer
import typer.testing
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from sample_models import build
from tools.machine import machine
from unifiednn_core.cli import main as cli
from unifiednn_core.formats.architectures import registry
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import Hyperparameters, load_run

Document = dict[str, Any]
SPECS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "specs.json"
BITS = ("state_sha256", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "imported_sha256")
MEASURED = {"memory", "seconds_per_step", "evaluation_share", "least_part", "part_times_s", "placement", "whole"}
MEASURED |= {"nodes", "without_techniques"}
SHOWN = {"image", "values", "inputs", "remarks"}
"""Parts of a preview that are there for a person's eyes."""
TIMED = ("srtf", "fair", "finish_time", "las")
"""Policies that look at measured seconds: the order of their turns is no golden."""
REALLY = ("check good", "inspect hostile.pt", "train formats", "train diverges", "compare three")
"""Goldens of a process of its own; the others come from commands inside this one."""
COMMAND = (sys.executable, "-c", "from unifiednn_core.cli.main import main; main()")
DIGITS = {"model": "module.pt", "train_data": "digits_test.pt", "test_data": "digits_test.pt", "scale": 0.0625}
HYPER = {"epochs": 2, "batch_size": 64, "seed": 5, "learning_rate": 0.02}
BERT = {"model_type": "bert", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 16, "max_position_embeddings": 16, "num_labels": 3}
OWN_CLASS = """from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 12), nn.Linear(12, 10)

    def forward(self, images):
        return self.second(self.first(images.flatten(1)).relu())
"""


def write_files(folder: Path) -> None:
    """Write models in every format, and data of every kind."""
    build.main(folder)
    torch.manual_seed(1)
    mlp, auto = _mlp(), nn.Sequential(_mlp(64), nn.Unflatten(1, (1, 8, 8)))
    models = {"module": mlp, "log": nn.Sequential(_mlp(), nn.LogSoftmax(1)), "auto": auto}
    models["words"] = nn.Sequential(nn.Embedding(200, 4), nn.Flatten(), nn.Linear(32, 2))
    models["table"] = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    weights = {f"net.{at}": one for at, one in enumerate(mlp.state_dict().values())}
    pickled = {**models, "mlp": registry.build("mlp", {"hidden": [16], "dropout": 0.2}).state_dict(), "hostile": print}
    for name, model in pickled.items():
        torch.save(model, folder / f"{name}.pt")
    save_file(weights, folder / "renamed.safetensors")
    (folder / "own.py").write_text(OWN_CLASS)
    (folder / "config.json").write_text(json.dumps(BERT))
    (folder / "cut.pt2").write_bytes((folder / "lenet.pt2").read_bytes()[:5000])
    images, words, classes = torch.randn(40, 1, 8, 8), torch.randint(1, 20, (40, 6)), torch.arange(40) % 3
    save_file({"inputs": words, "targets": classes}, folder / "tokens.safetensors")
    counts = torch.randint(0, 9, (40, 10)).float()
    targets = {"shares": torch.rand(40, 10), "counts": counts, "thirty": torch.arange(40) % 30}
    for name, values in targets.items():
        torch.save({"inputs": images, "targets": values}, folder / f"{name}.pt")
    torch.save({"inputs": images.where(images < 2, torch.nan), "targets": classes}, folder / "nan.pt")
    rows = [f"{at % 7},{('cook', 'clerk')[at % 2]},{at * 1.5 or ''},{('no', 'yes')[at % 3 > 0]}" for at in range(40)]
    (folder / "people.csv").write_text("\n".join(["age,job,income,label", *rows]) + "\n")
    texts = [{"text": f"the {('good', 'bad')[at % 2]} film went on for {at}", "label": at % 2} for at in range(80)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    for at in range(8):
        place = folder / "pictures" / ("cat", "dog")[at % 2] / f"{at}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((images[at, 0] * 60 + 120).clamp(0, 255).to(torch.uint8).numpy()).save(place)
    shutil.make_archive(str(folder / "pictures"), "zip", folder / "pictures")


def _mlp(outputs: int = 10) -> nn.Sequential:
    first, second, last = nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, outputs)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), last)


def expanded(entries: Document) -> Document:
    """Give each sub-model its defaults; entries that are hyper-parameters go there."""
    submodels = []
    for one in entries["submodels"]:
        own = {key: value for key, value in one.items() if key not in Hyperparameters.model_fields}
        submodels.append(
            {**DIGITS, **own, "hyperparameters": HYPER | {key: one[key] for key in one.keys() - own.keys()}}
        )
    return {"name": "golden", "threads": 1, "device": "cpu", "lanes": 1, **entries, "submodels": submodels}


class Recorder:
    """Carries out commands on one home, and keeps what of their answers is golden."""

    def __init__(self, folder: Path, service: Service) -> None:
        """The current folder is `folder`, and its home that of the environment."""
        self.folder, self.service, self.imported = folder, service, dict[str, str]()

    def run(self, title: str, *arguments: str) -> tuple[int, Any]:
        """Carry out a command: in this process, whose service stays open, or really as a process."""
        typer.echo(title, err=True)
        if title in REALLY:
            done = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True, check=False)
            return done.returncode, json.loads(done.stdout)
        answer = typer.testing.CliRunner().invoke(cli.app, [*arguments, "--json"], catch_exceptions=False)
        return answer.exit_code, json.loads(answer.stdout)

    def spec(self, entries: Document) -> str:
        """Write a spec, and return its path."""
        text = json.dumps(expanded(entries))
        for name, sha256 in self.imported.items():
            text = text.replace(f"IMPORTED:{name}", f"sha256:{sha256}")
        (self.folder / "spec.json").write_text(text)
        return "spec.json"

    def goldens(self) -> Iterator[tuple[str, Document]]:
        """Yield each golden with its name."""
        yield "pack own class", {"exit": self.run("pack", "pack", "own.py:Network", "--input", "1,8,8")[0]}
        imports = {"people.csv": (), "texts.jsonl": ("--tokenizer", "words", "--length", "8"), "pictures.zip": ()}
        for name, options in imports.items():
            code, answer = self.run(f"import {name}", "import", name, *options)
            self.imported[name] = answer["sha256"]
            yield f"import {name}", {"exit": code, "imported_sha256": answer["sha256"], "facts": facts(answer["facts"])}
        for path in sorted(self.folder.glob("*.*")):
            if path.suffix != ".json" or path.name == "config.json":
                title = f"inspect {path.name}"
                yield title, self.checked(self.run(title, "inspect", path.name))
        specs = json.loads(SPECS.read_text(encoding="utf-8"))
        three = specs.pop("three")["submodels"]
        for title, entries in specs.items():
            submodels = three if entries["submodels"] == "three" else entries["submodels"]
            order = title.partition(" ")[0]
            code, answer = self.run(title, order, self.spec({**entries, "submodels": submodels}))
            ordered = not entries.keys() & {"lanes", "profile"} and entries.get("policy", {}).get("name") not in TIMED
            if order == "check":
                yield title, self.checked((code, answer))
            elif order == "train":
                yield title, {"exit": code, **trained(answer, ordered=ordered)}
            else:
                yield title, {"exit": code, **compared(answer)}
        yield from self.continued()

    def continued(self) -> Iterator[tuple[str, Document]]:
        """Pause a run while it trains and resume it, then begin another one at its checkpoint."""
        runs, lenet = self.service.runs, {"name": "lenet", "model": "lenet.pt2", "epochs": 40}
        run_id = runs.submit(load_run(Path(self.spec({"submodels": [lenet]}))), self.folder)
        wait(lambda: runs.observe(run_id).submodels[0].steps_done > 0)
        runs.pause(run_id)
        wait(lambda: runs.observe(run_id).state is State.PAUSED)
        inside = 0 < runs.observe(run_id).submodels[0].steps_done < 240
        code, answer = self.run("train paused and resumed", "resume", run_id)
        yield "train paused and resumed", {"exit": code, "inside": inside, **trained(answer, ordered=False)}
        file = str(runs.download_checkpoint(run_id, "lenet", self.folder))
        begun = [{**lenet, "name": "everything", "epochs": 42}, {**lenet, "name": "weights", "epochs": 1, "seed": 8}]
        begun = [{**one, "start_from": {"file": file, "take": one["name"]}} for one in begun]
        code, answer = self.run("train from a checkpoint", "train", self.spec({"submodels": begun}))
        yield "train from a checkpoint", {"exit": code, **trained(answer, ordered=True)}

    def checked(self, done: tuple[int, Any]) -> Document:
        """What of an answer of `check` or `inspect` is golden."""
        code, answer = done
        found = sorted(self.finding(one) for one in answer["findings"])
        known = {key: facts(answer[key]) for key in ("kind", "format", "facts", "submodels") if answer.get(key)}
        return {"exit": code, "findings": found, **known}

    def finding(self, one: Mapping[str, str]) -> list[str]:
        """Severity, title and field of a finding."""
        return [one["severity"], one["title"], one["field"].replace(f"{self.folder}/", "")]


def compared(answer: Document) -> Document:
    """What of a comparison is golden."""
    verdict = {
        mode: {"identical_weights": one["identical_weights"], "withheld": one["withheld_because"] is not None}
        for mode, one in answer["verdict"].items()
    }
    arms = {mode: trained(one, ordered=False) for mode, one in answer["baselines"].items()}
    return {"hybrid": trained(answer["hybrid"], ordered=True), "baselines": arms, "verdict": verdict}


def trained(answer: Document, *, ordered: bool) -> Document:
    """What of a trained run is golden; turns in their order, neighbours of one sub-model as one."""
    if "submodels" not in answer:
        return {"status": answer["status"], "findings": [[one["title"], one["field"]] for one in answer["findings"]]}
    found = {name: _ended(one) for name, one in answer["submodels"].items()}
    whole = {key: answer[key] for key in ("status", "policy", "device", "profile", "threads", "mode")}
    by_turn = groupby(answer["schedule"], lambda one: one["submodel"])
    turns = [[name, sum(one["steps"] for one in part)] for name, part in by_turn]
    return {**whole, "submodels": found, **({"schedule": turns} if ordered else {})}


def _ended(one: Document) -> Document:
    found = {key: one[key] for key in ("status", "epochs", "steps", *BITS) if key in one}
    if (certificate := one.get("certificate")) is not None:
        outcomes = {each["what"]: each["outcome"] for each in certificate["compared"]}
        found["certificate"] = {"holds": certificate["holds"], "tensors": certificate["tensors"], **outcomes}
    return found


def facts(found: Any) -> Any:
    """Facts without what is measured, and without sentences."""
    if isinstance(found, Mapping):
        return {key: facts(one) for key, one in found.items() if key not in MEASURED | SHOWN}
    if isinstance(found, list | tuple):
        return [facts(one) for one in found]
    return None if isinstance(found, str) and len(found.split()) > 2 else found


def wait(holds: Callable[[], bool]) -> None:
    """Wait until it holds, for at most two minutes."""
    for _ in range(2400):
        if holds():
            return
        time.sleep(0.05)
    raise SystemExit("It did not happen within two minutes.")


def kind_of_machine() -> Document:
    """What decides about bits."""
    return {"cpu": machine()["cpu"], "torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability()}


def recorded() -> dict[str, Document]:
    """Record every golden anew."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, chdir(name):
        folder = Path.cwd()
        write_files(folder)
        with patch.dict(os.environ, UNIFIEDNN_HOME=str(folder / "home"), COLUMNS="200"):
            service = Service.open()
            try:
                with patch.multiple(Service, open=lambda *_: service, close=lambda _: None):
                    return {title: json.loads(json.dumps(one)) for title, one in Recorder(folder, service).goldens()}
            finally:
                service.close()


def without_bits(golden: Any) -> Any:
    """What holds on every machine."""
    if isinstance(golden, dict):
        return {key: without_bits(one) for key, one in golden.items() if key not in BITS}
    return golden


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each value that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{where} / {key}" if where else key)
    elif old != new:
        yield f"{where}: {json.dumps(old)} is now {json.dumps(new)}"


def main(order: str, file: str) -> int:
    """Record the goldens into a file, or compare with those of a file."""
    path = Path(file).resolve()
    kind, found = kind_of_machine(), recorded()
    if order == "record":
        lines = [f"{json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in sorted(found.items())]
        body = ",\n".join([f'"machine": {json.dumps(kind, sort_keys=True)}', *lines])
        path.write_text("{\n" + body + "\n}\n", encoding="utf-8")
        return 0
    old = json.loads(path.read_text(encoding="utf-8"))
    if old.pop("machine") != kind:
        typer.echo("Another kind of machine: bits and figures are not compared.")
        old, found = without_bits(old), without_bits(found)
    lines = list(differences(old, found))
    typer.echo("\n".join([*lines, f"{len(found)} goldens, {len(lines)} differences."]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
