"""The vocabulary of video captions, numbered as in HGR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from vse.data.files import parse_json, read_text
from vse.errors import InputError
from vse.inputs.tokenizer import SpecialIds, TextTokenizer

WORD_LIMIT = 30


def video_words(caption: str, limit: int | None = WORD_LIMIT) -> list[str]:
    """Return the first ``limit`` words of a caption, split at whitespace."""
    return caption.split()[:limit]


WORD_FILE = "word2int.json"
BOS, EOS, UNK = 0, 1, 2
SPECIAL = ("<BOS>", "<EOS>", "<UNK>")
MAX_UNKNOWN = 0.05
"""The largest fraction of training words that a vocabulary made for them may lack."""


class VideoVocabulary:
    """Words and their ids: 0 begin, 1 end and padding, 2 unknown, then the words; ``ids`` may have gaps.

    No begin and end tokens are added to a sentence.
    """

    def __init__(self, ids: Mapping[str, int], place: str = "the vocabulary") -> None:
        self._ids = {word: number for word, number in ids.items() if word not in SPECIAL}
        self._place = place
        wrong = next(
            (w for w, n in self._ids.items() if not isinstance(n, int) or isinstance(n, bool) or n < len(SPECIAL)), None
        )
        if wrong is not None:
            raise InputError(
                f"{place}: {wrong!r} has id {self._ids[wrong]!r}: expected integers from {len(SPECIAL)} on, "
                f"{', '.join(SPECIAL)} are 0 to 2"
            )
        if len(set(self._ids.values())) < len(self._ids):
            twice = next(number for number, count in Counter(self._ids.values()).items() if count > 1)
            raise InputError(f"{place}: id {twice} is given to two words, expected one word per id")

    @classmethod
    def build(cls, captions: Iterable[str], *, min_count: int = 1) -> VideoVocabulary:
        """Build the vocabulary of the training captions, by frequency and then alphabetically."""
        counts = Counter(word for caption in captions for word in video_words(caption))
        kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        return cls({word: number for number, word in enumerate(kept, start=len(SPECIAL))})

    @classmethod
    def load(cls, file: Path) -> VideoVocabulary:
        """Load a ``word2int.json``, ``{word: id}``."""
        ids = parse_json(read_text(file), str(file))
        if not isinstance(ids, dict):
            raise InputError(f"{file}: expected an object {{word: id}}, got a {type(ids).__name__}")
        return cls(ids, str(file))

    def lacking(self, captions: Iterable[str]) -> str | None:
        """Return a message on how many words of the training ``captions`` are missing, if more than ``MAX_UNKNOWN``."""
        counts = Counter(word for caption in captions for word in video_words(caption))
        unknown = Counter({word: count for word, count in counts.items() if word not in self._ids})
        if unknown.total() <= MAX_UNKNOWN * counts.total():
            return None
        some = ", ".join(repr(word) for word, _ in unknown.most_common(3))
        return (
            f"{self._place} lacks {100 * unknown.total() / counts.total():.0f} % of the words of the training captions "
            f"({some} …), which are read as unknown: name the right file with --set data.vocabulary=FILE, or move this "
            "one away to take the words of the captions"
        )

    def tokenizer(self, limit: int = WORD_LIMIT) -> TextTokenizer:
        """Return a tokenizer that splits at whitespace and adds no tokens; gaps between ids are closed."""
        order = sorted(self._ids, key=self._ids.__getitem__)
        ids = {word: number for number, word in enumerate((*SPECIAL, *order))}
        pipeline = Tokenizer(WordLevel(ids, unk_token=SPECIAL[UNK]))
        pipeline.pre_tokenizer = WhitespaceSplit()
        special = SpecialIds(pad=EOS, unk=UNK, start=BOS, end=EOS)
        return TextTokenizer(pipeline, max_length=limit, kind="words", special=special)
