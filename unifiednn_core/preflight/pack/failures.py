"""Why a network cannot be exported, by what torch raised, and what to write instead."""

import re
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.base.errors import Finding

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which export fails."""

    pattern: str
    """Of torch's message, or of the code where it failed."""
    message: str
    remedy: str


DATA_DEPENDENT = Failure(
    r"(?i)data.dependent|GuardOnDataDependent|_local_scalar_dense|item\(\)|nonzero|\bu\d+\b",
    "What the network does depends on the values of its input (an `if`, `.item()`, a mask as index).",
    "Choose with torch.where instead of `if`, multiply by a mask instead of indexing with it, or use torch.cond.",
)
# The first that fits is shown.
FAILURES = (
    Failure(
        r"nn/modules/transformer\.py|_detect_is_causal_mask",
        "TransformerEncoder looks at the values of its mask to find out whether it is causal.",
        "Pass is_causal=True (or False) together with the mask.",
    ),
    DATA_DEPENDENT,
    Failure(
        r"specialized it to be a constant|Constraints violated \((?P<size>\w+)\)",
        "The network works for one {size} alone.",
        "Take sizes from the input (x.shape[0], x.flatten(1), -1 in reshape) instead of writing them as numbers. "
        "Recurrent layers take sequences of one length alone: leave --free out there.",
    ),
    Failure(
        r"(?i)backed by numpy|\.numpy\(\)|FakeTensor.*numpy|Cannot access data pointer",
        "The network leaves torch, for instance through NumPy.",
        "Write that part of forward with torch's own functions.",
    ),
)


def explained(error: BaseException, name: str) -> Finding:
    """The finding on `name` for what torch's export raised."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{text}\n" + "\n".join(frame.filename for frame in frames[-12:])
    for failure in FAILURES:
        if (match := re.search(failure.pattern, where)) is not None:
            size = (match.groupdict().get("size") or "batch").replace("size", "size of dimension ")
            size = "batch size" if size == "batch" else size
            message, remedy = failure.message.format(size=size), failure.remedy
            break
    else:
        first_line = text.strip().splitlines()[0].rstrip(".")[:_SHOWN]
        message = f"torch cannot export the network: {first_line}."
        remedy = "Write forward with plain tensor operations whose course does not depend on values."
    own = [frame for frame in frames if _is_own(frame.filename)]
    at = f" It is line {own[-1].lineno}: `{own[-1].line}`." if own and own[-1].line else ""
    return Finding(title="Cannot be exported", field=name, message=f"{message}{at}", remedy=remedy)


def _is_own(filename: str) -> bool:
    """Whether a line of code is the user's: not of Python, of an installed package, or of this one."""
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return not filename.startswith((*libraries, str(Path(__file__).resolve().parents[2]), "<"))
