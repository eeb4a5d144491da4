"""Quantities as text: MiB and GiB, durations, percentages."""

import re
from collections.abc import Sequence

MIB = 1024**2
GIB = 1024**3
_UNITS = {"": 1, "kib": 1024, "mib": MIB, "gib": GIB, "tib": 1024 * GIB}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]ib|)", re.ASCII | re.IGNORECASE)

NOT_AVAILABLE = "not available"


def memory_text(size_bytes: int | None) -> str:
    """Bytes as MiB below 10 GiB, as GiB with one decimal above; `None` is "not available", never 0."""
    if size_bytes is None:
        return NOT_AVAILABLE
    if size_bytes >= 10 * GIB:
        return f"{size_bytes / GIB:,.1f} GiB"
    if size_bytes >= 10 * MIB:
        return f"{size_bytes / MIB:,.0f} MiB"
    if size_bytes >= 0.1 * MIB:
        return f"{size_bytes / MIB:,.1f} MiB"
    return f"{size_bytes / 1024:,.1f} KiB"


def memory_bytes(text: str) -> int | None:
    """Bytes of a size such as `4GiB`, `1.5 MiB` or `4096`; None if it is none."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(float(found[1]) * _UNITS[found[2].lower()])


def duration_text(seconds: float | None) -> str:
    """Seconds as `4.2 s`, `3 min 07 s`, `2 h 05 min` or `1 d 02 h`."""
    if seconds is None:
        return NOT_AVAILABLE
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def step_text(seconds: float) -> str:
    """Seconds of a step, as `0.245 ms` or `31.4 ms` below a second, as `1.2 s` above."""
    return duration_text(seconds) if seconds >= 0.9995 else f"{1000 * seconds:.3g} ms"


def energy_text(joules: float | None) -> str:
    """Joules as `850 J` below one watt-hour, as `12.4 Wh` or `3.1 kWh` above."""
    if joules is None:
        return NOT_AVAILABLE
    wh = joules / 3600
    if wh >= 1000:
        return f"{wh / 1000:,.1f} kWh"
    return f"{wh:,.1f} Wh" if wh >= 1 else f"{wh:.2g} Wh"


def percent_text(fraction: float | None) -> str:
    """A fraction as a percentage with one decimal."""
    return NOT_AVAILABLE if fraction is None else f"{100 * fraction:.1f} %"


def abbreviated(names: Sequence[str], most: int = 5) -> str:
    """List the first `most` names, and count the rest."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
