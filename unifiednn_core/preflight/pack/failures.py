"""Why a network cannot be called or exported: what is wrong, in which line, and what to write instead."""

import inspect
import re
import sysconfig
import traceback
from pathlib import Path

import torch
from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.request import Example

DATA_DEPENDENT = (
    r"(?i)data.dependent|GuardOnDataDependent|_local_scalar_dense|item\(\)|nonzero|\bu\d+\b",
    "What the network does depends on the values of its input (an `if`, `.item()`, a mask as index).",
    "Choose with torch.where instead of `if`, multiply by a mask instead of indexing with it, or use torch.cond.",
)
# Pattern of torch's message or of the files on the way to it, message, remedy. The first match is shown.
_FAILURES = (
    (
        r"nn/modules/transformer\.py|_detect_is_causal_mask",
        "TransformerEncoder looks at the values of its mask to find out whether it is causal.",
        "Pass is_causal=True (or False) together with the mask.",
    ),
    (
        r"nn/modules/(batchnorm|instancenorm)\.py",
        "A normalisation with momentum=None computes its momentum from the value of its counter.",
        "Give it a momentum, such as 0.1.",
    ),
    (
        r"'size' failed to unpack[\s\S]*FakeTensor|pack_padded_sequence",
        "A size in the network depends on the values of its input, as in pack_padded_sequence.",
        "Run the recurrent layer over the padded sequence, and choose its steps with gather or a mask.",
    ),
    DATA_DEPENDENT,
    (
        r"Constraints violated \(L\['\w+'\]\.size\(\)\[(?P<place>\d+)\]\)",
        "The network works for only one size of dimension {place}.",
        "Recurrent layers take sequences of one length: remove --free there.",
    ),
    (
        r"specialized it to be a constant|Constraints violated",
        "The network works for only one batch size.",
        "Take sizes from the input (x.shape[0] and not len(x), x.flatten(1), -1 in reshape), not from numbers. "
        "Choose samples with torch.where or a factor of 0 or 1, not with a mask as index.",
    ),
    (
        r"(?i)backed by numpy|\.numpy\(\)|FakeTensor.*numpy|Cannot access data pointer",
        "The network leaves torch, for instance through NumPy.",
        "Write that part of forward with torch's own functions.",
    ),
)
_NO_GPU = r"(?i)no CUDA GPUs|not compiled with CUDA|NVIDIA driver|torch\.cuda\.is_available\(\) is False|CUDA error"
_ON_CPU = (
    'Make the network on the CPU: write `"cuda" if torch.cuda.is_available() else "cpu"` for the device, '
    "and the device of the input in forward. The server moves the network to its GPU."
)


def of_call(error: Exception, network: nn.Module, example: Example, name: str) -> BadInput:
    """What to do where forward does not take the example."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
    taken = " and ".join(f"{[example.batch, *given.shape]} of {given.dtype}" for given in example.inputs)
    message = f"The network does not take a batch {taken}: {text}{place_of(error)}."
    remedy = needs_gpu(error) or "Give the shape of one sample with --input, without the batch, and its type."
    if isinstance(error, TypeError) and "required positional argument" in str(error):
        parameters = inspect.signature(network.forward).parameters.values()
        names = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
        given = {one.name or names[0]: f"{','.join(map(str, one.shape))}:{one.dtype}" for one in example.inputs}
        options = " ".join(f"--input {one}={given.get(one, 'SIZES:DTYPE')}" for one in names)
        remedy = (
            f"Give every tensor that forward takes, by its name: {options}. "
            "What is no tensor with a row for each sample, such as a hidden state, a wrapper's forward makes itself."
        )
    return BadInput.of("Not a network to train", name, message, remedy)


def of_export(error: Exception, name: str) -> BadInput:
    """What to write instead of what torch.export cannot follow."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f"{type(error).__name__}: {error}"
    searched = "\n".join([text, *(frame.filename for frame in frames[-12:])])
    message = f"torch cannot export the network: {text.splitlines()[0].rstrip('.')[:300]}."
    remedy = "Write forward with plain tensor operations that do not depend on values."
    for pattern, known_message, known_remedy in _FAILURES:
        if (match := re.search(pattern, searched)) is not None:
            message, remedy = known_message.format(**match.groupdict()), known_remedy
            break
    if last := _last(error):
        message += f" It is line {last.lineno} of {Path(last.filename).name}: `{last.line}`."
    return BadInput.of("Cannot be exported", name, message, remedy)


def needs_gpu(error: BaseException) -> str | None:
    """The remedy for code that failed because it found no GPU; None for other errors."""
    return _ON_CPU if re.search(_NO_GPU, str(error)) else None


def place_of(error: BaseException) -> str:
    """The line of the user's code that led to an error, to stand at the end of a sentence; empty if there is none."""
    last = _last(error)
    return f", line {last.lineno} of {Path(last.filename).name}" if last else ""


def _last(error: BaseException) -> traceback.FrameSummary | None:
    """The last line on the way to the error that is neither of Python, nor of torch, nor ours."""
    stdlib, packages = sysconfig.get_path("stdlib"), ("site-packages", "dist-packages")
    ours, torchs = str(Path(__file__).resolve().parents[2]), str(Path(torch.__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        of_python = frame.filename.startswith(stdlib) and not any(one in frame.filename for one in packages)
        if frame.line and not of_python and not frame.filename.startswith((ours, torchs, "<")):
            return frame
    return None
