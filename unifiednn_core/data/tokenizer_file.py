"""Reads a `tokenizer.json` with the `tokenizers` library. Nothing of the file runs: it is a description of rules."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from unifiednn_core.formats.tensor_files import bad_file

MAX_FILE_BYTES = 64 * 1024**2
MAX_GROWTH = 64  # how many times longer rules that replace text may make a text
MAX_ADDED = 64  # tokens around each text
BATCH_CHARACTERS = 2**18  # the library's notes on a token take about a hundred bytes
_SNIFFED_BYTES = 2**16
_PADS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")
_REMEDY = "Save it with tokenizer.save('tokenizer.json') or save_pretrained of a fast tokenizer."
Result = TypeVar("Result")


def is_tokenizer(path: Path) -> bool:
    """Whether the file begins as `tokenizer.json` does."""
    with path.open("rb") as file:
        head = file.read(_SNIFFED_BYTES)
    return head.lstrip()[:1] == b"{" and all(b'"%s"' % word in head for word in (b"version", b"added_tokens"))


class TokenizerFile:
    """A tokenizer from a file; raises `BadInput`."""

    def __init__(self, path: Path, pad: int | None = None):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread, as the rest of a reading process
        from tokenizers import Tokenizer

        self._path = path
        document = _document(path)
        growth = _growth(document.get("normalizer"))
        if growth > MAX_GROWTH:
            message = f"Its rules may make a text {growth:,} times as long; {MAX_GROWTH} times is the limit."
            raise bad_file(path, "File refused", message, "Shorten what its normalizer puts in.")
        self._tokenizer = self._guarded(lambda: Tokenizer.from_str(json.dumps(document)))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if self._tokenizer.num_special_tokens_to_add(False) > MAX_ADDED:
            raise bad_file(path, "File refused", f"It adds more than {MAX_ADDED} tokens to each text.", _REMEDY)
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        self.size: int = max(vocabulary.values(), default=-1) + 1
        padding = (document.get("padding") or {}).get("pad_id")
        known = [vocabulary[name] for name in _PADS if name in vocabulary]
        self.pad: int | None = next((at for at in (pad, padding, *known) if isinstance(at, int)), None)
        self.kind = str(document["model"].get("type") or "")[:40]

    def encode(self, texts: Sequence[str], most: int | None = None) -> list[list[int]]:
        """Ids of each text, at most `most`, with the tokens that the file puts around each text."""
        if most is None:
            self._tokenizer.no_truncation()
        elif most <= (added := self._tokenizer.num_special_tokens_to_add(False)):
            message = f"It puts {added} tokens around each text, which leaves nothing of a length of {most}."
            raise bad_file(self._path, "Length", message, f"Give a length above {added}.")
        else:
            self._tokenizer.enable_truncation(most)
        return self._encoded(texts, with_added=True)

    def encode_stream(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text of a stream, with the end of its line, without tokens around it."""
        self._tokenizer.no_truncation()
        return self._encoded([f"{text}\n" for text in texts], with_added=False)

    def _encoded(self, texts: Sequence[str], *, with_added: bool) -> list[list[int]]:
        encode = self._tokenizer.encode_batch_fast
        found: list[list[int]] = []
        for part in _parts(texts):
            done = self._guarded(partial(encode, part, add_special_tokens=with_added))
            found.extend(encoding.ids for encoding in done)
        return found

    def _guarded(self, action: Callable[[], Result]) -> Result:
        """Run code of the library; whatever it raises is about the file."""
        try:
            return action()
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # panics of Rust are no `Exception`
            said = str(error).splitlines()[0][:200].rstrip(".") if str(error) else type(error).__name__
            raise bad_file(self._path, "Not a tokenizer", f"The tokenizer cannot be used: {said}.", _REMEDY) from None


def tokenizer_facts(path: Path) -> dict[str, object]:
    """Describe a tokenizer file; raises `BadInput`."""
    found = TokenizerFile(path)
    found.encode(["a text to try it with"])
    return {"tokens": found.size, "model": found.kind, "pad": found.pad}


def _document(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_FILE_BYTES:
        message = f"The tokenizer has {path.stat().st_size:,} bytes; {MAX_FILE_BYTES:,} are read."
        raise bad_file(path, "Too large", message, _REMEDY)
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise bad_file(path, "Not a tokenizer", "The JSON is damaged or nested too deep.", _REMEDY) from None
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise bad_file(path, "Not a tokenizer", "The JSON has no 'model' of a tokenizer.", _REMEDY)
    return document


def _growth(normalizer: object) -> int:
    """How many times longer the rules of a normalizer may make a text of one character."""
    growth = 1
    for rule in _rules(normalizer):
        growth *= max(1, *(len(str(rule.get(name, ""))) for name in ("content", "prepend")))
        if growth > MAX_GROWTH:
            break
    return growth


def _rules(normalizer: object) -> Iterator[dict[str, Any]]:
    if isinstance(normalizer, dict):
        yield normalizer
        for inner in normalizer.get("normalizers") or ():
            yield from _rules(inner)


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters > BATCH_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part
