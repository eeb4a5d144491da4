"""Invented memory, baselines, predictions and comparisons, for screens, figures and reports."""

import math
from dataclasses import replace
from typing import Any

from tests.ui.fake_views import EPOCH_S, EPOCHS, NAMES, START_S, ended, run, sha, submodel
from unifiednn_core.base.units import MIB
from unifiednn_core.preflight.prediction import Prediction, SubModelPrediction
from unifiednn_core.preflight.report import Certificate, CertificateCheck
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.comparison import Arm, ArmSubModel, Comparison, Spread, Verdict
from unifiednn_core.views.memory import KINDS, Mark, MemoryBreakdown, MemoryLayer
from unifiednn_core.views.runs import RunView, Series, Slice

FINGERPRINT = "f" * 64
WITHHELD = "There is no concurrent baseline yet. Run it, then the verdict appears here."
HELD_MIB = {"weights": 6.0, "gradients": 6.0, "optimizer": 12.0, "transient": 30.0}
SHARED_MIB = {"context": 180.0, "slack": 14.0, "data": 9.0, "others": 20.0, "unexplained": 11.0}


def breakdown(
    names: tuple[str, ...] = NAMES, seconds: int = 60, gap: tuple[int, int] | None = (30, 33)
) -> MemoryBreakdown:
    """A hybrid in which the sub-models take turns of 2 s; what is not there is None between `gap`."""

    def size_mib(kind: str, at: int | None, second: int) -> float | None:
        if gap and gap[0] <= second < gap[1]:
            return None
        if at is None:
            return SHARED_MIB[kind] + (2 * math.sin(second / 3) if kind == "unexplained" else 0.0)
        trains = second // 2 % len(names) == at
        return HELD_MIB[kind] * (1 + at) if trains or kind in ("weights", "optimizer") else 0.0

    layers = []
    for kind in KINDS:
        owners = [(name, at) for at, name in enumerate(names)] if kind in HELD_MIB else [(None, None)]
        for name, at in owners:
            sizes = [size_mib(kind, at, second) for second in range(seconds)]
            layers.append(MemoryLayer(kind, name, tuple(None if size is None else size * MIB for size in sizes)))
    totals = [
        None
        if any(layer.size_bytes[second] is None for layer in layers)
        else sum(layer.size_bytes[second] or 0.0 for layer in layers)
        for second in range(seconds)
    ]
    return MemoryBreakdown(tuple(map(float, range(seconds))), tuple(totals), tuple(layers), "process PSS")


def marks(switches: int = 30) -> tuple[Mark, ...]:
    """What explains the memory of `breakdown`."""
    return (
        *(Mark(0.5 + at, "load", name, f"{name} was loaded") for at, name in enumerate(NAMES)),
        *(Mark(at * 60 / switches, "switch", NAMES[at % 3], f"{NAMES[at % 3]} trains") for at in range(switches)),
        Mark(30.0, "pause", None, "paused"),
        Mark(45.0, "checkpoint", "lenet", "checkpoint of lenet at step 230"),
        Mark(50.0, "separation", "lenet", "lenet was written out"),
        Mark(59.0, "end", None, "the run ended"),
    )


def hybrid(**changes: object) -> RunView:
    """A hybrid that completed, with a memory breakdown and marks, 1.5 s after its launch."""
    return replace(
        ended(),
        run_id="r-hybrid",
        fingerprint=FINGERPRINT,
        launched_at_s=START_S - 0.5,
        breakdown=breakdown(),
        marks=marks(),
        cpu_s=61.0,
        peak_memory_bytes=430 * MIB,
        **changes,
    )


def baseline(mode: Mode = "concurrent", state: State = State.COMPLETED, **changes: object) -> RunView:
    """The same training, one process each; concurrent ones hold the machine together."""
    share = {"completed": 1.0, "running": 0.6, "queued": 0.0}.get(state.value, 0.4)
    parts = tuple(submodel(at, name, share * EPOCHS[name], state) for at, name in enumerate(NAMES))
    parts = tuple(replace(s, artifact=None, checkpoint_step=None, checkpoint_bytes=None) for s in parts)
    slices, begin_s = [], 0.0
    for part in parts:
        length_s = part.epochs_done * EPOCH_S * (2.6 if mode == "concurrent" else 1.4)
        slices.append(Slice(part.name, begin_s, begin_s + length_s, part.steps_done, "Its own process."))
        begin_s += 0.0 if mode == "concurrent" else length_s
    until_s = max(turn.end_s for turn in slices)
    seconds = tuple(float(second) for second in range(int(until_s)))
    height_mib = 880 if mode == "concurrent" else 310
    view = run(
        f"r-{mode}",
        state,
        parts,
        mode=mode,
        fingerprint=FINGERPRINT,
        launched_at_s=START_S,
        elapsed_s=until_s,
        policy_text="Round robin, 1 epoch each",
        schedule=tuple(slices),
        cpu_s=92.0,
        peak_memory_bytes=height_mib * MIB,
        memory=Series(seconds, tuple((height_mib - 40 * math.exp(-s / 4)) * MIB for s in seconds)),
        attempt=1,
        ended_at_s=START_S + until_s if state is State.COMPLETED else None,
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def spread(*values: float) -> Spread:
    return Spread(values)


def arm(mode: Mode, repeats: int = 1, problem: str | None = None) -> Arm:
    """Figures of an arm, a little different in each repeat."""
    base = {
        "hybrid": (430, 43.7, 31.0, 61.0),
        "concurrent": (880, 68.3, 52.0, 92.0),
        "sequential": (310, 77.0, 49.0, 75.0),
    }
    memory, makespan, turnaround, cpu = base[mode]
    off = [1 + 0.01 * at for at in range(repeats)]
    return Arm(
        mode=mode,
        run_ids=tuple(f"r-{mode}-{at}" for at in range(repeats)),
        memory_bytes=Spread(tuple(memory * MIB * o for o in off)),
        memory_source="process PSS",
        makespan_s=Spread(tuple(makespan * o for o in off)),
        mean_turnaround_s=Spread(tuple(turnaround * o for o in off)),
        cpu_s=Spread(tuple(cpu * o for o in off)),
        gpu_s=None,
        submodels=tuple(
            ArmSubModel(
                name=name,
                number=at,
                wait_s=Spread((3.0 + at,) * repeats),
                service_s=Spread((11.0 + at,) * repeats),
                turnaround_s=Spread((14.0 + 2 * at,) * repeats),
                cpu_s=Spread((12.0 + at,) * repeats),
                test_accuracy=0.96,
                train_loss=0.05,
                state_sha256=(sha(name),) * repeats,
            )
            for at, name in enumerate(NAMES)
        ),
        problem=problem,
    )


def verdict(mode: Mode = "concurrent", ratios: tuple[Spread, ...] = (), **changes: object) -> Verdict:
    """Ratios of memory, makespan, mean turnaround and CPU seconds."""
    memory, makespan, turnaround, cpu = ratios or (spread(0.46), spread(0.64), spread(0.6), spread(0.66))
    known = Verdict(
        mode=mode,
        memory_ratio=memory,
        makespan_ratio=makespan,
        mean_turnaround_ratio=turnaround,
        cpu_seconds_ratio=cpu,
        gpu_seconds_ratio=None,
        identical_weights=True,
        withheld_because=None,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def withheld(mode: Mode, why: str) -> Verdict:
    """A verdict that is not given."""
    nothing = dict.fromkeys(f"{figure}_ratio" for figure in ("memory", "makespan", "mean_turnaround", "cpu_seconds"))
    return verdict(mode, **nothing, identical_weights=None, withheld_because=why)


def certificate(submodel: str, *, holds: bool, **changes: Any) -> Certificate:
    """What is told of a file, whose outputs are those of the hybrid or not."""
    outputs = CertificateCheck(
        what="outputs", outcome="equal" if holds else "differs", text="Outputs of 8 probes: 3 bits."
    )
    known = Certificate(
        submodel=submodel,
        model=f"{submodel}.pt2",
        made_at_s=START_S,
        holds=holds,
        state_sha256="ab" * 32,
        compared=(CertificateCheck(what="weights", outcome="equal", text="All 9 tensors."), outputs),
        versions={"torch": "2.13"},
        snippet=f"net = torch.export.load('{submodel}.pt2').module()",
    )
    return known.model_copy(update=changes)


def comparison(**changes: object) -> Comparison:
    """A gain against concurrent in five repeats; against sequential more memory, less time and a tie."""
    five = tuple(0.46 + 0.005 * at for at in range(5))
    ratios = (spread(1.39), spread(0.57), spread(0.998), spread(0.97, 1.02, 1.01))
    against_sequential = verdict("sequential", ratios, notes=("CPU seconds straddle 1.",))
    known = Comparison(
        run_id="r-hybrid",
        name="demo",
        fingerprint=FINGERPRINT,
        hybrid=arm("hybrid", 5),
        baselines={"concurrent": arm("concurrent", 5), "sequential": arm("sequential", 3)},
        verdicts={
            "concurrent": verdict("concurrent", (Spread(five), spread(0.64), spread(0.6), spread(0.66))),
            "sequential": against_sequential,
        },
        environment={"machine": {"cpu": "AMD EPYC", "cores": 2}, "versions": {"torch": "2.12.0", "python": "3.11"}},
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def prediction() -> Prediction:
    """What the demo was predicted to need."""
    return Prediction(
        peak_bytes=412 * MIB,
        context_bytes=180 * MIB,
        paper_bytes=300 * MIB,
        by_policy={"round_robin": 412 * MIB, "fcfs": 390 * MIB},
        submodels=tuple(
            SubModelPrediction(
                name=name,
                weights_bytes=6 * MIB,
                gradients_bytes=6 * MIB,
                optimizer_bytes=12 * MIB,
                transient_bytes=(30 + at) * MIB,
                data_bytes=9 * MIB,
                measured=at == 0,
                paper_bytes=(260 + at) * MIB,
            )
            for at, name in enumerate(NAMES)
        ),
    )
