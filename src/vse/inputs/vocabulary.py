"""The vocabulary of a BiGRU: words and their ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.processors import TemplateProcessing

from vse._util.atomic import write_text
from vse._util.schema import read_json
from vse.errors import InputError
from vse.inputs.text import word_normalizer, word_splitter, words_of
from vse.inputs.tokenizer import SpecialIds, TextTokenizer

PAD, START, END, UNK, MASK = "<pad>", "<start>", "<end>", "<unk>", "<mask>"
FIRST = (PAD, START, END, UNK)  # ids 0 to 3
INSIDE = "##"  # before a character that does not begin a word

# Captions have about a dozen words; this limits text pasted into the search field.
DEFAULT_LENGTH = 128


class Vocabulary:
    """Words and their ids: ``<pad>`` 0, ``<start>`` 1, ``<end>`` 2, ``<unk>`` 3, then the words, then ``<mask>``.

    ``<mask>`` is appended if ``words`` lack it, as in the published files: augmentation needs it, and the checkpoints
    have a row for it.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        if MASK not in self.words:
            self.words += (MASK,)
        for number, expected in enumerate(FIRST):
            if self.words[number] != expected:
                raise InputError(f"word {number} of a vocabulary must be {expected!r}, got {self.words[number]!r}")
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            twice = next(word for number, word in enumerate(self.words) if self._ids[word] != number)
            raise InputError(f"the word {twice!r} is in the vocabulary twice")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words)"

    def id(self, word: str) -> int:
        """Return the id of a word; that of ``<unk>`` if it is unknown."""
        return self._ids.get(word, self._ids[UNK])

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int = 4) -> Vocabulary:
        """Build a vocabulary from captions: words by frequency, ties in alphabetical order.

        Args:
            captions: The training captions only: a word that occurs only in the test set must be unknown.
            min_count: How often a word must occur.
        """
        if isinstance(captions, str):
            raise InputError("expected many captions, got one str: put it into a list")
        if isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 1:
            raise InputError(f"min_count must be a whole number of at least 1, got {min_count!r}")
        counts = Counter(word for caption in captions for word in words_of(caption))
        kept = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        return cls((*FIRST, *(word for _, word in kept)))

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read ``{"word2idx": {word: id}, "idx2word": {"id": word}, "idx": count}``, the format of SCAN and VSE∞."""
        path = Path(path)
        values = read_json(path)
        for key, kind in (("word2idx", dict), ("idx2word", dict), ("idx", int)):
            if not isinstance(values.get(key), kind):
                raise InputError(
                    f"{path}: not a vocabulary, expected word2idx, idx2word and idx; {key!r} is missing or wrong"
                )
        ids, words, count = values["word2idx"], values["idx2word"], values["idx"]
        if not len(ids) == len(words) == count:
            raise InputError(f"{path}: word2idx has {len(ids)} words, idx2word {len(words)} and idx says {count}")
        ordered = []
        for number in range(count):
            word = words.get(str(number))
            if not isinstance(word, str):
                raise InputError(f"{path}: idx2word has no word {number}, expected all ids from 0 to {count - 1}")
            if isinstance(ids.get(word), bool) or ids.get(word) != number:
                raise InputError(f"{path}: word {number} is {word!r}, but word2idx gives it {ids.get(word)!r}")
            ordered.append(word)
        try:
            return cls(ordered)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the format that :meth:`load` reads, ``<mask>`` included."""
        by_id = {str(number): word for number, word in enumerate(self.words)}
        values = {"word2idx": self._ids, "idx2word": by_id, "idx": len(self)}
        write_text(Path(path), json.dumps(values))

    def tokenizer(self, max_length: int = DEFAULT_LENGTH) -> TextTokenizer:
        """Return a tokenizer of whole words, with ``<start>`` and ``<end>`` around them.

        Texts cannot inject special tokens: they are not declared to the library, so ``<end>`` in a text is split into
        three words like any other.
        """
        tokenizer = Tokenizer(WordLevel(self._ids, unk_token=UNK))
        tokenizer.normalizer = word_normalizer()
        tokenizer.pre_tokenizer = word_splitter()
        tokenizer.post_processor = TemplateProcessing(
            single=f"{START} $A {END}", special_tokens=[(START, self._ids[START]), (END, self._ids[END])]
        )
        special = SpecialIds(
            pad=self._ids[PAD],
            unk=self._ids[UNK],
            mask=self._ids[MASK],
            start=self._ids[START],
            end=self._ids[END],
        )
        return TextTokenizer(tokenizer, max_length=max_length, kind="words", special=special)


CHARACTER_SPECIALS = (*FIRST, MASK)  # ids 0 to 4 of a character tokenizer
CHARACTER_LENGTH = 640  # characters of a text: a hundred words


def character_tokenizer(captions: Iterable[str], max_length: int = CHARACTER_LENGTH) -> TextTokenizer:
    """Return a tokenizer of characters, which knows where words begin.

    With k characters the ids are: five special tokens, the k characters at the beginning of a word, and the same k
    inside a word. All printable ASCII characters are known, whether or not they occur.

    Args:
        captions: The training captions: their characters are known.
        max_length: How many characters of a text are read, ``<start>`` and ``<end>`` included.
    """
    if isinstance(captions, str):
        raise InputError("expected many captions, got one str: put it into a list")
    seen = {character for caption in captions for word in words_of(caption) for character in word}
    ascii_printable = {chr(code) for code in range(33, 127) if not "A" <= chr(code) <= "Z"}
    characters = sorted(seen | ascii_printable)
    entries = (*CHARACTER_SPECIALS, *characters, *(f"{INSIDE}{character}" for character in characters))
    ids = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(BPE(ids, [], unk_token=UNK, continuing_subword_prefix=INSIDE))
    tokenizer.normalizer = word_normalizer()
    tokenizer.pre_tokenizer = word_splitter()
    tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, ids[START]), (END, ids[END])]
    )
    special = SpecialIds(pad=ids[PAD], unk=ids[UNK], mask=ids[MASK], start=ids[START], end=ids[END])
    return TextTokenizer(tokenizer, max_length=max_length, kind="subwords", special=special)
