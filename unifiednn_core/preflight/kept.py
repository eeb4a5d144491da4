"""Reports that a home keeps by everything that they follow from."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from unifiednn_core.base.files import write_text
from unifiednn_core.base.paths import Home

MOST = 200
Report = TypeVar("Report", bound=BaseModel)


def kept(
    home: Home, facts: object, kind: type[Report], make: Callable[[], Report], worth: Callable[[Report], bool]
) -> Report:
    """Return the report of equal `facts`, or make it, and keep it if it is `worth` that; the newest stay."""
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    place = home.root / "checks" / f"{key}.json"
    with suppress(OSError, ValidationError):
        return kind.model_validate_json(place.read_bytes())
    made = make()
    if worth(made):
        with suppress(OSError):
            place.parent.mkdir(exist_ok=True)
            write_text(place, made.model_dump_json())
            for path in sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-MOST]:
                path.unlink(missing_ok=True)
    return made
