"""The command that brings a file into the library, and says how the columns of a table become numbers."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, opened
from unifiednn_core.data.values import AS_STORED, ImportOptions
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.columns import WORDS, TableImportOptions, parse_plan
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.views.plan_text import plan_rows
from unifiednn_core.views.runs import FileView

BLOCK_BYTES = 2**20
Columns = Annotated[list[str] | None, typer.Option("--text-column", help="Column of texts to read; repeatable.")]
Left = Annotated[list[str] | None, typer.Option("--ignore", help="Column to leave out; repeatable.")]


def import_file(
    file: Annotated[Path, typer.Argument(help="A model, a data set, a table, a text, or a tokenizer.json.")],
    plan: Annotated[Path | None, typer.Option(help="What becomes of each column: a JSON file.")] = None,
    like: Annotated[str, typer.Option(help="Data set of the library: read this file as that one was.")] = "",
    target: Annotated[str | None, typer.Option(help="Column of the targets; by default 'label' or the last.")] = None,
    no_target: Annotated[bool, typer.Option("--no-target", help="There is no column of targets.")] = False,
    text_column: Columns = None,
    ignore: Left = None,
    tokenizer: Annotated[str, typer.Option(help="'words', a tokenizer.json, or one of the library.")] = "",
    length: Annotated[int | None, typer.Option(help="Tokens of one sample: longer texts are cut.", min=1)] = None,
    vocabulary: Annotated[int, typer.Option(help="For 'words': how many words get a number.", min=1)] = 10_000,
    mask: Annotated[bool, typer.Option("--mask", help="A second input says which tokens are padding.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Join all texts and cut them into samples.")] = False,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line names the columns.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The file is plain text, whatever it looks like.")] = False,
    size: Annotated[int | None, typer.Option(help="Height and width of all images.", min=1, max=4096)] = None,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Samples are height, width, channels.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a file into the library; a table or a text becomes a data set by a plan of its columns."""
    with opened(as_json) as service:
        try:
            wish = TableImportOptions(
                plan=None if plan is None else parse_plan(plan.read_bytes()),
                like=_data_set(service, like) if like else "",
                target="" if no_target else target,
                text_columns=tuple(text_column or ()),
                ignore=tuple(ignore or ()),
                tokenizer=_tokenizer(service, tokenizer),
                length=length,
                vocabulary=vocabulary,
                mask=mask,
                stream=stream,
                header=header,
                text=text,
            )
        except ValidationError as error:
            raise BadInput([finding_of(detail, {}) for detail in error.errors()]) from None
        view = _imported(service, file, ImportOptions(size=size, channels_last=channels_last, table=wish))
        if as_json:
            terminal.print_json({"sha256": view.sha256, "kind": view.kind, "facts": view.facts})
            return
        seen = view.preview
        if seen is not None and seen.notes.plan is not None:
            terminal.print_table(("column", "becomes"), plan_rows(seen.notes.plan))
        terminal.print_findings(() if seen is None else seen.warnings)
        terminal.say(f"{view.filename}: {view.kind}. Name it in a spec as sha256:{view.sha256}")


def _imported(service: Service, file: Path, options: ImportOptions) -> FileView:
    with file.open("rb") as opened_file:
        return service.library.import_file(file.name, iter(lambda: opened_file.read(BLOCK_BYTES), b""), options=options)


def _tokenizer(service: Service, named: str) -> str:
    """Hash of a tokenizer, imported if it is a file; or `words`, or nothing."""
    if named in ("", WORDS):
        return named
    if Path(named).is_file():
        return _imported(service, Path(named), AS_STORED).sha256
    return _found(service, named, "tokenizer")


def _data_set(service: Service, named: str) -> str:
    return _found(service, named, "data")


def _found(service: Service, named: str, kind: str) -> str:
    """Hash of a file of the library by its name or the beginning of its hash; raises `BadInput`."""
    start = named.removeprefix("sha256:")
    for file in service.library.files():
        if file.kind == kind and (file.filename == named or (len(start) >= 8 and file.sha256.startswith(start))):
            return file.sha256
    remedy = "Import it first, and give its name or its hash."
    raise BadInput.of("Not in the library", named, f"There is no {kind} '{named}' in the library.", remedy)
