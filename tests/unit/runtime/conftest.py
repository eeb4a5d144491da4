import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from unifiednn_core.base.visible import keep_log_visible


@pytest.fixture
def full_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log of this process is on a full disk, as that of a worker may be."""
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115
    with pytest.raises(OSError, match="No space"):
        full.write("a control\n")
    monkeypatch.setattr(sys, "stdout", full)
    monkeypatch.setattr(sys, "stderr", full)
    keep_log_visible()
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)
    with suppress(OSError):
        full.close()
