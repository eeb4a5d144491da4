"""Makes `docs/OPERATORS.md` from the contracts of the operators.

`python -m tests.contract.operator_table --write` writes the page; without `--write` it says whether the page is right.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.contract import generated_page
from unifiednn_core.formats import operators
from unifiednn_core.formats.contracts import general, sizes, spectra, table
from unifiednn_core.formats.contracts.contract import Contract, never

PAGE = Path(__file__).parents[2] / "docs" / "OPERATORS.md"
HEAD = """\
# Operators

A `.pt2` file is a graph of these operators of `torch.ops.aten`. Each has a contract: what its arguments must be for its
kernel to read and write their memory alone. An operator that is not here is refused when the file is read.
`python -m tests.contract.operator_table --write` writes this page from `unifiednn_core/formats/contracts`; a test fails
if they differ.

**When it is checked.** `formats/guard.py` stands in front of every graph: in the check before the start, in training,
and in evaluation. When an input comes with a shape, layout, type, device or mode that it has not seen, the graph runs
node by node, and each call is checked on the very tensors that its kernel is about to get: weights as stored, shapes as
computed, not as the file claims them. What breaks its contract does not run; before the start that is the finding
"Operator refused", and in a worker it ends that sub-model alone. Later batches of a known kind run without checks,
because nothing that a contract looks at can change: weights keep shape and type. Where the shape of a result depends on
values ("every call" below), every batch is checked.

Contracts look at shapes, types and memory, not at values, but for a few kernels that would read foreign memory by them
(`embedding_bag`, borders of `grid_sampler`). Where a kernel itself checks values, the contract says so. On CUDA such a
check ends the worker; the sub-model at work is named, and the others go on.

## Every operator

"""
IN_PLACE = "An operator whose name ends in `_` writes to its first argument. In addition:"
COMPLEX = """\
## Which operators take complex numbers

A network may compute with complex64 and complex128 inside, and hold complex64 buffers, such as those of rotary
embeddings. Its weights, inputs and outputs are real: keep a complex weight as pairs of real numbers, and use
`torch.view_as_complex` in `forward`. These operators also take complex numbers:
"""
ADDING = """\
## How to add an operator

Add it to the file of its family in `unifiednn_core/formats/contracts`, with rules that say in words and check in code
what its kernel takes for granted: ranks, sizes, types, layout, and memory that it writes to. `rule(text)` makes a rule
of a function that names the arguments it looks at. Then run the fuzzer on it (`python -m tests.hostile.operators
--operator NAME`), and write this page anew.
"""


def page() -> str:
    """Text of the page."""
    lines = [HEAD + "\n".join(f"- {text}" for text in general.TEXTS), "", IN_PLACE, ""]
    lines += [f"- {text[0].upper()}{text[1:]}." for text in general.IN_PLACE]
    for family in table.FAMILIES:
        lines += ["", *section(str(family.__doc__).strip(), family.CONTRACTS)]
    lines += ["", *section(str(sizes.__doc__).strip(), sizes.CONTRACTS)]
    dropped = ", ".join(f"`{name.removeprefix('torch.ops.aten.')}`" for name in sorted(operators.ASSERTIONS))
    lines += ["", f"The exporter's own assertions are left out when a graph is built: {dropped}.", ""]
    taking = sorted(name.removeprefix("torch.ops.aten.") for name in spectra.ALSO_COMPLEX)
    lines += [COMPLEX, " ".join(f"`{name}`" for name in taking), "", ADDING]
    return "\n".join(lines)


def section(title: str, contracts: Mapping[str, Contract]) -> list[str]:
    """A heading and a table; operators of one contract share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, contract in contracts.items():
        rows.setdefault(words(contract), []).append(name.removeprefix("torch.ops.aten.").removeprefix("_operator."))
    body = [f"| {' '.join(f'`{name}`' for name in names)} | {text} | {when} |" for (text, when), names in rows.items()]
    return [
        f"## {title.splitlines()[0].rstrip('.')}",
        "",
        "| operators | contract | checked for new |",
        "|---|---|---|",
        *body,
    ]


def words(contract: Contract) -> tuple[str, str]:
    """What a contract says, and when it is checked."""
    texts = "; ".join(rule.text for rule in contract.rules) or "the rules for every operator alone"
    when = "shapes" if contract.depends_on_values is never else "shapes; every call where values decide the shape"
    return texts.replace("|", "\\|"), when


def main() -> int:
    return generated_page.main(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
