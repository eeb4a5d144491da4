"""Makes `docs/DATA.md`: imports files of data as people have them, and says what each becomes.

`python -m tests.contract.data_table --write` writes the page; without `--write` it says whether the page is right.
"""

import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from tests.contract import generated_page
from tests.contract.data_rows import BINARY, DataFile
from tests.contract.text_rows import TABLES, TOKENIZER
from unifiednn_core.base.paths import Home
from unifiednn_core.data.values import AS_STORED, ImportOptions, preview_of
from unifiednn_core.preflight import process
from unifiednn_core.preflight.report import FileReport

PAGE = Path(__file__).parents[2] / "docs" / "DATA.md"
FILES: tuple[DataFile, ...] = (*BINARY, *TABLES)
TAKEN = "taken"


def row(file: DataFile) -> list[str]:
    """Title, options, and what the file becomes or why it is refused."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(name) / file.filename
        file.write(path)
        report = process.run_inspect(path, file.filename, Path(name) / "converted", file.options, Home(Path(name)))
    return [file.title, said(file.options), outcome(report)]


def said(options: ImportOptions) -> str:
    """The options as the command line has them."""
    wish = options.table
    words = (
        "" if options.size is None else f"--size {options.size}",
        "--channels-last" * options.channels_last,
        "--plan plan.json" * (wish.plan is not None),
        f"--tokenizer {wish.tokenizer}".replace(TOKENIZER, "tokenizer.json") * bool(wish.tokenizer),
        *(f"--text-column {name}" for name in wish.text_columns),
        "--stream" * wish.stream,
        "" if wish.length is None else f"--length {wish.length}",
        "--mask" * wish.mask,
    )
    return f"`{' '.join(filter(None, words))}`" if options != AS_STORED else ""


def outcome(report: FileReport) -> str:
    """What a file becomes, one sentence for each data set; or the finding that refuses it."""
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if errors or report.kind != "data":
        words = " ".join(f"{one.message} {one.remedy}" for one in errors[:1]) or f"This is taken for {report.kind}."
        return f"refused: {words}".replace("|", "/")
    return f"{TAKEN}: {'; '.join(map(described, (report, *report.others)))}"


def described(report: FileReport) -> str:
    """Samples, shapes, types and classes of a data set."""
    facts = report.facts
    several = facts.get("inputs", {"inputs": f"{facts['input_dtype']} {facts['input_shape']}"})
    assert isinstance(several, dict)
    words = [f"{report.part}: " * bool(report.part) + f"{facts['samples']} samples"]
    words += [each if name == "inputs" else f"`{name}` {each}" for name, each in several.items()]
    if facts["target_dtype"] is not None:
        kind = f"{facts['classes']} classes" if facts["classes"] else f"targets {facts['target_dtype']}"
        words.append(f"{kind} {facts['target_shape'] or ''}".strip())
    seen = preview_of(facts)
    remarks = () if seen is None else (*seen.notes.remarks, *(one.message for one in seen.warnings))
    return ", ".join(words) + "".join(f" ({remark})" for remark in remarks)


def page(rows: Sequence[Sequence[str]]) -> str:
    """Text of the page."""
    taken = sum(cells[2].startswith(TAKEN) for cells in rows)
    lines = [HEAD, f"{taken} of these {len(rows)} imports are taken.", ""]
    lines += ["| file | options | what it becomes |", "|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([*lines, "", FOOT])


HEAD = """\
# Data

This page shows which files of data can be imported, and what each becomes.
`python -m tests.contract.data_table --write` writes it from small files that it makes itself; a test fails if the page
differs from its findings.
"""
FOOT = """\
## How files are read

- A file is recognised by its bytes, never by its name. Nothing in it runs: pickles are read as inert records, archives
  are never unpacked to the file system, and every size that a file claims is compared with its bytes first.
- Data that cannot be mapped are converted block by block into one `.safetensors` for each data set, so the disk limits
  their size, not the memory. A file with a training and a validation or test part becomes a data set of each.
- Arrays are found by their names: `inputs`, `x`, `data`, `features` or `images`, and `targets`, `y` or `labels`; with
  `train`, `val` or `test` in the name, such as `x_train` or `test_labels`, they are parts.
- Images are uint8 `[samples, channels, height, width]`: one channel if all are grey, else three. `--size 224` takes the
  square in the middle of each image, as wide as its shorter side, and resizes it with Pillow's bilinear filter; this
  is a resize of the shorter side with a centre crop. Masks are resized with the nearest value.
- Masks hold the class number of each pixel, grey or by palette. If a mask has only the values 0 and 255, 255 is
  class 1; beside other classes, 255 means "no class", becomes -100, and criteria ignore it.
- Classes are numbered in the alphabetical order of their names, the same in all parts of a file. IDX images get a
  channel: `[samples, 1, height, width]`. Class numbers of the shape `[samples, 1]` become `[samples]`.
- A file of another kind, such as ONNX, HDF5 or Excel, is named, with the line that converts it to one that is taken.
- A CSV file is in UTF-8, its values separated by comma, semicolon, tab or `|`; blanks around them are left out.
- A table becomes numbers by a plan of its columns, which the preview shows: numbers as they are, a missing one as the
  mean; up to 64 different texts one column each; lists of numbers and texts padded to one length, each an input of its
  own. The target is the column `target` or `label`, else the last; class names are numbered in alphabetical order. A
  CSV file whose first line holds labels that occur again further down is read as one without column names.
- `--plan plan.json` says it column by column: `{"columns": [{"kind": "number", "name": "age", "missing": "median",
  "input": "real"}, {"kind": "category", "name": "job"}, {"kind": "text", "name": "note", "tokenizer": "words"}],
  "target": "job"}`; kinds are `number`, `category`, `text`, `list`, `image` and
  `ignore`.
- `--like NAME` reads a second file, such as test data, exactly as a data set of the library was read: the same means,
  categories, words and lengths. A category that the first file lacks is refused.
- `--tokenizer words` cuts texts in lower case at white space; the 10,000 most frequent words (`--vocabulary`) get ids
  from 3; 0 fills up short texts, 1 is any other word, 2 ends each line of a stream. `--tokenizer tokenizer.json` uses a
  file of the `tokenizers` library, which describes rules and holds no code. `--mask` adds the input `attention_mask`.
- Plain text, and with `--stream` a column of texts, is one stream of tokens cut into samples of `--length` tokens; the
  rest at the end is dropped. Such data have no targets: a spec says `"targets": "next"`.
- WebDataset: samples are files of one name, an image and a `.cls`, or a `.json` with `label`, `cls`, `class`, `target`
  or `y`.
"""


def main() -> int:
    return generated_page.main(PAGE, page([row(file) for file in FILES]))


if __name__ == "__main__":
    sys.exit(main())
