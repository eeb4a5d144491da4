"""All transforms by the names of `spec.transforms`."""

from collections.abc import Callable, Iterable
from typing import Any

from unifiednn_core.data.batch import Transform
from unifiednn_core.data.transforms.color_jitter import ColorJitter
from unifiednn_core.data.transforms.horizontal_flip import RandomHorizontalFlip
from unifiednn_core.data.transforms.mixup import MixUp
from unifiednn_core.data.transforms.normalize import Normalize
from unifiednn_core.data.transforms.random_crop import RandomCrop
from unifiednn_core.data.transforms.random_erasing import RandomErasing
from unifiednn_core.data.transforms.resize import Resize
from unifiednn_core.data.transforms.token_masking import TokenMasking
from unifiednn_core.data.transforms.trim import Trim
from unifiednn_core.spec.transforms import TransformSpec

TRANSFORMS: dict[str, Callable[..., Transform]] = {
    "normalize": Normalize,
    "resize": Resize,
    "random_crop": RandomCrop,
    "horizontal_flip": RandomHorizontalFlip,
    "random_erasing": RandomErasing,
    "color_jitter": ColorJitter,
    "mixup": MixUp,
    "token_masking": TokenMasking,
    "trim": Trim,
}


def build(specs: Iterable[TransformSpec]) -> tuple[Transform, ...]:
    """Make the transforms of a sub-model, in order."""
    return tuple(TRANSFORMS[spec.name](input=spec.input, **_frozen(spec.arguments)) for spec in specs)


def _frozen(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
