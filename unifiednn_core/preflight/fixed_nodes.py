"""Virtual nodes that a spec leaves open, as numbers: the fewest that fit into the memory left, and measured shares.

They fix what is trained, so they become part of the spec before a run is queued. Pure, without torch.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from unifiednn_core.base.errors import Finding, Fix
from unifiednn_core.base.units import memory_text
from unifiednn_core.machine.budget import device_type
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import CheckReport, NodesReport, SubModelReport
from unifiednn_core.spec import hyperparameters
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import RunSpec, SubModelSpec
from unifiednn_core.spec.techniques import Offload, VirtualNodes
from unifiednn_core.techniques.virtual_nodes import best_shares, lengths

Fitting = Callable[[RunSpec, CheckReport], Collection[str]]
"""Names the sub-models of a spec without open nodes that can step in the memory of its device."""
SLACK = 1.02
"""Predictions from two small batches are not exact to the byte."""
_ORDER_BYTES = 8  # of a sample in the permutation of an epoch, which is extra


def fixed(spec: RunSpec, report: CheckReport, fitting: Fitting) -> CheckReport:
    """The report with numbers for all open nodes, or with findings where something is not known.

    What is needed while one sub-model steps does not depend on the nodes of others, so each gets the fewest it can,
    and with activation offload keeps its budget.
    """
    opened = [part for part in spec.submodels if (nodes := part.hyperparameters.nodes) is not None and nodes.is_open]
    known = {part.name: report.submodels[part.name] for part in opened if part.name in report.submodels}
    findings = [finding for part in opened if part.name in known for finding in _doubts(part, known[part.name])]
    if not opened or len(known) < len(opened) or any(finding.severity == "error" for finding in findings):
        return report.model_copy(update={"findings": (*report.findings, *findings)})
    most = {part.name: _Fixed.most(part, known[part.name]) for part in opened}
    chosen, count = {name: one for name, one in most.items() if one.asked.nodes != "fit"}, 1
    kind = device_type(spec.device)
    while len(chosen) < len(most):
        tried = _in_report(report, {name: one.at_most(count) for name, one in most.items()} | chosen)
        each = [(part, tried.submodels[part.name]) for part in opened]
        kept = {part.name for part, one in each if keeps_budget(part.hyperparameters, one.memory, one.samples, kind)}
        fit = kept.intersection(fitting(with_nodes(spec, tried), tried))
        for name in most.keys() - chosen.keys():
            if name in fit or count >= most[name].nodes:
                chosen[name] = most[name].at_most(count)
        count *= 2
    return _in_report(report, chosen)


def with_nodes(spec: RunSpec, report: CheckReport) -> RunSpec:
    """The spec with the numbers that the report has for open nodes, and with its plans of placements."""

    def decided(part: SubModelSpec) -> SubModelSpec:
        known = report.submodels.get(part.name)
        if known is not None and known.placement is not None and part.placement is not None:
            where = part.placement.model_copy(update={"plan": known.placement.runs})
            part = part.model_copy(update={"placement": where})
        found = None if known is None else known.nodes
        if found is None:
            return part
        changed = hyperparameters.with_nodes(part.hyperparameters, **found.model_dump())
        return part.model_copy(update={"hyperparameters": Hyperparameters.model_validate(changed)})

    return spec.model_copy(update={"submodels": tuple(map(decided, spec.submodels))})


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Numbers for the nodes of one sub-model."""

    asked: VirtualNodes
    nodes: int
    shares: tuple[int, ...] | None = None

    @classmethod
    def most(cls, part: SubModelSpec, known: SubModelReport) -> "_Fixed":
        """Measured shares, or as many nodes as the check of a batch allows, a power of two."""
        hyper, asked = part.hyperparameters, part.hyperparameters.nodes or VirtualNodes()
        if asked.nodes != "fit":
            size = min(hyper.batch_size, known.samples)
            found = best_shares(size, asked.nodes, known.part_times_s) if size >= asked.nodes else None
            usable = found is not None and _smallest(hyper, known, found) >= _least(hyper, known, (1,) * asked.nodes)
            return cls(asked, asked.nodes, tuple(found) if found is not None and usable else None)
        least, power = _least(hyper, known, (1,)), 1
        while 2 * power <= hyper.batch_size and _smallest(hyper, known, (1,) * (2 * power)) >= least:
            power *= 2
        return cls(asked, power)

    def at_most(self, count: int) -> "_Fixed":
        return replace(self, nodes=min(count, self.nodes))

    def of(self, known: SubModelReport) -> SubModelReport:
        """The report of the sub-model with these numbers."""
        found = NodesReport(nodes=self.nodes, shares=None if self.shares is None else list(self.shares))
        shares = self.shares or (1,) * self.nodes
        memory = None if known.memory is None else known.memory.cut(shares)
        return known.model_copy(update={"nodes": found, "memory": memory})


def _in_report(report: CheckReport, found: dict[str, _Fixed]) -> CheckReport:
    changed = {name: one.of(report.submodels[name]) for name, one in found.items()}
    return report.model_copy(update={"submodels": {**report.submodels, **changed}})


def _least(hyper: Hyperparameters, known: SubModelReport, tried: Sequence[int]) -> int:
    """Samples that a part has to have: those that the network takes, unless the check tried fewer."""
    return min(known.least_part, _smallest(hyper, known, tried))


def _smallest(hyper: Hyperparameters, known: SubModelReport, shares: Sequence[int]) -> int:
    """Samples of the smallest part of an epoch."""
    full, last = min(hyper.batch_size, known.samples), known.samples % hyper.batch_size
    batches = {full, last} if last and not hyper.drop_last else {full}
    return min(min(lengths(batch, shares)) for batch in batches)


def _doubts(part: SubModelSpec, known: SubModelReport) -> list[Finding]:
    nodes, field = part.hyperparameters.nodes, f"submodels.{part.name}.hyperparameters.techniques"
    if nodes is None:
        return []
    if nodes.nodes == "fit" and known.memory is None:
        message = f"The memory of {part.name} is not predicted, so no number of virtual nodes can be fitted to it."
        return [Finding(title="Virtual nodes", field=field, message=message, remedy="Give their number.")]
    if nodes.shares == "measured" and not known.part_times_s:
        message = f"The steps of {part.name} were not timed: that happens in a check on a CPU."
        return [Finding(title="Shares not measured", field=field, message=message, remedy="Give shares as numbers.")]
    return []


def budget_bytes(hyper: Hyperparameters, device_type: str) -> int | None:
    """What a step may take; None without a budget, and on a CPU, where the host is the device."""
    asked = next((one for one in hyper.techniques if isinstance(one, Offload)), None)
    return None if asked is None or device_type == "cpu" else asked.budget_bytes


def keeps_budget(
    hyper: Hyperparameters, need: MemoryNeed | None, samples: int, device_type: str, parts: int | None = None
) -> bool:
    """Whether a step keeps its budget, with its own number of parts or another; so does one of unknown need."""
    most_bytes = budget_bytes(hyper, device_type)
    if most_bytes is None or need is None:
        return True
    return need.step_of(parts or need.batch_split) <= SLACK * (most_bytes + _ORDER_BYTES * samples)


def budget_findings(
    part: SubModelSpec, need: MemoryNeed, samples: int, least_part: int, device_type: str
) -> list[Finding]:
    """An error if a step needs more than its budget although all that is saved is on the host.

    Virtual nodes that fit themselves to the memory take as many as it needs, if any number does.
    """
    hyper, nodes = part.hyperparameters, part.hyperparameters.nodes
    if keeps_budget(hyper, need, samples, device_type):
        return []
    counts = range(need.batch_split + 1, need.batch_size // least_part + 1)
    found = next((count for count in counts if keeps_budget(hyper, need, samples, device_type, count)), None)
    if nodes is not None and nodes.nodes == "fit" and found is not None:
        return []
    message = f"A step of {part.name} takes {memory_text(need.step_of(need.batch_split))} although all its saved "
    message += f"activations are on the host; the budget is {memory_text(budget_bytes(hyper, device_type) or 0)}."
    entry, fix, remedy = "techniques", None, "Give a larger budget, or smaller batches."
    if found is not None:
        then = f"then {memory_text(need.step_of(found))} are needed"
        remedy = f"Give the technique virtual_nodes {found} nodes: {then}."
        if nodes is None:
            entry, fix = "batch_split", Fix(label=f"Split into {found}", value=found)
            remedy = (
                f"Set batch_split to {found}: {then}. Batch normalisation sees the parts; else only rounding differs."
            )
    field = f"submodels.{part.name}.hyperparameters.{entry}"
    return [Finding(title="Budget too small", field=field, message=message, remedy=remedy, fix=fix)]
