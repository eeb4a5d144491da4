"""Import options of data: the size of images, the order of dimensions, and how tables and texts become numbers."""

import re
from collections.abc import Sequence
from typing import Any

import streamlit as st
from pydantic import ValidationError

from pages._ui import drafts, plan_form
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.data.values import MAX_IMAGE_SIDE, ImportOptions
from unifiednn_core.spec.columns import MAX_LENGTH, MAX_WORDS, WORDS, TableImportOptions
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.views import markup
from unifiednn_core.views.runs import FileView

SIZE, LAST = "Size of images", "Channels last"
TARGET, NO_TARGET, TEXTS, LEFT_OUT = "Column of the targets", "No targets", "Columns of texts", "Columns to leave out"
TOKENIZER, LENGTH, FIRST_LINE = "Tokenizer", "Length of a sample", "First line"
IS_DATA = "data"
HEADERS = {"detect automatically": None, "column names": True, IS_DATA: False}
IN_WORDS = (
    (r", or --size 224 on the command line", ""),
    (r"--tokenizer words or --tokenizer tokenizer\.json", f"'{TOKENIZER}'"),
    (r"--no-header", f"'{FIRST_LINE}' as {IS_DATA}"),
    (r"--no-target", f"'{NO_TARGET}'"),
    (r"--target NAME", f"'{TARGET}'"),
    (r"--ignore ('[^']*')", rf"'{LEFT_OUT}' \1"),
    (r"--length NUMBER", f"'{LENGTH}'"),
    (r"--channels-last", f"'{LAST}'"),
    (r"--size", f"'{SIZE}'"),
)
"""Options of the command line in findings, and the fields that say the same here."""
SIZE_HELP = "Height and width of all images: the square in the middle of each, resized."
LAST_HELP = "The samples are [height, width, channels]; the channels are moved forward."
LIKE_HELP = (
    "Reads the file exactly as this data set was read: same means, categories, words and lengths. For test data."
)
NAMES_HELP = "Names of columns, separated by commas."
TOKENIZER_HELP = (
    "words cuts at white space and numbers the most frequent words. A tokenizer.json is added in the Library, tab Data."
)
LENGTH_HELP = "Tokens of one sample: longer texts are cut, shorter ones filled up."
MASK_HELP = "A second input says which tokens are padding."
STREAM_HELP = "All texts are joined and cut into samples, to learn to predict the next token."
PLAIN_HELP = "The file is plain text, whatever it looks like."


def options(files: Sequence[FileView], *, key: str, opened: bool) -> ImportOptions:
    """Draw the options, folded away unless `opened`; returns those that they now say. Raises `BadInput`.

    `files` are those of the library: data sets with a plan of their columns, and tokenizers.
    """
    with st.expander("Import options", icon=":material/tune:", expanded=opened, key=f"{key}-fold-{opened}"):
        one, two = st.columns(2, vertical_alignment="bottom")
        size = one.number_input(
            SIZE, 1, MAX_IMAGE_SIDE, None, key=f"{key}-size", placeholder="as they are", help=SIZE_HELP
        )
        channels_last = two.checkbox(LAST, key=f"{key}-channels", help=LAST_HELP)
        st.html(markup.small("Tables and texts"))
        wish = _wish(files, key)
    try:
        return ImportOptions(size=size, channels_last=channels_last, table=TableImportOptions.model_validate(wish))
    except ValidationError as error:
        raise BadInput([finding_of(detail, wish) for detail in error.errors()]) from None


def in_words(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings with the names of fields in place of options of the command line."""
    return tuple(
        one.model_copy(update={"message": _in_words(one.message), "remedy": _in_words(one.remedy)}) for one in findings
    )


def _in_words(text: str) -> str:
    for option, words in IN_WORDS:
        text = re.sub(option, words, text)
    return text


def _wish(files: Sequence[FileView], key: str) -> dict[str, Any]:
    planned = {file.sha256: file for file in files if file.preview is not None and file.preview.notes.plan is not None}
    tokenizers = {file.sha256: file.filename for file in files if file.kind == "tokenizer"}
    one, two = st.columns(2, vertical_alignment="bottom")
    target = one.text_input(TARGET, key=f"{key}-target", placeholder="'target', 'label' or the last")
    no_target = two.checkbox(NO_TARGET, key=f"{key}-no-target")
    one, two = st.columns(2)
    texts = one.text_input(TEXTS, key=f"{key}-texts", placeholder="none", help=NAMES_HELP)
    left_out = two.text_input(LEFT_OUT, key=f"{key}-ignore", placeholder="none", help=NAMES_HELP)
    one, two, three = st.columns(3)
    ways: list[str] = [WORDS, *tokenizers]
    tokenizer = one.selectbox(
        TOKENIZER,
        ways,
        None,
        lambda way: tokenizers.get(way, way),
        f"{key}-tokenizer",
        TOKENIZER_HELP,
        placeholder="none",
    )
    length = two.number_input(
        LENGTH, 1, MAX_LENGTH, None, key=f"{key}-length", placeholder="the longest", help=LENGTH_HELP
    )
    vocabulary = three.number_input("Words with a number", 1, MAX_WORDS, 10_000, key=f"{key}-vocabulary")
    with st.container(horizontal=True):
        mask = st.checkbox("Mask of the padding", key=f"{key}-mask", help=MASK_HELP)
        stream = st.checkbox("One stream of tokens", key=f"{key}-stream", help=STREAM_HELP)
        text = st.checkbox("Plain text", key=f"{key}-text", help=PLAIN_HELP)
    one, two = st.columns(2)
    header = HEADERS[one.selectbox(FIRST_LINE, list(HEADERS), key=f"{key}-header")]
    like = two.selectbox(
        "Read as",
        list(planned),
        None,
        lambda sha: planned[sha].filename,
        f"{key}-like",
        LIKE_HELP,
        placeholder="by its own columns",
        disabled=not planned,
    )
    return {
        "plan": plan_form.plan(planned, key=f"{key}-plan"),
        "like": like or "",
        "target": "" if no_target else target.strip() or None,
        "text_columns": drafts.names(texts),
        "ignore": drafts.names(left_out),
        "tokenizer": tokenizer or "",
        "length": length,
        "vocabulary": vocabulary,
        "mask": mask,
        "stream": stream,
        "header": header,
        "text": text,
    }
