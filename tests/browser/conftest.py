import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from tests.integration import forking
from tests.ports import free_port
from tests.ui.seed import Seeded
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.views.runs import RunView

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 30_000
"""A slow machine takes so long to draw a page."""


@dataclass
class Server:
    """A dashboard on a port of its own; `kill` and `start` it at will."""

    home: Home
    port: int
    process: subprocess.Popen[bytes] | None = None
    options: tuple[str, ...] = ()
    """Further ones of Streamlit's."""
    forked: bool = False
    """Whether our template forks its workers and reads its files."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = dict(os.environ, UNIFIEDNN_HOME=str(self.home.root))
        handles = (forking.handle(),) if self.forked else ()
        forked = ["tests.integration.forked_main", *map(str, handles)] if self.forked else []
        streamlit = ["streamlit", "run", "app.py", "--server.port", str(self.port), *self.options]
        command = [sys.executable, "-m", *forked, *streamlit]
        with (self.home.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, pass_fds=handles
            )
        wait_until(self._answers, told=(self.home.root / "server.log").read_text)

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2):
            return True
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def seeded(home: Home, monkeypatch: pytest.MonkeyPatch, *runs: RunView) -> Home:
    """The home with these runs, as a server finds them."""
    made = Seeded(home, monkeypatch)
    made.listed = runs
    made.close()
    return home


@pytest.fixture
def server(home: Home, request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(home, free_port(), forked=request.node.get_closest_marker("new_interpreters") is None)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """Ends with its file: while it runs, no other test of this process could run a coroutine."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as started:
        yield started


@pytest.fixture
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield browser
    browser.close()


@pytest.fixture
def page(browser: Browser) -> Page:
    return browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True).new_page()
