"""From a spec to what the store keeps of it: policy and device exist, files go by content, rows are filled."""

from collections.abc import Mapping

from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.forecast import memory_key
from unifiednn_core.intake.report import CheckReport
from unifiednn_core.lifecycle import State
from unifiednn_core.memory.budget import slot
from unifiednn_core.memory.samplers import gpu_count
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec import RunSpec, StartSpec
from unifiednn_core.store.schema import SubModelRow

__all__ = ["own_findings", "slot", "submodel_row", "with_files"]


def own_findings(spec: RunSpec) -> tuple[Finding, ...]:
    """What is known without opening a file: whether the policy and the device exist."""
    findings: list[Finding] = []
    try:
        policy_named(spec.policy.name, spec.policy.parameters)
    except BadInput as error:
        findings += error.findings
    device, gpus = slot(spec.device), gpu_count()
    if device.startswith("cuda:") and int(device.removeprefix("cuda:")) >= gpus:
        message, remedy = f"This machine has {gpus} NVIDIA GPUs; there is no {device}.", 'Choose "auto" or "cpu".'
        findings.append(Finding(title="No such device", field="device", message=message, remedy=remedy))
    return tuple(findings)


def with_files(spec: RunSpec, references: Mapping[str, str]) -> RunSpec:
    """Spec with its files named by `references`."""
    submodels = [
        submodel.model_copy(
            update={
                "model": references[submodel.model],
                "train_data": references[submodel.train_data],
                "test_data": None if submodel.test_data is None else references[submodel.test_data],
                "start_from": _start_with_file(submodel.start_from, references),
            }
        )
        for submodel in spec.submodels
    ]
    return spec.model_copy(update={"submodels": tuple(submodels)})


def _start_with_file(start: StartSpec | None, references: Mapping[str, str]) -> StartSpec | None:
    return None if start is None else start.model_copy(update={"file": references[start.file]})


def submodel_row(run_id: str, place: int, spec: RunSpec, report: CheckReport) -> SubModelRow:
    """Row of the sub-model at `place` in the order of arrival."""
    submodel = spec.submodels[place]
    facts = report.submodels[submodel.name]
    epochs = submodel.hyperparameters.epochs
    return SubModelRow(
        run_id=run_id,
        name=submodel.name,
        arrival=place,
        state=State.QUEUED.value,
        priority=submodel.priority,
        model_format=facts.format,
        parameters=facts.parameters,
        epochs=epochs,
        steps_total=facts.steps_per_epoch * epochs,
        memory_key=memory_key(spec, submodel, report),
    )
