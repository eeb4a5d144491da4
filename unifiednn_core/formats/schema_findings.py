"""Why the content of a `.pt2` file does not fit the schema, in the words of a person who writes networks."""

import json
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from unifiednn_core.formats.signature import HOW_TO_EXPORT

_REGIONS = (
    "The graph holds other graphs ({found}), as torch.no_grad, torch.autocast or torch.cond in forward make them.",
    "Make the file with `unifiednn pack`, which writes torch.no_grad out; leave the others out of forward.",
)
# Pattern of the place in the file, message, remedy. The first match is shown.
_PLACES = (
    (
        r"(dtype|as_scalar_type)$",
        "The network computes with a type of numbers that is not known here (number {found} of torch's types: 9 to 11 "
        "are complex).",
        "Write it with real numbers: two of them for a complex one.",
    ),
    (
        r"(parameter_name|buffer_name|tensor_constant_name|config\..*\[key\]|fqn)$",
        "A layer or weight is called {found}.",
        "Call it by letters, digits, '_', '-' and blanks.",
    ),
    (
        r"schema_version\.major$",
        "A torch whose files have version {found} wrote it; version 8 is read.",
        "Export the network again, with torch 2.10 or newer.",
    ),
    (r"layout$", "The network computes with sparse tensors.", "Write it with dense tensors."),
    (r"device\.type$", "The network was exported on the device {found}.", "Export it on the CPU."),
    (
        r"custom_obj|as_custom|as_script|as_opaque",
        "The graph holds objects of another library.",
        "Write that part of forward with torch's own functions.",
    ),
    (
        r"(output_specs\.\d+\.[a-z_]+|verifiers.*)$",
        "The program was changed after it was exported, as run_decompositions does.",
        "Save what torch.export.export returns, as it is.",
    ),
)


def explained(detail: Mapping[str, Any], content: bytes) -> tuple[str, str]:
    """Message and remedy for a validation error in the JSON document `content`."""
    place = ".".join(map(str, detail["loc"]))
    regions = sorted(_regions(content)) if re.search(r"nodes\.\d+\.", place) else []
    if regions:
        return _REGIONS[0].format(found=", ".join(regions)), _REGIONS[1]
    found = reprlib.repr(detail["input"])
    for pattern, message, remedy in _PLACES:
        if re.search(pattern, place):
            return message.format(found=found), remedy
    where = ".".join(map(str, detail["loc"][-6:])) or "the JSON"
    return f"It is not as torch.export.save writes it. At {where}: {detail['msg']} (found {found}).", HOW_TO_EXPORT


def _regions(content: bytes) -> set[str]:
    """Names of the operators that run a graph of their own."""
    try:
        nodes = json.loads(content)["graph_module"]["graph"]["nodes"]
        targets = [str(node["target"])[:100] for node in nodes]
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
    return {target.rpartition(".")[2] for target in targets if target.startswith("torch.ops.higher_order.")}
