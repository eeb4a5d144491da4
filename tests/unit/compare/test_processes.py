from pathlib import Path

import pytest

from unifiednn_core.compare.processes import cause_of, last_line

LOG = "runs/r/baseline/net.log in the home folder"


@pytest.mark.parametrize(
    ("mode", "code", "said", "cause"),
    [
        (
            "concurrent",
            -9,
            "",
            "concurrent probably does not fit: the process was killed by signal 9 (SIGKILL), most likely out of "
            "memory.",
        ),
        ("sequential", -11, "", "The process was killed by signal 11 (SIGSEGV)."),
        ("sequential", -64, "", "The process was killed by signal 64 (SIGRTMAX)."),
        (
            "concurrent",
            1,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
            "concurrent does not fit: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
        ),
        (
            "sequential",
            1,
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.",
            "sequential does not fit: RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: "
            "you tried to allocate 8 bytes.",
        ),
        ("concurrent", 1, "MemoryError", "concurrent does not fit: MemoryError"),
        ("concurrent", -6, "what():  std::bad_alloc", "concurrent does not fit: what():  std::bad_alloc"),
        (
            "concurrent",
            1,
            "unifiednn_core.base.errors.Diverged: The loss of net is nan at or before step 3.",
            "The loss of net is nan at or before step 3.",
        ),
        ("concurrent", 1, "RuntimeError: shapes differ", "RuntimeError: shapes differ"),
        ("concurrent", 1, "no such thing", "The process ended with exit code 1: no such thing"),
        ("concurrent", 2, "", "The process ended with exit code 2 before its weights were written."),
        ("concurrent", 0, "", "The process ended with exit code 0 before its weights were written."),
    ],
)
def test_every_end_has_its_words(mode: str, code: int, said: str, cause: str) -> None:
    found, remedy = cause_of(mode, code, said, LOG)
    assert found == cause
    assert remedy.endswith(f"The full log is in {LOG}.")


def test_the_remedy_for_no_memory_depends_on_the_mode() -> None:
    remedies = [cause_of(mode, -9, "", LOG)[1] for mode in ("concurrent", "sequential")]
    assert remedies[0].startswith("The sequential baseline trains one at a time and needs less.")
    assert remedies[1].startswith("Use smaller batches or a larger batch split")


def test_the_last_error_is_found_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\n  raise\nValueError: first\n  of two lines\n\nand more\n")
    assert last_line(log) == "ValueError: first"
    log.write_text("something\nlast\n\n")
    assert last_line(log) == "last"
    log.write_text("x" * 100_000 + "\nKeyError: 'end'\n")
    assert last_line(log) == "KeyError: 'end'"
    log.write_bytes(b"")
    assert last_line(log) == ""
    assert last_line(tmp_path / "none") == ""
