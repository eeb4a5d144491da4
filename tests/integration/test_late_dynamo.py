"""In fresh interpreters, because what one has loaded cannot be taken back."""

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.product import Template
from unifiednn_core.base.paths import Home
from unifiednn_core.engine import late_dynamo
from unifiednn_core.store import Store
from unifiednn_core.store.workers import Berth

TRAIN = """
import json, sys, warnings
warnings.simplefilter("error")
import torch
from torch import nn
from unifiednn_core.engine import late_dynamo
from unifiednn_core.engine.device import warm_up
from unifiednn_core.engine.optimizers import build_lr_scheduler, build_optimizer
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.choices import OPTIMIZERS
from unifiednn_core.spec.hyperparameters import Hyperparameters

installed = sys.argv[1] == "with" and late_dynamo.install()
hashes = {}
for name, optimizer in OPTIMIZERS.items():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7, 3))
    hyper = Hyperparameters(optimizer=name, learning_rate=0.01, lr_scheduler={"name": "cosine", "args": {"T_max": 5}})
    weights = [(key, weight) for key, weight in network.named_parameters() if name != "muon" or weight.dim() == 2]
    optimizer, inputs = build_optimizer(weights, hyper), torch.randn(16, 5)
    lr_scheduler, targets = build_lr_scheduler(optimizer, hyper), torch.randint(0, 3, (16,))
    for _ in range(6):
        optimizer.zero_grad()
        nn.CrossEntropyLoss()(network(inputs), targets).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
    hashes[name] = state_sha256(network.state_dict())
print(json.dumps({"installed": installed, "loaded": "torch._dynamo.config" in sys.modules, "hashes": hashes}))
"""
NEEDED = """
import inspect, os, sys
import torch
from unifiednn_core.engine import late_dynamo
from unifiednn_core.engine.device import warm_up

assert late_dynamo.install() and not late_dynamo.install()
late = sys.modules["torch._dynamo"]
torch.set_num_threads(1)
warm_up(torch.device("cpu"))
inspect.stack()  # walks through all modules
assert torch._dynamo is late and "torch._dynamo.config" not in sys.modules
needs = lambda: __import__("torch._dynamo.utils", fromlist=["counters"]), lambda: late.is_compiling()

def meet(need):
    need()
    compiled = torch.compile(lambda a: a.sin() + 1, backend="eager")
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
    import torch._dynamo as real
    assert sys.modules["torch._dynamo"] is torch._dynamo is real is not late
    assert real.config is sys.modules["torch._dynamo.config"]
    assert real.utils.counters is real.convert_frame.counters, "loaded twice"
    assert real.utils.counters["stats"]["unique_graphs"] == 1
    assert real.utils.__spec__.origin.endswith("utils.py") and real.config.__spec__.origin.endswith("config.py")
    warm_up(torch.device("cpu"))

for place, need in enumerate(needs):
    if os.fork() == 0:
        meet(need)
        print("met", flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, place
"""


def run(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained() -> dict[str, dict[str, Any]]:
    return {how: json.loads(run(TRAIN, how)) for how in ("with", "without")}


@pytest.mark.slow
def test_every_optimizer_has_the_same_bits_with_the_stand_in_and_the_compiler_stays_unloaded(
    trained: dict[str, dict[str, Any]],
) -> None:
    assert (trained["with"]["installed"], trained["with"]["loaded"]) == (True, False)
    assert (trained["without"]["installed"], trained["without"]["loaded"]) == (False, True)
    assert trained["with"]["hashes"] == trained["without"]["hashes"]
    assert len(set(trained["with"]["hashes"].values())) == len(trained["with"]["hashes"]) > 10


@pytest.mark.slow
def test_whoever_needs_more_gets_the_real_package_and_each_of_its_modules_once() -> None:
    assert run(NEEDED).split() == ["met"] * 2


def test_an_unknown_version_of_torch_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_dynamo.torch, "__version__", "2.99.0+cpu")
    before = sys.modules.pop("torch._dynamo", None)
    try:
        assert not late_dynamo.install()
        assert "torch._dynamo" not in sys.modules
    finally:
        if before is not None:
            sys.modules["torch._dynamo"] = before


TOLD = """
import os, sys
from unifiednn_core.runtime import worker

def leave(code):
    print(code, *(name for name in ("torch._dynamo.config", "sympy") if name in sys.modules), flush=True)
    os._exit(code)

worker._leave = leave
worker.main()
"""


@pytest.mark.slow
def test_a_whole_run_loads_neither_the_compiler_nor_the_algebra_behind_it(template: Template, home: Home) -> None:
    shutil.copytree(template.home.root, home.root, dirs_exist_ok=True)
    store = Store.open(home)
    assert store.workers.claim(template.run_id, Berth(device="cpu", kind="", threads=1))
    store.close()
    assert run(TOLD, str(home.root), template.run_id).split() == ["0"]


TEMPLATE = """
import importlib, sys
from unifiednn_core.preflight import client

importlib.import_module(client.INTAKE.partition(":")[0])
for name in client.LOADED_LATE:
    module, _, function = name.partition(":")
    loaded = importlib.import_module(module)
    getattr(loaded, function)() if function else None
importlib.import_module("unifiednn_core.runtime.worker")
print("loaded", *(name for name in ("torch._dynamo.config", "sympy", "pyarrow", "pandas") if name in sys.modules))
"""


@pytest.mark.slow
def test_the_template_that_workers_are_forked_from_loads_none_of_it_either() -> None:
    assert run(TEMPLATE).split() == ["loaded"]
