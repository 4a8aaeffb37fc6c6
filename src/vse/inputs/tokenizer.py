"""Convert texts to the tokens that a text encoder takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.pre_tokenizers import WhitespaceSplit

from vse._util.atomic import write_json, write_text
from vse._util.schema import NonNegative, Positive, parse_plain, read_json
from vse.errors import InputError, first_line, unknown_choice
from vse.inputs.text import plain_sentence

Kind = Literal["words", "subwords"]

MAX_CHARACTERS = 100_000
MAX_GROWTH = 64
"""How many times longer the rules of a tokenizer may make a text; usual ones replace a character by one."""
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_settings.json"

# Spellings of special tokens: ours, BERT's, RoBERTa's.
_SPELLINGS = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
    "start": ("<start>", "[CLS]", "<s>"),
    "end": ("<end>", "[SEP]", "</s>"),
}


@dataclass(frozen=True)
class TokenBatch:
    """Texts as token ids, one row each, padded at the end to the longest."""

    tokens: np.ndarray  # int64 (B, L)
    lengths: np.ndarray  # int64 (B,), start and end tokens included
    words: np.ndarray  # int64 (B, L), which word of its text a token belongs to; -1 for special tokens and padding
    unknown: np.ndarray  # bool (B,), no ordinary token of the text is in the vocabulary
    truncated: np.ndarray  # bool (B,), the text was cut

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class SpecialIds:
    """Ids of special tokens; None for one that the vocabulary lacks."""

    pad: int
    unk: int | None = None
    mask: int | None = None
    start: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> SpecialIds:
        """Return the ids under their usual spellings."""
        found = {
            role: next((number for name in names if (number := tokenizer.token_to_id(name)) is not None), None)
            for role, names in _SPELLINGS.items()
        }
        pad = found.pop("pad")
        if pad is None:
            raise InputError(f"the tokenizer has none of {', '.join(_SPELLINGS['pad'])} to pad with: pass special=")
        return cls(pad, **found)


@dataclass(frozen=True)
class _Settings:
    """Content of ``tokenizer_settings.json``: what the library does not keep in its own file."""

    kind: Kind
    max_length: Positive
    pad: NonNegative
    unk: NonNegative | None
    mask: NonNegative | None
    start: NonNegative | None
    end: NonNegative | None

    def special(self) -> SpecialIds:
        return SpecialIds(self.pad, self.unk, self.mask, self.start, self.end)


class TextTokenizer:
    """A pipeline of Hugging Face ``tokenizers``, the same for training and search.

    The class takes ownership of the tokenizer: it disables padding and truncates to ``max_length``. ``kind`` says
    whether a token is a word or a piece of one.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_length: int, kind: Kind, special: SpecialIds | None = None) -> None:
        if kind not in get_args(Kind):
            raise InputError(unknown_choice("kind of tokenizer", kind, get_args(Kind)))
        least = tokenizer.num_special_tokens_to_add(False) + 1
        if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < least:
            raise InputError(f"max_length must be a whole number of at least {least}, got {max_length!r}")
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length)
        self._tokenizer = tokenizer
        self.max_length = max_length
        self.kind: Kind = kind
        self.special = special or SpecialIds.of(tokenizer)

    @property
    def pipeline(self) -> Tokenizer:
        """The pipeline of the ``tokenizers`` library."""
        return self._tokenizer

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def pad_id(self) -> int:
        return self.special.pad

    @property
    def unk_id(self) -> int | None:
        return self.special.unk

    @property
    def mask_id(self) -> int | None:
        return self.special.mask

    @property
    def start_id(self) -> int | None:
        return self.special.start

    @property
    def end_id(self) -> int | None:
        return self.special.end

    def encode(self, texts: Sequence[str], *, first: int = 0) -> TokenBatch:
        """Return the tokens of every text; one over ``max_length`` loses its last words and keeps its end token.

        ``first`` is the number of the first text, for messages.
        """
        texts = _checked(texts, first)
        try:
            with rust_panics("a text cannot be tokenized: a pattern of the model's tokenizer.json fails on it"):
                encodings = self._tokenizer.encode_batch(texts)
        except (UnicodeError, TypeError):
            raise InputError(_bad_characters(texts, first)) from None
        return self._batch(encodings)

    def respell(self, texts: Sequence[str], *, first: int = 0) -> list[str]:
        """Return texts in the spelling of the vocabulary; call it before :meth:`encode`.

        If words are only split at whitespace, ``Dog.`` and ``dog`` are different words. A text is then replaced by its
        plain form (:func:`~vse.inputs.text.plain_sentence`) if that has fewer unknown words, and always gets single
        spaces. Other pipelines normalise texts themselves: texts are returned unchanged.
        """
        texts = _checked(texts, first)
        pipeline = self._tokenizer
        if pipeline.normalizer is not None or not isinstance(pipeline.pre_tokenizer, WhitespaceSplit):
            return texts
        texts = [" ".join(text.split()) for text in texts]
        plain = {place: form for place, text in enumerate(texts) if (form := plain_sentence(text)) != text}
        known = pipeline.get_vocab() if plain else {}

        def unknown(text: str) -> int:
            return sum(word not in known for word in text.split()[: self.max_length])

        for place, form in plain.items():
            if unknown(form) < unknown(texts[place]):
                texts[place] = form
        return texts

    def _batch(self, encodings: list[Encoding]) -> TokenBatch:
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        inside = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, L)
        tokens = np.full(inside.shape, self.pad_id, np.int64)
        tokens[inside] = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        words = np.full(inside.shape, -1, np.int64)
        words[inside] = [-1 if word is None else word for encoding in encodings for word in encoding.word_ids]
        known = words >= 0
        if self.unk_id is not None:
            known &= tokens != self.unk_id
        truncated = np.fromiter((bool(encoding.overflowing) for encoding in encodings), np.bool_, len(ids))
        return TokenBatch(tokens, lengths, words, np.logical_not(known.any(axis=1)), truncated)

    def to_json(self) -> dict[str, Any]:
        """Return everything that the tokens depend on: what :meth:`save` writes, as one object."""
        return {**asdict(self._settings()), "tokenizer": json.loads(self._tokenizer.to_str())}

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_settings.json`` into ``folder``, created if needed."""
        write_text(Path(folder) / TOKENIZER_FILE, self._tokenizer.to_str())
        write_json(Path(folder) / SETTINGS_FILE, asdict(self._settings()))

    @classmethod
    def load(cls, folder: str | Path) -> TextTokenizer:
        """Load what :meth:`save` wrote."""
        path = Path(folder) / SETTINGS_FILE
        settings = parse_plain(_Settings, read_json(path), str(path))
        tokenizer = read_tokenizer(Path(folder) / TOKENIZER_FILE)
        special = settings.special()
        for name, number in asdict(special).items():
            if number is not None and number >= tokenizer.get_vocab_size():
                raise InputError(f"{path}: {name!r} is {number}, but {TOKENIZER_FILE} ends before that id")
        return cls(tokenizer, max_length=settings.max_length, kind=settings.kind, special=special)

    def _settings(self) -> _Settings:
        return _Settings(kind=self.kind, max_length=self.max_length, **asdict(self.special))

    @classmethod
    def from_pretrained(cls, source: str | Path, max_length: int | None = None) -> TextTokenizer:
        """Load a pretrained tokenizer; see :func:`vse.inputs.pretrained.pretrained_tokenizer`."""
        from vse.inputs.pretrained import pretrained_tokenizer

        return pretrained_tokenizer(source, max_length)


@contextmanager
def rust_panics(message: str) -> Iterator[None]:
    """Convert a panic of a Rust library, such as a pattern that backtracks for too long, into InputError."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ != "PanicException":  # it is no Exception
            raise
        raise InputError(f"{message} ({first_line(error)})") from None


def read_tokenizer(path: Path) -> Tokenizer:
    """Read the pipeline in a ``tokenizer.json``; raise :class:`InputError` if it is invalid."""
    try:
        return parse_tokenizer(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # not UTF-8
        raise InputError(f"{path}: not a tokenizer ({first_line(error)})") from error


def parse_tokenizer(text: str, path: Path) -> Tokenizer:
    """Return the pipeline that is the content of ``path``; raise :class:`InputError` if it is invalid."""
    try:
        with rust_panics(f"{path}: not a tokenizer"):
            tokenizer = Tokenizer.from_str(text)
        _expect_little_growth(path, json.loads(text))
        return tokenizer
    except InputError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise InputError(f"{path}: not a tokenizer ({' '.join(str(error).split())})") from error


def _expect_little_growth(path: Path, pipeline: Any) -> None:
    """Refuse rules that make a text many times longer: nine that write ten letters for one take hours."""
    growth = 1
    for rule in _rules(pipeline.get("normalizer")):
        if rule.get("type") == "Replace":
            pattern = rule.get("pattern", {})
            replaced = len(pattern.get("String") or "?")  # a regular expression may match a single character
            growth *= max(1, -(-len(str(rule.get("content", ""))) // replaced))
        elif rule.get("type") == "Prepend":
            growth *= max(1, len(str(rule.get("prepend", ""))))
        if growth > MAX_GROWTH:
            raise InputError(
                f"{path}: its Replace rules make a text more than {MAX_GROWTH} times longer; expected shorter ones"
            )


def _rules(normalizer: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the steps of a normalizer, however deep they are nested."""
    waiting = [normalizer]
    while waiting:
        rule = waiting.pop()
        if isinstance(rule, dict):
            yield rule
            waiting.extend(rule.get("normalizers") or ())


def _checked(texts: Sequence[str], first: int) -> list[str]:
    if isinstance(texts, (str, bytes)):
        raise InputError(f"expected a list of texts, got one {type(texts).__name__}: put it into a list")
    texts = list(texts)
    for index, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise InputError(f"text {index} is {type(text).__name__}, expected str")
        if not text or text.isspace():
            raise InputError(f"text {index} is empty: leave it out or give it a word")
        if len(text) > MAX_CHARACTERS:
            raise InputError(f"text {index} has {len(text):,} characters, at most {MAX_CHARACTERS:,}: shorten it")
    return texts


def _bad_characters(texts: list[str], first: int) -> str:
    """Report which text holds a lone surrogate, a result of broken decoding."""
    for index, text in enumerate(texts, first):
        try:
            text.encode()
        except UnicodeError:
            return f"text {index} holds characters that are not Unicode: {text[:60]!a}; decode it again"
    return "a text cannot be tokenized"
