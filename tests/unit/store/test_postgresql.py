"""The store on a PostgreSQL server: what SQLite gives by itself has to hold there, too."""

import math
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.orm import Session

from tests.clock import SimulatedClock
from tests.databases import Databases
from tests.unit.store.racing import without_locks
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import claim_next
from tests.waiting import wait_until
from tools.postgres import PASSWORD
from unifiednn_core.base.clock import RealClock
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store, database, postgresql
from unifiednn_core.store.database import QUEUE, Database
from unifiednn_core.store.people import SettingRow
from unifiednn_core.store.postgresql import address_of, is_remote, shown
from unifiednn_core.store.schema import EventRow, HybridRow, StepRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import WorkerIdentity

PATIENCE_S, LANE = 60.0, 100_000
HIDDEN = "s3cr3t"


@pytest.fixture
def url(postgresql: Databases) -> Iterator[str]:
    with postgresql.chosen() as url:
        yield url


@pytest.fixture
def there(url: str, clock: SimulatedClock) -> Iterator[Store]:
    with closing(Store(url, clock)) as store:
        yield store


# -- what a person gave


@pytest.mark.parametrize(
    "given",
    [
        f"postgresql//x:{HIDDEN}@h/d",
        f"postgresql://x:{HIDDEN}@h:port/d",
        f"mysql://x:{HIDDEN}@h/d",
        f"postgresql+asyncpg://x:{HIDDEN}@h/d",
        HIDDEN,
        "",
    ],
)
def test_a_url_that_is_none_is_refused_with_its_form_and_never_shown(given: str) -> None:
    with pytest.raises(BadInput, match="postgresql://USER:PASSWORD@HOST") as raised:
        Store(given)
    assert HIDDEN not in str(raised.value) and raised.value.__cause__ is None
    assert raised.value.findings[0].field == "UNIFIEDNN_DATABASE_URL"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_way_to_write_a_url_means_the_same_driver_and_none_shows_its_password(scheme: str) -> None:
    url = address_of(f"{scheme}://ann:{HIDDEN}@db.example.org:5433/lab?password={HIDDEN}")
    assert (url.drivername, shown(url)) == ("postgresql+psycopg", "postgresql://db.example.org:5433/lab")
    assert is_remote(f"{scheme}://h/d") and not is_remote("sqlite:////tmp/x.db")
    assert shown(address_of("sqlite:////tmp/x.db")) == "sqlite:////tmp/x.db"


def test_a_missing_driver_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadInput, match=r"pip install 'unifiednn\[postgres\]'"):
        Store(f"postgresql://x:{HIDDEN}@127.0.0.1:1/x")


def test_a_server_that_cannot_be_used_is_told_without_its_password(
    postgresql: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unifiednn_core.store.postgresql.START_S", 0.0)
    there = postgresql.server.url("no_such_database")
    for url in (there, f"postgresql://x:{PASSWORD}@127.0.0.1:1/x", f"{there}?no_such_option=1"):
        with pytest.raises(BadInput, match="UNIFIEDNN_DATABASE_URL") as raised:
            Store(url)
        assert PASSWORD not in str(raised.value)
    postgresql.server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(BadInput, match="UTF8"):
        Store(postgresql.server.url("latin"))


@contextmanager
def refusing(message: str) -> Iterator[tuple[str, list[int]]]:
    """A server that ends each connection with a message; yields its URL and the number of attempts."""
    attempts = [0]

    def serve() -> None:
        with suppress(OSError):
            for connection, _ in iter(listener.accept, None):
                with connection, suppress(OSError):
                    while int.from_bytes(connection.recv(4096)[4:8]) in (80877103, 80877104):  # TLS or GSSAPI?
                        connection.sendall(b"N")
                    attempts[0] += 1
                    fields = b"SFATAL\0VFATAL\0C57P03\0M" + message.encode() + b"\0\0"
                    connection.sendall(b"E" + (len(fields) + 4).to_bytes(4) + fields)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql://x@127.0.0.1:{listener.getsockname()[1]}/d", attempts
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        ("the database system is not yet accepting connections", True),
        ("the database system is starting up", True),
        ("the database system is in recovery mode", True),
        ("sorry, too many clients already", True),
        ("terminating connection due to administrator command", True),
        ('password authentication failed for user "x"', False),
        ('database "d" does not exist', False),
        ('role "x" is not permitted to log in', False),
    ],
)
def test_a_program_waits_for_a_server_that_begins_and_not_for_one_that_refuses_it(
    message: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "START_S", 0.3)
    monkeypatch.setattr(postgresql, "AGAIN_S", 0.05)
    with refusing(message) as (url, attempts), pytest.raises(BadInput, match=re.escape(message)):
        Store(url)
    assert (attempts[0] > 1) is waits


def test_errors_hold_neither_the_password_nor_what_was_to_be_written(there: Store) -> None:
    with pytest.raises(SQLAlchemyError) as raised, there._database.write() as session:
        session.execute(text("SELECT :secret FROM no_such_table"), {"secret": HIDDEN})
    assert HIDDEN not in str(raised.value) and PASSWORD not in str(raised.value)
    assert PASSWORD not in repr(there._database._engine)


# -- scopes


@contextmanager
def writing(store: Store, scope: str) -> Iterator[None]:
    """Hold a scope in another thread."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with store._database.write(scope):
            begun.set()
            over.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        assert begun.wait(PATIENCE_S)
        yield
        over.set()
        held.result()


def waits(store: Store) -> bool:
    """Whether a transaction waits for a lock."""
    asked = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'")
    with store._database.read() as session:
        return bool(session.scalar(asked))


@pytest.mark.parametrize(
    ("held", "asked", "overlap"),
    [
        (QUEUE, QUEUE, False),
        (QUEUE, "hybrid:a", False),
        ("hybrid:a", QUEUE, False),
        ("hybrid:a", "hybrid:a", False),
        ("hybrid:a", "hybrid:b", True),
    ],
)
def test_one_writes_in_the_queue_and_workers_beside_each_other(
    there: Store, held: str, asked: str, overlap: bool
) -> None:
    done = threading.Event()

    def write() -> None:
        with there._database.write(asked):
            done.set()

    with ThreadPoolExecutor(1) as pool:
        with writing(there, held):
            other = pool.submit(write)
            wait_until(lambda: done.is_set() if overlap else waits(there))
            assert done.is_set() is overlap
        other.result(PATIENCE_S)
    assert done.is_set()


def lose_updates(store: Store) -> int:
    """Add to one number from many threads at once; returns how many additions are missing."""
    threads, times = 4, 25
    store.people.set_setting("count", "0", "")

    def add() -> None:
        for _ in range(times):
            with store._database.write() as session:
                row = session.get_one(SettingRow, "count")
                row.value = str(int(row.value) + 1)

    with ThreadPoolExecutor(threads) as pool:
        for one in [pool.submit(add) for _ in range(threads)]:
            one.result(PATIENCE_S)
    return threads * times - int(store.people.setting("count").value)  # type: ignore[union-attr]


def test_no_update_is_lost(there: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lose_updates(there) == 0
    monkeypatch.setattr(database.postgresql, "begin", without_locks)
    assert lose_updates(there) > 0, "without the lock it would be noticed"


def test_a_report_that_comes_late_does_not_give_a_hybrid_its_heartbeat_back(there: Store) -> None:
    """Whoever ends a hybrid and its worker's last report exclude each other, although their scopes differ."""
    add_run(there, "r")
    with there._database.write() as session:
        session.get_one(HybridRow, "r").assign({"worker_pid": 1, "heartbeat_at_s": 1.0})
    with ThreadPoolExecutor(1) as pool:
        with there._database.write() as session:
            late = pool.submit(there.telemetry.write, "r", TelemetryRows())
            wait_until(lambda: waits(there))
            session.get_one(HybridRow, "r").assign({"worker_pid": None, "heartbeat_at_s": None})
        late.result(PATIENCE_S)
    assert there.hybrids.get("r")[0].heartbeat_at_s is None


# -- one clock


def test_the_time_is_that_of_the_server_and_goes_on_within_a_transaction(url: str) -> None:
    with closing(Database(url)) as real, real.write() as session:
        first_s = real.now_s(session)
        session.execute(text("SELECT pg_sleep(0.01)"))
        assert 0.01 <= real.now_s(session) - first_s < PATIENCE_S
        of_server = session.scalar(text("SELECT extract(epoch FROM clock_timestamp())::float"))
        assert abs(first_s - of_server) < PATIENCE_S
    with closing(Database(url, SimulatedClock(7.0))) as injected, injected.read() as session:
        assert injected.now_s(session) == 7.0


class Ahead(RealClock):
    """The clock of a machine that is ten minutes ahead."""

    def utc_s(self) -> float:
        return super().utc_s() + 600.0


def test_moments_of_machines_whose_clocks_differ_are_of_the_servers_clock(url: str) -> None:
    with closing(Store(url, Ahead())) as store, closing(Database(url)) as real, real.read() as session:
        add_run(store, "r", created_at_s=real.now_s(session))
        assert claim_next(store) == "r"
        store.workers.register("r", WorkerIdentity(1, 1.0, "boot"))
        for name in (None, "a"):
            store.runs.transition("r", name, Event.BEGIN)
        store.hybrids.begin("r")
        store.runs.record_export("r", "a", Event.COMPLETE, model={"artifact": "a.zip"})
        run, [part, _] = store.runs.get("r")
        hybrid, history = store.hybrids.get("r")[0], store.telemetry.history("r", None)
        moments = [run.started_at_s, part.ended_at_s, part.certify_at_s, hybrid.started_at_s, store.clock.utc_s()]
        for at_s in (*moments, *(event.at_s for event in history.events)):
            assert at_s is not None and abs(at_s - real.now_s(session)) < PATIENCE_S
        assert store.runs.uncertified(store.clock.utc_s() + 1.0) != [], "no other host has to wait for it"


@pytest.mark.slow
def test_who_opens_a_service_or_trains_goes_by_the_servers_clock(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealClock, "utc_s", lambda clock, real=RealClock.utc_s: real(clock) + 600.0)
    with closing(Service.open(Home(tmp_path / "home"))) as service, closing(Database(url)) as real:
        store = service.store
        with real.read() as session:
            now_s = real.now_s(session)
        add_run(store, "r", created_at_s=now_s)
        fleet = service._supervisor.fleet().view
        assert abs(fleet.now_s - now_s) < PATIENCE_S and abs(service.clock.utc_s() - now_s) < PATIENCE_S
        assert fleet.waiting[0].submitted_at_s == now_s
        assert claim_next(store) == "r"
        program = (  # there are no files to train with, so it soon ends
            "import sys; from pathlib import Path; from unifiednn_core.base.clock import RealClock; "
            "real = RealClock.utc_s; RealClock.utc_s = lambda clock: real(clock) + 600.0; "
            "from unifiednn_core.base.paths import Home; from unifiednn_core.runtime import worker; "
            "worker.train(Home(Path(sys.argv[1])), 'r')"
        )
        subprocess.run([sys.executable, "-c", program, service.home.root], capture_output=True, timeout=PATIENCE_S)
        launched_at_s = store.runs.get("r")[0].launched_at_s
        assert launched_at_s is not None and launched_at_s < now_s + PATIENCE_S


# -- lost connections


def note(store: Store, number: int) -> None:
    with store._database.write() as session:
        session.add(EventRow(run_id="r", at_s=float(number), kind="k", code="c", fields={}))


def noted(store: Store) -> list[float]:
    with store._database.read() as session:
        return list(session.scalars(select(EventRow.at_s).order_by(EventRow.id)))


def test_a_commit_that_takes_effect_late_is_waited_for_whatever_isolation_the_server_prefers(there: Store) -> None:
    engine = there._database._engine
    with ThreadPoolExecutor(1) as pool:
        with Session(there._database._writing) as session, session.begin():
            mark = database.postgresql.begin(session, "hybrid:r")
            prefers = engine.execution_options(isolation_level="REPEATABLE READ")
            found = pool.submit(database.postgresql.was_committed, prefers, mark)
            wait_until(lambda: waits(there))
        assert found.result(PATIENCE_S)


@pytest.mark.parametrize("arrives", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("asks", [True, False], ids=["asks", "control"])
def test_a_commit_whose_answer_is_lost_is_neither_repeated_nor_forgotten(
    there: Store, monkeypatch: pytest.MonkeyPatch, arrives: bool, asks: bool
) -> None:
    cuts, commit = iter([True]), psycopg.Connection.commit

    def cut(connection: Any) -> None:
        if not next(cuts, False):
            return commit(connection)
        if arrives:
            commit(connection)
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", cut)
    if not asks:
        monkeypatch.setattr(database.postgresql, "was_committed", lambda *_: False)
    if arrives and asks:
        note(there, 1)
    else:
        with pytest.raises(OperationalError):
            note(there, 1)
        note(there, 1)  # as callers do
    assert noted(there) == ([1.0, 1.0] if arrives and not asks else [1.0])


def interrupted_writes(store: Store, interrupt: Callable[[], None], times: int) -> tuple[list[float], int]:
    """Write from several threads, each as long as it takes, while something interrupts them; returns what is there."""
    over, acknowledged, troubles = threading.Event(), [], []

    def write(lane: int) -> None:
        number = 0
        while number < LANE and not over.is_set():
            try:
                note(store, lane * LANE + number)
            except OperationalError as error:
                troubles.append(error)
                over.wait(0.02)
                continue
            acknowledged.append(lane * LANE + number)
            number += 1

    with ThreadPoolExecutor(3) as pool, ExitStack() as stack:
        stack.callback(over.set)
        lanes = [pool.submit(write, lane) for lane in range(3)]
        for _ in range(times):
            reached = len(acknowledged) + 30
            wait_until(lambda reached=reached: len(acknowledged) >= reached)  # type: ignore[misc]
            interrupt()
        reached = len(acknowledged) + 30
        wait_until(lambda: len(acknowledged) >= reached)
        over.set()
        for lane in lanes:
            lane.result(PATIENCE_S)
    assert sorted(noted(store)) == sorted(acknowledged), "each acknowledged write is there once, and nothing else"
    return acknowledged, len(troubles)


def test_writes_go_on_after_their_connections_were_ended(there: Store, postgresql: Databases) -> None:
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname <> ''"
    _, troubles = interrupted_writes(there, lambda: postgresql.server.execute(ended), 5)
    assert troubles > 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGINT", "SIGQUIT", "SIGKILL"])
def test_writes_go_on_after_a_restart_of_the_server(there: Store, postgresql: Databases, how: str) -> None:
    _, troubles = interrupted_writes(there, lambda: postgresql.server.restart(signal.Signals[how]), 2)
    assert troubles > 0


def sqlstate(kind: type[DBAPIError], error: type[Exception]) -> DBAPIError:
    return kind("x", None, error("said"))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (NoConnection("QueuePool limit"), True),
        (sqlstate(OperationalError, psycopg.errors.LockNotAvailable), True),
        (sqlstate(OperationalError, psycopg.errors.DeadlockDetected), True),
        (sqlstate(OperationalError, psycopg.errors.AdminShutdown), True),
        (sqlstate(InternalError, psycopg.errors.IdleInTransactionSessionTimeout), True),
        (sqlstate(InternalError, psycopg.errors.ReadOnlySqlTransaction), True),
        (InterfaceError("x", None, psycopg.InterfaceError("the connection is closed")), True),
        (sqlstate(IntegrityError, psycopg.errors.UniqueViolation), False),
        (sqlstate(InternalError, psycopg.errors.InFailedSqlTransaction), False),
    ],
    ids=lambda given: type(getattr(given, "orig", given)).__name__ if not isinstance(given, bool) else str(given),
)
def test_what_passes_by_itself_is_the_error_that_callers_wait_out(error: SQLAlchemyError, passes: bool) -> None:
    assert isinstance(postgresql.as_callers_know_it(error), OperationalError) is passes


def test_a_lock_that_does_not_come_is_waited_out_like_a_locked_file(
    url: str, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = postgresql._SESSION.replace(f"lock_timeout={postgresql.LOCK_S}s", "lock_timeout=50ms")
    monkeypatch.setattr(postgresql, "_LINK", {**postgresql._LINK, "options": options})
    with closing(Store(url, clock)) as store, writing(store, QUEUE), pytest.raises(OperationalError, match="lock"):
        note(store, 1)


# -- values


def test_numbers_and_texts_that_the_server_does_not_have_are_kept_as_sqlite_keeps_them(there: Store) -> None:
    add_run(there, "r")
    step = {"submodel": "a", "attempt": 1, "step": 1, "steps": 1, "epoch": 0.1, "loss": math.nan, "accuracy": math.inf}
    facts = {"gain": [math.nan, 1.5, -math.inf]}
    there.telemetry.write("r", TelemetryRows(steps=[step], hybrid={"environment": facts}))
    with there._database.read() as session:
        row = session.scalars(select(StepRow)).one()
    assert (row.loss, row.accuracy) == (None, math.inf)
    assert there.hybrids.get("r")[0].environment == {"gain": [None, 1.5, None]}
    there.people.note(person="ann", role="", action="open\0", subject="\0", outcome="refused")
    assert [(line.action, line.subject) for line in there.people.audit_log(1)] == [("open\ufffd", "\ufffd")]


def test_ids_outlast_years_of_samples_and_names_have_one_order(there: Store) -> None:
    with there._database.write() as session:
        session.execute(text("SELECT setval('events_id_seq', 3000000000)"))
    note(there, 1)
    with there._database.read() as session:
        assert session.scalar(select(EventRow.id)) > 2**31
    for name in ("b", "B", "_", "ä", "a"):
        there.people.give_team(name, "team", "")
    assert [row.id for row in there.people.all()] == sorted(("b", "B", "_", "ä", "a"))


@pytest.mark.parametrize("order", ["DELETE FROM ledger", "UPDATE ledger SET person = 'x'", "TRUNCATE ledger"])
def test_the_audit_log_only_grows_there_too(there: Store, order: str) -> None:
    there.people.note(person="ann", role="", action="open", subject="", outcome="done")
    with pytest.raises(IntegrityError, match="only grows"), there._database.write() as session:
        session.execute(text(order))
    assert there.people.audit_lines() == 1


def test_many_can_make_the_tables_of_a_new_database_at_once(postgresql: Databases) -> None:
    url, together = postgresql.server.create("new"), threading.Barrier(4, timeout=60)

    def open_it() -> None:
        together.wait()
        Store(url).close()

    with ThreadPoolExecutor(4) as threads:
        for opened in [threads.submit(open_it) for _ in range(4)]:
            opened.result()


def test_a_reader_sees_one_moment_while_others_write(there: Store) -> None:
    add_run(there, "r")
    with there._database.read() as session:
        assert session.scalar(select(func.count()).select_from(EventRow)) == 1
        note(there, 1)
        assert session.scalar(select(func.count()).select_from(EventRow)) == 1
    assert len(noted(there)) == 2
    with pytest.raises(SQLAlchemyError, match="read-only"), there._database.read() as session:
        session.execute(text("DELETE FROM events"))
