"""The list of runs as values: one page of lines, and what its filters can choose."""

from dataclasses import dataclass

from unifiednn_core.views.runs import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """One run of a list."""

    run: RunView
    """Without curves."""
    owners: tuple[str, ...]
    """People whose sub-models it trains; "" is the local operator. Only those that the viewer may know."""
    arms: str = ""
    """Ended runs that it can be compared with, as a key that changes with them; empty without any."""

    @property
    def test_accuracy(self) -> float | None:
        """Highest of the newest test accuracies of its sub-models."""
        return max((part.test_accuracy for part in self.run.submodels if part.test_accuracy is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLines:
    """One page of the list."""

    lines: tuple[RunLine, ...]
    total: int
    """Runs that match the query."""
    page: int
    searched: int | None = None
    """Number of the newest runs in which the text was looked for; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridLines:
    """One page of the hybrids that can be compared."""

    runs: tuple[RunView, ...]
    """Hybrids and baselines of their fingerprints, the newest first, without curves."""
    total: int
    """Hybrids on all pages."""
    page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionView:
    """What the deletion of a run takes away, and what stays."""

    run_id: str
    name: str
    refused: str = ""
    """Why it cannot be deleted now; empty if it can."""
    models: int = 0
    checkpoints: int = 0
    size_bytes: int = 0
    others: int = 0
    """Other runs of its fingerprint, which stay but can no longer be compared with it."""
    taken: tuple[str, ...] = ()
    """Names of library files that were taken from it; they stay."""
