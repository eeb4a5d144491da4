"""Reports that are kept in a folder by everything that they follow from."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from unifiednn_core.base.files import write_text

MOST = 200
Report = TypeVar("Report", bound=BaseModel)


def kept(
    folder: Path, facts: object, kind: type[Report], make: Callable[[], Report], worth: Callable[[Report], bool]
) -> Report:
    """Return the report of equal `facts`, or make it, and keep it if it is `worth` that; the newest stay."""
    if (found := known(folder, facts, kind)) is not None:
        return found
    made = make()
    if worth(made):
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            write_text(_place(folder, facts), made.model_dump_json())
            for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-MOST]:
                path.unlink(missing_ok=True)
    return made


def known(folder: Path, facts: object, kind: type[Report]) -> Report | None:
    """The kept report of equal `facts`; None without one."""
    with suppress(OSError, ValidationError):
        return kind.model_validate_json(_place(folder, facts).read_bytes())
    return None


def _place(folder: Path, facts: object) -> Path:
    return folder / f"{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}.json"
