"""Transforms that a sub-model can name, with their arguments: `{"name": "random_crop", "padding": 4}`.

Names and arguments are torchvision's where it has the transform; class names are valid, too. Forms, JSON validation,
`docs/generated/TRANSFORMS.md` and `data.transforms` use this table; tests compare it with the transforms themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.spec.choice import Argument, Choice, checked_arguments, flag, integer, known, number, numbers

_Wrong = tuple[str, str, str]
"""An argument, what is wrong with it, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformChoice(Choice):
    """A transform: where it is from, and what it draws."""

    source: str
    """Paper or library that defines it."""
    does: str
    """What it computes, exactly; n samples, c channels, h height, w width, l length."""
    draws: tuple[tuple[str, str], ...] = ()
    """Every call of torch that draws, in order, and what is done with the numbers."""
    wrong: Callable[[Mapping[str, Any]], _Wrong | None] = lambda given: None
    """Finds arguments that do not fit together; `given` has the defaults, too."""


def _sizes_differ(given: Mapping[str, Any]) -> _Wrong | None:
    mean, std = given["mean"], given["std"]
    if 1 in (len(mean), len(std)) or len(mean) == len(std):
        return None
    return "std", f"There are {len(mean)} means but {len(std)} deviations", "Give one of each for each channel."


def _falls(given: Mapping[str, Any]) -> _Wrong | None:
    for name in ("scale", "ratio"):
        if given[name][0] > given[name][1]:
            return name, "The smallest value comes first", "Exchange the two numbers."
    return None


def _shares(given: Mapping[str, Any]) -> _Wrong | None:
    if given["masked"] + given["random"] > 1:
        return "random", "The shares masked and random add up to more than 1", "Give smaller shares."
    if given["random"] > 0 and not given["vocabulary"]:
        return "vocabulary", "Random ids need the number of ids", "Give vocabulary, or set random to 0."
    return None


def _size(**more: Any) -> Argument:
    return Argument("integers", "size", least=1, most=65_536, length=2, **more)


_P = number("p", 0.5, least=0, most=1)
_MASKS = flag("masks")
_STRENGTH: dict[str, Any] = {"least": 0.0, "most": 1_000.0}
_ID: dict[str, Any] = {"least": 0}

TRANSFORMS: dict[str, TransformChoice] = {
    "normalize": TransformChoice(
        torch_class="Normalize",
        arguments=(numbers("mean", required=True), numbers("std", above=0, required=True)),
        help="Minus a mean and divided by a deviation, for each channel.",
        source="torchvision",
        does="`(x - mean) / std`, numbers in the type of x; one number is for all channels.",
        wrong=_sizes_differ,
    ),
    "resize": TransformChoice(
        torch_class="Resize",
        arguments=(
            _size(required=True),
            Argument("word", "interpolation", "bilinear", options=("bilinear", "bicubic", "nearest", "nearest-exact")),
            flag("antialias", default=True),
            _MASKS,
        ),
        help="Images to one height and width; with masks, targets to the nearest pixel.",
        source="torchvision",
        does="`interpolate(x, size, mode=interpolation, align_corners=False, antialias=antialias)`; the last two only "
        'for bilinear and bicubic. With masks, targets by `interpolate(..., mode="nearest")`.',
    ),
    "random_crop": TransformChoice(
        torch_class="RandomCrop",
        arguments=(
            _size(),
            integer("padding", 0, least=0, most=65_536),
            number("fill", 0.0),
            _MASKS,
            Argument("integer", "mask_fill", 0),
        ),
        help="A window at a random place, after a border of padding pixels; without size as large as the image.",
        source="torchvision",
        does="Sample i is `pad(x[i], 4 * [padding], value=fill)[:, top[i] : top[i] + size[0], left[i] : left[i] + "
        "size[1]]`. With masks, targets likewise, the border filled with mask_fill.",
        draws=(
            ("randint(h + 2 * padding - size[0] + 1, [n])", "top"),
            ("randint(w + 2 * padding - size[1] + 1, [n])", "left"),
        ),
    ),
    "horizontal_flip": TransformChoice(
        torch_class="RandomHorizontalFlip",
        arguments=(_P, _MASKS),
        help="Right to left, with probability p.",
        source="torchvision",
        does="Sample i is `x[i].flip(-1)` where `u[i] < p`. With masks, its target, too.",
        draws=(("rand(n)", "u"),),
    ),
    "random_erasing": TransformChoice(
        torch_class="RandomErasing",
        arguments=(
            _P,
            numbers("scale", (0.02, 0.33), least=0, most=1),
            numbers("ratio", (0.3, 3.3), above=0, most=1_000.0),
            number("value", 0.0),
        ),
        help="A rectangle is overwritten with value, with probability p.",
        source="Zhong et al. 2020; torchvision",
        does="Only where `u[i] < p`. Attempt k of ten has the area `h * w * (scale[0] + (scale[1] - scale[0]) * "
        "a[i, k])` and the ratio `exp(log(ratio[0]) + (log(ratio[1]) - log(ratio[0])) * b[i, k])`; its height is "
        "`round(sqrt(area * ratio))`, its width `round(sqrt(area / ratio))`. The first that is smaller than the "
        "image both ways is taken, if any. Its top row is `floor(s[i] * (h - height + 1))`, its left column "
        "`floor(t[i] * (w - width + 1))`. All channels of it become value.",
        draws=(("rand(n)", "u"), ("rand(n, 10)", "a"), ("rand(n, 10)", "b"), ("rand(n)", "s"), ("rand(n)", "t")),
        wrong=_falls,
    ),
    "color_jitter": TransformChoice(
        torch_class="ColorJitter",
        arguments=(
            number("brightness", 0.0, **_STRENGTH),
            number("contrast", 0.0, **_STRENGTH),
            number("saturation", 0.0, **_STRENGTH),
            number("hue", 0.0, least=0, most=0.5),
        ),
        help="Random brightness, contrast, saturation and hue, for values from 0 to 1; put it before normalize.",
        source="torchvision",
        does="Steps 0 to 3 are brightness, contrast, saturation and hue; sample i takes them in the order "
        "`argsort(o[i])`. The factor of step k is `max(0, 1 - strength) + (1 + strength - max(0, 1 - strength)) * "
        "v[i, k]`, of hue `-hue + 2 * hue * v[i, 3]`. The first three are `clamp(factor * x + (1 - factor) * y, "
        "0, 1)`, where y is 0, the mean grey, or the grey of each pixel, `0.2989 r + 0.587 g + 0.114 b`; hue adds "
        "the factor to the hue of HSV, modulo 1. Images of one channel have only brightness and contrast.",
        draws=(("rand(n, 4)", "o"), ("rand(n, 4)", "v")),
    ),
    "mixup": TransformChoice(
        torch_class="MixUp",
        arguments=(number("alpha", 1.0, above=0, most=1_000.0),),
        help="Mixes every sample, and its loss, with the sample before it in the batch.",
        source="Zhang et al. 2018; torchvision",
        does="`s * x + (1 - s) * x.roll(1, 0)`; the loss is `s * criterion(outputs, targets) + (1 - s) * "
        "criterion(outputs, targets.roll(1, 0))`. It is the last transform of a list.",
        draws=(("_sample_dirichlet(full((2,), float(alpha)))[0]", "s, as `torch.distributions.Beta` draws it"),),
    ),
    "token_masking": TransformChoice(
        torch_class="TokenMasking",
        arguments=(
            Argument("integer", "mask", required=True, **_ID),
            number("p", 0.15, least=0, most=1),
            number("masked", 0.8, least=0, most=1),
            number("random", 0.1, least=0, most=1),
            Argument("integer", "vocabulary", 0, **_ID),
            Argument("integers", "special", **_ID),
            flag("predict", default=True),
        ),
        help="Replaces ids with a mask or a random id; with predict, the targets are those ids (BERT).",
        source="Devlin et al. 2019",
        does="Ids with `u < p` are chosen, unless special. Of them, those with `v < masked` become mask, those with "
        "`v >= 1 - random` become r. With predict, targets are the ids where chosen and -100 elsewhere, in "
        "evaluation, too; without, it is for training alone.",
        draws=(("rand(n, l)", "u"), ("rand(n, l)", "v"), ("randint(max(1, vocabulary), [n, l])", "r")),
        wrong=_shares,
    ),
    "trim": TransformChoice(
        torch_class="Trim",
        arguments=(Argument("integer", "pad", 0, **_ID), flag("others"), flag("targets")),
        help="Cuts padded ids to the longest of the batch; with others and targets, all of the same length, too.",
        source="padding to the longest of a batch, as collate functions do",
        does="`x[:, :k]`, where k - 1 is the last column with an id that is not pad; k is at least 1.",
    ),
}
REFUSED = {
    "ToTensor": "is not needed: data are tensors, and scale makes numbers of bytes",
    "RandomResizedCrop": "is not offered yet; resize and random_crop come close",
    "Compose": "is not needed: the entry transforms is a list",
    "Lambda": "needs a function, and a spec cannot hold code",
}
SHORT_NAMES = {choice.torch_class: name for name, choice in TRANSFORMS.items()}


class TransformSpec(BaseModel):
    """One transform by name, with its arguments beside the name."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, strict=True)

    name: Annotated[str, AfterValidator(lambda name: known(name, TRANSFORMS, REFUSED, "transform"))]
    input: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Which input of the batch; by default the first."""

    @model_validator(mode="after")
    def _arguments(self) -> Self:
        choice, given = TRANSFORMS[self.name], self.arguments
        complete = {argument.name: argument.default for argument in choice.arguments} | given
        wrong = choice.wrong(complete)
        if wrong is not None:
            argument, message, remedy = wrong
            raise PydanticCustomError(
                "unknown_name", "{message}. {remedy}", {"message": message, "remedy": remedy, "argument": argument}
            )
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that were given, as the transform takes them."""
        return checked_arguments(dict(self.model_extra or {}), TRANSFORMS[self.name], {})


def _in_order(specs: Sequence[TransformSpec]) -> Sequence[TransformSpec]:
    if any(spec.name == "mixup" for spec in specs[:-1]):
        message = "After mixup every sample has two targets, so nothing may follow it. Make it the last transform."
        raise PydanticCustomError("unknown_name", message)
    return specs


TransformSpecs = Annotated[tuple[TransformSpec, ...], AfterValidator(_in_order), Field(max_length=100)]
"""The transforms of a sub-model, in the order in which they run."""
