"""Fingerprints of runs: runs with equal ones train the same, on the same machine, with the same versions."""

import hashlib
import json
import os
import platform

import psutil
import pynvml

from unifiednn_core.machine.devices import devices_known, processor_name
from unifiednn_core.machine.gpu import gpu_handle
from unifiednn_core.machine.versions import versions
from unifiednn_core.spec.devices import SERVER, host_of
from unifiednn_core.spec.run import RunSpec

# These entries change neither what is trained nor how fast a plain script would be.
_OF_THE_RUN = {
    "name",
    "seed",
    "policy",
    "checkpoint",
    "recovery",
    "step_limit_s",
    "memory_limit_bytes",
    "device",
    "threads",
    "lanes",
    "hybrid",
    "moves",
}


def fingerprint(spec: RunSpec, slot: str, threads: int) -> str:
    """SHA-256 over spec, device and versions; `slot` is the device of the run. Equal devices give equal ones."""
    return _sha256(
        {"asked": asked_sha256(spec), "device": slot.partition(":")[0], "threads": threads, "machine": machine(slot)}
    )


def asked_sha256(spec: RunSpec) -> str:
    """SHA-256 over what is trained, on any machine. `spec` names its files by content.

    Order and names of sub-models count: a sequential baseline trains them in that order.
    """
    asked = spec.model_dump(mode="json", exclude=_OF_THE_RUN)
    for written, part in zip(asked["submodels"], spec.submodels, strict=True):
        del written["priority"], written["deadline_s"], written["sweep_of"], written["loading"]
        if part.split is None:  # as before there were splits
            del written["split"], written["part"], written["part_of"]
        if part.placement is None:
            del written["placement"]
        else:
            del written["placement"]["plan"]
        written["hyperparameters"]["seed"] = spec.seed_of(part)
    return _sha256(asked)


def machine(slot: str) -> dict[str, object]:
    """Describe the machine and the versions that a figure depends on, without loading torch.

    Of a node the driver has written down what matters: the kind of the device.
    """
    if host_of(slot) != SERVER:
        kinds = {one.name: one.kind for one in devices_known()}
        return {"host": host_of(slot), "kind": kinds.get(slot, "unknown"), **versions()}
    facts: dict[str, object] = {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": processor_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        **versions(),
    }
    return facts | (_gpu(int(slot.removeprefix("cuda:"))) if slot.startswith("cuda:") else {})


def _sha256(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _gpu(index: int) -> dict[str, object]:
    try:
        pynvml.nvmlInit()
        handle = gpu_handle(index)
        return {
            "gpu": str(pynvml.nvmlDeviceGetName(handle)),
            "gpu_memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        }
    except pynvml.NVMLError:
        return {"gpu": "unknown"}
