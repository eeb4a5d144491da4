"""The command that packs a network which was pickled with classes of its own. The pickle is scanned, never loaded."""

import pickletools
import re
from itertools import islice, pairwise

from unifiednn_core.formats.tensor_files import PLAIN_NAMES, full_name

_WRAPPERS = ("torch.nn.parallel.", "torch._dynamo.")
_LIBRARIES = ("torch.", "builtins.", "__builtin__.", "collections.", "numpy.")
_PYTHON_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_MOST_CHARACTERS = 200
_MOST_OPERATIONS = 100_000
_NEAR = 400  # operations of one layer
_KEPT = ("BINPUT", "LONG_BINPUT")
# The size that the first layer tells of a sample, and the sizes that its author knows.
_FIRST_LAYERS = {
    "torch.nn.modules.conv Conv1d": ("in_channels", "--input {size},LENGTH"),
    "torch.nn.modules.conv Conv2d": ("in_channels", "--input {size},HEIGHT,WIDTH"),
    "torch.nn.modules.conv Conv3d": ("in_channels", "--input {size},DEPTH,HEIGHT,WIDTH"),
    "torch.nn.modules.linear Linear": ("in_features", "--input {size}"),
    "torch.nn.modules.sparse Embedding": ("", "--input LENGTH --dtype int64"),
}


def pack_remedy(content: bytes) -> str | None:
    """The command with which its owner packs the network of this pickle; None if its names are not those of Python."""
    first = islice(pickletools.genops(content), _MOST_OPERATIONS)
    operations = [(operation.name, argument) for operation, argument, _ in first]
    classes = [str(argument) for name, argument in operations if name == "GLOBAL" and not _is_plain(str(argument))]
    own = [each for each in classes if not each.startswith(_LIBRARIES)]
    if not all(len(each) <= _MOST_CHARACTERS and _PYTHON_NAME.fullmatch(each.replace(" ", ".", 1)) for each in own):
        return None
    sample = _sample(operations)
    outermost = next((each for each in classes if not each.startswith(_WRAPPERS)), "")
    module, _, name = outermost.partition(" ") if outermost in own else ("", "", "")
    if module == "__main__":
        return f"On your own machine, run `unifiednn pack YOUR_SCRIPT.py:{name} {sample}`, and submit the .pt2 file."
    if any(each.startswith("__main__ ") for each in own):
        return None
    tops = ", ".join(sorted({f"'{each.partition(' ')[0].partition('.')[0]}'" for each in own}))
    place = f"On your own machine, in the folder that holds {tops}," if own else "On your own machine,"
    whole = f"`unifiednn pack FILE.pt {sample}` with the name of this file"
    if not module:
        return f"{place} run {whole}, and submit the .pt2 file."
    command = f"`unifiednn pack {module}:{name} {sample}`"
    return f"{place} run {command}, and submit the .pt2 file. To keep these weights, run {whole}."


def _is_plain(name: str) -> bool:
    return full_name(name) in PLAIN_NAMES


def _sample(operations: list[tuple[str, object]]) -> str:
    """The options for the input, as far as the first layer tells them."""
    layer = next(
        (at for at, (name, value) in enumerate(operations) if name == "GLOBAL" and value in _FIRST_LAYERS), None
    )
    if layer is None:
        return "--input SHAPE_OF_ONE_SAMPLE"
    key, option = _FIRST_LAYERS[str(operations[layer][1])]
    rest = [each for each in operations[layer : layer + _NEAR] if each[0] not in _KEPT]
    sizes = [value for (_, before), (kind, value) in pairwise(rest) if before == key and kind.startswith("BININT")]
    return option.format(size=sizes[0] if sizes else "SIZE")
