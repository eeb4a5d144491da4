import json

import pytest

from tests.integration.cli_kit import unifiednn
from unifiednn_core.base.paths import DEVICES_SETTING, Home
from unifiednn_core.cli.shared import TOKEN_VARIABLE
from unifiednn_core.machine.devices import devices_of_host
from unifiednn_core.spec.devices import on_host
from unifiednn_core.store import Store


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICES_SETTING, "cpu:0,cpu:1")


def listed(home: Home) -> dict[str, dict[str, object]]:
    return {one["name"]: one for one in json.loads(unifiednn(home, "devices", "--json").stdout)}


def test_devices_are_listed_drained_and_limited(home: Home) -> None:
    known = {one.name: one for one in devices_of_host()}
    assert {"cpu:0", "cpu:1"} <= set(known)
    for name, one in listed(home).items():
        there = known.pop(name)
        assert (one["kind"], one["threads"], one["total_bytes"]) == (there.kind, there.threads, there.total_bytes)
        assert (one["state"], one["limit_bytes"], one["cpus"]) == ("ready", None, list(there.cpus))
    assert not known
    assert "unifiednn devices ready cpu:1" in unifiednn(home, "devices", "drain", "cpu:1").stdout
    assert unifiednn(home, "devices", "limit", "cpu:0", "1.5GiB").stdout == "cpu:0: at most 1,536 MiB may be used.\n"
    assert [(listed(home)[name]["state"], listed(home)[name]["limit_bytes"]) for name in ("cpu:0", "cpu:1")] == [
        ("ready", 3 * 2**29),
        ("draining", None),
    ]
    table = unifiednn(home, "devices").stdout
    assert "draining" in table and "1,536 MiB" in table and "cpu:1" in table
    assert unifiednn(home, "devices", "ready", "cpu:1").stdout == "cpu:1 is ready.\n"
    assert unifiednn(home, "devices", "limit", "cpu:0", "none").stdout == "cpu:0: all of its memory may be used.\n"
    assert {(one["state"], one["limit_bytes"]) for one in listed(home).values()} == {("ready", None)}


def test_beside_a_server_without_devices_no_command_adds_any(home: Home) -> None:
    store = Store.open(home)
    store.devices.write([on_host(one, "node7") for one in devices_of_host()], "node7")
    store.close()
    assert {*listed(home)} == {"node7/cpu:0", "node7/cpu:1"}


def test_what_cannot_be_is_told_with_what_can(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, told in (
        (("drain", "cpu:7"), "There is no device 'cpu:7'. Known devices: cpu:0, cpu:1"),
        (("limit", "cpu:0", "much"), "'much' is no size. Give a size such as 4GiB"),
        (("limit", "cpu:0", "0"), "cannot be limited to 0 bytes"),
    ):
        done = unifiednn(home, "devices", *words)
        assert done.returncode == 2 and told in done.stderr, done.stderr
    monkeypatch.setenv(DEVICES_SETTING, "cpu:many")
    for words in (("devices",), ("devices", "drain", "cpu:0")):
        done = unifiednn(Home(home.root / "new"), *words)
        assert done.returncode == 2 and f"{DEVICES_SETTING}: 'cpu:many' is no part of the CPU." in done.stderr


def test_a_submitter_is_told_what_to_ask_for_and_no_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    made = unifiednn(home, "token", "create", "--for", "alice@example.org", "--role", "submitter")
    unifiednn(home, "devices", "drain", "cpu:1")
    monkeypatch.setenv(TOKEN_VARIABLE, made.stdout.strip())
    assert {frozenset(one) for one in listed(home).values()} == {frozenset({"name", "kind"})}
    table = unifiednn(home, "devices").stdout
    assert "cpu:1" in table and "draining" not in table and "GiB" not in table
    refused = unifiednn(home, "devices", "ready", "cpu:1")
    assert refused.returncode == 2 and "needs the role operator" in refused.stderr
