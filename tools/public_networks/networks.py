"""What is tried: a network of a public repository or package, and how it is called."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

MOST_LINES = 10


@dataclass(frozen=True, slots=True)
class Source:
    """Where networks come from: a repository at a commit, or an installed package."""

    name: str
    commit: str = ""
    """Full hash; empty for a package."""

    @property
    def url(self) -> str:
        """Where to clone it from, or to read about it."""
        return f"https://github.com/{self.name}"

    def folder(self, clones: Path) -> Path:
        """Its clone; packages have none and start in the folder of the clones."""
        return clones / self.name.rpartition("/")[2] if self.commit else clones


@dataclass(frozen=True, slots=True)
class Network:
    """One network, as its author has it."""

    source: Source
    place: str
    """As on the command line: `FILE.py:NAME` or `MODULE:NAME`, seen from the repository or its `folder`."""
    inputs: tuple[str, ...]
    """As on the command line, each `[NAME=]SIZES[:DTYPE]`."""
    arguments: dict[str, Any] = field(default_factory=dict)
    folder: str = ""
    code: str = ""
    """At most 10 lines that define `network()`, where the command line alone is not enough."""
    kind: Literal["function", "wrapper"] = "function"
    """Of `code`: a function only builds the author's network; a wrapper has a forward of its own."""
    output: str | None = None
    """Output for the criterion; by default the first."""
    title: str = ""
    """Where the place does not tell it from others."""

    @property
    def name(self) -> str:
        """Of this network among all, and in results."""
        return f"{self.source.name.rpartition('/')[2]} {self.title or self.place}"


def call_of(network: Network, code: Path | None) -> tuple[str, dict[str, Any]]:
    """Place and arguments for the command line: of the author's file, or of a file with `code`."""
    return (network.place, network.arguments) if code is None else (f"{code}:network", {})
