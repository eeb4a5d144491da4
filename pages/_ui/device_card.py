"""How the devices are used: a card on Now, and a few lines in the sidebar of every page."""

from collections.abc import Sequence

import streamlit as st

from unifiednn_core.base.units import NOT_AVAILABLE, memory_text
from unifiednn_core.views import device_text, markup
from unifiednn_core.views.devices import DeviceCard, ListedCluster, OtherProcess
from unifiednn_core.views.sparkline import sparkline

SPAN_S = 600.0
MOST_SMALL, MOST_PROCESSES = 4, 4
OWN, OTHERS = "var(--u-accent)", "var(--u-faint)"


def draw_away(cluster: ListedCluster) -> None:
    """Say that the cluster cannot be reached; nothing while it can, and without one."""
    remedy = "What trains on this machine goes on. Start the head again, or restart the server without --ray."
    if cluster.why:
        st.html(markup.notice("orange", "cloud_off", "The cluster is away", cluster.why, remedy))


def draw(cards: Sequence[DeviceCard]) -> None:
    """Draw one line of figures for each device, with the processes of others below it; nothing before any is known."""
    if not cards:
        return
    with st.container(key="devices-now"):
        st.html("".join(map(_card, cards)))


def draw_small(cards: Sequence[DeviceCard]) -> None:
    """Draw what is in use of each device, in the sidebar; nothing before any is known."""
    if not cards:
        return
    more = len(cards) - MOST_SMALL
    rest = markup.small(f"{more} more") if more > 0 else ""
    st.html("".join(map(_small, cards[:MOST_SMALL])) + rest)


def _small(card: DeviceCard) -> str:
    words = device_text.brief(card)
    head = f'<span class="u-line"><b>{markup.text(card.name)}</b></span>'
    return (
        f'<div class="u-dev-small" title="{markup.text(card.kind)}">{head}{memory_bar(card)}{markup.small(words)}</div>'
    )


def memory_bar(card: DeviceCard) -> str:
    """What is in use as a bar, by us and by others; nothing where it is not known."""
    if card.used_bytes is None or not card.total_bytes:
        return ""
    own = card.used_bytes if card.own_bytes is None else min(card.own_bytes, card.used_bytes)
    parts = ((own, OWN), (card.used_bytes - own, OTHERS))
    return markup.parts_bar([(size / card.total_bytes, colour) for size, colour in parts], f"Memory of {card.name}")


def _card(card: DeviceCard) -> str:
    kind = f'<span class="u-under u-clip" title="{markup.text(card.kind)}">{markup.text(card.model)}</span>'
    name = f'<div class="u-dev-name"><b>{markup.text(card.name)}</b>{kind}</div>'
    total = "" if card.total_bytes is None else memory_text(card.total_bytes)
    words = markup.small(device_text.memory(card))
    busy, memory = card.over_time.utilisation, card.over_time.memory
    cells = [
        _figure("Memory", total, memory_bar(card), words, looks="u-dev-memory"),
        _figure("Memory in use", _used(card), _curve(card, "Memory in use", memory)),
        _figure("Busy", device_text.share(card.utilisation), _curve(card, "Busy", busy)),
        _figure("Temperature", device_text.temperature(card.temperature_c)),
        _figure("Load", device_text.load(card.load))
        if card.type == "cpu"
        else _figure("Power", device_text.power(card.power_w)),
    ]
    if card.used_bytes is None and card.utilisation is None:  # nobody samples the devices of nodes
        cells = cells[:1]
    label = markup.text(f"Device {card.name}")
    return f'<section class="u-dev" aria-label="{label}">{name}{"".join(cells)}{_processes(card.others)}</section>'


def _used(card: DeviceCard) -> str:
    used, total = card.used_bytes, card.total_bytes
    return device_text.share(None if used is None or not total else used / total)


def _figure(label: str, value: str, *more: str, looks: str = "") -> str:
    faint = ' class="u-faint"' if value == NOT_AVAILABLE else ""
    head = f'<span class="u-dev-label">{markup.text(label)}</span><b{faint}>{markup.text(value)}</b>'
    return f'<div class="u-dev-cell {looks}"><span class="u-line">{head}</span>{"".join(more)}</div>'


def _curve(card: DeviceCard, what: str, values: Sequence[float | None]) -> str:
    return sparkline(card.over_time.before_s, values, SPAN_S, device_text.past(what, values))


def _processes(others: Sequence[OtherProcess]) -> str:
    """Processes that are none of ours, as a line each."""
    if not others:
        return ""
    unknown = "unknown"
    rows = "".join(
        markup.cells(
            "u-dev-process",
            (
                markup.text(one.user or unknown),
                markup.mono(one.name or unknown),
                markup.faint(f"PID {one.pid}"),
                markup.text(device_text.used_by(one)),
            ),
        )
        for one in others[:MOST_PROCESSES]
    )
    more = len(others) - MOST_PROCESSES
    rest = markup.small(f"{more} more") if more > 0 else ""
    return f'<div class="u-dev-others"><span class="u-dev-label">{markup.text("Others")}</span>{rows}{rest}</div>'
