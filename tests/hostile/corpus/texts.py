"""JSONL and tokenizers that are none, or that grow without end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

Maker = Callable[[Path], Path]
ROWS = b'{"a": 1, "target": 0}\n{"a": 2, "target": 1}\n' * 3


def _jsonl(content: bytes | Callable[[], bytes]) -> Maker:
    def make(folder: Path) -> Path:
        (folder / "data.jsonl").write_bytes(content if isinstance(content, bytes) else content())
        return folder / "data.jsonl"

    return make


def _tokenizer(edit: Callable[[dict[str, Any]], object]) -> Maker:
    def make(folder: Path) -> Path:
        made = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        document = json.loads(made.to_str())
        edit(document)
        (folder / "tokenizer.json").write_text(json.dumps(document))
        return folder / "tokenizer.json"

    return make


def _longer(content: str, times: int) -> dict[str, Any]:
    rule = {"type": "Replace", "pattern": {"Regex": "."}, "content": content}
    return {"type": "Sequence", "normalizers": [rule] * times}


def _around(tokens: int) -> dict[str, Any]:
    special = {"SpecialToken": {"id": "a", "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [sequence, *[special] * tokens],
        "pair": [sequence],
        "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}},
    }


MAKERS: dict[str, Maker] = {
    "JSONL that is damaged": _jsonl(ROWS + b'{"a": 1, "target"\n'),
    "JSONL of lists": _jsonl(ROWS + b"[1, 2]\n"),
    "JSONL that is deep": _jsonl(ROWS + b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"),
    "JSONL of objects": _jsonl(ROWS + b'{"a": {"__class__": "os.system"}, "target": 1}\n'),
    "JSONL of one long line": _jsonl(lambda: ROWS + b'{"a": "' + b"x" * 40_000_000 + b'"}'),
    "JSONL of many keys": _jsonl(lambda: json.dumps(dict.fromkeys(map(str, range(30_000)), 1)).encode() + b"\n" + ROWS),
    "JSONL of long lists": _jsonl(lambda: ROWS.replace(b"1", b"[1]") + b'{"a": [' + b"1," * 10**6 + b"1]}\n"),
    "JSONL of large numbers": _jsonl(ROWS + b'{"a": 1e999, "target": 1}\n{"a": ' + b"9" * 400 + b', "target": 1}\n'),
    "JSONL with NUL": _jsonl(ROWS + b"\0\n"),
    "JSONL in two encodings": _jsonl(ROWS + b'{"a": "caf\xe9", "target": 1}\n'),
    "tokenizer of no kind": _tokenizer(lambda document: document.update(model={"type": "os.system"})),
    "tokenizer without vocabulary": _tokenizer(lambda document: document["model"].pop("vocab")),
    "tokenizer of wrong ids": _tokenizer(lambda document: document["model"]["vocab"].update(b=-5)),
    "tokenizer of a list": _tokenizer(lambda document: document.update(model=[])),
    "tokenizer with a damaged rule": _tokenizer(
        lambda document: document.update(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "((("}, "behavior": "Removed", "invert": False}
        )
    ),
    "tokenizer that makes texts longer": _tokenizer(lambda document: document.update(normalizer=_longer("aaaa", 20))),
    "tokenizer that makes texts very long": _tokenizer(
        lambda document: document.update(normalizer=_longer("a" * 10**6, 1))
    ),
    "tokenizer with many tokens around": _tokenizer(lambda document: document.update(post_processor=_around(10_000))),
    "tokenizer that is deep": lambda folder: _deep(folder / "tokenizer.json"),
}


def _deep(path: Path) -> Path:
    path.write_text('{"version": "1.0", "added_tokens": [], "model": ' + "[" * 10**5 + "]" * 10**5 + "}")
    return path
