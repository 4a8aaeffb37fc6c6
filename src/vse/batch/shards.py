"""Compute a shard of an embedding job and write it: Parquet, or the files that clip-retrieval reads."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vse.batch.embedders import embed_texts, fixed_lists
from vse.batch.manifest import Manifest
from vse.batch.parts import DamagedPart, Part, digest_of, readable_name
from vse.batch.sources import Listing, Record, ShardItems
from vse.batch.store import Store
from vse.errors import require
from vse.models.encode import BadImage
from vse.models.protocols import EmbeddingModel
from vse.progress import ProgressReporter

ORIGIN = "vse-embeddings"
"""Key of the model in the metadata of a Parquet file, which ``vse collection import`` reads."""
MAX_METADATA = 100_000
"""Characters of the metadata of one image."""


@dataclass(frozen=True)
class ShardResult:
    """A shard that was computed: images stored and failed, and seconds."""

    shard: int
    embedded: int
    failed: int
    seconds: float


def compute_shard(
    listing: Listing,
    manifest: Manifest,
    shard: int,
    store: Store,
    model: EmbeddingModel,
    *,
    progress: ProgressReporter | None = None,
) -> ShardResult:
    """Embed the images of a shard and write it; memory is bounded by its embeddings and two batches of images.

    Raises:
        InputError: A packed file is damaged.
        StoreError: The source or the destination cannot be reached, or the disk is full; nothing is left behind.
    """
    began = time.perf_counter()
    first, last = manifest.range(shard)
    problems: list[BadImage] = []
    records = listing.records(first, last)  # before the images, which take much longer
    items = ShardItems(listing, first, last)
    vectors = model.encode_images(items, batch_size=manifest.batch_size, problems=problems, progress=progress)
    items.expect_source()
    reasons = {row: record.problem for row, record in enumerate(records) if record.problem is not None}
    reasons |= {problem.index: problem.reason for problem in problems}
    for row in range(len(records)):
        if row not in reasons and not np.isfinite(vectors[row]).all():
            reasons[row] = "the model returned no finite embedding"
    texts = None
    if manifest.text is not None:
        values = [_caption(record, manifest.text) for record in records]
        texts = _texts(model, values)
        if manifest.format == "clip-retrieval":  # which would index NaN
            none = f"no text in {manifest.text!r}"
            reasons = {row: none for row, value in enumerate(values) if value is None} | reasons
    kept = [row for row in range(len(records)) if row not in reasons]
    failed = [(records[row].path, reasons[row]) for row in sorted(reasons)]
    if failed:
        store.write(manifest.failures_name(shard), _failures(failed))
    else:
        store.remove(manifest.failures_name(shard))
    rows = [records[row] for row in kept]
    type_ = np.dtype(manifest.dtype)
    stored = vectors[kept].astype(type_)
    stored_texts = None if texts is None else texts[kept].astype(type_)
    if manifest.format == "clip-retrieval":
        store.write(manifest.names(shard)[0], _npy(stored))
        if stored_texts is not None:
            store.write(f"text_emb/text_emb_{manifest.key(shard)}.npy", _npy(stored_texts))
        store.write(manifest.name(shard), _table(manifest, shard, rows, None, None))
    else:
        store.write(manifest.name(shard), _table(manifest, shard, rows, stored, stored_texts))
    return ShardResult(shard, len(kept), len(failed), time.perf_counter() - began)


def _caption(record: Record, text: str) -> str | None:
    value = record.fields.get(text)
    if isinstance(value, list):
        value = next((each for each in value if isinstance(each, str) and each.strip()), None)
    return value if isinstance(value, str) and value.strip() else None


def _texts(model: EmbeddingModel, values: Sequence[str | None]) -> NDArray[np.float32]:
    import warnings

    from vse.models.encode import BadImageWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BadImageWarning)  # rows of NaN say so
        return embed_texts(model, values, 128)


def _table(
    manifest: Manifest,
    shard: int,
    records: Sequence[Record],
    vectors: NDArray[Any] | None,
    texts: NDArray[Any] | None,
) -> bytes:
    pyarrow = require("pyarrow", "parquet", "writing Parquet")
    metadata = [_metadata(record) for record in records]
    columns: dict[str, Any] = {
        "id": pyarrow.array([record.id for record in records], pyarrow.string()),
        "path": pyarrow.array([record.path for record in records], pyarrow.string()),
        "metadata": pyarrow.array(metadata, pyarrow.string()),
    }
    if vectors is None:  # the names that clip-retrieval reads
        columns["image_path"] = columns["path"]
        columns["caption"] = pyarrow.array([_caption(r, manifest.text or "caption") for r in records], pyarrow.string())
    else:
        columns["embedding"] = fixed_lists(vectors)
    if texts is not None:
        columns["text_embedding"] = fixed_lists(texts)
    origin = {"model": manifest.model, "model_source": manifest.model_source, "shard": manifest.digest(shard)}
    table = pyarrow.table(columns).replace_schema_metadata({ORIGIN: json.dumps(origin)})
    return _parquet(table)


def _metadata(record: Record) -> str:
    """Return the fields of an image as JSON; of too many, the short ones."""
    text = json.dumps(record.fields, ensure_ascii=False)
    if len(text) > MAX_METADATA:
        short = {name: value for name, value in record.fields.items() if len(json.dumps(value)) <= 1000}
        text = json.dumps(dict(list(short.items())[: MAX_METADATA // 2000]), ensure_ascii=False)
    return text


def list_damaged(store: Store, damaged: Iterable[DamagedPart], readable: Iterable[Part]) -> None:
    """List packed files that cannot be read as failures, and no longer those that can."""

    def listed(name: str) -> str:
        return f"failures/file-{readable_name(name)}-{digest_of(name)}.parquet"

    there = {name for name, _ in store.names() if name.startswith("failures/file-")}
    for part in damaged:
        store.write(listed(part.name), _failures([(part.name, part.reason)]))
    for name in there.intersection(listed(part.name) for part in readable):
        store.remove(name)


def _failures(failed: Sequence[tuple[str, str]]) -> bytes:
    pyarrow = require("pyarrow", "parquet", "writing Parquet")
    return _parquet(pyarrow.table({"path": [path for path, _ in failed], "reason": [reason for _, reason in failed]}))


def _parquet(table: Any) -> bytes:
    parquet = require("pyarrow.parquet", "parquet", "writing Parquet")
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
