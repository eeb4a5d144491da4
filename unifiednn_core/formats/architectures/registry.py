"""The architectures that a spec can name. Each is imported when it is built: forms list them without torch."""

import ast
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, validate_call

from unifiednn_core.base.errors import BadInput, Finding

_BASIC: dict[str, Any] = {"imagenet_stem": True, "classes": 1000}
_DEEP: dict[str, Any] = {**_BASIC, "bottleneck": True}
_VGG: dict[str, Any] = {"grid": 7, "hidden": (4096, 4096), "classes": 1000}
_VIT: dict[str, Any] = {"image_size": 224, "classes": 1000}
_BASE: dict[str, Any] = {**_VIT, "layers": 12, "heads": 12, "model_size": 768, "hidden": 3072}
_LARGE: dict[str, Any] = {**_VIT, "layers": 24, "heads": 16, "model_size": 1024, "hidden": 4096}
_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}

MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": ("resnet", {**_BASIC, "blocks": (2, 2, 2, 2)}),
    "resnet34": ("resnet", {**_BASIC, "blocks": (3, 4, 6, 3)}),
    "resnet50": ("resnet", {**_DEEP, "blocks": (3, 4, 6, 3)}),
    "resnet101": ("resnet", {**_DEEP, "blocks": (3, 4, 23, 3)}),
    "resnet152": ("resnet", {**_DEEP, "blocks": (3, 8, 36, 3)}),
    "wide_resnet50_2": ("resnet", {**_DEEP, "blocks": (3, 4, 6, 3), "group_width": 128}),
    "wide_resnet101_2": ("resnet", {**_DEEP, "blocks": (3, 4, 23, 3), "group_width": 128}),
    "resnext50_32x4d": ("resnet", {**_DEEP, "blocks": (3, 4, 6, 3), "groups": 32, "group_width": 4}),
    "resnext101_32x8d": ("resnet", {**_DEEP, "blocks": (3, 4, 23, 3), "groups": 32, "group_width": 8}),
    "resnext101_64x4d": ("resnet", {**_DEEP, "blocks": (3, 4, 23, 3), "groups": 64, "group_width": 4}),
    **{
        f"vgg{depth}{suffix}": ("vgg", {**_VGG, "convolutions": convolutions, "batch_norm": bool(suffix)})
        for depth, convolutions in _CONVOLUTIONS.items()
        for suffix in ("", "_bn")
    },
    "mobilenet_v3_large": ("mobilenet_v3", {"large": True}),
    "mobilenet_v3_small": ("mobilenet_v3", {"large": False}),
    "vit_b_16": ("vit", {**_BASE, "patch_size": 16}),
    "vit_b_32": ("vit", {**_BASE, "patch_size": 32}),
    "vit_l_16": ("vit", {**_LARGE, "patch_size": 16}),
    "vit_l_32": ("vit", {**_LARGE, "patch_size": 32}),
}
"""By torchvision's names: the family, and its arguments where they are not the family's own."""


if TYPE_CHECKING:
    from torch import nn

_FAMILIES = (
    "lenet",
    "mlp",
    "resnet",
    "transformer",
    "vgg",
    "mobilenet_v2",
    "mobilenet_v3",
    "vit",
    "word_language_model",
    "huggingface",
)
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an architecture, as a form needs it."""

    name: str
    annotation: str  # type as the source writes it: `int`, `float`, `bool` or `Sequence[int]`
    default: object
    help: str


def families() -> tuple[str, ...]:
    """Architectures with a source file of their own."""
    return _FAMILIES


def names() -> tuple[str, ...]:
    """Names that a spec may give as `architecture.name`: families, and known members of them."""
    return (*_FAMILIES, *MEMBERS)


def source_file(name: str) -> Path:
    """Path of the file with the function `build`. Raises `BadInput` for an unknown name."""
    return Path(__file__).with_name(f"{_family(name)}.py")


def arguments(name: str, args: Mapping[str, object]) -> dict[str, object]:
    """Arguments for `build` in the source file of a name; `num_classes` is another word for `classes`."""
    given = {"classes" if key == "num_classes" and "classes" not in args else key: args[key] for key in args}
    return {**MEMBERS.get(name, ("", {}))[1], **given}


def parameters_of(name: str) -> tuple[Parameter, ...]:
    """Read the arguments of an architecture, in order, from its source; raises `BadInput` for an unknown name."""
    own = MEMBERS.get(name, ("", {}))[1]
    tree = ast.parse(source_file(name).read_text(encoding="utf-8"))
    (build_,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "build")
    text = ast.get_docstring(build_) or ""
    found = []
    for argument, default in zip(build_.args.args, build_.args.defaults, strict=True):
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        line = re.search(rf"^    {argument.arg}: (.*(?:\n {{8}}.*)*)", text, re.MULTILINE)
        help_ = " ".join(line[1].split()) if line else ""
        found.append(Parameter(argument.arg, annotation, own.get(argument.arg, ast.literal_eval(default)), help_))
    return tuple(found)


def build(name: str, args: Mapping[str, object]) -> "nn.Module":
    """Make an untrained network, in train mode, on the default device of torch.

    `args` are arguments of `build` in the file of the architecture. Raises `BadInput` for an unknown `name`, or with a
    finding for each argument that is unknown, of the wrong type or out of range.
    """
    family = importlib.import_module(f"{__package__}.{_family(name)}")
    try:
        network: nn.Module = validate_call(config=_STRICT)(family.build)(**arguments(name, args))
    except ValidationError as error:
        raise BadInput([_argument_finding(name, detail["loc"], detail["msg"]) for detail in error.errors()]) from None
    except ValueError as error:  # from the family, with a text for people
        raise BadInput([_finding(name, f"{error}.")]) from None
    except (TypeError, RuntimeError, OverflowError) as error:  # from torch: no memory, or no integer, holds the sizes
        raise BadInput([_finding(name, "No tensor has these sizes.")]) from error
    return network


def _family(name: str) -> str:
    if name not in names():
        message, remedy = f"Unknown architecture '{name}'.", f"Choose one of: {', '.join(names())}."
        raise BadInput.of("Architecture", field="architecture.name", message=message, remedy=remedy)
    return MEMBERS[name][0] if name in MEMBERS else name


def _argument_finding(name: str, location: tuple[int | str, ...], message: str) -> Finding:
    argument = ".".join(map(str, location))
    if location[0] not in {parameter.name for parameter in parameters_of(name)}:
        return _finding(name, f"'{name}' has no argument '{argument}'.")
    return _finding(name, f"{argument}: {message}.")


def _finding(name: str, message: str) -> Finding:
    defaults = ", ".join(f"{parameter.name}={parameter.default}" for parameter in parameters_of(name))
    remedy = f"Arguments of '{name}' and their defaults: {defaults}."
    return Finding(title="Architecture", field="architecture.args", message=message, remedy=remedy)
