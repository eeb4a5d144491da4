from pathlib import Path

from tools.chaos.cluster.logs import errors_in, unexpected

TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    work()\n{}\nafter: it\n'


def test_errors_are_named_by_the_last_lines_of_their_tracebacks() -> None:
    text = TRACE.format("KeyError: 'x'") + "ValueError: no traceback before\n" + TRACE.format("a.b.Strange")
    assert errors_in(text.splitlines(keepends=True)) == {"KeyError": 1, "a.b.Strange": 1}


def test_a_cause_of_another_error_does_not_count() -> None:
    chained = "\nThe above exception was the direct cause of the following exception:\n\n"
    text = TRACE.format("KeyError: 'x'").removesuffix("after: it\n") + chained + TRACE.format("ValueError: y")
    assert errors_in(text.splitlines(keepends=True)) == {"ValueError": 1}


def test_what_the_faults_cause_is_expected_and_all_else_is_not(tmp_path: Path) -> None:
    log = tmp_path / "runs" / "worker.log"
    log.parent.mkdir()
    log.write_text(
        TRACE.format("sqlalchemy.exc.OperationalError: (x) gone") + TRACE.format("psycopg.errors.AdminShutdown: x")
    )
    assert unexpected(tmp_path) == {}
    log.write_text(TRACE.format("RuntimeError: The engine ended before its sub-models did"))
    assert unexpected(tmp_path) == {"RuntimeError": 1}
