"""Words about devices: what is in use, and who holds them. Pure."""

from collections.abc import Sequence

from unifiednn_core.base.units import GIB, NOT_AVAILABLE, memory_text
from unifiednn_core.views.devices import DeviceCard, OtherProcess


def share(value: float | None) -> str:
    """A share of 0 to 1 as whole per cent."""
    return NOT_AVAILABLE if value is None else f"{100 * value:.0f} %"


def temperature(celsius: float | None) -> str:
    """A temperature with its unit."""
    return NOT_AVAILABLE if celsius is None else f"{celsius:.0f} °C"


def power(watts: float | None) -> str:
    """A power with its unit."""
    return NOT_AVAILABLE if watts is None else f"{watts:.0f} W"


def load(processes: float | None) -> str:
    """Processes that want a core."""
    return NOT_AVAILABLE if processes is None else f"{processes:.2f}"


def memory(card: DeviceCard) -> str:
    """Who has how much of the memory: "318 MiB ours, 3.2 GiB others, 12.0 GiB free"."""
    if card.used_bytes is None:
        return "use not available"
    free = f"{memory_text(card.free_bytes)} free"
    if card.own_bytes is None or card.others_bytes is None:
        return f"about {memory_text(card.used_bytes)} in use, {free}"
    own = f"{memory_text(card.own_bytes)} ours" if card.own_bytes else "0 MiB ours"
    return f"{own}, {memory_text(card.others_bytes)} others, {free}"


def used_by(process: OtherProcess) -> str:
    """What a process of others uses: "1,024 MiB", or "1,024 MiB · 1.3 cores"."""
    size, cores = memory_text(process.size_bytes), process.busy_cores
    return size if cores is None else f"{size} · {cores:.1f} cores"


def brief(card: DeviceCard) -> str:
    """One line: "43 % busy · 3.4 of 23.5 GiB"."""
    busy = "" if card.utilisation is None else f"{share(card.utilisation)} busy"
    used = "use not available"
    if card.used_bytes is not None:
        used = f"{card.used_bytes / GIB:.1f} of {(card.total_bytes or 0) / GIB:.1f} GiB"
    return " · ".join(filter(None, (busy, used)))


def past(what: str, values: Sequence[float | None]) -> str:
    """What a curve shows, for those who cannot see it: "Busy over the last ten minutes: 3 % to 97 %"."""
    known = [value for value in values if value is not None]
    if not known:
        return f"{what} over the last ten minutes: no samples yet"
    low, high = share(min(known)), share(max(known))
    return f"{what} over the last ten minutes: {low} to {high}"
