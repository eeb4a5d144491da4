import sqlite3
import sys
import time
from dataclasses import replace

import pytest
from sqlalchemy.exc import OperationalError

from tests.ui import fake_arms
from tests.ui.fake_arms import FINGERPRINT
from tests.ui.fake_views import failed, mid_flight, queued
from tests.ui.reading import html_of, labels, press, text_of
from unifiednn_core.base.units import memory_text
from unifiednn_core.service.doctor import ALL_USERS
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views import attention


def test_an_empty_installation_offers_the_demo_and_a_build(open_page, service):
    service.listed.clear()
    app = open_page("now")
    assert labels(app) == {"Try the demo", "Build a hybrid"}
    words, saving = text_of(app), attention.shipped_saving()
    assert "less memory and the same weights" in words and saving.source in words
    assert memory_text(saving.hybrid_bytes) in words and memory_text(saving.baseline_bytes) in words
    assert "Trains three small networks" in words and "cpu" in words


@pytest.mark.parametrize("page", ["now", "queue", "submit", "build", "run", "compare", "library", "people"])
def test_pages_are_drawn_before_any_device_is_known(open_page, service, monkeypatch, page):
    """In the first moments of a new home, and of a server without devices that no agent has joined."""
    monkeypatch.setattr(service.devices, "_seen", lambda: ([], {}, {}, set()))
    monkeypatch.setattr(service.devices, "_known", list)
    assert not service.devices.cards()
    open_page(page)


def test_build_opens_from_the_first_page(open_page):
    assert "Start training" in labels(press(open_page("now"), "Build a hybrid"))


def test_the_running_hybrid_shows_why_its_sub_model_trains(open_page):
    words = text_of(open_page("now"))
    assert "resnet has been in line longest; one epoch each." in words
    assert "10 / 10 epochs" in words and "11 / 14 epochs" in words


def test_a_paused_run_is_not_on_the_device(open_page, service):
    assert "1 on the device, 1 waiting" in text_of(open_page("now"))
    service.listed[0] = replace(mid_flight(), state=State.PAUSED)
    words = text_of(open_page("now"))
    assert "1 paused, 1 waiting" in words and "on the device" not in words
    assert "paused: it holds no device" in words and words.count("It continues when you resume it.") == 1
    assert "not available now" not in words and "peak 372 MiB" in words


def test_queued_runs_show_their_position_and_ended_ones_their_state(open_page):
    words = text_of(open_page("now"))
    assert "starts in a moment" in words
    assert {"Completed", "Failed", "Interrupted"} <= set(words.split())


def test_the_demo_is_submitted_and_its_run_opened(open_page, service):
    service.listed.clear()
    app = open_page("now")
    app.button(key="demo-empty").click().run()
    assert [spec.name for spec in service.submitted] == ["demo"]
    [run_id] = service.submitted_ids
    assert app.query_params["run"] in (run_id, [run_id])


def test_a_pause_reaches_the_service(open_page, service):
    app = open_page("now")
    app.button(key="pause-r-live-").click().run()
    assert service.done == [("pause", "r-live", None)]
    assert "Pausing…" in text_of(app)


def test_a_dead_supervisor_is_told(open_page, service):
    service.supervisor_alive = False
    assert "No run can start" in text_of(open_page("now"))


def test_a_full_disk_is_told_with_its_remedy(open_page, service):
    service.supervisor.trouble = OperationalError("COMMIT", None, sqlite3.OperationalError("database or disk is full"))
    words = text_of(open_page("now"))
    assert "The store cannot be written: database or disk is full." in words and "Free or repair the home" in words


def test_names_of_runs_cannot_become_markup(open_page, service):
    service.listed[:] = [replace(run, name="<script>alert(1)</script> **bold** [x](y)") for run in service.listed]
    app = open_page("now")
    assert "<script" not in html_of(app)
    for link in app.get("page_link"):
        if link.proto.label == "All runs":
            continue
        assert link.proto.label == "`<script>alert(1)</script> **bold** [x](y)`"


def test_a_missing_protection_is_told_with_its_remedy(open_page, monkeypatch):
    assert "every user of this machine" not in text_of(open_page("now"))
    monkeypatch.setattr(sys, "argv", [*sys.argv, ALL_USERS])
    words = text_of(open_page("now"))
    assert "every user of this machine can use the dashboard" in words and f"Start it without {ALL_USERS}." in words


def test_a_run_that_waits_for_any_device_says_so_and_one_that_trains_names_its_own(open_page, service):
    service.listed[1] = replace(queued(), device="auto")
    service.listed[0] = replace(mid_flight(), device="cuda:1")
    assert "any device" in text_of(open_page("run", run="r-queued"))
    assert "cuda:1" in text_of(open_page("run", run="r-live"))
    assert "cuda:1" in text_of(open_page("now"))


def just_failed():
    ended_at_s, cause = time.time() - 60, "The loss of explodes is nan at or before step 2."
    hurt = {"name": "explodes", "state": State.FAILED, "steps_done": 2, "ended_at_s": ended_at_s, "cause": cause}
    first, *others = failed().submodels
    return replace(failed(), submodels=(replace(first, **hurt), *others), ended_at_s=ended_at_s)


def test_a_failure_comes_first_until_it_is_dismissed(open_page, service):
    service.listed = [mid_flight(), just_failed()]
    app = open_page("now")
    words = text_of(app)
    sentence = "explodes failed at step 2: its loss is NaN"
    assert words.index(sentence) < words.index("Running") and "New" in words
    key = f"{failed().run_id}-explodes"
    opened = app.button(key=f"open-failed-{key}").click().run()
    assert opened.query_params["run"] in (failed().run_id, [failed().run_id])
    app = open_page("now")
    assert sentence in text_of(app) and " New " not in text_of(app), "it has been looked at"
    app.button(key=f"dismiss-{key}").click().run()
    assert text_of(app).count(sentence) == 1, "in the list of runs alone"
    assert not [one for one in app.button if one.key.startswith("dismiss-")]


def test_the_devices_show_what_they_have_and_never_a_zero_for_what_is_not_known(open_page, service):
    service.devices.devices()
    service.store.device_samples.write(
        [
            {
                "device": "cpu",
                "total_bytes": 8 * 2**30,
                "own_bytes": 2**30,
                "free_bytes": 5 * 2**30,
                "utilisation": 0.43,
                "load": 1.25,
                "others": [{"pid": 7, "user": "mallory", "name": "<b>x</b>", "size_bytes": None}],
            }
        ]
    )
    words = text_of(open_page("now"))
    assert "1,024 MiB ours, 2,048 MiB others, 5,120 MiB free" in words and "43 %" in words and "1.25" in words
    assert "Temperature not available" in words
    assert "mallory" in words and "<b>x</b>" in words and "PID 7" in words, "a name is text"
    assert "43 % busy · 3.0 of 8.0 GiB" in words, "in the sidebar"


def test_what_merging_saves_is_what_a_verdict_says(open_page, service):
    live = replace(mid_flight(), fingerprint=FINGERPRINT, peak_memory_bytes=50 * 2**20)
    baseline = fake_arms.baseline("concurrent")
    service.listed = [live, baseline]
    assert "concurrent" not in text_of(open_page("now")), "the hybrid has just begun"
    service.listed = [live, fake_arms.hybrid(), baseline]
    assert "last time 51 % less memory than concurrent" in text_of(open_page("now"))
    service.listed = [fake_arms.hybrid(), baseline]
    assert "Last verdict: 51 % less memory than concurrent." in text_of(open_page("now"))
    service.listed = [fake_arms.hybrid(), replace(baseline, ended_at_s=baseline.ended_at_s + 1, memory_source="GPU")]
    assert "less memory" not in text_of(open_page("now")), "the verdict withholds it"
