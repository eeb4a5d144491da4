"""Networks of torchvision by name: members of a family, with the arguments that make them. No torch here."""

from typing import Any

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
