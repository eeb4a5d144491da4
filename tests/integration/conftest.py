import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import sample_models.build
from tests.integration.forking import ForkingLauncher
from tests.integration.product import EPOCHS, EVERY_STEPS, Product, Template, timeless
from tests.integration.vanilla import sha256_alone
from tests.waiting import wait_until
from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.base.paths import Home
from unifiednn_core.machine import forks
from unifiednn_core.preflight import client
from unifiednn_core.runtime import supervisor
from unifiednn_core.runtime.certifier import Certifier
from unifiednn_core.runtime.launchers import LocalLauncher
from unifiednn_core.service import facade
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample models, their data and the demo."""
    folder = tmp_path_factory.mktemp("samples")
    built = [path for path in sample_models.build.HERE.iterdir() if path.is_file()]
    for path in built:
        shutil.copy2(path, folder)
    sample_models.build.main(folder)  # writes what is missing or old
    return folder


@pytest.fixture
def short_demo(samples: Path, tmp_path: Path) -> Path:
    """The demo cut down to a few epochs, in one lane, so that one trains at a time; a spec file beside its samples."""
    return write_spec(samples, tmp_path, epochs={"lenet": 3, "resnet": 2, "transformer": 2}, lanes=1)


def write_spec(samples: Path, folder: Path, *, epochs: dict[str, int], **changes: Any) -> Path:
    document: dict[str, Any] = json.loads((samples / "demo.json").read_text())
    document.update(changes)
    for submodel in document["submodels"]:
        submodel["hyperparameters"]["epochs"] = epochs[submodel["name"]]
        if submodel["name"] == "transformer":  # one cycle ends with its last step
            submodel["hyperparameters"]["lr_scheduler"]["args"]["total_steps"] = 23 * epochs["transformer"]
        for key in ("model", "train_data", "test_data"):
            submodel[key] = str(samples / submodel[key])
    path = folder / "spec.json"
    path.write_text(json.dumps(document))
    return path


START = Certifier.start


@pytest.fixture(autouse=True)
def _forked_workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services that a test opens have their workers and scripts forked, unless it is marked `new_interpreters`."""
    monkeypatch.setattr(LocalLauncher, "warm", False)
    monkeypatch.setattr(Certifier, "start", lambda self: None)  # `settle` makes those that a test is about
    if request.node.get_closest_marker("new_interpreters") is None:
        monkeypatch.setattr(facade, "LocalLauncher", ForkingLauncher)


@pytest.fixture
def service(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    service = Service.open(home)
    service.start_supervisor()
    yield service
    for run in service.runs.runs():
        if run.ended_at_s is None:
            with suppress(IllegalTransition):  # it ended meanwhile
                service.runs.stop(run.run_id)
    wait_until(lambda: all(run.ended_at_s is not None for run in service.runs.runs()))
    service.close()


@pytest.fixture(scope="session")
def template(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A home in which the short demo waits to be trained, with as many steps in batches of a quarter of the size."""
    folder = tmp_path_factory.mktemp("template")
    path = write_spec(samples, folder, epochs=EPOCHS, checkpoint={"every_s": 30, "every_steps": EVERY_STEPS})
    document: dict[str, Any] = json.loads(path.read_text())
    for which in ("train", "test"):
        data = torch.load(samples / f"digits_{which}.pt", weights_only=True)
        few = len(data["targets"]) // 4 + 1
        torch.save({key: values[:few].clone() for key, values in data.items()}, folder / f"few_{which}.pt")
    for part in document["submodels"]:
        part |= {f"{which}_data": str(folder / f"few_{which}.pt") for which in ("train", "test")}
        part["hyperparameters"]["batch_size"] //= 4
    path.write_text(json.dumps(document))
    return Template.submit(path, folder)


@pytest.fixture
def product(template: Template, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    """A home of one's own in which the short demo waits; `start` lets it begin."""
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)  # tests wait for little else
    with template.copied(home) as product:
        yield product


@pytest.fixture
def unforked(template: Template, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Product]:
    """The same, with workers that start as the product starts them."""
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    shutil.copytree(template.home.root, home.root, dirs_exist_ok=True)
    product = Product(home, template.run_id, Service.open(home))
    yield product
    with suppress(IllegalTransition):
        product.service.runs.discard(product.run_id)
    product.until(lambda: product.state() in ENDED, "the end")
    product.close()


@pytest.fixture(scope="session")
def finished(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The home in which the short demo has been trained, to be copied; its certificates are still to be made."""
    home = Home(tmp_path_factory.mktemp("uninterrupted"))
    with template.copied(home) as product:
        product.start()
        product.finish()
    return Template(home, template.run_id, template.spec_path)


@pytest.fixture(scope="session")
def uninterrupted(finished: Template) -> dict[str, Any]:
    """The document of the short demo when nothing happens to it, as far as it does not depend on time."""
    with closing(Service.open(finished.home)) as service:
        return timeless(service.runs.document(finished.run_id))


@pytest.fixture(scope="session")
def alone(samples: Path, template: Template) -> Callable[..., str]:
    """`alone(name, epochs, ...)` trains one of the short demo in a plain loop; returns the hash of its weights."""
    known: dict[str, str] = {}

    def train(name: str, epochs: int = 0, **changes: Any) -> str:
        spec = json.loads(template.spec_path.read_text())
        [part] = [part for part in spec["submodels"] if part["name"] == name]
        part["hyperparameters"] |= {"epochs": epochs or EPOCHS[name], **changes}
        text = json.dumps(part)
        if text not in known:
            known[text] = sha256_alone(spec, name, samples)
        return known[text]

    return train


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> forks.Template:
    """The template of this process, ready to fork workers."""
    monkeypatch.setattr(LocalLauncher, "warm", True)
    client.start()
    current = client.template._current
    if current is not None and current.environment != forks._environment():  # an earlier test has changed it
        client.template.retire()
        client.start()
    wait_until(client.template.ready)
    return client.template
