"""The words of video captions and their numbers, as HGR numbers them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from vse.data.text_files import parse_json, read_text
from vse.data.video_words import WORD_LIMIT, video_words
from vse.errors import InputError
from vse.files import write_json
from vse.inputs.tokenizer import SpecialIds, TextTokenizer, TokenBatch

WORD_FILE = "word2int.json"
BOS, EOS, UNK = 0, 1, 2
SPECIAL = ("<BOS>", "<EOS>", "<UNK>")


class VideoVocabulary:
    """Words and their ids: 0 begin, 1 end and padding, 2 unknown, then the words. Nothing is put around a sentence.

    ``ids`` need not be without gaps; ``len`` is the number of rows that an embedding needs.
    """

    def __init__(self, ids: Mapping[str, int], place: str = "the vocabulary") -> None:
        self._ids = {word: number for word, number in ids.items() if word not in SPECIAL}
        wrong = next(
            (w for w, n in self._ids.items() if not isinstance(n, int) or isinstance(n, bool) or n < len(SPECIAL)), None
        )
        if wrong is not None:
            raise InputError(
                f"{place}: {wrong!r} has id {self._ids[wrong]!r}: expected whole numbers from {len(SPECIAL)} on, "
                f"{', '.join(SPECIAL)} are 0 to 2"
            )
        if len(set(self._ids.values())) < len(self._ids):
            twice = next(number for number, count in Counter(self._ids.values()).items() if count > 1)
            raise InputError(f"{place}: id {twice} stands for two words, expected one word an id")

    @classmethod
    def build(cls, captions: Iterable[str], *, min_count: int = 1) -> VideoVocabulary:
        """The words of the training captions, the most frequent first, equally frequent ones by the alphabet."""
        counts = Counter(word for caption in captions for word in video_words(caption))
        kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        return cls({word: number for number, word in enumerate(kept, start=len(SPECIAL))})

    @classmethod
    def load(cls, file: Path) -> VideoVocabulary:
        """A ``word2int.json``, ``{word: id}``."""
        ids = parse_json(read_text(file), str(file))
        if not isinstance(ids, dict):
            raise InputError(f"{file}: expected an object {{word: id}}, got a {type(ids).__name__}")
        return cls(ids, str(file))

    @classmethod
    def load_or_build(cls, folder: Path, captions: Iterable[str]) -> VideoVocabulary:
        """The ``word2int.json`` of ``folder``; where there is none, the words of the training ``captions``."""
        file = folder / WORD_FILE
        return cls.load(file) if file.is_file() else cls.build(captions)

    def tokenizer(self, limit: int = WORD_LIMIT) -> TextTokenizer:
        """A tokenizer of words at white space, nothing around them; gaps between ids are closed, in their order."""
        order = sorted(self._ids, key=self._ids.__getitem__)
        ids = {word: number for number, word in enumerate((*SPECIAL, *order))}
        pipeline = Tokenizer(WordLevel(ids, unk_token=SPECIAL[UNK]))
        pipeline.pre_tokenizer = WhitespaceSplit()
        special = SpecialIds(pad=EOS, unk=UNK, start=BOS, end=EOS)
        return TextTokenizer(pipeline, max_length=limit, kind="words", special=special)

    def save(self, file: Path) -> None:
        """Write ``{word: id}``, the special ones included."""
        write_json(file, {**dict(zip(SPECIAL, range(len(SPECIAL)), strict=True)), **self._ids})

    def __len__(self) -> int:
        return max(self._ids.values(), default=len(SPECIAL) - 1) + 1

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def encode(self, captions: Sequence[str], *, limit: int = WORD_LIMIT) -> TokenBatch:
        """Captions as numbers, padded with the end mark to the longest; a caption without words is an error."""
        rows = [caption.split() for caption in captions]
        empty = next((i for i, words in enumerate(rows) if not words), None)
        if empty is not None:
            raise InputError(f"caption {empty} has no words: leave it out, there is nothing to encode")
        lengths = np.array([min(len(words), limit) for words in rows], dtype=np.int64)
        shape = (len(rows), int(lengths.max(initial=1)))
        tokens, places = np.full(shape, EOS, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
        for i, words in enumerate(rows):
            tokens[i, : lengths[i]] = [self._ids.get(word, UNK) for word in words[:limit]]
            places[i, : lengths[i]] = np.arange(lengths[i])
        unknown = np.array([(tokens[i, :n] == UNK).all() for i, n in enumerate(lengths)], dtype=bool)
        return TokenBatch(
            tokens, lengths, places, unknown, np.array([len(words) > limit for words in rows], dtype=bool)
        )
