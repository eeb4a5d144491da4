"""What people who watch cost: a training with eight viewers of its page, beside the same training with none.

A viewer is a browser without its screen: it opens the page of the run, asks for each update when a browser would, and
reads everything that the server sends. Windows with and without viewers alternate while one run trains, so both see the
same machine. A click is a change of the page by one more viewer; its round trip ends when the last change is there.

The server keeps what a viewer had open for a minute after they have left. Memory counts from when the first are
forgotten, and without files: other processes that map the same ones make them look smaller. After the windows, with the
run paused, crowds come and leave: `python -m tools.bench.viewers crowds` does that alone, and on a busy machine too.
"""

import asyncio
import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tools.bench.dashboard import Dashboard, served
from tools.machine import ToolFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
from unifiednn_core.spec.run import RunSpec, parse_run

VIEWERS = 8
WINDOW_S, SETTLE_S = 20.0, 4.0
MOST_CORE, MOST_CLICK_S, MOST_SLOWDOWN, MOST_GROWTH_MIB = 0.25, 0.25, 0.03, 16.0
POINTS = 200_000
CROWDS, STAY_S = 40, 3.0
FORGOTTEN_S = 60.0
"""`disconnectedSessionTTL` of .streamlit/config.toml."""
MIB = 2**20
_PATIENCE_S = 120.0
_STEPS_PER_EPOCH = 23


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some seconds of training."""

    viewers: int
    server_cores: float
    """Processor seconds of the server, per second."""
    steps_per_s: float
    server_bytes: int
    """Memory of the server at its end, without files."""
    steps_done: int
    at_s: float
    """End, since the first window began."""
    clicks_s: tuple[float, ...] = ()
    updates: int = 0
    """Updates that the viewers got."""


def measure(repeats: int = 5) -> tuple[list[Window], list[int]]:
    """Alternate so many windows of each kind, until the run has reported enough steps too; then let crowds come.

    Returns the windows, and memory of the server after each crowd, in bytes.
    """
    with _training() as (service, dashboard, run_id):
        windows = _windows(service, dashboard, run_id, repeats) if repeats else []
        return windows, _crowds(service, dashboard, run_id)


@contextlib.contextmanager
def _training() -> Iterator[tuple[Service, Dashboard, str]]:
    """A dashboard with a run that has begun to train."""
    with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder:
        home = Home(Path(folder)).create()
        with served(Path(folder)) as dashboard:
            asyncio.run(_visit(dashboard))  # the first page starts the supervisor
            service = Service.open(home)
            try:
                run_id = service.runs.submit(_endless(service))
                try:
                    _await_start(service, run_id)
                    yield service, dashboard, run_id
                finally:
                    _end(service, run_id)
            finally:
                service.close()


def _endless(service: Service) -> RunSpec:
    """The smallest network of the demo, for longer than the bench."""
    demo = service.library.prepare_samples()
    [part] = [part for part in demo.submodels if part.name == "lenet"]
    hyperparameters = {"epochs": 100_000, "batch_size": 64, "optimizer": "sgd", "learning_rate": 0.0001}
    entry = {"name": "lenet", "model": part.model, "train_data": part.train_data, "scale": part.scale}
    return parse_run(
        {"name": "viewers", "threads": 1, "lanes": 1, "submodels": [{**entry, "hyperparameters": hyperparameters}]}
    )


def _await_start(service: Service, run_id: str) -> None:
    until_s = time.monotonic() + _PATIENCE_S
    while service.runs.observe(run_id).progress == 0:
        if time.monotonic() > until_s or service.runs.observe(run_id).state in ENDED:
            raise ToolFailed("The training did not start.")
        time.sleep(0.2)


def _windows(service: Service, dashboard: Dashboard, run_id: str, repeats: int) -> list[Window]:
    found: list[Window] = []
    server, begin_s = psutil.Process(dashboard.pid), time.monotonic()
    while len(found) < 2 * repeats or found[-1].steps_done < POINTS:
        found += [_window(service, dashboard, server, run_id, viewers, begin_s) for viewers in (0, VIEWERS)]
    return found


def _window(
    service: Service, dashboard: Dashboard, server: psutil.Process, run_id: str, viewers: int, begin_s: float
) -> Window:
    clicks_s, updates = list[float](), [0]

    async def watched() -> tuple[float, float, int, int]:
        query = f"run={run_id}"
        tasks = [asyncio.create_task(_view(dashboard, query, updates)) for _ in range(viewers)]
        clicking = asyncio.create_task(_click(dashboard, query, clicks_s)) if viewers else None
        await asyncio.sleep(SETTLE_S)
        begin, cpu, steps = time.monotonic(), _cpu_s(server), _steps(service, run_id)
        updates[0] = 0
        clicks_s.clear()
        await asyncio.sleep(WINDOW_S)
        spent_s = time.monotonic() - begin
        cpu, steps = _cpu_s(server) - cpu, _steps(service, run_id) - steps
        for task in (*tasks, *([clicking] if clicking else [])):
            task.cancel()
        await asyncio.gather(*tasks, *([clicking] if clicking else []), return_exceptions=True)
        return spent_s, cpu, steps, updates[0]

    spent_s, cpu_s, steps, got = asyncio.run(watched())
    return Window(
        viewers=viewers,
        server_cores=cpu_s / spent_s,
        steps_per_s=steps / spent_s,
        server_bytes=_own_bytes(server.pid),
        steps_done=_steps(service, run_id),
        at_s=time.monotonic() - begin_s,
        clicks_s=tuple(clicks_s),
        updates=got,
    )


def _crowds(service: Service, dashboard: Dashboard, run_id: str) -> list[int]:
    """Memory of the server after each of many crowds that came and left, in bytes.

    The run is paused, so that its history is the same for all of them.
    """
    service.runs.pause(run_id)

    async def come() -> None:
        visits = [asyncio.create_task(_view(dashboard, f"run={run_id}", [0])) for _ in range(VIEWERS)]
        await asyncio.sleep(STAY_S)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)

    found = []
    for _ in range(CROWDS):
        asyncio.run(come())
        found.append(_own_bytes(dashboard.pid))
    return found


def _own_bytes(pid: int) -> int:
    """Memory of a process without files."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    [kib] = re.findall(r"^Pss_Anon: +(\d+) kB", rollup, re.MULTILINE)
    return int(kib) * 1024


def _steps(service: Service, run_id: str) -> int:
    return service.store.runs.get(run_id)[1][0].steps_done


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _end(service: Service, run_id: str) -> None:
    with contextlib.suppress(Exception):
        service.runs.discard(run_id)
    until_s = time.monotonic() + 60
    while service.runs.observe(run_id).state not in ENDED and time.monotonic() < until_s:
        time.sleep(0.2)


# -- viewers


async def _visit(dashboard: Dashboard) -> None:
    """Open the first page and read it to its end."""
    async with _connected(dashboard) as socket:
        await socket.send(_rerun(""))
        await asyncio.wait_for(_finished(socket), _PATIENCE_S)


async def _view(dashboard: Dashboard, query: str, updates: list[int]) -> None:
    """Watch a page until cancelled: each fragment asks again after its interval, as in a browser."""
    async with _connected(dashboard) as socket:
        await socket.send(_rerun(query))
        timers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                message = _message(await socket.recv())
                if message.WhichOneof("type") == "auto_rerun":
                    fragment, interval_s = message.auto_rerun.fragment_id, message.auto_rerun.interval
                    if fragment not in timers:
                        timers[fragment] = asyncio.create_task(_tick(socket, query, fragment, interval_s))
                elif message.WhichOneof("type") == "script_finished":
                    updates[0] += 1
        finally:
            for timer in timers.values():
                timer.cancel()


async def _tick(socket: Any, query: str, fragment: str, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        await socket.send(_rerun(query, fragment))


async def _click(dashboard: Dashboard, query: str, clicks_s: list[float]) -> None:
    """Ask for the page again and again, and note how long it takes."""
    async with _connected(dashboard) as socket:
        await socket.send(_rerun(query))
        await _finished(socket)
        while True:
            await asyncio.sleep(0.7)
            begin = time.monotonic()
            await socket.send(_rerun(query))
            await _finished(socket)
            clicks_s.append(time.monotonic() - begin)


async def _finished(socket: Any) -> None:
    while _message(await socket.recv()).WhichOneof("type") != "script_finished":
        pass


def _connected(dashboard: Dashboard) -> Any:
    import websockets

    address = f"ws://127.0.0.1:{dashboard.port}/_stcore/stream"
    return websockets.connect(
        address,
        max_size=None,
        origin=websockets.Origin(dashboard.address),
        subprotocols=[websockets.Subprotocol("streamlit")],
    )


def _rerun(query: str, fragment: str = "") -> bytes:
    from streamlit.proto.BackMsg_pb2 import BackMsg

    message = BackMsg()
    asked = message.rerun_script
    asked.query_string, asked.page_name, asked.context_info.timezone = query, "run" if query else "", "UTC"
    if fragment:
        asked.fragment_id, asked.is_auto_rerun = fragment, True
    return bytes(message.SerializeToString())


def _message(data: bytes) -> Any:
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    message = ForwardMsg()
    message.ParseFromString(data)
    return message


# -- the result


def described(found: list[Window], crowds: list[int]) -> dict[str, Any]:
    """Table and figures."""
    alone, watched = [one for one in found if not one.viewers], [one for one in found if one.viewers]
    slower = [1 - two.steps_per_s / one.steps_per_s for one, two in zip(alone, watched, strict=True)]
    clicks_s = sorted(seconds for one in watched for seconds in one.clicks_s)
    p95_s = clicks_s[int(0.95 * (len(clicks_s) - 1))]
    steady = _steady(watched)
    kept = {
        "server with viewers, share of a core": (median(one.server_cores for one in watched), MOST_CORE, "{:.1%}"),
        "click to the whole page, 95th percentile": (p95_s, MOST_CLICK_S, "{:.3f} s"),
        "training slower with viewers": (median(slower), MOST_SLOWDOWN, "{:.1%}"),
        "server's memory after the last window, more than once the first viewers were forgotten": (
            (found[-1].server_bytes - steady.server_bytes) / MIB,
            MOST_GROWTH_MIB,
            "{:.1f} MiB",
        ),
        f"server's memory after {CROWDS} crowds, more than after {CROWDS // 2}": (
            growth_mib(crowds),
            MOST_GROWTH_MIB,
            "{:.1f} MiB",
        ),
    }
    rows = [
        (name, form.format(value), form.format(most), "yes" if value <= most else "**no**")
        for name, (value, most, form) in kept.items()
    ]
    updates = median(one.updates / WINDOW_S for one in watched)
    return {
        "about": f"What {VIEWERS} viewers of a run's page cost, updated each second, beside the training without them.",
        "passed": all(value <= most for value, most, _ in kept.values()),
        "thresholds": [],
        "notes": [
            f"The server without viewers: {median(one.server_cores for one in alone):.1%} of a core. "
            f"Updates with viewers: {updates:.1f} a second.",
            f"Steps of the run at the end: {found[-1].steps_done:,}. Memory of the server, window by window (MiB): "
            + ", ".join(f"{one.server_bytes / MIB:.0f}" for one in found)
            + f". It counts from window {found.index(steady) + 1} on.",
            "After each crowd (MiB): " + ", ".join(f"{size / MIB:.0f}" for size in crowds) + ".",
        ],
        "tables": [
            {"title": "Medians over the windows:", "heads": ("figure", "measured", "at most", "holds"), "rows": rows}
        ],
        "measured": [asdict(one) for one in found],
    }


def _steady(watched: list[Window]) -> Window:
    """The first window with viewers at whose end viewers of the first are forgotten; the last if none is."""
    left_s = watched[0].at_s
    return next((one for one in watched if one.at_s - left_s >= FORGOTTEN_S), watched[-1])


def growth_mib(crowds: list[int]) -> float:
    """How much memory the second half of the crowds added: medians of a quarter each, in MiB."""
    half, quarter = len(crowds) // 2, max(1, len(crowds) // 8)
    return (median(crowds[-quarter:]) - median(crowds[half - quarter : half])) / MIB


if __name__ == "__main__":
    if sys.argv[1:] == ["crowds"]:
        _, sizes = measure(0)
        sys.stdout.write(f"{[size // MIB for size in sizes]} MiB: {growth_mib(sizes):.1f} MiB more\n")
    else:
        sys.stdout.write(json.dumps(described(*measure(int(sys.argv[1])))) + "\n")
