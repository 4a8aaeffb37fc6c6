"""Encode many images or texts with any runtime: batching, read-ahead and error reporting, in numpy.

A runtime (torch, ONNX Runtime) implements :class:`~vse.models.protocols.Towers` for one batch of arrays.
``encode_images`` and ``encode_texts`` are the methods of the same names of every embedding model.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from vse._util.prefetch import available_cores
from vse.errors import InputError, VSEError, unknown_choice
from vse.models.protocols import Images, ItemInputs, Items, TensorLike, Towers, Vectors, VideoTowers
from vse.progress import ProgressReporter, SilentProgress

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer, TokenBatch

Item = TypeVar("Item")
TEXT_CHUNK = 4096  # texts tokenized at once: bounds memory, and is enough to sort by length
READERS = min(4, available_cores())
SHORTEST = 1e-6
"""Length below which a mean embedding has no direction."""


@dataclass(frozen=True)
class BadImage:
    """An image or video that could not be encoded."""

    index: int
    name: str
    reason: str


class BadImageWarning(UserWarning):
    """Some images could not be encoded; their rows are NaN."""


class EncodingMethods:
    """``encode_images`` and ``encode_texts`` for any :class:`~vse.models.protocols.Towers`."""

    def encode_images(
        self: Towers,
        images: Images,
        *,
        batch_size: int = 32,
        progress: ProgressReporter | None = None,
        on_bad: Literal["report", "raise"] = "report",
        problems: list[BadImage] | None = None,
    ) -> Vectors:
        """Return the embeddings ``(n, D)`` of images or feature sets; see :func:`vse.models.encode.encode_images`."""
        return encode_images(self, images, batch_size=batch_size, progress=progress, on_bad=on_bad, problems=problems)

    def encode_texts(
        self: Towers,
        texts: Sequence[str],
        *,
        batch_size: int = 128,
        progress: ProgressReporter | None = None,
        unknown: Literal["error", "allow"] = "error",
    ) -> Vectors:
        """Return the embeddings ``(n, D)`` of texts; see :func:`vse.models.encode.encode_texts`."""
        return encode_texts(self, texts, batch_size=batch_size, progress=progress, unknown=unknown)


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
    """Return the embeddings of images; the next batch is read while one is computed.

    An image that cannot be read does not stop the others: its row is NaN.

    Args:
        towers: The runtime.
        images: Paths, bytes, PIL images or arrays; or feature sets ``(N, F)``. A model of video frames uses 20 of a
            larger set, evenly spaced, as in training.
        batch_size: Images per batch.
        progress: Reports each batch.
        on_bad: ``"raise"`` stops at the first bad image.
        problems: Collects the bad images; without it a :class:`BadImageWarning` names the first ones.
        what: What messages and ``progress`` call them.

    Returns:
        Unit vectors ``(n, D)`` float32.

    Raises:
        InputError: For invalid arguments, inputs that the model cannot take, and, with ``on_bad="raise"``, a bad image.
    """
    check_batch_size(batch_size)
    check_choice("on_bad", on_bad, ("report", "raise"))
    sources = as_sources(images, towers)
    reporter = progress or SilentProgress()
    out = np.full((len(sources), towers.embed_size), np.nan, dtype=np.float32)
    found: list[BadImage] = [] if problems is None else problems
    known = len(found)
    for rows, batch, lengths in image_batches(
        towers, sources, batch_size, what=what, progress=reporter, problems=None if on_bad == "raise" else found
    ):
        out[rows] = towers.embed_images(batch, lengths)
    if problems is None and found[known:]:
        warn_of(found, what)
    return out


def image_batches(
    inputs: ItemInputs,
    sources: Items,
    batch_size: int,
    *,
    what: Literal["images", "videos"] = "images",
    progress: ProgressReporter,
    problems: list[BadImage] | None = None,
) -> Iterator[tuple[list[int], NDArray[Any], NDArray[np.int64] | None]]:
    """Yield the rows, pixels or padded features, and the sizes of feature sets, of images that are read ahead.

    A bad image is added to ``problems``; without a list it is an error.
    """
    one = what.removesuffix("s")
    progress.start(len(sources), what)
    for start, loaded in read_ahead(lambda i: _read_one(inputs, sources, i, f"{one} {i}"), len(sources), batch_size):
        read: dict[int, list[tuple[int, NDArray[Any]]]] = {}  # pixels and feature sets apart
        for offset, item in enumerate(loaded):
            if isinstance(item, VSEError):
                named = getattr(item, "name", None)
                name = named or f"{one} {start + offset}"
                if problems is None:
                    raise item if named is not None else InputError(f"{name}: {item}")
                problems.append(BadImage(start + offset, name, getattr(item, "reason", str(item))))
            else:
                read.setdefault(item.ndim, []).append((start + offset, item))
        for alike in read.values():
            rows, arrays = zip(*alike, strict=True)
            yield list(rows), *_stack(arrays)
        progress.advance(len(loaded))
    progress.finish()


def encode_texts(
    towers: Towers,
    texts: Sequence[str],
    *,
    batch_size: int = 128,
    progress: ProgressReporter | None = None,
    unknown: Literal["error", "allow"] = "error",
) -> Vectors:
    """Return the embeddings of texts, spelled as the model's vocabulary spells and cut to its maximum length.

    Args:
        towers: The runtime.
        texts: The texts.
        batch_size: Texts per batch.
        progress: Reports each batch.
        unknown: ``"allow"`` encodes a text without a single known word, which is an error otherwise.

    Returns:
        Unit vectors ``(n, D)`` float32.

    Raises:
        InputError: For invalid arguments, a model without a vocabulary, or a text of unknown words only.
    """
    check_batch_size(batch_size)
    texts = as_texts(texts)
    reporter = progress or SilentProgress()
    out = np.empty((len(texts), towers.embed_size), dtype=np.float32)
    reporter.start(len(texts), "texts")
    for rows, tokens, lengths in token_batches(towers.tokenizer, texts, batch_size, unknown=unknown):
        out[rows] = towers.embed_tokens(tokens, lengths)
        reporter.advance(len(rows))
    reporter.finish()
    return out


def as_texts(texts: Any) -> list[str]:
    """Return the texts as a list; a single text counts as a list of one."""
    if not isinstance(texts, Iterable):
        raise InputError(f"texts must be a list of sentences, got {type(texts).__name__}")
    return [texts] if isinstance(texts, str) else list(texts)


def token_batches(
    tokenizer: TextTokenizer | None, texts: Sequence[str], batch_size: int, *, unknown: Literal["error", "allow"]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows, padded tokens and lengths of texts, those of similar length together."""
    check_choice("unknown", unknown, ("error", "allow"))
    if tokenizer is None:
        raise InputError(
            "this model has no vocabulary and cannot read text: convert it again with --vocab FILE or --tokenizer DIR"
        )
    for start in range(0, len(texts), TEXT_CHUNK):
        chunk = texts[start : start + TEXT_CHUNK]
        batch = tokenizer.encode(tokenizer.respell(chunk, first=start), first=start)
        if unknown == "error":
            check_known(batch, chunk, tokenizer, first=start)
        order = np.argsort(batch.lengths, kind="stable")  # similar lengths together: less padding
        for first in range(0, len(chunk), batch_size):
            rows = order[first : first + batch_size]
            lengths = batch.lengths[rows]
            yield start + rows, batch.tokens[rows, : int(lengths.max())], lengths


def check_known(batch: TokenBatch, texts: Sequence[str], tokenizer: TextTokenizer, *, first: int = 0) -> None:
    """Reject a text without a single known word; ``first`` is the number of the first text."""
    if batch.unknown.any():
        which = int(batch.unknown.argmax())
        raise InputError(
            f"text {first + which}, {texts[which]!r}: the model knows none of its words "
            f"(vocabulary of {tokenizer.vocab_size}); use other words, or unknown='allow'"
        )


class VideoMethods:
    """``encode_videos`` for any :class:`~vse.models.protocols.VideoTowers`."""

    def encode_videos(
        self: VideoTowers,
        videos: Images,
        *,
        batch_size: int = 64,
        progress: ProgressReporter | None = None,
        on_bad: Literal["report", "raise"] = "report",
        problems: list[BadImage] | None = None,
    ) -> Vectors:
        """Return the embeddings of videos.

        A model of images encodes 20 evenly spaced frames of a video file and averages their embeddings. A model of
        frame features reads video files if it was trained on features of ``vse features``, with the same backbone.

        Args:
            videos: Paths of video files, or arrays of frame features ``(frames, C)``. Of more than 20 frames 20 are
                used, evenly spaced.
            batch_size: Arrays per batch, or frames of a video computed at once.
            progress: Reports each batch or video.
            on_bad: ``"raise"`` stops at the first bad video.
            problems: Collects the bad videos; without it a warning names the first ones.

        Returns:
            Unit vectors ``(n, D)`` float32; the row of a bad video is NaN.

        Raises:
            InputError: For invalid arguments, paths mixed with arrays, or a model that cannot read video files.
        """
        from vse.models.encode_videos import encode_video_files, video_paths  # with the video reader

        paths = video_paths(videos)
        if paths is None:
            return encode_images(
                self, videos, batch_size=batch_size, progress=progress, on_bad=on_bad, problems=problems, what="videos"
            )
        return encode_video_files(
            self.video_embedder(),
            paths,
            self.embed_size,
            batch_size=batch_size,
            progress=progress,
            on_bad=on_bad,
            problems=problems,
        )


def direction(vectors: Vectors) -> Vectors | None:
    """Return the normalized mean of unit vectors ``(F, D)``; None where they cancel out or are not finite."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    return (mean / length).astype(np.float32) if np.isfinite(length) and length > SHORTEST else None


def check_batch_size(value: int) -> None:
    """Reject a batch size below 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"batch_size must be a whole number from 1 up, got {value!r}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Reject a value that is not one of ``choices``."""
    if value not in choices:
        raise InputError(unknown_choice(f"value for {name!r}", value, choices))


def read_ahead(read: Callable[[int], Item], count: int, batch_size: int) -> Iterator[tuple[int, list[Item]]]:
    """Yield ``read(0)`` to ``read(count - 1)`` in batches, each with its first number.

    Threads read the next batch while the caller works on the current one; never more than these two are held.
    """
    starts = list(range(0, count, batch_size))
    from concurrent.futures import ThreadPoolExecutor  # loads logging, which encoding texts does not need

    with ThreadPoolExecutor(READERS) as pool:

        def submit(start: int) -> list[Future[Item]]:
            indices = range(start, min(start + batch_size, count))
            return [pool.submit(copy_context().run, read, index) for index in indices]  # keeps a decoding deadline

        ahead = submit(starts[0]) if starts else []
        for position, start in enumerate(starts):
            current = ahead
            ahead = submit(starts[position + 1]) if position + 1 < len(starts) else []
            yield start, [future.result() for future in current]


def read_pixels(source: Any, how: ImagePreprocessing) -> NDArray[np.float32] | VSEError:
    """Return the pixels ``(3, H, W)`` of an image, or the error that says why there are none."""
    from vse.inputs.decoding import decode_pixels
    from vse.inputs.images import BadImageError

    try:
        return decode_pixels(source, how)
    except BadImageError as error:
        return error


def warn_of(found: list[BadImage], what: str) -> None:
    """Warn the caller of a model's method that some inputs have no embedding."""
    shown = "; ".join(f"{bad.name}: {bad.reason}" for bad in found[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    warnings.warn(f"{len(found)} {what} could not be encoded: {shown}{more}", BadImageWarning, stacklevel=4)


def as_sources(images: Any, towers: ItemInputs) -> Items:
    """Return the items one by one; a single image or feature set counts as a sequence of one."""
    images = _as_array(images)
    if isinstance(images, np.ndarray):
        single = images.ndim == 2 or (
            images.ndim == 3 and towers.preprocessing is not None and images.shape[-1] in (1, 3, 4)
        )
        return [images] if single else list(images)
    if isinstance(images, (str, bytes, os.PathLike)):
        return [images]
    if isinstance(images, Items):
        return images
    return list(images) if isinstance(images, Iterable) else [images]  # a PIL image is none of these


def _as_array(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, TensorLike) else value


def _read_one(towers: ItemInputs, sources: Items, index: int, name: str) -> NDArray[Any] | VSEError:
    """Return the array for one source, or the error that says why there is none."""
    try:
        source = _as_array(sources[index])
    except InputError as error:  # a sequence may read its items when they are asked for
        if hasattr(error, "reason"):  # BadImageError, which is about this item alone
            return error
        raise
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
            f"{name} is {found}; this model takes sets of features (N, {towers.feature_size}), not images: "
            "compute them with its detector, or use a model that reads images (see 'vse inspect MODEL')"
        )
    return read_pixels(source, towers.preprocessing)


def _stack(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Return pixels as one array; feature sets padded to the largest, with their sizes."""
    if arrays[0].ndim == 3:
        return np.stack(arrays), None
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    batch = np.zeros((len(arrays), int(lengths.max()), arrays[0].shape[1]), dtype=np.float32)
    for row, array in zip(batch, arrays, strict=True):
        row[: len(array)] = array
    return batch, lengths
