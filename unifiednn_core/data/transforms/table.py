"""All transforms by the names of `spec.transforms`."""

from collections.abc import Callable, Iterable
from typing import Any

from unifiednn_core.data.batch import Transform
from unifiednn_core.data.transforms.images import (
    ColorJitter,
    MixUp,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    Resize,
)
from unifiednn_core.data.transforms.tokens import TokenMasking, Trim
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
