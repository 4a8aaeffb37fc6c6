"""Picklable callables that add a column of embeddings to a batch, for engines that run many workers.

An instance holds names and numbers only. The model is loaded in the worker, on the first batch, and once per process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from vse._util.prefetch import available_cores
from vse.batch.store import is_url, open_store
from vse.errors import InputError
from vse.inputs.images import BadImageError
from vse.models.encode import BadImage, check_batch_size, check_choice, warn_of
from vse.models.protocols import EmbeddingModel, Vectors

_loading = threading.Lock()


def worker_threads() -> int:
    """Return the CPUs of this worker: what Ray assigned to the task or actor, else the cores it may use."""
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        if context.worker.mode == ray.WORKER_MODE:
            return max(1, int(context.get_assigned_resources().get("CPU", 1)))
    return available_cores()


def worker_model(source: str, device: str | None = None, threads: int | None = None) -> EmbeddingModel:
    """Return the model of this process, loaded once, with one thread per CPU of the worker."""
    with _loading:
        return _load(source, device, threads or worker_threads(), os.getpid())


@lru_cache(maxsize=2)
def _load(source: str, device: str | None, threads: int, process: int) -> EmbeddingModel:
    from vse.inputs.decoding import DECODERS, use_decoders
    from vse.models.sources import load_towers

    if threads < DECODERS:
        use_decoders(threads)
    return load_towers(source, device=device, threads=threads)


class _Embedder:
    """What both embedders share: the batch comes as columns, rows of a frame, a table or a plain sequence."""

    column: str
    into: str

    def __init__(
        self,
        model: str,
        *,
        column: str,
        into: str,
        device: str | None,
        threads: int | None,
        batch_size: int,
        dtype: Literal["float32", "float16"],
        on_bad: Literal["report", "raise"],
    ) -> None:
        check_batch_size(batch_size)
        check_choice("dtype", dtype, ("float32", "float16"))
        check_choice("on_bad", on_bad, ("report", "raise"))
        self.model, self.column, self.into = str(model), column, into
        self.device, self.threads, self.batch_size, self.dtype, self.on_bad = device, threads, batch_size, dtype, on_bad

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its embeddings; those alone, ``(n, D)``, for a plain sequence.

        Args:
            batch: Columns by name (``dict``), a pandas ``DataFrame``, a pyarrow ``Table``, or a sequence or series of
                values.
        """
        if isinstance(batch, Mapping):
            return {**batch, self.into: self._embed(self._values(batch, batch.keys()))}
        if hasattr(batch, "append_column"):  # pyarrow.Table
            vectors = self._embed(self._values(batch, batch.column_names))
            return batch.append_column(self.into, fixed_lists(vectors))
        if hasattr(batch, "assign") and hasattr(batch, "columns"):  # pandas.DataFrame
            return batch.assign(**{self.into: list(self._embed(self._values(batch, batch.columns)))})
        return self._embed(_as_list(batch))

    def _values(self, batch: Any, columns: Any) -> list[Any]:
        if self.column not in columns:
            raise InputError(f"no column {self.column!r} in the batch: it has {', '.join(map(str, columns))}")
        return _as_list(batch[self.column])

    def _embed(self, values: list[Any]) -> NDArray[Any]:
        model = worker_model(self.model, self.device, self.threads)
        return self._vectors(model, values).astype(self.dtype, copy=False)

    def _vectors(self, model: EmbeddingModel, values: list[Any]) -> Vectors:
        raise NotImplementedError


class ImageEmbedder(_Embedder):
    """Add the embeddings of a column of images to a batch.

    Values are encoded images (bytes), paths, fsspec URLs, arrays ``(H, W, 3)`` uint8, PIL images, or the
    ``{"bytes", "path"}`` of ``datasets``. An image that cannot be read gets a row of NaN and a warning.

    Args:
        model: What :func:`vse.load` takes; every worker must have it.
        column: The column of images.
        into: The new column.
        device: Where the model runs; the CPU by default.
        threads: Threads on the CPU; the CPUs of the worker by default.
        batch_size: Images that the model computes at once.
        dtype: ``"float32"`` or ``"float16"``.
        on_bad: ``"raise"`` stops at the first bad image.

    Example:
        >>> from vse.batch import ImageEmbedder
        >>> ray.data.read_images("photos").map_batches(ImageEmbedder("photo"))  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str = "photo",
        *,
        column: str = "image",
        into: str = "embedding",
        device: str | None = None,
        threads: int | None = None,
        batch_size: int = 32,
        dtype: Literal["float32", "float16"] = "float32",
        on_bad: Literal["report", "raise"] = "report",
    ) -> None:
        super().__init__(
            model,
            column=column,
            into=into,
            device=device,
            threads=threads,
            batch_size=batch_size,
            dtype=dtype,
            on_bad=on_bad,
        )

    def _vectors(self, model: EmbeddingModel, values: list[Any]) -> Vectors:
        return model.encode_images(_Values(values), batch_size=self.batch_size, on_bad=self.on_bad)


class TextEmbedder(_Embedder):
    """Add the embeddings of a column of texts to a batch.

    A value that is no text, or is empty, gets a row of NaN. Arguments as for :class:`ImageEmbedder`; words that the
    model does not know are no error.
    """

    def __init__(
        self,
        model: str = "photo",
        *,
        column: str = "text",
        into: str = "text_embedding",
        device: str | None = None,
        threads: int | None = None,
        batch_size: int = 128,
        dtype: Literal["float32", "float16"] = "float32",
        on_bad: Literal["report", "raise"] = "report",
    ) -> None:
        super().__init__(
            model,
            column=column,
            into=into,
            device=device,
            threads=threads,
            batch_size=batch_size,
            dtype=dtype,
            on_bad=on_bad,
        )

    def _vectors(self, model: EmbeddingModel, values: list[Any]) -> Vectors:
        return embed_texts(model, values, self.batch_size, self.on_bad)


def embed_texts(
    model: EmbeddingModel, values: Sequence[Any], batch_size: int, on_bad: Literal["report", "raise"] = "report"
) -> Vectors:
    """Return the embeddings of texts ``(n, D)``; a row of NaN for a value that is no text."""
    out = np.full((len(values), model.embed_size), np.nan, dtype=np.float32)
    rows = [row for row, value in enumerate(values) if isinstance(value, str) and value.strip()]
    if len(rows) < len(values):
        bad = next(row for row in range(len(values)) if row not in set(rows))
        if on_bad == "raise":
            raise InputError(f"text {bad} is {values[bad]!r}: expected a text")
        warn_of([BadImage(bad, f"text {bad}", f"{str(values[bad])[:60]!r} is no text")], "texts")
    if rows:
        out[rows] = model.encode_texts([values[row] for row in rows], batch_size=batch_size, unknown="allow")
    return out


class _Values:
    """Values of a column as images, converted when they are read."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Any:
        value = self._values[index]
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, np.str_):
            value = str(value)
        if isinstance(value, (np.bytes_, bytearray, memoryview)):
            value = bytes(value)
        if value is None or (isinstance(value, (str, bytes)) and not value):
            raise BadImageError(f"image {index}", "an empty value")
        return open_store(value).content("") if isinstance(value, str) and is_url(value) else value


def _as_list(values: Any) -> list[Any]:
    """Return the values of a column, a series or an array one by one."""
    for name in ("to_pylist", "tolist"):
        if hasattr(values, name) and not (name == "tolist" and isinstance(values, np.ndarray)):
            return cast("list[Any]", getattr(values, name)())
    return list(values)


def fixed_lists(vectors: NDArray[Any]) -> Any:
    """Return vectors ``(n, D)`` as a pyarrow array of lists of fixed size.

    Rows without an embedding stay NaN: Parquet files with nulls among such lists cannot be read back.
    """
    import pyarrow

    return pyarrow.FixedSizeListArray.from_arrays(
        pyarrow.array(np.ascontiguousarray(vectors).reshape(-1)), vectors.shape[1]
    )
