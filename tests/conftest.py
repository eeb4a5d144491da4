import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest

from unifiednn_core.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()
