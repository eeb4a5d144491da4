import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import hypothesis
import pytest

from unifiednn_core.home import Home

# A shell that runs the tests in its background has them ignore Ctrl-C; what they start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline is a wall-clock assert, and those fail on a busy machine.
hypothesis.settings.register_profile("unifiednn", deadline=None)
hypothesis.settings.load_profile("unifiednn")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()
