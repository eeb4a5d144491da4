"""`unifiednn simulate --gpus N`: what a cluster would do under each policy and placement. Nothing is trained."""

from rich.table import Column

from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import refusing
from unifiednn_core.scheduling.cluster_run import (
    ClusterRequest,
    check,
    cluster_for,
    jobs_for,
    outcomes,
    workload,
)
from unifiednn_core.views import fleet

JOBS_BY_GPU, MOST_JOBS = 30, 30_000
"""Jobs by default."""
LOAD = 1.2


def simulate_cluster(request: ClusterRequest, *, as_json: bool) -> None:
    """Simulate all arms, and print them with what they mean."""
    with refusing(as_json):
        check(request)
        cluster = cluster_for(request)
        jobs = jobs_for(request, cluster)
        told = workload(request, cluster, jobs)
        found = []
        for place, one in enumerate(outcomes(request, cluster, jobs), 1):
            found.append(one.document)
            if not as_json and terminal.err.is_terminal:
                terminal.say(
                    f"{place} of {len(told['arms'])}: {one.arm.name}, {one.cpu_s:.1f} CPU seconds", to=terminal.err
                )
    if as_json:
        terminal.print_json({"workload": told, "arms": found})
        return
    heads: tuple[Column | str, ...] = (Column("arm", no_wrap=True), *fleet.HEADS.values())
    least = fleet.best(found)
    rows = [
        (arm["name"], *(f"{fleet.cell(name, arm)}{'*' * (least.get(name) == arm[name])}" for name in fleet.HEADS))
        for arm in found
    ]
    terminal.print_table(heads, rows)
    terminal.say(f"{fleet.told_of(told)} * is best without failures. A slowdown is turnaround by duration alone.")
    for line in fleet.reading(told, found):
        terminal.say(f"- {line}")
