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
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    place = folder / f"{key}.json"
    with suppress(OSError, ValidationError):
        return kind.model_validate_json(place.read_bytes())
    made = make()
    if worth(made):
        with suppress(OSError):
            write_text(place, made.model_dump_json())
            for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-MOST]:
                path.unlink(missing_ok=True)
    return made
