"""What operators see of a Ray cluster."""

from unifiednn_core.store.devices import LISTED_S
from unifiednn_core.store.nodes import CLUSTER, NodeRow, NodeState
from unifiednn_core.views.devices import ListedCluster, ListedNode, cluster_of

NOW_S = 1_000_000.0
GONE = "The Ray cluster cannot be reached."


def row(name: str, state: NodeState = "ready", why: str = "", seen_at_s: float = NOW_S, **facts: object) -> NodeRow:
    return NodeRow(name=name, state=state, why=why, facts=facts, seen_at_s=seen_at_s)


def test_without_a_cluster_there_is_nothing_to_show() -> None:
    assert cluster_of([], NOW_S) == ListedCluster(why="", dashboard="", nodes=())


def test_nodes_stand_apart_from_the_cluster() -> None:
    rows = [
        row("a", devices=2),
        row("b"),
        row("c", "refused", "Its torch is 2.1.", devices=1),
        row("d", "away", "Ray says that it is gone.", NOW_S - LISTED_S, devices=1),
        row("e", "away", "Ray says that it is gone.", NOW_S - LISTED_S - 1),
        row(CLUSTER, dashboard="10.0.0.1:8265"),
    ]
    found = cluster_of(rows, NOW_S)
    assert (found.why, found.dashboard) == ("", "10.0.0.1:8265")
    assert found.nodes == (
        ListedNode(name="a", state="ready", why="", devices=2),
        ListedNode(name="b", state="ready", why="", devices=None),
        ListedNode(name="c", state="refused", why="Its torch is 2.1.", devices=1),
        ListedNode(name="d", state="away", why="Ray says that it is gone.", devices=1),
    )
    found = cluster_of([row(CLUSTER, dashboard="")], NOW_S)
    assert (found.dashboard, found.nodes) == ("", ())


def test_what_is_wrong_with_the_cluster_is_said_once() -> None:
    rows = [row("a", "away", GONE, devices=2), row(CLUSTER, "away", GONE, NOW_S - LISTED_S - 1, dashboard="x:1")]
    found = cluster_of(rows, NOW_S)
    assert (found.why, found.dashboard) == (GONE, ""), "however long it is away"
    assert [(node.name, node.state, node.why) for node in found.nodes] == [("a", "away", "")]
