"""A disk that is full for a while costs nothing that was trained or asked for, and people can read meanwhile."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.integration import mishaps
from tests.integration.product import EPOCHS, Product, Template, timeless
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import supervisor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.web.action import ROOT
from unifiednn_core.web.routes import routes

DISK_BYTES = 64 * 1024**2
LATER_STEP = 60
SILENT_S = 5.0
"""A worker that could write would have written twice."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> Path:
    """Take all room of a disk; returns the file that takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size_bytes in (2**20, 2**12, 1):
            with suppress(OSError):
                for _ in range(DISK_BYTES):
                    file.write(bytes(size_bytes))
    return ballast


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_costs_nothing_and_people_can_read(
    template: Template, uninterrupted: dict[str, Any], disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    with template.copied(Home(disk / "home")) as product:
        run, service = product.run_id, product.service
        web = TestClient(Starlette(routes=routes(lambda _: service, lambda: service)))

        def order() -> httpx.Response:
            return web.patch(f"{ROOT}/runs/{run}/submodels/lenet", json={"priority": 1})

        product.start_and_hold("lenet", 5, LATER_STEP)
        service.runs.save(run)
        mishaps.go_file(product.home.root, 5).touch()
        ballast = fill(disk)
        product.until(mishaps.held_file(product.home.root, LATER_STEP).exists, "training on a full disk")

        product.until(lambda: time.time() - (heartbeat(product) or 0.0) > SILENT_S, "a report that cannot be written")
        product.until(lambda: order().status_code == 503, "an order that cannot be stored")
        assert "The disk of the home folder is full" in order().json()["detail"]
        product.until(lambda: web.get("/health").json()["parts"]["store"] == "failing", "the health of the store")
        files = (f"/files/{name}" for name in (f"runs/{run}.json", f"metrics/{run}.csv", f"logs/{run}.txt"))
        for path in (f"{ROOT}/runs", f"{ROOT}/runs/{run}", f"{ROOT}/runs/{run}/progress", *files):
            assert web.get(path).status_code == 200, path

        ballast.unlink()
        product.until(lambda: order().status_code == 200, "an order that is stored again")
        mishaps.go_file(product.home.root, LATER_STEP).touch()
        assert product.finish().state is State.COMPLETED
        assert timeless(service.runs.document(run)) == uninterrupted
        assert all(product.lost_steps(name) == [] for name in EPOCHS), "all is of one attempt"
        assert service.store.commands.open(run) == []
        noted = [line.action for line in service.store.people.audit_log(50)]
        assert {"metrics_csv", "log_text"} <= set(noted), "what was read meanwhile is in the audit log"
        product.until(lambda: web.get("/health").json()["parts"]["store"] == "ok", "the health of the store")


def heartbeat(product: Product) -> float | None:
    return product.service.store.hybrids.get(product.run_id)[0].heartbeat_at_s
