"""A comparison as values: arms with their figures over repeats, and verdicts; and its JSON document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from unifiednn_core.preflight.report import OracleReport
from unifiednn_core.spec.run import BASELINES, Mode
from unifiednn_core.views.techniques import Used, written

ARM_FIGURES = (
    "memory_bytes",
    "anonymous_bytes",
    "file_bytes",
    "makespan_s",
    "mean_turnaround_s",
    "cpu_s",
    "gpu_s",
    "energy_j",
    "loader_s",
    "loader_cpu_s",
)
RATIOS = ("memory_ratio", "makespan_ratio", "mean_turnaround_ratio", "cpu_seconds_ratio", "gpu_seconds_ratio")


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over repeats, in the order in which they ran; at least one value."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Middle value."""
        return median(self.values)

    @property
    def low(self) -> float:
        """Smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """Largest value."""
        return max(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSubModel:
    """Figures of one sub-model in one arm; None if a repeat lacks the figure."""

    name: str
    number: int
    wait_s: Spread | None
    service_s: Spread | None
    turnaround_s: Spread | None
    """Submission (of a baseline: launch) to the model delivered; `views.times` defines all four times."""
    cpu_s: Spread | None
    test_accuracy: float | None
    train_loss: float | None
    state_sha256: tuple[str | None, ...]
    """Of each repeat."""
    test_loss: float | None = None
    techniques: tuple[Used, ...] = ()
    """In a hybrid; baselines use none."""
    oracle: OracleReport | None = None
    """In a baseline: whether torch itself reads the same network."""
    cause: str | None = None
    """Why it failed, in the first repeat that did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to train the same sub-models, run once or several times."""

    mode: Mode
    run_ids: tuple[str, ...]
    threads: tuple[int, ...] = ()
    """Of each process that trains at once; their sum is the arm's budget."""
    memory_bytes: Spread | None
    """Peak of all processes of the arm at one instant."""
    memory_source: str | None
    anonymous_bytes: Spread | None = None
    """Peak of its pages on the host that belong to no file, of which nobody has a part."""
    file_bytes: Spread | None = None
    """Peak of its pages of files; less counts for it while others use the same."""
    allocator: str | None = None
    """Of a hybrid's worker."""
    lanes: int = 1
    """How many of its sub-models may step at once in one process."""
    makespan_s: Spread | None
    """Launch of the first process to the last model delivered."""
    mean_turnaround_s: Spread | None
    queued_s: Spread | None = None
    """Submission to launch; part of the turnaround of a hybrid, of a baseline None."""
    cpu_s: Spread | None
    gpu_s: Spread | None
    energy_j: Spread | None = None
    """Of the whole GPU meanwhile; None where its driver does not say it."""
    starts: tuple[str, ...] = ()
    """How the workers of a hybrid started: `cold`, `warm` or both; nothing for a baseline."""
    start_s: Spread | None = None
    """Launch of a hybrid's worker to its first step."""
    loader_s: Spread | None = None
    """Seconds that the processes of a baseline spent on fetching and collating batches; None for a hybrid."""
    loader_cpu_s: Spread | None = None
    others_share: Spread | None = None
    """Share of all processors, 0 to 1, that other work used meanwhile."""
    kinds: tuple[str, ...] = ()
    """Kinds of device on which one of its sub-models trained, if it is more than one."""
    submodels: tuple[ArmSubModel, ...]
    problem: str | None = None
    """Why its figures cannot be compared: it failed, was interrupted, paused or stopped, its repeats disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The hybrid against one baseline; each ratio is hybrid / baseline, repeat by repeat."""

    mode: Mode
    memory_ratio: Spread | None
    makespan_ratio: Spread | None
    mean_turnaround_ratio: Spread | None
    cpu_seconds_ratio: Spread | None
    gpu_seconds_ratio: Spread | None
    identical_weights: bool | None
    """Of those that no lossy technique trained; None if there are none, and if they were not compared."""
    withheld_because: str | None
    """Reason for giving no ratios; weights are compared nevertheless."""
    lossy: tuple[str, ...] = ()
    """Sub-models with a lossy technique, which are judged by their test loss and accuracy alone."""
    notes: tuple[str, ...] = ()
    """Cautions for the reader: a ratio that straddles 1, repeats that differ much, other processes on the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A hybrid run against its baselines."""

    run_id: str
    name: str
    fingerprint: str
    hybrid: Arm
    baselines: dict[Mode, Arm] = field(default_factory=dict)
    """Those that exist, running ones included."""
    verdicts: dict[Mode, Verdict] = field(default_factory=dict)
    """One for each kind of baseline; withheld if that baseline has not run."""
    environment: dict[str, object] = field(default_factory=dict)
    """Machine and versions."""


def arms_of(comparison: Comparison) -> list[Arm]:
    """The hybrid, then its baselines in fixed order."""
    found = comparison.baselines
    return [comparison.hybrid, *(found[mode] for mode in BASELINES if mode in found)]


def comparison_document(comparison: Comparison, documents: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Document of a comparison; `documents` are those of its runs, as of `train --json`, by id.

    `hybrid` and `baselines` are the last repeats; `arms` holds the figures of every repeat.
    """
    arms = {"hybrid": comparison.hybrid, **comparison.baselines}
    return {
        "name": comparison.name,
        "fingerprint": comparison.fingerprint,
        "environment": comparison.environment,
        "hybrid": documents[comparison.hybrid.run_ids[-1]],
        "baselines": {mode: documents[arm.run_ids[-1]] for mode, arm in comparison.baselines.items()},
        "arms": {
            mode: {
                "run_ids": list(arm.run_ids),
                "problem": arm.problem,
                "memory_source": arm.memory_source,
                "threads": list(arm.threads),
                "starts": list(arm.starts),
                "start_s": _values(arm.start_s),
                **{name: _values(getattr(arm, name)) for name in ARM_FIGURES},
                "state_sha256": {part.name: list(part.state_sha256) for part in arm.submodels},
                "techniques": {part.name: written(part.techniques) for part in arm.submodels if part.techniques},
                "oracle": {part.name: part.oracle.model_dump() for part in arm.submodels if part.oracle is not None},
            }
            for mode, arm in arms.items()
        },
        "verdict": {mode: _verdict(verdict) for mode, verdict in comparison.verdicts.items()},
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    """Each ratio is the median over repeats; `spread` has all of them."""
    spreads: dict[str, Spread | None] = {name: getattr(verdict, name) for name in RATIOS}
    return {
        **{name: None if spread is None else spread.median for name, spread in spreads.items()},
        **{name: getattr(verdict, name) for name in ("identical_weights", "withheld_because")},
        "lossy": list(verdict.lossy),
        "notes": list(verdict.notes),
        "spread": {name: _values(spread) for name, spread in spreads.items()},
    }


def _values(spread: Spread | None) -> list[float] | None:
    return None if spread is None else list(spread.values)
