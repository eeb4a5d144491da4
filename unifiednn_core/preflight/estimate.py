"""Predicts the peak memory of a hybrid from the needs of its sub-models. Pure.

What is in memory follows from the engine (`engine.submodel`, `engine.resident_data`):

- The context: the process with its libraries, and everything that the first step of a network loads.
- On a GPU, weights and optimizer state of each sub-model from its first turn to its end, or during its turns if it
  leaves the device between them; nothing of one that has not started. On the host, the weights of all are read before
  the first step, and ended ones are gone; the state of an optimizer comes with its first step.
- Gradients and transient part of the sub-model that holds the device, of no other.
- Each distinct data set once: on a GPU from the first turn of a sub-model that uses it, on the host until all ended.
- On the host, copies of weights and optimizer state while their checkpoints are written. They fit into what the
  allocator keeps, if that is more.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import BaseModel

from unifiednn_core.base.units import MIB
from unifiednn_core.machine.allocator import GLIBC, MIMALLOC, TCMALLOC
from unifiednn_core.preflight.prediction import MemoryNeed, Prediction, SubModelPrediction
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.line import COMPANY_SHARE, Need
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.scheduling.simulator import SimulatedJob, Stage, stages
from unifiednn_core.spec.techniques import VirtualNodes

# A worker right before it reads its first model, after a tiny network has loaded everything that any step loads
# (`engine.device.warm_up`), until one of this machine and version has been measured. CPU: resident, by allocator, with
# torch 2.13 on Linux x86-64; 70 MiB more with a torch for which `late_dynamo` is untested. Of these, 106 are pages of
# files, which processes with torch share. CUDA: not measured.
CONTEXT_BYTES = {GLIBC: 279 * MIB, TCMALLOC: 287 * MIB, MIMALLOC: 314 * MIB, "cuda": 600 * MIB}
# What a script of plain PyTorch takes more: the compiler, which its optimizer loads, but no store. CPU: 24 to 33 MiB
# for a LeNet, a ResNet and a Transformer.
SCRIPT_BYTES = {"cpu": 32 * MIB, "cuda": 0}
# What the first step of a real network adds for good. CPU: code of its kernels and files that were read, 5 to 8 MiB for
# a LeNet, a ResNet and a Transformer. CUDA: the workspaces of cuBLAS for two threads, 32 MiB each with ":4096:8".
FIRST_STEP_BYTES = {"cpu": 8 * MIB, "cuda": 64 * MIB}
# What the allocator keeps on top of the tensors of a step, as a share of gradients and transient part. glibc: 0.4 to
# 2.2 for a LeNet, three ResNets and a Transformer at batches of 64 to 2048, with parts of up to 300 MiB; 0.01 to 0.2
# with a glibc that keeps nothing, so workspaces of operators are the small part. At batches of 1024, a ResNet and a
# Transformer: glibc 1.3 and 0.5, tcmalloc 0.7 and 0.1, mimalloc 0.9 and 0.3. CUDA: not measured.
SLACK_SHARE = {GLIBC: 1.0, TCMALLOC: 0.45, MIMALLOC: 0.6, "cuda": 0.2}


class Part(BaseModel, frozen=True, extra="forbid"):
    """What the memory of a run depends on, of one sub-model."""

    name: str
    need: MemoryNeed
    plain: MemoryNeed | None = None
    """What it needs as baselines train it: without techniques, in one piece; None if that is the same, or unknown."""
    priority: int = 0
    parameters: int = 1
    epochs: int = 1
    steps_per_epoch: int = 1
    deadline_s: float | None = None
    measured_bytes: int | None = None
    """Transient bytes of an earlier training of the same graph."""

    @property
    def job(self) -> SimulatedJob:
        """The sub-model as a policy sees it: with an owner of its own, because then the most have started at once."""
        return SimulatedJob(**self.model_dump(exclude={"need", "plain", "measured_bytes"}), owner=self.name)

    def changed(self, *, batch_size: int | None = None, batch_split: int | None = None) -> "Part":
        """The sub-model with another batch size or split, without a measurement."""
        needs = {"need": self.need, **({} if self.plain is None else {"plain": self.plain})}
        changed = {name: one.changed(batch_size=batch_size, batch_split=batch_split) for name, one in needs.items()}
        return self.model_copy(update={**changed, "measured_bytes": None})

    def without_techniques(self) -> "Part":
        """The sub-model as a baseline trains it; what a step with techniques took says nothing of that."""
        return self if self.plain is None else self.model_copy(update={"need": self.plain, "measured_bytes": None})

    def with_nodes(self, nodes: VirtualNodes) -> "Part":
        """The sub-model with these virtual nodes; it keeps its measurement if they need what they did."""
        changed = self.need.cut(nodes.proportions).with_devices(nodes.devices)
        if changed.transient_bytes == self.need.transient_bytes:
            return self
        return self.model_copy(update={"need": changed, "measured_bytes": None})

    def with_split(self, batch_split: int) -> "Part":
        """The sub-model with this batch split; it keeps its measurement if that does not change."""
        split = min(batch_split, self.need.batch_size)
        return self if self.need.nodes or split == self.need.batch_split else self.changed(batch_split=split)


def context_of(device_type: str, measured_bytes: int | None, allocator: str = GLIBC) -> int:
    """Bytes of a process without the tensors of its sub-models; `measured_bytes` is its size before the first model."""
    known_bytes = CONTEXT_BYTES[_key(device_type, allocator)]
    return (measured_bytes or known_bytes) + FIRST_STEP_BYTES[device_type]


def _key(device_type: str, allocator: str) -> str:
    """What a figure depends on: the allocator of the host, or torch's own on a GPU."""
    return allocator if device_type == "cpu" else device_type


def context_key(device_type: str, torch_version: str, allocator: str) -> str:
    """Key of the measured context of a worker with this allocator."""
    return f"context:{device_type}:{torch_version}:{allocator}"


def predict(
    parts: Sequence[Part],
    policy: Policy,
    *,
    device_type: str,
    context_bytes: int,
    allocator: str = GLIBC,
    lanes: int = 1,
    most_bytes: int | None = None,
) -> Prediction:
    """Peak of a hybrid of `parts`, in order of arrival, under `policy` and under each other one with its defaults.

    With several lanes, company may add a share of the peak, but not beyond `most_bytes`.
    """
    key = _key(device_type, allocator)
    policies = {**{other.name: other() for other in POLICIES}, policy.name: policy}
    peak = partial(hybrid_bytes, parts, device_type=device_type, context_bytes=context_bytes, allocator=allocator)
    by_policy = {name: peak(other) for name, other in policies.items()}
    submodels = tuple(_alone(part, context_bytes, key) for part in parts)
    peak_bytes = by_policy[policy.name]
    working = [working_bytes(part, device_type, allocator) for part in parts]
    company_bytes = 0 if lanes < 2 else _of_company(working, peak_bytes, most_bytes)
    return Prediction(
        peak_bytes=peak_bytes + company_bytes,
        context_bytes=context_bytes,
        paper_bytes=max(submodel.paper_bytes for submodel in submodels),
        by_policy={name: size + company_bytes for name, size in by_policy.items()},
        submodels=submodels,
        company_bytes=company_bytes,
    )


def _of_company(working: Sequence[int], peak_bytes: int, most_bytes: int | None) -> int:
    """Bytes that company may add: all working sets but the largest, up to a share of the peak and to what is left."""
    left_bytes = peak_bytes if most_bytes is None else max(0, most_bytes - peak_bytes)
    return min(sum(sorted(working)[:-1]), int(COMPANY_SHARE * peak_bytes), left_bytes)


def hybrid_bytes(
    parts: Sequence[Part], policy: Policy, *, device_type: str, context_bytes: int, allocator: str = GLIBC
) -> int:
    """Peak of a hybrid under one policy."""
    peaks = holder_bytes(parts, policy, device_type=device_type, context_bytes=context_bytes, allocator=allocator)
    return max(peaks.values())


def holder_bytes(
    parts: Sequence[Part], policy: Policy, *, device_type: str, context_bytes: int, allocator: str = GLIBC
) -> dict[str, int]:
    """Peak of a hybrid under one policy while each of its sub-models holds the device, by name."""
    key, by_name, peaks = _key(device_type, allocator), {part.name: part for part in parts}, dict[str, int]()
    for stage in stages([part.job for part in parts], policy):
        peaks[stage.holder] = max(peaks.get(stage.holder, 0), context_bytes + _at(stage, by_name, key))
    return peaks


def need_of(part: Part, device_type: str, allocator: str = GLIBC) -> Need:
    """What placement knows of the memory of one sub-model (`scheduling.sites.hybrid_bytes`)."""
    need, on_gpu, transient_bytes = part.need, device_type == "cuda", _transient(part, _key(device_type, allocator))
    state_bytes = need.weights_bytes + need.optimizer_bytes
    leaves_bytes = state_bytes + need.gradients_bytes if on_gpu and need.leaves else 0
    return Need(
        kept_bytes=state_bytes + (need.gradients_bytes if on_gpu else 0) - leaves_bytes,
        working_bytes=transient_bytes + (0 if on_gpu else need.gradients_bytes) + leaves_bytes,
        copies_bytes=0 if on_gpu else state_bytes,
        slack_bytes=transient_bytes - need.transient_bytes,
        company_bytes=transient_bytes + (leaves_bytes or need.gradients_bytes),
        data=need.data,
    )


def baseline_bytes(parts: Sequence[Part], mode: str, *, device_type: str, context_bytes: int) -> int:
    """Peak of a baseline: a process for each sub-model, all at once (`concurrent`) or one after another.

    Each has its own context and uses no techniques. On the host, processes share the code that they load: this is an
    upper bound.
    """
    context_bytes += SCRIPT_BYTES[device_type]
    key = _key(device_type, GLIBC)
    each = [context_bytes + _alone(part.without_techniques(), context_bytes, key).peak_bytes for part in parts]
    return sum(each) if mode == "concurrent" else max(each)


def _alone(part: Part, context_bytes: int, key: str) -> SubModelPrediction:
    need, data_bytes = part.need, sum(part.need.data.values())
    transient_bytes = _transient(part, key)
    kept = need.weights_bytes + need.gradients_bytes + need.optimizer_bytes
    return SubModelPrediction(
        name=part.name,
        **need.model_dump(include={"weights_bytes", "gradients_bytes", "optimizer_bytes"}),
        transient_bytes=transient_bytes,
        data_bytes=data_bytes,
        measured=part.measured_bytes is not None,
        paper_bytes=context_bytes + kept + transient_bytes + data_bytes,
    )


def stage_bytes(stage: Stage, parts: Mapping[str, Part], device_type: str, allocator: str = GLIBC) -> int:
    """Bytes of one stage of a run, without the context."""
    return _at(stage, parts, _key(device_type, allocator))


def working_bytes(part: Part, device_type: str, allocator: str = GLIBC) -> int:
    """What a step adds while another sub-model holds the device: gradients, transient part, and what left a GPU."""
    need = part.need
    state_bytes = need.weights_bytes + need.optimizer_bytes if need.leaves and device_type == "cuda" else 0
    return need.gradients_bytes + _transient(part, _key(device_type, allocator)) + state_bytes


def _at(stage: Stage, parts: Mapping[str, Part], key: str) -> int:
    on_gpu, holder = key == "cuda", parts[stage.holder].need
    started = [parts[name].need for name in stage.started]
    held = started if on_gpu else [*started, *(parts[name].need for name in stage.waiting)]
    data = {sha256: size for need in held for sha256, size in need.data.items()}
    placed = [need for need in held if not (on_gpu and need.leaves and need is not holder)]
    weights_bytes = sum(need.weights_bytes for need in placed)
    optimizer_bytes = sum(need.optimizer_bytes for need in (placed if on_gpu else started))
    gradients_bytes = sum(need.gradients_bytes for need in (placed if on_gpu else [holder]))  # recorded steps keep them
    transient_bytes = _transient(parts[stage.holder], key)
    copies_bytes = 0 if on_gpu else sum(need.weights_bytes for need in started) + optimizer_bytes
    more_bytes = max(0, copies_bytes - (transient_bytes - holder.transient_bytes))
    kept_bytes = weights_bytes + optimizer_bytes + gradients_bytes
    return kept_bytes + transient_bytes + more_bytes + sum(data.values())


def _transient(part: Part, key: str) -> int:
    """Transient part with what the allocator keeps; a measurement replaces the estimate if it is not smaller.

    On the host, a measurement is the growth of the process and so includes the allocator.
    """
    share, need = SLACK_SHARE[key], part.need
    if part.measured_bytes is None:
        return need.transient_bytes + int(share * (need.gradients_bytes + need.transient_bytes))
    measured = max(part.measured_bytes, need.transient_bytes)
    return measured if key != "cuda" else measured + int(share * (need.gradients_bytes + measured))
