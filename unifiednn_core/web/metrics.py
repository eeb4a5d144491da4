"""`/metrics` for Prometheus, and `/health` for whatever restarts or balances servers.

Prometheus sends the token of a viewer (`authorization: credentials` in its `scrape_config`); on a server without
sign-in it runs as the same user. The figures name devices, and no people and no runs.
"""

import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unifiednn_core.service.facade import Service
from unifiednn_core.service.recent import Recent
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.monitoring import DeviceFigures, Figures
from unifiednn_core.web.answers import Admit, endpoint
from unifiednn_core.web.openapi import package_version

KEPT_S = 1.0
PREFIX = "unifiednn"
NO_STORE = {"Cache-Control": "no-store"}
_OF_DEVICES: dict[str, tuple[str, str]] = {
    "total_bytes": ("device_memory_total_bytes", "Memory of the device."),
    "utilisation": ("device_utilisation_ratio", "Share of time in which the device worked."),
    "temperature_c": ("device_temperature_celsius", "Temperature of the device."),
    "power_w": ("device_power_watts", "Power of the device."),
}


def routes(admit: Admit, server: Callable[[], Service]) -> list[Route]:
    """The two routes; `server` returns the service of the server itself, for its health."""
    scrapes, recent = Scrapes(), Recent()

    async def metrics(_: Request, service: Service) -> Response:
        await run_in_threadpool(service.monitoring.require_figures)  # also of whoever gets a text that is kept
        text = await run_in_threadpool(scrapes.text, service.monitoring.figures)
        return Response(text, headers=NO_STORE, media_type=CONTENT_TYPE_LATEST)

    async def health(_: Request) -> Response:
        found = await run_in_threadpool(recent.within, KEPT_S, "health", lambda: server().health())
        told = {
            "status": "ok" if found.ok else "failing",
            "parts": {part.name: "ok" if part.ok else "failing" for part in found.parts},
        }
        return JSONResponse(told, 200 if found.ok else 503, NO_STORE)

    return [Route("/metrics", endpoint(metrics, admit), methods=["GET"]), Route("/health", health, methods=["GET"])]


class Scrapes:
    """Texts for Prometheus; one is kept for a second, whoever asks. Safe to share between threads."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic):
        self._clock_s, self._lock = clock_s, threading.Lock()
        self._text, self._at_s = b"", float("-inf")
        self._steps: tuple[float, int] | None = None

    def text(self, read: Callable[[], Figures]) -> bytes:
        """The text; `read` reads figures."""
        with self._lock:
            now_s = self._clock_s()
            figures = read() if now_s - self._at_s >= KEPT_S else None
            if figures is not None:
                registry = CollectorRegistry(auto_describe=False)
                registry.register(_Read(figures, self._pace(now_s, figures.steps)))
                self._text, self._at_s = generate_latest(registry), now_s
            return self._text

    def _pace(self, now_s: float, steps: int) -> float | None:
        """Steps per second since the last reading; None for the first one, and after a deletion."""
        before, self._steps = self._steps, (now_s, steps)
        if before is None or steps < before[1] or now_s <= before[0]:
            return None
        return (steps - before[1]) / (now_s - before[0])


class _Read:
    """The figures as a collector."""

    def __init__(self, figures: Figures, pace: float | None):
        self._figures, self._pace = figures, pace

    def collect(self) -> Iterable[Metric]:
        """The metrics, in a fixed order."""
        found = self._figures
        build = GaugeMetricFamily(f"{PREFIX}_build_info", "Version of the program.", labels=("version", "python"))
        build.add_metric((package_version(), platform.python_version()), 1)
        yield build
        yield _by_state("runs", "Runs by state.", found.runs)
        yield _by_state("submodels", "Sub-models by state.", found.submodels)
        yield _gauge("queue_length", "Runs that wait for a device.", found.queue_length)
        yield _gauge("queue_oldest_wait_seconds", "How long the oldest of them has waited.", found.oldest_wait_s)
        yield _gauge("workers", "Hybrids that have a worker.", found.workers)
        yield CounterMetricFamily(f"{PREFIX}_worker_restarts", "Workers started again after one died.", found.restarts)
        yield CounterMetricFamily(f"{PREFIX}_steps", "Steps of all sub-models in the store.", found.steps)
        if self._pace is not None:
            yield _gauge("steps_per_second", "Steps per second since the last scrape.", self._pace)
        yield from _of_devices(found.devices)
        yield _gauge("home_disk_total_bytes", "Size of the disk of the home folder.", found.disk_total_bytes)
        yield _gauge("home_disk_free_bytes", "Free space there.", found.disk_free_bytes)
        yield _gauge("library_bytes", "Files of the library.", found.files_bytes)
        yield _gauge("webhooks_failing", "Webhooks whose last delivery failed.", found.webhooks_failing)
        yield _gauge("supervisor_up", "Whether queued runs are started.", found.supervisor_alive)


def _of_devices(devices: Iterable[DeviceFigures]) -> Iterable[Metric]:
    devices = tuple(devices)
    ready = GaugeMetricFamily(f"{PREFIX}_device_ready", "Whether the device takes new work.", labels=("device",))
    memory = GaugeMetricFamily(
        f"{PREFIX}_device_memory_bytes",
        "Memory in use by hybrids, by other programs, and free.",
        labels=("device", "by"),
    )
    for one in devices:
        ready.add_metric((one.device,), one.ready)
        for name, size_bytes in (("own", one.own_bytes), ("others", one.others_bytes), ("free", one.free_bytes)):
            if size_bytes is not None:
                memory.add_metric((one.device, name), size_bytes)
    yield ready
    yield memory
    for field, (name, about) in _OF_DEVICES.items():
        family = GaugeMetricFamily(f"{PREFIX}_{name}", about, labels=("device",))
        for one in devices:
            if (value := getattr(one, field)) is not None:
                family.add_metric((one.device,), value)
        yield family


def _by_state(name: str, about: str, counts: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", about, labels=("state",))
    for state in State:
        family.add_metric((state.value,), counts.get(state.value, 0))
    return family


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", about, value)
