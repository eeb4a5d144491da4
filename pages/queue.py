"""Queue: devices, the hybrids that train on them, the line behind them, and the mode. `?hybrid=ID` shows one hybrid.

For operators.
"""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from pages._ui import actions, charts, device_card, frame, hybrid_card, line_rows, run_form
from unifiednn_core.base.errors import NotFound
from unifiednn_core.base.units import GIB, memory_text
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.run import MOST_LANES
from unifiednn_core.views import attention, device_text, markup, wording
from unifiednn_core.views.devices import DeviceCard, ListedCluster, ListedDevice
from unifiednn_core.views.hybrids import MODES, LineEntry, ListedHybrid

NOTHING_TRAINS = "No device trains now. What is submitted starts here by itself."
NOTHING_WAITS = "Nothing waits. A submission starts as soon as a device has room for it."
MODE_HELP = "What happens to networks that people submit one by one. Hybrids that train stay as they are."
LIMIT_HELP = "Most memory that hybrids may use of this device. Empty means all of it. What trains there goes on."
STATES: dict[str, tuple[str, wording.Colour, str]] = {
    "ready": ("check", "green", "It takes what waits."),
    "draining": ("output", "orange", "It takes nothing new, and what trains there goes on elsewhere."),
    "refused": ("block", "orange", "The node is there, and its devices are not used."),
    "away": ("power_off", "gray", "It is unavailable now."),
}


def main() -> None:
    """Draw the page, every second; the settings below do not move."""
    frame.page("Queue")
    hybrid_id = st.query_params.get("hybrid")
    if hybrid_id is not None:
        frame.live(partial(_one, hybrid_id), True)
        return
    frame.live(draw, True)
    _settings()


def draw(_live: bool) -> None:
    """Draw everything that moves."""
    service = frame.service()
    line, hybrids = service.queue.line(), service.queue.hybrids()
    devices, pooling, cluster = service.devices.devices(), service.queue.pooling(), service.devices.cluster()
    device_card.draw_away(cluster)
    actions.show_refusals()
    st.html(markup.title("Queue", markup.note(f"One queue for all devices. · data as of {frame.clock()}")))
    st.html(markup.strip(_facts(line, hybrids, devices, pooling)))
    st.html(markup.section("Devices", wording.count_text(len(devices), "device")))
    _devices(devices, {card.name: card for card in service.devices.cards(within_s=frame.RECENT_S)}, hybrids)
    if cluster.nodes or cluster.dashboard:
        _nodes(cluster)
    st.html(markup.section("Training", wording.count_text(len(hybrids), "hybrid")))
    if not hybrids:
        st.html(markup.small(NOTHING_TRAINS))
    for hybrid in hybrids:
        hybrid_card.draw(hybrid, key="queue")
    st.html(markup.section("Queue", "the first starts first; move what is urgent"))
    _line(line)


def _facts(
    line: Sequence[LineEntry], hybrids: Sequence[ListedHybrid], devices: Sequence[ListedDevice], pooling: Pooling
) -> list[markup.Fact]:
    waiting = len({entry.run_id for entry in line})
    oldest = min((entry.submitted_at_s for entry in line), default=None)
    members = sum(len(hybrid.members) for hybrid in hybrids)
    ready = sum(device.state == "ready" for device in devices)
    used = sum(hybrid.memory_bytes or 0 for hybrid in hybrids)
    behind = "nobody" if oldest is None else f"the first came {frame.ago(oldest)}"
    return [
        markup.Fact("Waiting", str(waiting), markup.text(behind)),
        markup.Fact("Training", str(members), markup.text(f"in {wording.count_text(len(hybrids), 'hybrid')}")),
        markup.Fact("Devices", f"{ready} of {len(devices)}", "ready"),
        markup.Fact("Memory", memory_text(used), "of all hybrids now"),
        markup.Fact("Mode", pooling.mode.capitalize(), markup.text(MODES[pooling.mode]), wide=True),
    ]


def _devices(devices: Sequence[ListedDevice], cards: dict[str, DeviceCard], hybrids: Sequence[ListedHybrid]) -> None:
    held = {name: hybrid for hybrid in hybrids for name in (hybrid.device, *hybrid.also)}
    with st.container(key="rows-devices"):
        for device in devices:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-device-{device.name}"):
                st.html(_device(device, cards.get(device.name), held.get(device.name)))
                icons = f"icons-device-{device.name}"
                with st.container(horizontal=True, key=icons, width=40, wrap=False):
                    _device_button(device)


def _device(device: ListedDevice, card: DeviceCard | None, hybrid: ListedHybrid | None) -> str:
    kind = markup.text(device.kind)
    name = f'<b>{markup.text(device.name)}</b><span class="u-under u-clip" title="{kind}">{kind}</span>'
    who = "" if device.state == "away" else "free"
    if hybrid is not None:
        ends = attention.ends_of(hybrid)
        who = attention.holder_text(hybrid, None if ends is None else frame.clock_at(ends))
    memory = markup.faint("use not available")
    if card is not None and card.used_bytes is not None:
        memory = f"{device_card.memory_bar(card)}{markup.faint(device_text.memory(card))}"
    limit = "" if device.limit_bytes is None else f"limit {memory_text(device.limit_bytes)}"
    total = f"{markup.text(memory_text(device.total_bytes))}<span class='u-under'>{markup.text(limit)}</span>"
    return markup.cells("u-brief u-device", (name, _state(device.state), markup.text(who), memory, total))


def _state(state: object) -> str:
    return markup.badge(str(state).capitalize(), *STATES[str(state)])


def _nodes(cluster: ListedCluster) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="section-nodes"):
        st.html(markup.section("Nodes", wording.count_text(len(cluster.nodes), "node")), width="content")
        if cluster.dashboard:
            st.link_button("Ray's dashboard", f"http://{cluster.dashboard}", icon=":material/open_in_new:")
    rows = ({"Node": one.name, "State": one.state, "Why": one.why, "Devices": one.devices} for one in cluster.nodes)
    st.html(markup.table("Machines of the Ray cluster", rows, {"Node": markup.bold, "State": _state}))


def _device_button(device: ListedDevice) -> None:
    desk, shown = frame.service().devices, wording.plain(device.name)
    buttons = {
        "ready": (f"Drain {shown}", "output", "drain", desk.drain_device),
        "draining": (f"Use {shown} again", "play_arrow", "ready", desk.ready_device),
    }
    if device.state not in buttons:
        return
    label, icon, verb, act = buttons[device.state]
    if actions.icon_button(label, icon, f"{verb}-{device.name}"):
        actions.attempt(partial(act, device.name))
        st.rerun()


def _line(line: Sequence[LineEntry]) -> None:
    if not line:
        st.html(markup.small(NOTHING_WAITS))
        return
    runs = {run.run_id: run for run in frame.service().runs.current(within_s=frame.RECENT_S)}
    line_rows.draw(line, runs, key="line")


def _settings() -> None:
    desk = frame.service().queue
    known = desk.pooling()
    st.html(markup.section("How submissions become hybrids", MODE_HELP))
    left, right = st.columns([3, 2], gap="large")
    with left:
        mode = frame.segments("Mode", list(MODES), known.mode, "pool-mode", lambda one: one.capitalize())
        st.html(markup.small(MODES[mode]))
        given: dict[str, object] = {"mode": mode}
        if mode == "gathered":
            one, two = st.columns(2)
            given["gather_n"] = one.number_input("Submissions", 1, 1000, known.gather_n, key="pool-count")
            given["gather_s"] = two.number_input(
                "or after (s)", 0.0, 86_400.0, known.gather_s, 10.0, "%g", key="pool-after"
            )
        given["policy"] = run_form.policy(known.hybrid.policy.model_dump(), key="pool-policy")
        limits = ["auto", *range(1, MOST_LANES + 1)]
        with st.columns(2)[0]:
            at = limits.index(known.hybrid.lanes)
            given["lanes"] = st.selectbox("Lanes", limits, at, key="pool-lanes", help=run_form.LANES_HELP)
        if st.button("Save", key="pool-save", icon=":material/check:", type="primary"):
            with actions.showing_errors():
                desk.set_pooling(known.changed(**given))
                st.rerun()
    with right:
        _limits()


def _limits() -> None:
    desk = frame.service().devices
    devices = {device.name: device for device in desk.devices()}
    if not devices:
        return
    name = st.selectbox("Limit the memory of", list(devices), key="limit-device")
    known = devices[name].limit_bytes
    shown = None if known is None else known / GIB
    typed = st.number_input(
        "Limit (GiB)", 0.0, None, shown, 1.0, "%g", key=f"limit-{name}", placeholder="all", help=LIMIT_HELP
    )
    if st.button("Set limit", key="limit-save", icon=":material/check:"):
        limit_bytes = known if typed == shown else None if typed is None else round(typed * GIB)
        with actions.showing_errors():
            desk.limit_device(name, limit_bytes)
            st.rerun()


def _one(hybrid_id: str, _live: bool) -> None:
    try:
        found = frame.service().queue.hybrid(hybrid_id)
    except NotFound as error:
        st.html(markup.notice("red", "error", "No such hybrid", str(error)))
        found = None
    with st.container(horizontal=True, vertical_alignment="center"):
        name = "Hybrid" if found is None else found.view.name
        st.html(markup.title(name, markup.note(f"{hybrid_id} · data as of {frame.clock()}")))
        if st.button("All devices", key="all-devices", icon=":material/list:", type="tertiary"):
            st.query_params.pop("hybrid", None)
            st.rerun()
    if found is not None:
        hybrid_card.draw(found.hybrid, key="one", opens=False)
        charts.of_hybrid(found.view)


if __name__ == "__main__":
    main()
