"""Weights under other names than those of a network: inside of a dict, with prefixes, or alike in shapes alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.units import abbreviated

ENTRIES = ("state_dict", "model_state_dict", "model", "net", "network", "weights")
"""Where training scripts put the state dict, the usual first."""
PREFIXES = ("module.", "model.", "_orig_mod.", "net.", "network.", "backbone.")
"""What DataParallel, Lightning, torch.compile and own wrappers put before every name."""
BY_SHAPE = "by_shape"
SHOWN_PAIRS = 24
_WRAPPERS = ("module", "_orig_mod")  # a part of the network may be wrapped, too
_FORMER = (("mlp.linear_1.", "mlp.0."), ("mlp.linear_2.", "mlp.3."))  # in torchvision's files of ViT
_COUNTER = "num_batches_tracked"  # files from before torch 0.4.1 lack it; torch then begins with 0
_ROLES = frozenset({"weight", "bias", "running_mean", "running_var", _COUNTER})


@dataclass(frozen=True, slots=True)
class FoundWeights:
    """The state dict that was found in a file."""

    weights: dict[str, Tensor]
    entry: str = ""
    """Entry of the file's dict that holds it; empty if it is the file itself."""
    others: tuple[str, ...] = ()
    """Further entries with a state dict."""

    def doubts(self, field: str) -> tuple[Finding, ...]:
        """A finding if the file holds several state dicts and none was asked for: an error if none is the usual one."""
        if not self.others:
            return ()
        usual, place = self.entry in ENTRIES, field.rpartition(".")[2]
        message = f"The file holds several state dicts: {_named((self.entry, *self.others))}."
        message += f" The weights were taken from '{self.entry}'." if usual else ""
        remedy = (
            f'To take {"others" if usual else "one"}, add its name to {place}, such as "entry": "{self.others[0]}".'
        )
        severity: Literal["warning", "error"] = "warning" if usual else "error"
        title = "Several state dicts"
        return (Finding(severity=severity, title=title, field=field, message=message, remedy=remedy),)


def held_in(loaded: object, entry: str | None, field: str) -> FoundWeights | None:
    """Find the state dict in the content of a file, at most one level deep; None if there is none.

    Raises `BadInput` on `field` if there is none under the `entry` that was asked for.
    """
    if entry is None and is_state_dict(loaded):
        return FoundWeights(dict(loaded))  # type: ignore[call-overload]
    inside = loaded.items() if isinstance(loaded, dict) else ()
    found = {key: value for key, value in inside if isinstance(key, str) and is_state_dict(value)}
    if entry is not None and entry not in found:
        message = f"The file has no state dict under '{entry[:60]}'."
        remedy = f"Name one of {_named(tuple(found))}." if found else "Remove this entry."
        raise BadInput.of("No such entry", field=f"{field}.entry", message=message, remedy=remedy)
    if not found:
        return None
    taken = entry or next((key for key in ENTRIES if key in found), next(iter(found)))
    return FoundWeights(dict(found[taken]), taken, () if entry else tuple(key for key in found if key != taken))


def is_state_dict(value: object) -> bool:
    """Whether a value maps names to tensors."""
    entries = value.items() if isinstance(value, dict) else ()
    return bool(entries) and all(isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in entries)


def fitted(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], names: str | None) -> dict[str, Tensor]:
    """Give weights the names of a network, by names or, if `names` says so, by shapes; unchanged if they do not fit."""
    pairs = pairs_by_name(weights, expected)
    if pairs is None and names == BY_SHAPE:
        pairs = pairs_by_shape(weights, expected)
    if pairs is None:
        return dict(weights)
    zero = torch.zeros((), dtype=torch.int64)
    return {key: weights[pairs[key]] if key in pairs else zero.clone() for key in expected}


def pairs_by_name(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, str] | None:
    """Map names of a network to names in a file that differ by prefixes alone, or not at all; None if some do not."""
    names = {name: name for name in weights}
    while not _cover(names, expected):
        shorter = _without_prefix(names)
        if shorter is None:
            names = {_unwrapped(name): own for name, own in names.items()}
            break
        names = shorter
    return names if _cover(names, expected) and len(names) == len(weights) else None


def pairs_by_shape(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, str] | None:
    """Map names of a network to names in a file by type, shape and order; None if these differ, or roles do."""
    ours, theirs = (_split(tensors) for tensors in (expected, weights))
    kinds = [[_kind(tensors[name]) for name in names] for tensors, (names, _) in ((expected, ours), (weights, theirs))]
    if kinds[0] != kinds[1] or len(theirs[1]) not in (0, len(ours[1])):
        return None
    pairs = dict(zip(ours[0], theirs[0], strict=True)) | dict(zip(ours[1], theirs[1], strict=False))
    roles = ((_role(one), _role(other)) for one, other in pairs.items())
    crossed = any(one != other and {one, other} <= _ROLES for one, other in roles)
    return None if crossed else pairs


def other_names(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], field: str) -> Finding | None:
    """Finding on weights that fit by shapes alone, with the pairs: an error that says how to confirm; None if none."""
    pairs = None if pairs_by_name(weights, expected) else pairs_by_shape(weights, expected)
    if pairs is None:
        return None
    names = {name: name for name in weights}
    while (shorter := _without_prefix(names)) is not None:
        names = shorter
    plain = {own: name for name, own in names.items()}
    renamed = {one: other for one, other in pairs.items() if one not in (other, plain[other])}
    shown = [f"'{one}' = '{other}'" for one, other in renamed.items()]
    message = (
        "The names in the file are not those of the network; shapes and types are the same, in the same order. Network "
        f"= file: {abbreviated(shown, SHOWN_PAIRS)}."
    )
    if doubtful := _doubtful(renamed, expected):
        message += f" Order alone tells these apart, for their shapes are equal: {abbreviated(doubtful)}."
    remedy = f'If these pairs are right, add "names": "{BY_SHAPE}" to {field.rpartition(".")[2]}.'
    return Finding(title="Other names of weights", field=field, message=message, remedy=remedy)


def confirmed(finding: Finding) -> Finding:
    """The same as a warning, after a person has confirmed it."""
    remedy = "You confirmed these pairs; if one is wrong, the network begins with weights in the wrong places."
    return finding.model_copy(update={"severity": "warning", "remedy": remedy})


def _doubtful(renamed: Mapping[str, str], expected: Mapping[str, Tensor]) -> list[str]:
    """Names in the file that could also go elsewhere: another renamed weight has the same shape and role."""
    groups = {ours: (_kind(expected[ours]), _role(theirs)) for ours, theirs in renamed.items()}
    sizes = Counter(groups.values())
    return [f"'{renamed[ours]}'" for ours, group in groups.items() if sizes[group] > 1 and _role(ours) != _COUNTER]


def _without_prefix(names: Mapping[str, str]) -> dict[str, str] | None:
    """The names without the prefix that all of them have; None if they have none."""
    found = (prefix for prefix in PREFIXES if names and all(name.startswith(prefix) for name in names))
    prefix = next(found, None)
    return None if prefix is None else {name.removeprefix(prefix): own for name, own in names.items()}


def _cover(names: Mapping[str, str], expected: Mapping[str, Tensor]) -> bool:
    lacking = expected.keys() - names.keys()
    return not names.keys() - expected.keys() and all(_role(name) == _COUNTER for name in lacking)


def _unwrapped(name: str) -> str:
    plain = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
    for former, now in _FORMER:
        plain = plain.replace(former, now)
    return plain


def _split(tensors: Mapping[str, Tensor]) -> tuple[list[str], list[str]]:
    """Names of all but the counters of batches, and those of the counters."""
    counters = [name for name in tensors if _role(name) == _COUNTER]
    return [name for name in tensors if _role(name) != _COUNTER], counters


def _role(name: str) -> str:
    return name.rpartition(".")[2]


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


def _named(names: tuple[str, ...]) -> str:
    return abbreviated([f"'{name[:60]}'" for name in names])
