"""Reads a `tokenizer.json` with the `tokenizers` library. Nothing of the file runs: it is a description of rules."""

import base64
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from unifiednn_core.formats.tensor_files import bad_file
from unifiednn_core.spec.columns import END, MAX_WORD, PAD, RESERVED, UNKNOWN, TextColumn

MAX_FILE_BYTES = 64 * 1024**2
MAX_GROWTH = 2048  # how many times longer rules may make a text; those of ALBERT 1296 times, if each did its worst
MAX_GROWN_CHARACTERS = 2**28  # of one text, if each rule did its worst
MAX_ADDED = 64  # tokens around each text
BATCH_CHARACTERS = 2**18  # the library's notes on a token take about a hundred bytes
_USUAL_GROWTH = 64
_SNIFFED_BYTES = 2**16
_PADS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>")
_REMEDY = "Save it with tokenizer.save('tokenizer.json') or save_pretrained of a fast tokenizer."
_LARGEST_FORM = 18  # characters of U+FDFA in NFKC and NFKD
_FACTORS = {
    "Sequence": 1,
    "Strip": 1,
    "StripAccents": 1,
    "Nmt": 1,
    "Lowercase": 2,
    "NFC": 3,
    "NFD": 4,
    "BertNormalizer": 4,
    "ByteLevel": 5,
    "Metaspace": 2,
    "BertPreTokenizer": 1,
    "CharDelimiterSplit": 1,
    "Digits": 1,
    "FixedLength": 1,
    "Punctuation": 1,
    "Split": 1,
    "UnicodeScripts": 1,
    "Whitespace": 1,
    "WhitespaceSplit": 1,
}
"""Characters that a rule may make of one; of a rule that is not here, `_LARGEST_FORM`."""
_PLAIN_PATTERN = re.compile(r"[\w ]+(\{[1-9]\d*,?\d*\}|\+)?")  # matches one character at least
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
        self._growth = _growth(document)
        if self._growth > MAX_GROWTH:
            message = f"Its rules may make a text {self._growth:,} times as long; {MAX_GROWTH} times is the limit."
            raise bad_file(path, "File refused", message, "Shorten what its normalizer and pre_tokenizer put in.")
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
        most = MAX_GROWN_CHARACTERS // self._growth
        if (longest := max(map(len, texts), default=0)) > most:
            message = (
                f"A text has {longest:,} characters; this tokenizer takes {most:,}, as its rules make texts longer."
            )
            raise bad_file(self._path, "Text too long", message, "Divide the text into several.")
        for part in _parts(texts, BATCH_CHARACTERS * _USUAL_GROWTH // max(_USUAL_GROWTH, self._growth)):
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


def _growth(document: dict[str, Any]) -> int:
    """How many times more characters a text may have when its tokens are looked up."""
    growth = 1
    for rule in _rules(document.get("normalizer"), document.get("pre_tokenizer")):
        growth *= _factor(rule)
        if growth > MAX_GROWTH:
            break
    return growth


def _rules(*given: object) -> Iterator[dict[str, Any]]:
    """All rules, those in sequences too."""
    left = list(given)
    while left:
        rule = left.pop()
        if isinstance(rule, dict):
            yield rule
            for name in ("normalizers", "pretokenizers"):
                inner = rule.get(name)
                left.extend(inner if isinstance(inner, list) else ())


def _factor(rule: dict[str, Any]) -> int:
    """How many characters one rule may make of one, told by its fields, as the library does without a type."""
    if "content" in rule:
        return _replaced(rule.get("pattern"), len(str(rule["content"])))
    if "prepend" in rule:
        return 1 + len(str(rule["prepend"]))
    if "precompiled_charsmap" in rule:
        return _mapped(rule["precompiled_charsmap"])
    return _FACTORS.get(str(rule.get("type")), _LARGEST_FORM)


def _replaced(pattern: object, length: int) -> int:
    """A pattern may match nothing: before each character and at the end."""
    text = pattern if isinstance(pattern, dict) else {}
    never_empty = bool(text.get("String")) or _PLAIN_PATTERN.fullmatch(str(text.get("Regex", ""))) is not None
    return max(1, length) if never_empty else 1 + 2 * length


def _mapped(charsmap: object) -> int:
    """Length of the longest text in a map of SentencePiece: the size of a trie, the trie, texts that end with NUL."""
    try:
        content = base64.b64decode(str(charsmap))
    except ValueError:
        return _LARGEST_FORM
    texts = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
    return max(1, *(len(text.decode(errors="ignore")) for text in texts))


def _parts(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters > most:
            yield part
            part, characters = [], 0
    if part:
        yield part


MAX_COUNTED = 2**20  # different words; the rarest half is forgotten beyond


class WordCount:
    """Counts words, block by block."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, text: str, times: int = 1) -> int:
        """Count the words of a text that occurs some times; returns how many words the text has."""
        words = text.lower().split()
        for word, count in Counter(words).items():
            if len(word) <= MAX_WORD:
                self._counts[word] += count * times
        if len(self._counts) > MAX_COUNTED:
            self._counts = Counter(dict(self._counts.most_common(MAX_COUNTED // 2)))
        return len(words)

    def most_frequent(self, most: int) -> tuple[str, ...]:
        """The most frequent words; of equally frequent ones, the first in the alphabet."""
        return tuple(sorted(self._counts, key=lambda word: (-self._counts[word], word))[:most])


class WordTokenizer:
    """Tokens of the words of a fitted plan."""

    pad = PAD

    def __init__(self, column: TextColumn):
        words = column.words or ()
        self._ids = {word: len(RESERVED) + at for at, word in enumerate(words)}
        self.size = len(RESERVED) + len(words)

    def encode(self, texts: Sequence[str], most: int | None = None) -> list[list[int]]:
        """Ids of each text, at most `most`."""
        known = self._ids
        return [[known.get(word, UNKNOWN) for word in text.lower().split()[:most]] for text in texts]

    def encode_stream(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text of a stream; each text ends with one of its own."""
        return [[*ids, END] for ids in self.encode(texts)]
