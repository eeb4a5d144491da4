"""Invented runs and files, for the screens: a run in mid-flight, one waiting, and one for each way to end."""

import math
from dataclasses import replace

from unifiednn_core.base.units import MIB
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, SubModelSpec, parse_run
from unifiednn_core.views.runs import EventView, FileView, RunView, Series, Slice, SubModelView

START_S = 1_700_000_000.0
EPOCH_S = 1.25
NAMES = ("lenet", "resnet", "transformer")
EPOCHS = {"lenet": 10, "resnet": 14, "transformer": 20}
PARAMETERS = {"lenet": 9_326, "resnet": 77_706, "transformer": 68_490}
STEPS_PER_EPOCH = 23


def demo_spec() -> RunSpec:
    submodels: list[dict[str, object]] = [
        {
            "name": name,
            "model": f"sha256:{sha(name)}",
            "train_data": f"sha256:{sha('digits_train')}",
            "test_data": f"sha256:{sha('digits_test')}",
            "scale": 0.0625,
            "priority": at,
            "hyperparameters": {"epochs": EPOCHS[name], "batch_size": 64, "optimizer": "adam", "learning_rate": 0.003},
        }
        for at, name in enumerate(NAMES)
    ]
    submodels[1]["architecture"] = {"name": "resnet", "args": {"width": 16}}
    return parse_run({"name": "demo", "threads": 1, "policy": {"name": "round_robin"}, "submodels": submodels})


def submitted_demo() -> tuple[SubModelSpec, ...]:
    """Its sub-models as their submission keeps them: with how their data are loaded."""
    return tuple(part.model_copy(update={"loading": "resident"}) for part in demo_spec().submodels)


def curve(epochs: float, start: float, end: float, *, wobble: float, points_per_epoch: int) -> Series:
    count = int(epochs * points_per_epoch)
    xs = [(at + 1) / points_per_epoch for at in range(count)]
    return Series(
        tuple(xs),
        tuple(end + (start - end) * math.exp(-x / 3) + wobble * math.sin(9.1 * x) * math.exp(-x / 8) for x in xs),
    )


def submodel(at: int, name: str, epochs_done: float, state: State, *, holds_device: bool = False) -> SubModelView:
    done = state is State.COMPLETED
    loss = curve(epochs_done, 2.3, 0.06 + 0.03 * at, wobble=0.05, points_per_epoch=STEPS_PER_EPOCH)
    test_loss = curve(epochs_done, 2.2, 0.1 + 0.03 * at, wobble=0.02, points_per_epoch=1)
    accuracy = curve(epochs_done, 0.1, 0.985 - 0.01 * at, wobble=0.01, points_per_epoch=1)
    test_accuracy = curve(epochs_done, 0.1, 0.965 - 0.01 * at, wobble=0.01, points_per_epoch=1)
    service_s = epochs_done * EPOCH_S
    return SubModelView(
        name=name,
        arrival=at,
        number=at,
        state=state,
        priority=at,
        model_format="safetensors" if name == "resnet" else "exported",
        parameters=PARAMETERS.get(name, 1_000),
        epochs=EPOCHS.get(name, 10),
        epochs_done=int(epochs_done),
        steps_total=STEPS_PER_EPOCH * EPOCHS.get(name, 10),
        steps_done=int(STEPS_PER_EPOCH * epochs_done),
        holds_device=holds_device,
        wait_s=2 * service_s,
        service_s=service_s,
        turnaround_s=3 * service_s if done else None,
        train_loss=loss.y[-1] if loss.y else None,
        train_accuracy=accuracy.y[-1] if accuracy.y else None,
        test_loss=test_loss.y[-1] if test_loss.y else None,
        test_accuracy=test_accuracy.y[-1] if test_accuracy.y else None,
        peak_memory_bytes=(310 + 24 * at) * MIB if epochs_done else None,
        artifact=f"{name}.zip" if done else None,
        artifact_bytes=412_000 if done else None,
        state_sha256=sha(name) if done else None,
        checkpoint_step=int(STEPS_PER_EPOCH * epochs_done) - 5 if epochs_done else None,
        checkpoint_bytes=118_000 if epochs_done else None,
        checkpoint_at_s=START_S if epochs_done else None,
        learning_rate=0.003,
        batch_size=64,
        loss=loss,
        test_loss_curve=test_loss,
        accuracy=accuracy,
        test_accuracy_curve=test_accuracy,
    )


def run(run_id: str, state: State, submodels: tuple[SubModelView, ...], **changes: object) -> RunView:
    rounds = range(max((s.epochs_done for s in submodels), default=0))
    turns = [(epoch, s) for epoch in rounds for s in submodels if epoch < s.epochs_done]
    schedule = tuple(
        Slice(
            submodel=s.name,
            start_s=at * EPOCH_S,
            end_s=(at + 1) * EPOCH_S,
            steps=STEPS_PER_EPOCH,
            reason=f"{s.name} has been in line longest; one epoch each.",
        )
        for at, (_, s) in enumerate(turns)
    )
    elapsed_s = len(turns) * EPOCH_S
    seconds = tuple(float(second) for second in range(int(elapsed_s)))
    kinds = (("state", "demo is queued."), ("command", "Requested: save."), ("applied", "Save, at step 7."))
    view = RunView(
        run_id=run_id,
        name="demo",
        state=state,
        policy="round_robin",
        policy_text="Round robin, 1 epoch each",
        attempt=1 if rounds else 0,
        checkpoint_text="every 30 s",
        device="cpu",
        threads=1,
        created_at_s=START_S,
        started_at_s=START_S + 1,
        ended_at_s=None,
        cause=None,
        remedy=None,
        now_reason=None,
        submodels=submodels,
        memory_source="PSS of the worker",
        peak_memory_bytes=int(372 * MIB),
        heartbeat_age_s=0.4,
        elapsed_s=elapsed_s,
        memory=Series(seconds, tuple((330 + 30 * math.sin(s / 9) + 0.3 * s) * MIB for s in seconds)),
        schedule=schedule,
        events=tuple(
            EventView(at_s=START_S + at, submodel=None, kind=kind, message=message)
            for at, (kind, message) in enumerate(kinds)
        ),
        spec=demo_spec().model_dump(mode="json", exclude_none=True),
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def mid_flight() -> RunView:
    parts = (
        submodel(0, "lenet", 10, State.COMPLETED),
        submodel(1, "resnet", 11.4, State.RUNNING, holds_device=True),
        submodel(2, "transformer", 11, State.QUEUED),
    )
    return run("r-live", State.RUNNING, parts, now_reason="resnet has been in line longest; one epoch each.")


def queued() -> RunView:
    parts = tuple(submodel(at, name, 0, State.QUEUED) for at, name in enumerate(NAMES[:2]))
    return run(
        "r-queued",
        State.QUEUED,
        parts,
        name="second",
        queue_position=1,
        started_at_s=None,
        elapsed_s=None,
        heartbeat_age_s=None,
        peak_memory_bytes=None,
    )


def recovered() -> RunView:
    """Twice a worker died; the curves of what was lost are kept beside those that count."""
    parts = (
        submodel(0, "lenet", 7.2, State.RUNNING, holds_device=True),
        replace(submodel(1, "resnet", 6, State.QUEUED), redone_steps=25),
        replace(submodel(2, "transformer", 6, State.QUEUED), redone_steps=12),
    )
    lost = curve(6.9, 2.3, 0.12, wobble=0.11, points_per_epoch=STEPS_PER_EPOCH)
    tail = Series(lost.x[-25:], lost.y[-25:])
    parts = (parts[0], replace(parts[1], lost_loss=(tail,), lost_accuracy=(Series((5.0, 6.0), (0.8, 0.84)),)), parts[2])
    died = "The worker process died. It continues from its last checkpoints."
    events = (
        EventView(at_s=START_S, submodel=None, kind="state", message="recovered is queued."),
        EventView(at_s=START_S + 9, submodel=None, kind="recovery", message=died),
        EventView(at_s=START_S + 9, submodel="resnet", kind="recovery", message="resnet continues at step 115."),
        EventView(at_s=START_S + 20, submodel=None, kind="recovery", message=died),
    )
    return run("r-recovered", State.RUNNING, parts, name="recovered", attempt=3, recoveries=2, events=events)


def quarantined() -> RunView:
    """One sub-model ran out of memory and one diverged; the third trains on."""
    hungry = replace(
        submodel(0, "lenet", 3, State.FAILED),
        cause="OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB.",
        remedy="Retry it with a larger batch split: the same batches go through in parts that need less memory.",
    )
    diverged = replace(
        submodel(1, "resnet", 2, State.FAILED),
        cause="The loss of resnet is nan at step 46.",
        remedy="Retry it with a smaller learning rate; it goes on from its last checkpoint, which is before that.",
        checkpoint_step=None,
    )
    parts = (hungry, diverged, submodel(2, "transformer", 5, State.RUNNING, holds_device=True))
    return run("r-quarantine", State.RUNNING, parts, name="quarantine", now_reason="transformer is the only one left.")


def ended() -> RunView:
    parts = tuple(submodel(at, name, EPOCHS[name], State.COMPLETED) for at, name in enumerate(NAMES))
    return run("r-done", State.COMPLETED, parts, ended_at_s=START_S + 90, heartbeat_age_s=None)


def failed() -> RunView:
    broken = replace(
        submodel(1, "resnet", 3, State.FAILED), cause="The loss became NaN.", remedy="Lower the learning rate."
    )
    parts = (submodel(0, "lenet", 4, State.STOPPED), broken)
    return run(
        "r-failed",
        State.FAILED,
        parts,
        name="too fast",
        ended_at_s=START_S + 30,
        cause="No sub-model could be finished.",
        remedy="See the sub-models below.",
    )


def interrupted() -> RunView:
    parts = (submodel(0, "lenet", 6, State.INTERRUPTED),)
    return run(
        "r-lost",
        State.INTERRUPTED,
        parts,
        name="power cut",
        ended_at_s=START_S + 20,
        heartbeat_age_s=400.0,
        cause="The worker process died.",
        remedy="Look into worker.log, then submit the spec again.",
    )


def library() -> tuple[FileView, ...]:
    pixels = {"input_shape": [1, 8, 8], "input_dtype": "uint8", "classes": 10}
    named = (
        ("lenet.pt2", "model", "pt2", {"parameters": 9_326, "input_shape": [1, 8, 8], "input_dtype": "float32"}),
        ("resnet.safetensors", "weights", "safetensors", {"parameters": 77_706}),
        ("transformer.pt2", "model", "pt2", {"parameters": 68_490, "input_shape": [1, 8, 8]}),
        ("digits_train.pt", "data", "pt", pixels | {"samples": 1_437}),
        ("digits_test.pt", "data", "pt", pixels | {"samples": 360}),
        (
            "lenet-step-115.safetensors",
            "checkpoint",
            "unifiednn-checkpoint",
            {"submodel": "lenet", "step": 115, "epoch": 5, "elements": 9_326, "optimizer": "adam"},
        ),
    )
    return tuple(
        FileView(
            sha256=sha(name.split(".")[0]),
            kind=kind,
            filename=name,
            format=form,
            size_bytes=92_000,
            created_at_s=START_S,
            facts=dict(facts),
        )
        for name, kind, form, facts in named
    )


def sha(name: str) -> str:
    return name.encode().hex().ljust(64, "0")[:64]
