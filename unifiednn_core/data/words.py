"""The tokenizer that needs no file: lower case, cut at white space, the most frequent words of the training data."""

from collections import Counter
from collections.abc import Sequence

from unifiednn_core.spec.columns import END, MAX_WORD, PAD, RESERVED, UNKNOWN, TextColumn

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
