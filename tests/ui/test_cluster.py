import pytest

from tests.ui.reading import press, text_of
from unifiednn_core.base.errors import BadInput
from unifiednn_core.scheduling.cluster_run import ClusterRequest, document
from unifiednn_core.views.fleet import FleetSimulation


@pytest.fixture(scope="module")
def made():
    return document(ClusterRequest(gpus=8, jobs=60, load=3.0, failure_h=1.0, policies=("fcfs", "sjf"), moves=True))


def test_the_queue_leads_to_the_cluster_and_back(open_page):
    app = press(open_page("queue"), "Simulate a cluster")
    assert "Nothing simulated yet" in text_of(app)
    assert "How submissions become hybrids" in text_of(press(app, "Back to the queue"))


def test_what_is_asked_is_simulated(open_page, service, monkeypatch):
    asked = []
    monkeypatch.setattr(service.fleet, "simulate_fleet", lambda request, trace: asked.append((request, trace)))
    app = open_page("queue", cluster="1")
    app.number_input(key="cluster-gpus").set_value(64).run()
    app.number_input(key="cluster-failures").set_value(200.0).run()
    app.multiselect(key="cluster-policies").set_value(["sjf"]).run()
    app.toggle(key="cluster-moves").set_value(True).run()
    press(app, "Simulate")
    assert asked == [(ClusterRequest(gpus=64, failure_h=200.0, policies=("sjf",), moves=True), "")]
    app.selectbox(key="cluster-source").set_value("own").run()
    app.text_area(key="cluster-trace").set_value("submitted_s,duration_s\n0,60\n").run()
    press(app, "Simulate")
    assert asked[-1][1].endswith("0,60\n")

    def refuse(request, trace):
        raise BadInput.of("Trace", "jobs.csv, line 2", "It has 1 values for 2 columns.", "Give each row one value.")

    monkeypatch.setattr(service.fleet, "simulate_fleet", refuse)
    assert "line 2" in text_of(press(app, "Simulate"))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("runs", "Simulating: 3 of 3"), ("done", "How to read it"), ("ended", "It was cancelled"),
        ("refused", "not enough"),
    ],
)  # fmt: skip
def test_the_arms_are_shown_as_far_as_they_are(open_page, service, monkeypatch, made, state, words):
    found = FleetSimulation(state, made["workload"], tuple(made["arms"]), "not enough")
    monkeypatch.setattr(service.fleet, "fleet_simulation", lambda: found)
    app = open_page("queue", cluster="1")
    text = text_of(app)
    assert words in text and "hybrids, sjf + moves + failures" in text and "drawn from statistics of philly" in text
    assert "the arms differ in order, not in work" in text
    assert [button.label for button in app.button if button.key == "cluster-cancel"] == ["Cancel"] * (state == "runs")
