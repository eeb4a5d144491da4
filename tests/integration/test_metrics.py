"""/metrics and /health over a real server."""

import json
import re
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.clock import SimulatedClock
from tests.integration.web_server import WebServer
from tests.unit.service.kit import ADMIN, ALICE, HERS, OPERATOR, VIEWER, world
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.service.roles import Actor
from unifiednn_core.store import Store
from unifiednn_core.views.monitoring import Figures
from unifiednn_core.web.metrics import KEPT_S, Scrapes

PEOPLE = (VIEWER, ALICE, OPERATOR, ADMIN)
GIB = 1024**3


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]) -> Iterator[WebServer]:
    """A server where people sign in, over a home with three runs and one device."""
    home, clock = Home(tmp_path_factory.mktemp("metrics") / "home").create(), Clock()
    made = world(home, clock)  # type: ignore[arg-type]
    tokens |= {actor.id: made.of(ADMIN).people.create_token(actor.id, actor.role, 1) for actor in PEOPLE}
    made.of(ADMIN).devices.devices()
    sample = {"device": "cpu", "total_bytes": 8 * GIB, "own_bytes": GIB, "free_bytes": 4 * GIB, "utilisation": 0.25}
    ahead = SimulatedClock(clock.utc_s() + 3600)  # so that the sample stays fresh, however slow the machine is
    later = Store.open(home, ahead)
    later.device_samples.write([sample])
    later.close()
    made.service.close()
    server = WebServer(home, login=True)
    server.start()
    yield server
    server.kill()


def scraped(web: WebServer, token: str) -> dict[str, float]:
    """Value of each sample by its name and labels, as Prometheus reads them."""
    status, headers, content = web.ask("GET", "/metrics", Authorization=f"Bearer {token}")
    assert status == 200 and headers["Content-Type"].startswith("text/plain")
    return {
        f"{one.name}{json.dumps(one.labels, sort_keys=True) if one.labels else ''}": one.value
        for family in text_string_to_metric_families(content.decode())
        for one in family.samples
    }


def test_prometheus_reads_what_the_store_holds(web: WebServer, tokens: dict[str, str]) -> None:
    found = scraped(web, tokens[VIEWER.id])
    assert found['unifiednn_runs{"state": "running"}'] == 3 and found['unifiednn_runs{"state": "failed"}'] == 0
    assert found['unifiednn_submodels{"state": "running"}'] == 4
    assert found["unifiednn_queue_length"] == 0 == found["unifiednn_supervisor_up"]
    assert found["unifiednn_workers"] == 3 and found["unifiednn_steps_total"] == 20
    assert found["unifiednn_library_bytes"] == 4
    memory = {
        by: found[f'unifiednn_device_memory_bytes{{"by": "{by}", "device": "cpu"}}'] for by in ("own", "others", "free")
    }
    assert memory == {"own": GIB, "others": 3 * GIB, "free": 4 * GIB}
    assert found['unifiednn_device_utilisation_ratio{"device": "cpu"}'] == 0.25
    assert found["unifiednn_home_disk_free_bytes"] > 0
    assert not any("temperature" in name for name in found), "what is not available is left out"


def test_names_of_people_and_runs_are_not_in_it(web: WebServer, tokens: dict[str, str]) -> None:
    content = web.ask("GET", "/metrics", Authorization=f"Bearer {tokens[ADMIN.id]}")[2].decode()
    assert not re.search(rf"@|{HERS}|alpha|together|Alice", content)


def test_only_a_token_of_somebody_who_sees_everything_opens_it(web: WebServer, tokens: dict[str, str]) -> None:
    def status(by: Actor) -> int:
        return web.ask("GET", "/metrics", Authorization=f"Bearer {tokens[by.id]}")[0]

    assert [status(by) for by in (VIEWER, ALICE, OPERATOR, ALICE)] == [200, 403, 200, 403]  # also within a second
    assert web.ask("GET", "/metrics")[0] == 401
    assert web.ask("GET", "/metrics", Authorization="Bearer unn_0_0")[0] == 401
    assert web.ask("GET", "/metrics", Authorization=f"Bearer {tokens[VIEWER.id]}", Host="evil.example")[0] == 400


def test_health_is_told_to_everybody_and_tells_nothing_else(web: WebServer) -> None:
    status, _, content = web.ask("GET", "/health")
    told = json.loads(content)
    assert status == 503 and told["parts"]["supervisor"] == "failing"  # this server has none
    assert told == {"status": "failing", "parts": {**dict.fromkeys(("store", "disk"), "ok"), **told["parts"]}}
    assert set(told["parts"].values()) <= {"ok", "failing"}


def figures(steps: int) -> Figures:
    return Figures(
        runs={},
        submodels={},
        queue_length=0,
        oldest_wait_s=0,
        workers=0,
        restarts=0,
        steps=steps,
        files_bytes=0,
        webhooks_failing=0,
        devices=(),
        disk_total_bytes=1,
        disk_free_bytes=1,
        supervisor_alive=True,
    )


def test_many_scrapes_read_the_store_once_a_second() -> None:
    clock, reads = SimulatedClock(), []
    scrapes = Scrapes(clock.monotonic_s)

    def read() -> Figures:
        reads.append(clock.monotonic_s())
        return figures(100 * len(reads))

    for _ in range(32):
        text = scrapes.text(read)
        clock.advance(KEPT_S / 8)
    assert len(reads) == 4
    assert b"unifiednn_steps_per_second 100.0" in text and b"unifiednn_steps_total 400.0" in text


def test_a_deleted_run_gives_no_negative_pace() -> None:
    clock = SimulatedClock()
    scrapes = Scrapes(clock.monotonic_s)
    scrapes.text(lambda: figures(100))
    clock.advance(2)
    assert b"steps_per_second" not in scrapes.text(lambda: figures(50))
