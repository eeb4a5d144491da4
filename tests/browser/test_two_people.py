"""Two people in two browsers submit one network each: one worker trains both, and neither sees a trace of the other."""

import re
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from playwright.sync_api import Playwright, expect
from sqlalchemy import select

from tests.browser.house import House, Visitor, opened
from tests.integration.pooled import ALICE, BATCH, BOB, DATA_BYTES, Net, numbers
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.roles import LOCAL_OPERATOR, Actor
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.store.schema import HybridRow, StrataRow

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(300)]
NETS = {ALICE: Net("alpha", seed=1, epochs=300), BOB: Net("bravo", seed=2, epochs=300)}


@pytest.fixture
def house(playwright: Playwright, home: Home) -> Iterator[House]:
    groups = dict.fromkeys((ALICE.id, BOB.id), "learners")
    with opened(playwright, home, groups, {"learners": "submitter"}) as house:
        house.acting(LOCAL_OPERATOR).people.set_sharing("everyone")
        yield house


def submit(house: House, visitor: Visitor, person: Actor) -> str:
    """Upload the common data under an own name and submit a network on the page; returns the id of the run."""
    net, data = NETS[person], BytesIO()
    np.savez(data, **numbers(net.data))
    answers = visitor.send(f"data-{net.name}.npz", data.getvalue())
    assert [status for status, _ in answers] == [201, 204, 200]
    model = house.keep_model(person.id, f"net-{net.name}.pt", net.file)
    hyperparameters = {
        "epochs": net.epochs,
        "batch_size": BATCH,
        "learning_rate": 0.01,
        "seed": net.seed,
        "optimizer": "adam",
    }
    part = {
        "name": net.name,
        "model": f"sha256:{model}",
        "train_data": f"sha256:{answers[-1][1]['sha256']}",
        "hyperparameters": hyperparameters,
    }
    draft = {"name": net.name, "hybrid": "shared", "device": "auto", "submodels": [part]}
    visitor.open(f"?draft={house.acting(person).library.save_draft(draft)}", "Submit a network")
    visitor.page.get_by_role("button", name="Submit", exact=True).click(timeout=60_000)
    visitor.page.get_by_role("button", name="Start anyway").click(timeout=60_000)  # there are no test data
    visitor.page.wait_for_url("**/run?*")
    visitor.read(net.name)
    [run] = house.acting(person).runs.runs()
    return run.run_id


def test_two_people_in_two_browsers_share_a_worker_and_see_only_their_own(house: House) -> None:
    visitors = {person: house.sign_in(person.id) for person in NETS}
    store, devices = house.service.store, house.acting(LOCAL_OPERATOR).devices
    devices.devices()
    devices.drain_device("cpu")  # so that both wait for it
    runs = {person: submit(house, visitor, person) for person, visitor in visitors.items()}
    for visitor in visitors.values():
        visitor.page.get_by_role("tab", name="Memory", exact=True).click()
    devices.ready_device("cpu")
    wait_until(
        lambda: all(store.runs.get(run_id)[0].state in ENDED for run_id in runs.values()),
        told=lambda: [store.runs.get(run_id)[0].state for run_id in runs.values()],
    )
    rows = {person: store.runs.get(run_id)[1][0] for person, run_id in runs.items()}
    assert {row.state for row in rows.values()} == {State.COMPLETED}
    assert {person: row.state_sha256 for person, row in rows.items()} == {
        person: net.sha256 for person, net in NETS.items()
    }
    with store._database.read() as session:
        [hybrid] = session.scalars(select(HybridRow))
        held_bytes = max(point.strata["data"] for point in session.scalars(select(StrataRow)))
    assert {row.hybrid_id for row in rows.values()} == {hybrid.id} and hybrid.attempt == 1
    assert held_bytes == DATA_BYTES, "the common data set is held once"

    for person, other in ((ALICE, BOB), (BOB, ALICE)):
        me, run_id, theirs = visitors[person], runs[person], runs[other]
        expect(me.page.get_by_text("1 of 1 sub-models completed").first).to_be_attached()
        for tab in ("Values", "Graph", "Spec and command"):
            me.page.get_by_role("tab", name=tab, exact=True).click()
            expect(me.page.get_by_role("tabpanel").last).to_be_attached()
        me.go("Now", NETS[person].name)
        me.go("Library", f"data-{NETS[person].name}.npz")
        for path in (
            f"models/RUN/{NETS[person].name}",
            f"checkpoints/RUN/{NETS[person].name}",
            "runs/RUN.json",
            "specs/RUN.json",
        ):
            mine = me.ask("GET", f"files/{path.replace('RUN', run_id)}")
            assert mine.status == 200, path
            me.told.append(mine.body())
            foreign = path.replace("RUN", theirs).replace(NETS[person].name, NETS[other].name)
            unknown = path.replace("RUN", f"{theirs[:-4]}0000").replace(NETS[person].name, NETS[other].name)
            refused = [me.ask("GET", f"files/{name}") for name in (foreign, unknown)]
            assert [answer.status for answer in refused] == [404, 404], path
            assert refused[0].text().replace(theirs, f"{theirs[:-4]}0000") == refused[1].text()
        told = b"\n".join(me.told)
        assert NETS[person].name.encode() in told and run_id.encode() in told
        words = (NETS[other].name, theirs, other.id.partition("@")[0], rows[other].state_sha256 or "?", hybrid.id)
        for word in (*words, "least served"):
            assert word.encode() not in told, re.findall(rb".{80}" + word.encode() + rb".{80}", told, re.DOTALL)[:3]
