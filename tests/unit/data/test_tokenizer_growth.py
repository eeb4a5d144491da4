"""The bound on what the rules of a tokenizer make of a text holds, and what grows beyond it is refused."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import tokenizer_file
from unifiednn_core.data.tokenizer_file import TokenizerFile

TEXTS = ("x", "é", "\ufdfa", "\U0001f600", "İ", "中", "  a  ", "\u1f82")


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def bert() -> dict[str, Any]:
    flags = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), True)
    return {"type": "BertNormalizer", **flags}


NORMALIZERS = {
    "nothing": replaced({"Regex": ""}, "ab"),
    "before": replaced({"Regex": "(?=.)"}, "a"),
    "around": replaced({"Regex": "x?"}, "abc"),
    "spaces": replaced({"Regex": " {2,}"}, "▁▁"),
    "text": replaced({"String": "x"}, "abcd"),
    "without a type": {"pattern": {"Regex": ""}, "content": "abc"},
    "prepend": {"type": "Prepend", "prepend": "abc"},
    "bert": bert(),
    **{
        name: {"type": name} for name in ("ByteLevel", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents")
    },
}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "bytes": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
}


def document_of(rules: list[dict[str, Any]], pre_tokenizers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": rules},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
    }


def written(folder: Path, document: dict[str, Any]) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", [*NORMALIZERS, *PRE_TOKENIZERS])
def test_no_text_grows_more_than_is_said(name: str, times: int, tmp_path: Path) -> None:
    rules = [NORMALIZERS[name]] * times if name in NORMALIZERS else []
    document = document_of(rules, [] if rules else [PRE_TOKENIZERS[name]] * times)
    used = TokenizerFile(written(tmp_path, document))._tokenizer
    for text in TEXTS:
        normal = used.normalizer.normalize_str(text) if rules else text
        pieces = [(normal, 0)] if rules else used.pre_tokenizer.pre_tokenize_str(text)
        assert sum(len(piece) for piece, _ in pieces) <= len(text) * tokenizer_file._growth(document)


@pytest.mark.parametrize(
    "name", ["nothing", "before", "around", "without a type", "prepend", "bert", "ByteLevel", "NFKD"]
)
def test_what_grows_without_end_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="times is the limit"):
        TokenizerFile(written(tmp_path, document_of([NORMALIZERS[name]] * 30, [])))
    with pytest.raises(BadInput, match="times is the limit"):
        TokenizerFile(written(tmp_path, document_of([], [PRE_TOKENIZERS["bytes"]] * 30)))


def test_known_tokenizers_are_taken() -> None:
    """Rules as in ALBERT, XLM-R, CLIP and Llama."""
    content = (8).to_bytes(4, "little") + bytes(8) + b"a" * 18 + b"\0"
    charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
    spaces, metaspace = replaced({"Regex": " {2,}"}, "▁"), [PRE_TOKENIZERS["metaspace"]]
    quotes = [replaced({"String": "``"}, '"'), replaced({"String": "''"}, '"')]
    albert = [*quotes, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, charsmap, spaces]
    clip = [{"type": "NFC"}, replaced({"Regex": r"\s+"}, " "), {"type": "Lowercase"}]
    llama = [{"type": "Prepend", "prepend": "▁"}, replaced({"String": " "}, "▁")]
    used = (albert, metaspace), ([charsmap, spaces], metaspace), (clip, [PRE_TOKENIZERS["bytes"]]), (llama, [])
    assert [tokenizer_file._growth(document_of(*rules)) for rules in used] == [1296, 36, 90, 2]


def test_a_text_that_would_grow_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_file, "MAX_GROWN_CHARACTERS", 60)
    tokenizer = TokenizerFile(written(tmp_path, document_of([NORMALIZERS["nothing"]], [])))
    assert tokenizer.encode(["x" * 12])
    assert tokenizer.encode_stream(["x" * 11])  # and the end of its line
    for encode, length in ((tokenizer.encode, 13), (tokenizer.encode_stream, 12)):
        with pytest.raises(BadInput, match="13 characters; this tokenizer takes 12"):
            encode(["x" * length])
