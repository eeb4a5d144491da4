"""Reports of checks that are kept by content, without torch: the server shows and uses one that still holds.

A report follows from the spec, the bytes of its files, the machine with its versions, and `CHECK_VERSION`. What changes
by itself, such as free space and the memory measured since, is not kept: it is found out again.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.files import write_text
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import memory_text
from unifiednn_core.base.visible import visible
from unifiednn_core.machine.budget import budget_of, slot
from unifiednn_core.preflight.report import CheckReport, SubModelReport
from unifiednn_core.spec.run import RunSpec, SubModelSpec

# Raise it when the verdict of a check changes.
CHECK_VERSION = 25
# Room for the weights in both formats, the zip of them, and one more copy while it is written.
COPIES_ON_DISK = 4
SPARE_BYTES = 64 * 1024**2
DISK_FULL = "Disk nearly full"
_BY_CONTENT = re.compile(r"sha256:([0-9a-f]{64})")
MOST = 200
Report = TypeVar("Report", bound=BaseModel)


def files_of(submodel: SubModelSpec) -> list[str]:
    """All files that a sub-model names, as it writes them."""
    start = None if submodel.start_from is None else submodel.start_from.file
    names = (submodel.model, submodel.train_data, submodel.test_data, start)
    return [name for name in names if name is not None]


def place_of(written: str, base: Path, home: Home) -> Path:
    """Where a file of a spec is; it may be missing."""
    by_content = _BY_CONTENT.fullmatch(written)
    return home.file(by_content.group(1)) if by_content else base / Path(written).expanduser()


@contextmanager
def reading(written: str, base: Path) -> Iterator[None]:
    """Raise `BadInput` for a file that a block finds missing or cannot read."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the name is not a path"
        message, remedy = f"'{visible(written[:200])}' cannot be read: {reason}.", f"Paths are relative to {base}."
        raise BadInput.of("File not found", field=written, message=message, remedy=remedy) from None


def existing(written: str, base: Path, home: Home) -> Path:
    """Where a file of a spec is, which is not opened; raises `BadInput` if it is missing or may not be read."""
    path = place_of(written, base, home)
    with reading(written, base):
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path


def checked_before(spec: RunSpec, home: Home, machine: Mapping[str, object]) -> CheckReport | None:
    """The kept report of an equal spec on this machine, with the present findings about the disk; None without one.

    Only specs whose files are all named by content are looked up, and all of these files have to be there.
    """
    if not _by_content(spec, home):
        return None
    return _at_present(known(_folder(home), _facts(spec, machine), CheckReport), home)


def check_once(
    spec: RunSpec, home: Home, machine: Mapping[str, object], now_s: float, make: Callable[[], CheckReport]
) -> CheckReport:
    """The kept report of an equal spec, or a new one; one without errors is kept with its time `now_s` (UTC)."""
    if not _by_content(spec, home):
        return make()

    def lasting() -> CheckReport:
        made = make()
        return made.model_copy(
            update={"findings": tuple(one for one in made.findings if one.title != DISK_FULL), "at_s": now_s}
        )

    report = kept(_folder(home), _facts(spec, machine), CheckReport, lasting, lambda found: not found.has_errors)
    return _at_present(report, home) or report


def disk_findings(home: Home, reports: Mapping[str, SubModelReport]) -> list[Finding]:
    """An error if the disk has too little room for what a run writes."""
    needed_bytes = COPIES_ON_DISK * sum(report.weights_bytes for report in reports.values()) + SPARE_BYTES
    existing = next(folder for folder in (home.root, *home.root.absolute().parents) if folder.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes >= needed_bytes:
        return []
    message = f"{memory_text(free_bytes)} are free in {home.root}; the run needs {memory_text(needed_bytes)}."
    remedy = "Make room, or set UNIFIEDNN_HOME to a larger disk."
    return [Finding(title=DISK_FULL, field="home", message=message, remedy=remedy)]


def _at_present(report: CheckReport | None, home: Home) -> CheckReport | None:
    if report is None:
        return None
    return report.model_copy(update={"findings": (*report.findings, *disk_findings(home, report.submodels))})


def _folder(home: Home) -> Path:
    return home.checks / "specs"


def _by_content(spec: RunSpec, home: Home) -> bool:
    named = {name for part in spec.submodels for name in files_of(part)}
    return all(_BY_CONTENT.fullmatch(name) and place_of(name, home.root, home).is_file() for name in named)


def _facts(spec: RunSpec, machine: Mapping[str, object]) -> list[object]:
    device = slot(spec.device)
    # Who trains when, and what happens after a crash, changes no verdict.
    left_out: Any = {"name", "policy", "checkpoint", "recovery", "step_limit_s", "moves", "hybrid"}
    left_out = dict.fromkeys(left_out, True) | {"submodels": {"__all__": {"priority", "deadline_s", "owner"}}}
    asked = spec.model_copy(update={"device": device}).model_dump(mode="json", exclude=left_out)
    return [CHECK_VERSION, asked, budget_of(device).total_bytes, dict(machine)]


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
