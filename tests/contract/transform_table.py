"""Makes `docs/TRANSFORMS.md` from the table of transforms.

`python -m tests.contract.transform_table --write` writes the page; without `--write` it says whether the page is right.
"""

import json
import sys
from pathlib import Path

from tests.contract import generated_page
from unifiednn_core.data.transforms.table import build
from unifiednn_core.spec.choice import Argument
from unifiednn_core.spec.transforms import REFUSED, TRANSFORMS, TransformChoice, TransformSpec

PAGE = Path(__file__).parents[2] / "docs" / "TRANSFORMS.md"
HEAD = """\
# Transforms

A sub-model changes its batches with a list of transforms:

```json
"transforms": [
  {"name": "random_crop", "padding": 4},
  {"name": "horizontal_flip"},
  {"name": "normalize", "mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}
]
```

Names and arguments are torchvision's where it has the transform; its class names are valid, too. `"input": "image"` in
an entry says which input of the data is meant; without, it is the first. `python -m tests.contract.transform_table
--write` writes this page from `unifiednn_core/spec/transforms.py`; tests compare the page with the table, the table
with the transforms, and every transform with a slow loop that draws as this page says.

**When.** After the batch was copied and multiplied by `scale`, with `mean` and `std`, the transforms run in the order
of the list, on the device, before the network. A batch that is split passes in its parts. Evaluation leaves out those
"for training". So `random_crop` before `normalize` gives a border of black pixels, and after it one of the mean colour.

**Draws.** Every sample has its own numbers. They come from the random stream of the sub-model, the one that the network
draws dropout from: torch's default generator on the device of the batch in the plain loop. The calls below draw all
numbers, in this order, in float32 or int64; how many depends on the shape of the batch alone. On a CPU the plain loop
that calls them gets equal bits.

"""
ADDING = """\
## How to add a transform

Write a frozen dataclass of its arguments in a file of `unifiednn_core/data/transforms`, name it in `table.py` there and
in `unifiednn_core/spec/transforms.py`, and write this page anew. `unifiednn_core.testing.transforms.check_transform`
checks the contract: it draws only from the generator that it is given, writes into nothing, and asks the device for no
value. `tests/unit/data/transforms` wants a batch for it in `kit.py` and a loop in `reference.py`.
"""


def page() -> str:
    """Text of the page."""
    sections = [section(name, choice) for name, choice in TRANSFORMS.items()]
    refused = [f"- `{name}` {reason}." for name, reason in REFUSED.items()]
    return HEAD + "\n".join([*sections, "## Not here\n", *refused, "", ADDING])


def section(name: str, choice: TransformChoice) -> str:
    """What one transform is."""
    required = {"mask": 0, "mean": [0], "std": [1], "size": [1, 1], "vocabulary": 2}
    names = {argument.name for argument in choice.arguments}
    minimal = {key: value for key, value in required.items() if key in names}
    [transform] = build([TransformSpec.model_validate({"name": name, **minimal})])
    when = "for training" if transform.training_only else "in training and evaluation"
    rows = [f"| `{one.name}` | {one.takes} | {default(one)} |" for one in choice.arguments]
    draws = [f"- `{call}`: {use}" for call, use in choice.draws] or ["- nothing"]
    graph = " It reads a value of the device, so no CUDA graph is recorded." if transform.reads_values else ""
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{choice.help} Source: {choice.source}. Runs {when}.{graph}",
            "",
            "| argument | takes | default |",
            "|---|---|---|",
            *rows,
            "",
            choice.does,
            "",
            "Draws:",
            "",
            *draws,
            "",
        ]
    )


def default(argument: Argument) -> str:
    """Default of an argument, as JSON."""
    if argument.required:
        return "required"
    return "none" if argument.default is None else f"`{json.dumps(argument.default)}`"


def main() -> int:
    return generated_page.main(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())
