from dataclasses import replace

import pytest

from tests.ui.fake_views import queued
from tests.ui.reading import html_of, labels, press, text_of
from tests.unit.service.queue_kit import HER_NEXT, HERS, HIS, HIS_NEXT, HYBRID, training
from unifiednn_core.spec.devices import on_host
from unifiednn_core.spec.run import BASELINES
from unifiednn_core.store.nodes import CLUSTER, NodeRow


@pytest.fixture
def busy(service):
    """A shared hybrid of two people trains on the CPU, and two more wait."""
    service.listed.clear()
    training(service)
    return service


def test_an_empty_server_says_what_happens_next(open_page, service):
    service.listed.clear()
    words = text_of(open_page("queue"))
    assert "No device trains now." in words and "Nothing waits." in words and "cpu" in words


def test_devices_hybrids_and_the_line_are_shown_with_reasons(open_page, busy):
    app = open_page("queue")
    words = text_of(app)
    assert "Hybrid on cpu" in words and "shared" in words and "2 sub-models" in words
    assert "secretnet has waited longest." in words and HIS.run_id not in words, "plain names in the reason"
    assert "waits for any device to be free" in words
    links = [link.proto.label for link in app.get("page_link")]
    assert links == ["lenet", "secretnet", "secondnet-run", "resnet-run"]
    assert "alice@example.org" in words and "bob@example.org" in words


def test_a_device_is_drained_and_used_again(open_page, busy):
    app = press(open_page("queue"), "Drain cpu")
    assert [one.state for one in busy.devices.devices()] == ["draining"]
    assert "Draining" in text_of(app)
    press(app, "Use cpu again")
    assert [one.state for one in busy.devices.devices()] == ["ready"]


GONE = "The Ray cluster at 10.0.0.1:6379 cannot be reached: its head does not answer."


def clustered(service, why=""):
    def row(name, state, why="", **facts):
        return NodeRow(name=name, state=state, why=why, facts=facts, seen_at_s=service.store.clock.utc_s())

    service.store.nodes.write(
        [
            row("node7", "refused", "Its torch is 2.1.", devices=4),
            row("node8", "away" if why else "ready", why, devices=2),
            row(CLUSTER, "away" if why else "ready", why, address="10.0.0.1:6379", dashboard="10.0.0.1:8265"),
        ]
    )


def test_nodes_are_shown_where_there_are_some(open_page, busy):
    assert "Nodes" not in text_of(open_page("queue"))
    clustered(busy)
    app = open_page("queue")
    words, html = text_of(app), html_of(app)
    assert "2 nodes" in words and "Refused" in words and "Its torch is 2.1." in words and "away" not in words
    assert [link.proto.url for link in app.get("link_button")] == ["http://10.0.0.1:8265"]
    assert ">node7<" in html and ">node8<" in html and f">{CLUSTER}<" not in html


@pytest.mark.parametrize("page", ["now", "queue"])
def test_a_cluster_that_is_away_is_said_once_with_the_remedy(open_page, busy, page):
    clustered(busy, GONE)
    app = open_page(page)
    words = text_of(app)
    assert words.count(GONE) == 1 and words.count("Start the head again, or restart the server without --ray.") == 1
    assert not app.get("link_button"), "its dashboard is away, too"
    busy.listed.clear()
    assert text_of(open_page(page)).count(GONE) == 1, "also before the first run"
    busy.store.nodes.clear()
    words = text_of(open_page(page))
    assert GONE not in words and "node7" not in words


def test_the_use_of_a_device_of_a_node_is_not_available(open_page, busy):
    [own] = [row.device for row in busy.store.devices.all()]
    busy.store.devices.write([on_host(own, "node8")], "node8")
    html = html_of(open_page("now"))
    card = html.split('aria-label="Device node8/cpu"')[1].split("</section>")[0]
    assert "use not available" in card and "Busy" not in card and "0 %" not in card and " ours" not in card
    assert "use not available" in text_of(open_page("queue"))


def test_the_memory_of_a_device_is_limited(open_page, busy):
    app = open_page("queue")
    app.number_input(key="limit-cpu").set_value(4.0).run()
    press(app, "Set limit")
    assert busy.devices.devices()[0].limit_bytes == 4 * 2**30
    assert "limit 4,096 MiB" in text_of(app)


def test_the_mode_and_the_policy_of_shared_hybrids_are_set(open_page, busy):
    app = open_page("queue")
    assert not [box for box in app.number_input if box.key == "pool-count"], "only gathering counts"
    app.session_state["pool-mode"] = "gathered"
    app.run()
    app.number_input(key="pool-count").set_value(7).run()
    app.session_state["pool-policy-name"] = "sjf"
    press(app.run(), "Save")
    found = busy.queue.pooling()
    assert (found.mode, found.gather_n, found.hybrid.policy.name) == ("gathered", 7, "sjf")


def test_one_hybrid_is_shown_with_its_turns(open_page, busy):
    app = open_page("queue", hybrid=HYBRID)
    assert HYBRID in text_of(app) and "5 / 20 steps" in text_of(app)
    assert [link.proto.label for link in app.get("page_link")] == ["lenet", "secretnet"]
    app = open_page("queue", hybrid="h-none")
    assert "No such hybrid" in text_of(app)
    assert "Hybrid on cpu" in text_of(press(app, "All devices"))


def test_now_opens_the_turns_of_what_trains(open_page, busy):
    app = press(open_page("now"), "Turns and memory")
    assert app.query_params["hybrid"] in (HYBRID, [HYBRID]) and "All devices" in labels(app)


def test_now_groups_what_shares_a_hybrid(open_page, busy):
    app = open_page("now")
    words = text_of(app)
    assert words.count("Hybrid on cpu") == 1 and "Turns and memory" in labels(app)
    assert not [button for button in app.button if button.key == f"open-{HERS.run_id}"], "no second card"
    assert "waits for any device to be free" in words and "cpu trains lenet-run, secretnet-run, until" in words
    assert {HIS_NEXT.name, HER_NEXT.name} <= {
        link.proto.label.strip("`").removesuffix("-run") for link in app.get("page_link")
    }


def test_the_page_of_a_run_that_waits_has_its_place_reason_and_estimate(open_page, busy):
    words = text_of(open_page("run", run=HER_NEXT.run_id))
    assert "number 2" in words and "It waits for" in words and "; ends " in words


def test_names_cannot_become_markup(open_page, busy):
    busy.store.runs.update(HIS_NEXT.run_id, name="<script>alert(1)</script>")
    assert "<script" not in html_of(open_page("queue"))


def test_what_waits_is_moved_and_the_page_says_who_holds_the_device(open_page, busy):
    app = open_page("queue")
    assert "cpu trains lenet-run, secretnet-run, until" in text_of(app)
    before = [entry.run_id for entry in busy.queue.line()]
    assert before == [HIS_NEXT.run_id, HER_NEXT.run_id]
    app.button(key=f"line-vertical_align_top-{HER_NEXT.run_id}").click().run()
    assert [entry.run_id for entry in busy.queue.line()] == before[::-1]
    app.button(key=f"line-arrow_downward-{HER_NEXT.run_id}").click().run()
    assert [entry.run_id for entry in busy.queue.line()] == before
    app.number_input(key=f"line-place-{HER_NEXT.run_id}-2").set_value(1).run()
    app.button(key=f"line-move-{HER_NEXT.run_id}").click().run()
    assert [entry.run_id for entry in busy.queue.line()] == before[::-1]
    assert app.button(key=f"line-arrow_upward-{HER_NEXT.run_id}").disabled
    app.button(key=f"line-arrow_upward-{HIS_NEXT.run_id}").click().run()
    assert [entry.run_id for entry in busy.queue.line()] == before
    moves = [line.subject for line in busy.store.people.audit_log(9) if line.action == "move"]
    assert len(moves) == 4 and moves[1] == f"{HER_NEXT.run_id} to place 1"


def test_a_baseline_that_waits_is_told_from_its_hybrid(open_page, service):
    service.listed = [replace(queued(), run_id=f"r-{mode}", name="demo", mode=mode) for mode in ("hybrid", *BASELINES)]
    links = [link.proto.label for link in open_page("queue").get("page_link")]
    assert sorted(links) == ["demo", "demo · concurrent baseline", "demo · sequential baseline"]
