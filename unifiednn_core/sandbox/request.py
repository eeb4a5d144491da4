"""What is to be converted, what the process behind walls is told, and what it answers. No torch here."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from unifiednn_core.errors import Finding
from unifiednn_core.intake.report import FileReport
from unifiednn_core.packing.request import Example
from unifiednn_core.sandbox.limits import Limits

MAX_ANSWER_BYTES = 16 * 1024
_SHOWN = 600


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ConversionRequest(_Part):
    """A file that only its own code can read: Python (`.py`), TorchScript, or a full pickle with its Python file."""

    path: Path
    example: Example
    factory: str = ""
    """For Python: class or function that makes the network."""
    arguments: dict[str, Any] = {}
    companion: Path | None = None
    """For a pickle: the Python file with its classes."""


class Job(_Part):
    """What the process behind walls has to do. Descriptors are open files that it may write."""

    request: ConversionRequest
    readable: tuple[str, ...]
    result: int
    answer: int
    parent: int
    mounts: bool
    """Whether it sees nothing but `readable` anyway."""
    limits: Limits


class Answer(_Part):
    """What the process says about its work. It may lie, so that this is shown and never relied on."""

    done: bool
    title: Annotated[str, Field(max_length=100)] = ""
    message: Annotated[str, Field(max_length=4000)] = ""
    remedy: Annotated[str, Field(max_length=1000)] = ""


class Conversion(_Part):
    """A converted network: a `.pt2` file that intake has checked as it checks a stranger's."""

    path: Path
    report: FileReport
    log: str = ""
    """What the code printed, escaped and cut."""
    findings: tuple[Finding, ...] = ()


class SandboxView(_Part):
    """Whether foreign code can be run here."""

    enabled: bool
    walls: tuple[str, ...] = ()
    """Names of the walls that were tried and held."""
    reason: str = ""
    """Why not, where it cannot."""

    @property
    def usable(self) -> bool:
        """Whether a file can be converted now."""
        return self.enabled and bool(self.walls)


def plain(text: str, most: int = _SHOWN) -> str:
    """Foreign text that is safe to show: control characters escaped, long text cut in the middle."""
    shown = "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)
    if len(shown) <= most:
        return shown
    return f"{shown[: most // 2]} … {shown[-most // 2 :]}"


def quoted(log: str) -> str:
    """Foreign lines that nobody takes for ours."""
    return "\n".join(f"| {line}" for line in log.splitlines())
