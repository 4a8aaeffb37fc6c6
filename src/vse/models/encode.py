"""Many pictures or sentences to many vectors: batching, reading ahead and reporting, for any runtime.

A runtime (torch, ONNX Runtime) implements :class:`Towers` on one batch of arrays; what surrounds it is written once
here, in numpy. ``encode_images`` and ``encode_texts`` are the methods of the same name of every model.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vse._util.prefetch import prefetch
from vse.errors import InputError, VSEError, unknown_choice
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer, TokenBatch

Vectors = NDArray[np.float32]
Item = TypeVar("Item")
TEXT_CHUNK = 4096  # texts tokenized at once: bounds memory, and is enough to sort by length
READERS = min(4, os.cpu_count() or 1)
CALL_PICTURES = 4  # in one of several calls at a time
SHORTEST = 1e-6
"""Length of a mean below which it has no direction."""


class Items(Protocol):
    """Anything with a length and an index: a list, a tuple, the images of a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Images = Items | NDArray[Any] | str | os.PathLike[str]


class Towers(Protocol):
    """What a runtime offers: how its inputs are made, and the vectors of one batch."""

    @property
    def embed_size(self) -> int:
        """Dimensions of a vector."""

    @property
    def feature_size(self) -> int:
        """The width of an image's features, for models and calls that take features in the place of pictures."""

    @property
    def takes_frames(self) -> bool:
        """Whether features are those of a video's frames, of which 20 are used, evenly spaced."""

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How pictures are prepared; None for a model that takes features alone."""

    @property
    def tokenizer(self) -> TextTokenizer | None:
        """How sentences become tokens; None when a converted model was given no vocabulary."""

    def embed_images(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Vectors:
        """Pixels ``(B, 3, H, W)`` or features ``(B, N, F)`` to unit vectors ``(B, D)``."""

    def embed_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Vectors:
        """Tokens ``(B, L)`` to unit vectors ``(B, D)``."""


class ParallelCalls(NamedTuple):
    """How many threads should call ``embed_images`` at once, and with how many pictures each."""

    threads: int
    pictures: int

    @classmethod
    def sharing(cls, cores: int, batch_size: int) -> ParallelCalls:
        """One call a core, all of them together with at most ``batch_size`` pictures.

        A call with few pictures keeps what it computes between the layers in the cache of its core; and calls side by
        side do not wait for each other at every layer, as the threads of one call do.
        """
        pictures = min(batch_size, CALL_PICTURES)
        return cls(max(min(cores, batch_size // pictures), 1), pictures)


@dataclass(frozen=True)
class BadImage:
    """A picture that could not be encoded."""

    index: int
    name: str
    reason: str


class BadImageWarning(UserWarning):
    """Some pictures could not be encoded; their rows hold NaN."""


def encode_images(
    towers: Towers,
    images: Images,
    *,
    batch_size: int = 32,
    progress: ProgressReporter | None = None,
    on_bad: Literal["report", "raise"] = "report",
    problems: list[BadImage] | None = None,
    what: Literal["images", "videos"] = "images",
) -> Vectors:
    """Unit vectors ``(n, D)`` of pictures: paths, bytes, PIL images or arrays; or of feature sets ``(N, F)``.

    A picture that cannot be read does not stop the others: its row is NaN (never mistaken for a vector), it is
    added to ``problems`` and, if no such list was given, a :class:`BadImageWarning` names the first ones.
    ``on_bad="raise"`` stops instead. While one batch is computed the next one is read. ``what`` they are called in
    messages and to ``progress``. A model of frames uses 20 of a larger set, evenly spaced, as when data are read.
    """
    check_batch_size(batch_size)
    check_choice("on_bad", on_bad, ("report", "raise"))
    sources = _as_sources(images, towers)
    reporter = progress or SilentProgress()
    out = np.full((len(sources), towers.embed_size), np.nan, dtype=np.float32)
    found: list[BadImage] = [] if problems is None else problems
    known = len(found)
    one = what.removesuffix("s")
    reporter.start(len(sources), what)
    for start, loaded in read_ahead(lambda i: _read_one(towers, sources[i], f"{one} {i}"), len(sources), batch_size):
        read: dict[int, list[tuple[int, NDArray[Any]]]] = {}  # pictures and feature sets apart
        for offset, item in enumerate(loaded):
            if isinstance(item, VSEError):
                name = getattr(item, "name", None) or f"{one} {start + offset}"
                if on_bad == "raise":
                    raise item if hasattr(item, "name") else InputError(f"{name}: {item}")
                found.append(BadImage(start + offset, name, getattr(item, "reason", str(item))))
            else:
                read.setdefault(item.ndim, []).append((start + offset, item))
        for alike in read.values():
            rows, arrays = zip(*alike, strict=True)
            out[list(rows)] = towers.embed_images(*_stack(arrays))
        reporter.advance(len(loaded))
    reporter.finish()
    if problems is None and found[known:]:
        warn_of(found, what)
    return out


def encode_texts(
    towers: Towers,
    texts: Sequence[str],
    *,
    batch_size: int = 128,
    progress: ProgressReporter | None = None,
    unknown: Literal["error", "allow"] = "error",
) -> Vectors:
    """Unit vectors ``(n, D)`` of sentences.

    A sentence without a single word that the model knows has no meaning to it and is an error;
    ``unknown="allow"`` encodes it all the same. Longer texts than the model reads are cut. Texts are spelled as the
    model's vocabulary spells (:meth:`~vse.inputs.tokenizer.TextTokenizer.respell`).
    """
    check_batch_size(batch_size)
    check_choice("unknown", unknown, ("error", "allow"))
    if not isinstance(texts, Iterable):
        raise InputError(f"texts must be a list of sentences, got {type(texts).__name__}")
    texts = [texts] if isinstance(texts, str) else list(texts)
    tokenizer = towers.tokenizer
    if tokenizer is None:
        raise InputError(
            "this model has no vocabulary and cannot read text: convert it again with --vocab FILE or --tokenizer DIR"
        )
    reporter = progress or SilentProgress()
    out = np.empty((len(texts), towers.embed_size), dtype=np.float32)
    reporter.start(len(texts), "texts")
    for start in range(0, len(texts), TEXT_CHUNK):
        chunk = texts[start : start + TEXT_CHUNK]
        batch = tokenizer.encode(tokenizer.respell(chunk, first=start), first=start)
        if unknown == "error":
            check_known(batch, chunk, tokenizer, first=start)
        order = np.argsort(batch.lengths, kind="stable")  # alike lengths together: less padding
        for first in range(0, len(chunk), batch_size):
            rows = order[first : first + batch_size]
            lengths = batch.lengths[rows]
            out[start + rows] = towers.embed_tokens(batch.tokens[rows, : int(lengths.max())], lengths)
            reporter.advance(len(rows))
    reporter.finish()
    return out


def check_known(batch: TokenBatch, texts: Sequence[str], tokenizer: TextTokenizer, *, first: int = 0) -> None:
    """Refuse a text without a single word that the model knows; ``first`` is the number of the first text."""
    if batch.unknown.any():
        which = int(batch.unknown.argmax())
        raise InputError(
            f"text {first + which}, {texts[which]!r}: the model knows none of its words "
            f"(vocabulary of {tokenizer.vocab_size}); use other words, or unknown='allow'"
        )


class EncodingMethods:
    """``encode_images`` and ``encode_texts`` for whatever implements :class:`Towers`."""

    def encode_images(
        self: Towers,
        images: Images,
        *,
        batch_size: int = 32,
        progress: ProgressReporter | None = None,
        on_bad: Literal["report", "raise"] = "report",
        problems: list[BadImage] | None = None,
    ) -> Vectors:
        """Unit vectors ``(n, D)`` float32 of pictures or feature sets; see :func:`vse.models.encode.encode_images`."""
        return encode_images(self, images, batch_size=batch_size, progress=progress, on_bad=on_bad, problems=problems)

    def encode_texts(
        self: Towers,
        texts: Sequence[str],
        *,
        batch_size: int = 128,
        progress: ProgressReporter | None = None,
        unknown: Literal["error", "allow"] = "error",
    ) -> Vectors:
        """Unit vectors ``(n, D)`` float32 of sentences; see :func:`vse.models.encode.encode_texts`."""
        return encode_texts(self, texts, batch_size=batch_size, progress=progress, unknown=unknown)


def direction(vectors: Vectors) -> Vectors | None:
    """The mean of unit vectors ``(F, D)`` brought to length 1; None where there is none."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    return (mean / length).astype(np.float32) if np.isfinite(length) and length > SHORTEST else None


def check_batch_size(value: int) -> None:
    """A batch holds at least one item."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"batch_size must be a whole number from 1 up, got {value!r}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """A value of a closed set."""
    if value not in choices:
        raise InputError(unknown_choice(f"value for {name!r}", value, choices))


def _as_sources(images: Any, towers: Towers) -> Items:
    """The items one by one; a single picture or feature set counts as a sequence of one."""
    if hasattr(images, "detach"):  # a torch tensor, recognised without importing torch
        images = images.detach().cpu().numpy()
    if isinstance(images, np.ndarray):
        single = images.ndim == 2 or (
            images.ndim == 3 and towers.preprocessing is not None and images.shape[-1] in (1, 3, 4)
        )
        return [images] if single else list(images)
    if isinstance(images, (str, bytes, os.PathLike)) or hasattr(images, "getexif") or not hasattr(images, "__iter__"):
        return images if hasattr(images, "__getitem__") and hasattr(images, "ids") else [images]
    return images if hasattr(images, "__getitem__") and hasattr(images, "__len__") else list(images)


def read_ahead(read: Callable[[int], Item], count: int, batch_size: int) -> Iterator[tuple[int, list[Item]]]:
    """Yield ``read(0)`` to ``read(count - 1)`` in batches, each with its first index.

    Threads read the next batch while the caller works on the current one; no more than these two are held.
    """
    with closing(prefetch(read, range(count), workers=READERS, window=batch_size + 1)) as results:
        for start in range(0, count, batch_size):
            yield start, [item for _, item in islice(results, batch_size)]


def read_picture(source: Any, how: ImagePreprocessing) -> NDArray[np.float32] | VSEError:
    """The pixels ``(3, H, W)`` of a picture, or the error that says why there are none."""
    from vse.inputs.images import BadImageError
    from vse.inputs.preprocessing import load_pixels

    try:
        return load_pixels(source, how)
    except BadImageError as error:
        return error


def _read_one(towers: Towers, source: Any, name: str) -> NDArray[Any] | VSEError:
    """The array for one source, or the error that says why there is none."""
    if hasattr(source, "detach"):
        source = source.detach().cpu().numpy()
    is_set = isinstance(source, np.ndarray) and source.ndim == 2 and np.issubdtype(source.dtype, np.floating)
    if is_set and source.shape[1] == towers.feature_size:
        if not len(source):
            return InputError("an empty set of features; a set needs at least one element")
        if towers.takes_frames:
            from vse.data.frames import even_frames

            source = source[even_frames(len(source))]
        if not np.isfinite(source).all():
            return InputError("its features hold NaN or infinite values")
        return source
    if towers.preprocessing is None:
        found = f"an array {source.shape}" if isinstance(source, np.ndarray) else f"{str(source)[:80]!r}"
        raise InputError(
            f"{name} is {found}; this model takes sets of features (N, {towers.feature_size}), not pictures: "
            "compute them with its detector, or use a model that reads pictures ('vse inspect MODEL' tells)"
        )
    return read_picture(source, towers.preprocessing)


def _stack(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Pixels as one array; feature sets padded to the largest, with their sizes."""
    if arrays[0].ndim == 3:
        return np.stack(arrays), None
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    batch = np.zeros((len(arrays), int(lengths.max()), arrays[0].shape[1]), dtype=np.float32)
    for row, array in zip(batch, arrays, strict=True):
        row[: len(array)] = array
    return batch, lengths


def warn_of(found: list[BadImage], what: str) -> None:
    """Warn whoever called the method of a model that some of what was given has no vectors."""
    shown = "; ".join(f"{bad.name}: {bad.reason}" for bad in found[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    warnings.warn(f"{len(found)} {what} could not be encoded: {shown}{more}", BadImageWarning, stacklevel=4)
