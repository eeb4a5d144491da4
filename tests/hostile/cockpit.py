"""The pieces of HTML of the cockpit, with a stranger's name in all their texts."""

from dataclasses import replace

from pages._ui import device_card, forecast_panel, hybrid_card, line_rows, run_logs, run_strip
from pages._ui import submodels as rows
from tests.hostile.names import poisoned
from tests.ui import fake_arms
from unifiednn_core.machine.device_samples import OtherProcess
from unifiednn_core.preflight.report import Certificate, CertificateCheck
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views import attention, markup
from unifiednn_core.views.devices import DeviceCard
from unifiednn_core.views.figures import forecast
from unifiednn_core.views.forecast import PolicyForecast
from unifiednn_core.views.hybrids import HybridMember, LineEntry, ListedHybrid
from unifiednn_core.views.report import html, selection
from unifiednn_core.views.runs import RunView, Series, Slice
from unifiednn_core.views.side_by_side import Side


def card(name: str) -> DeviceCard:
    """A device of this name, with somebody else's process."""
    other = OtherProcess(pid=7, user=f"u{name}", name=f"python{name}", size_bytes=1)
    return DeviceCard(
        name=f"cuda:0{name}",
        type="cuda",
        kind="H100",
        state="ready",
        total_bytes=10,
        own_bytes=1,
        free_bytes=5,
        others=(other,),
    )


def hybrid(name: str) -> ListedHybrid:
    member = HybridMember(
        run_id="r-1",
        run_name="demo",
        name="lenet",
        shown="lenet",
        number=0,
        owner=f"ada{name}",
        state=State.RUNNING,
        steps_done=1,
        steps_total=2,
        holds_device=True,
        ends_in_s=None,
        leaving=f"asked{name}",
    )
    listed = ListedHybrid(
        hybrid_id="h-1",
        shared=False,
        mode="hybrid",
        device="cpu",
        policy="fcfs",
        now_reason="its turn",
        since_s=None,
        memory_bytes=1,
        peak_memory_bytes=2,
        heartbeat_age_s=0.0,
        members=(member,),
    )
    return poisoned(listed, name)  # type: ignore[no-any-return]


def policies(name: str) -> tuple[PolicyForecast, ...]:
    parts = [f"{start}{name}" for start in ("lenet", "resnet")]
    turns = tuple(
        Slice(submodel=part, start_s=at, end_s=at + 1.0, steps=1, reason=name) for at, part in enumerate(parts)
    )
    made = PolicyForecast(
        policy="fcfs",
        policy_text=f"first{name}",
        turns=turns,
        finish_s=dict.fromkeys(parts, 2.0),
        mean_turnaround_s=2.0,
        makespan_s=2.0,
        fairness=1.0,
        peak_bytes=9,
        memory=Series((0.0, 1.0), (1.0, 2.0)),
    )
    return made, replace(made, policy="fair", makespan_s=3.0)


def sides(name: str) -> list[Side]:
    """Two runs of this name that differ in settings and machines."""
    view: RunView = poisoned(fake_arms.hybrid(), name)
    return [
        Side(
            ref=f"r-{at}",
            label=f"{label}{name}",
            view=replace(view, spec={"note": f"{label}{name}"}),
            alone=False,
            machine={"cpu": f"{label}{name}"},
        )
        for at, label in enumerate(("one", "two"))
    ]


def certified(name: str) -> RunView:
    """A run whose first file is not what was trained."""
    run: RunView = poisoned(fake_arms.hybrid(), name)
    first, *others = run.submodels
    found = Certificate(
        submodel=first.name,
        model="m.pt2",
        made_at_s=0.0,
        holds=False,
        state_sha256="ab" * 32,
        compared=(CertificateCheck(what="weights", outcome="differs", text=f"differs{name}"),),
    )
    return replace(run, submodels=(replace(first, certificate=found), *others))


def pieces(name: str) -> dict[str, str]:
    """Each piece by what it is."""
    known, made, shared = card(name), policies(name), hybrid(name)
    numbers = {part: at for at, part in enumerate(made[0].finish_s)}
    entry = LineEntry(
        run_id="r-1",
        name="demo",
        mode="hybrid",
        submodels=(f"lenet{name}",),
        owner=f"ada{name}",
        place=1,
        asked=f"cuda:1{name}",
        submitted_at_s=0.0,
        waits_for=f"room{name}",
        starts_in_s=None,
        ends_in_s=None,
    )
    run, pair = certified(name), sides(name)
    tables = (selection.figures_table, selection.settings_table, selection.machines_table, selection.weights_table)
    whole = "\udce9" not in name  # the store takes no half of a character, and a table has none as its head
    failed = attention.failure_text(f"lenet{name}", None, 3)
    return {
        "device": device_card._card(known) + device_card._small(known),
        "member": "".join(map(hybrid_card._cells, shared.members)) + markup.text(hybrid_card._name(shared)),
        "line": line_rows._cells(entry) + line_rows.holders([shared]),
        "forecast": forecast.gantt(made[0], numbers),
        "policies": forecast_panel._policies(made, made[0]) + forecast_panel._finishes(made, numbers) if whole else "",
        "side by side": "".join(table(pair) for table in tables) + selection.cautions_html(pair) if whole else "",
        "report side by side": html.render_selection(pair, "/* plotly */") if whole else "",
        "certificate": "".join(rows.row(run, part) for part in run.submodels),
        "events": run_logs._who((f"lenet{name}",)) + run_logs._who((f"a{name}", "b")) + run_logs._told("error", name),
        "strip": run_strip.html(replace(run, state=State.RUNNING, now_reason=name), None),
        "failure": markup.text(failed),
    }
