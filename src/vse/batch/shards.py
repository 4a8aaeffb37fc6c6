"""The shards of an embedding job: how work is split, how a shard is named, computed and written.

A shard is a number of consecutive images. Its name follows from the manifest alone, so that every worker knows which
shards are there, and two jobs that compute the same one write the same file.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse.batch.embedders import embed_texts, fixed_lists
from vse.batch.sources import Listing, Part, Record, ShardItems, plain_fields
from vse.batch.store import Store
from vse.errors import InputError, require
from vse.models.encode import BadImage
from vse.models.protocols import EmbeddingModel
from vse.progress import ProgressReporter

Format = Literal["parquet", "clip-retrieval"]
DType = Literal["float32", "float16"]
MANIFEST = "manifest.json"
VERSION = 1
KIND = "vse-embed"
ORIGIN = "vse-embeddings"
"""Key of the model in the metadata of a Parquet file, which ``vse collection import`` reads."""
MAX_METADATA = 100_000
"""Characters of the metadata of one image."""
_SHARD = re.compile(r"(shard-\d{5,}-[0-9a-f]{12}\.parquet|metadata/metadata_\d{5,}\.parquet)")


@dataclass(frozen=True)
class Manifest:
    """What all workers of a destination agree on; equal for every job that may write there.

    Attributes:
        model: Fingerprint of the model.
        model_source: Where the first job loaded it from; may differ between machines.
        dimensions: Width of the embeddings.
        source_digest: Of the names and sizes of the source.
        items: Images of the source.
        shard_size: Images per shard; the last may have fewer.
        format: Files of a shard.
        dtype: Type of the embeddings.
        text: The field whose texts are embedded too.
        batch_size: Images computed at once: a quantized model scales its activations by the batch.
        parts: The packed files of the source.
    """

    model: str
    model_source: str
    dimensions: int
    source_digest: str
    items: int
    shard_size: int
    format: Format
    dtype: DType
    text: str | None
    batch_size: int
    parts: tuple[Part, ...] = field(default=(), compare=False)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.items // self.shard_size)

    def range(self, shard: int) -> tuple[int, int]:
        """Return the first image of a shard, and the first after it."""
        return shard * self.shard_size, min((shard + 1) * self.shard_size, self.items)

    def digest(self, shard: int) -> str:
        """Return a name for the content of a shard: its images, the model, and how they are stored."""
        return hashlib.sha256(f"{self._state} {self.range(shard)}".encode()).hexdigest()[:12]

    @cached_property
    def _state(self) -> str:
        return json.dumps({name: getattr(self, name) for name in WHY}, sort_keys=True)

    def name(self, shard: int) -> str:
        """Return the file whose presence means that a shard is complete."""
        if self.format == "parquet":
            return f"shard-{shard:05}-{self.digest(shard)}.parquet"
        return f"metadata/metadata_{shard:05}.parquet"

    def names(self, shard: int) -> tuple[str, ...]:
        """Return the file with the embeddings of a shard, and the last one that is written; they may be the same."""
        last = self.name(shard)
        return (last,) if self.format == "parquet" else (f"img_emb/img_emb_{shard:05}.npy", last)

    def failures_name(self, shard: int) -> str:
        """Return the file that lists the images of a shard without an embedding."""
        return f"failures/failures-{shard:05}-{self.digest(shard)}.parquet"

    def to_json(self) -> dict[str, Any]:
        return {"kind": KIND, "version": VERSION, **asdict(self), "shards": self.shards}

    @classmethod
    def from_json(cls, content: bytes, place: str) -> Manifest:
        """Read the manifest of a destination.

        Raises:
            InputError: It is not one of ours, or of another version.
        """
        try:
            value = json.loads(content)
            if value["kind"] != KIND or value["version"] != VERSION:
                raise ValueError(f"{value['kind']} version {value['version']}")
            parts = tuple(Part(str(p["name"]), int(p["size"]), int(p["count"])) for p in value["parts"])
            known = {name: value[name] for name in cls.__dataclass_fields__ if name != "parts"}
            found = cls(**known, parts=parts)
            if found.items < 1 or found.shard_size < 1 or value["shards"] != found.shards:
                raise ValueError("its numbers do not agree")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{place}/{MANIFEST} cannot be used ({str(error)[:100]}): expected that of 'vse embed' version "
                f"{VERSION}; choose another destination"
            ) from None
        return found


WHY = {
    "model": "another model",
    "dimensions": "another model",
    "source_digest": "another source, or the source has changed",
    "items": "another source, or the source has changed",
    "shard_size": "another shard size",
    "format": "another format",
    "dtype": "another type of numbers",
    "text": "another text column",
    "batch_size": "another batch size",
}


def agree(store: Store, wanted: Manifest) -> Manifest:
    """Write the manifest of a new destination, or check that the one there is for the same work.

    Raises:
        InputError: The destination belongs to other work, or has shards without a manifest.
    """
    content = store.read(MANIFEST)
    if content is None:
        left = next((name for name, _ in store.names() if _SHARD.fullmatch(name)), None)
        if left is not None:
            raise InputError(f"{store.place} has shards ({left}) but no {MANIFEST}: choose another destination")
        store.create(MANIFEST, (json.dumps(wanted.to_json(), indent=1) + "\n").encode())
        content = store.read(MANIFEST)  # another job may have been first
        if content is None:
            raise InputError(f"{store.place}/{MANIFEST} cannot be read after it was written")
    found = Manifest.from_json(content, store.place)
    for name, why in WHY.items():
        mine, theirs = getattr(wanted, name), getattr(found, name)
        if mine != theirs:
            raise InputError(
                f"{store.place} is for {why} ({name} {theirs!r}, not {mine!r}): choose another destination"
            )
    return found


def complete_shards(store: Store, manifest: Manifest, *, failed: bool = False) -> set[int]:
    """Return the shards that are there; with ``failed``, those of them with failures. Damaged ones do not count.

    Raises:
        InputError: A shard was written by other work.
    """
    names = {manifest.name(shard): shard for shard in range(manifest.shards)}
    sizes = dict(store.names())
    found: set[int] = set()
    for name in sizes:
        if name in names:
            if all(store.is_whole(each, sizes.get(each, 0)) for each in manifest.names(names[name])):
                found.add(names[name])
        elif _SHARD.fullmatch(name):
            raise InputError(
                f"{store.place}/{name} is no shard of this manifest (another model or source wrote it): "
                "remove it, or choose another destination"
            )
    return {shard for shard in found if manifest.failures_name(shard) in sizes} if failed else found


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
    items = ShardItems(listing, first, last)
    vectors = model.encode_images(items, batch_size=manifest.batch_size, problems=problems, progress=progress)
    items.expect_source()
    reasons = {problem.index: problem.reason for problem in problems}
    records: list[Record] = []
    for row in range(last - first):
        records.append(listing.record(first + row))
        if row not in reasons and not np.isfinite(vectors[row]).all():
            reasons[row] = "the model returned no finite embedding"
    texts = None
    if manifest.text is not None:
        values = [_caption(record, manifest.text) for record in records]
        texts = _texts(model, values)
        if manifest.format == "clip-retrieval":  # which would index NaN
            reasons |= {row: f"no text in {manifest.text!r}" for row, value in enumerate(values) if value is None}
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
            store.write(f"text_emb/text_emb_{shard:05}.npy", _npy(stored_texts))
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
    fields = plain_fields(record.fields)
    text = json.dumps(fields, ensure_ascii=False)
    if len(text) > MAX_METADATA:
        short = {name: value for name, value in fields.items() if len(json.dumps(value)) <= 1000}
        text = json.dumps(dict(list(short.items())[: MAX_METADATA // 2000]), ensure_ascii=False)
    return text


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
