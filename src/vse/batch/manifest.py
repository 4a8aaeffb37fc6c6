"""What the workers of a destination agree on: how work is split into shards, and how a shard is named.

A shard is a number of consecutive images, of packed files all of one. Its name follows from its images and the
settings alone, so that every worker knows which shards are there, two jobs that compute the same one write the same
file, and a packed file that comes or changes leaves the shards of the others as they are.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from vse.batch.parts import Part, digest_of, readable_name
from vse.batch.sources import Kind, shared_parts
from vse.batch.store import Store, open_store
from vse.errors import InputError

Format = Literal["parquet", "clip-retrieval"]
DType = Literal["float32", "float16"]
MANIFEST = "manifest.json"
REVISIONS = "manifests"
"""Folder of the manifests with packed files that later jobs added; the one with the highest number counts."""
KEPT = 8
"""Revisions that are kept, for those who read one."""
VERSION = 2
KIND = "vse-embed"
MAX_SHARDS = 10_000_000
_SHARD = re.compile(r"(shard-.+|metadata/metadata_.+)-[0-9a-f]{12}\.parquet")


@dataclass(frozen=True)
class Span:
    """The images ``first`` to ``last`` of a listing; of the packed file ``part`` these are from ``start`` on."""

    first: int
    last: int
    number: int
    part: Part | None = None
    start: int = 0


@dataclass(frozen=True)
class Manifest:
    """What all workers of a destination agree on.

    Attributes:
        model: Fingerprint of the model.
        model_source: Where the first job loaded it from; may differ between machines.
        dimensions: Width of the embeddings.
        source: Kind of the source.
        source_digest: Of the names and sizes of its images; of packed files of the kind alone.
        items: Images of the source.
        shard_size: Images per shard at most.
        format: Files of a shard.
        dtype: Type of the embeddings.
        text: The field whose texts are embedded too.
        batch_size: Images computed at once: a quantized model scales its activations by the batch.
        parts: The packed files, of all jobs.
    """

    model: str
    model_source: str
    dimensions: int
    source: Kind
    source_digest: str
    items: int
    shard_size: int
    format: Format
    dtype: DType
    text: str | None
    batch_size: int
    parts: tuple[Part, ...] = field(default=())

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self._spans)

    def range(self, shard: int) -> tuple[int, int]:
        """Return the first image of a shard, and the first after it."""
        return self._spans[shard].first, self._spans[shard].last

    @cached_property
    def _spans(self) -> list[Span]:
        found: list[Span] = []
        whole = [(None, self.items)] if self.source != "packed" else [(part, part.count) for part in self.parts]
        offset = 0
        for part, count in whole:
            for number, start in enumerate(range(0, count, self.shard_size)):
                end = min(start + self.shard_size, count)
                found.append(Span(offset + start, offset + end, number, part, start))
            offset += count
        return found

    def digest(self, shard: int) -> str:
        """Return a name for the content of a shard: its images, the model, and how they are stored."""
        return self._digests[shard]

    @cached_property
    def _digests(self) -> list[str]:
        names = [name for name in WHY if name != "items" or self.source != "packed"]
        state = digest_of({name: getattr(self, name) for name in names})
        return [self._digest(state, span) for span in self._spans]

    @staticmethod
    def _digest(state: str, span: Span) -> str:
        if span.part is None:
            return digest_of(state, span.first, span.last)
        return digest_of(state, span.part.name, span.part.size, span.start, span.last - span.first)

    def key(self, shard: int) -> str:
        """Return the name of a shard without its kind and ending."""
        span = self._spans[shard]
        readable = "" if span.part is None else f"{readable_name(span.part.name)}-"
        return f"{readable}{span.number:05}-{self.digest(shard)}"

    def name(self, shard: int) -> str:
        """Return the file whose presence means that a shard is complete."""
        key = self.key(shard)
        return f"shard-{key}.parquet" if self.format == "parquet" else f"metadata/metadata_{key}.parquet"

    def names(self, shard: int) -> tuple[str, ...]:
        """Return the file with the embeddings of a shard, and the last one that is written; they may be the same."""
        last = self.name(shard)
        return (last,) if self.format == "parquet" else (f"img_emb/img_emb_{self.key(shard)}.npy", last)

    def failures_name(self, shard: int) -> str:
        """Return the file that lists the images of a shard without an embedding."""
        return f"failures/failures-{self.key(shard)}.parquet"

    def to_json(self) -> dict[str, Any]:
        return {"kind": KIND, "version": VERSION, **asdict(self), "shards": self.shards}

    def content(self) -> bytes:
        """Return the file."""
        return (json.dumps(self.to_json(), indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes, place: str) -> Manifest:
        """Read the manifest at a place.

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
            images = sum(part.count for part in parts) if found.source == "packed" else found.items
            fits = found.items == images >= 1 and found.shard_size >= 1 and all(part.count >= 0 for part in parts)
            if not fits or images // found.shard_size > MAX_SHARDS or value["shards"] != found.shards:
                raise ValueError("its numbers do not agree")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{place} cannot be used ({str(error)[:100]}): expected a manifest of 'vse embed' version {VERSION}: "
                "choose another destination, or remove the file if it was cut short"
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


def read_manifest(store: Store) -> Manifest | None:
    """Return the manifest of a destination; None if it has none."""
    found = _newest(store)
    return None if found is None else found[1]


def _newest(store: Store) -> tuple[int, Manifest] | None:
    """Return the newest manifest and the number of its revision, 0 for that of the first job."""
    content = store.read(MANIFEST)
    if content is None:
        return None
    first = Manifest.from_json(content, f"{store.place}/{MANIFEST}")
    if first.source != "packed":
        return 0, first
    revisions = _revisions(store)
    while number := max(_numbers(revisions), default=0):
        content = revisions.read(_revision(number))
        if content is not None:  # otherwise it was removed, as there are newer ones
            return number, Manifest.from_json(content, f"{revisions.place}/{_revision(number)}")
    return 0, first


def _revisions(store: Store) -> Store:
    return open_store(f"{store.place}/{REVISIONS}")


def _revision(number: int) -> str:
    return f"{number:06}.json"


def _numbers(revisions: Store) -> list[int]:
    found = (re.fullmatch(r"([0-9]{6,})\.json", name) for name, _ in revisions.names())
    return [int(match[1]) for match in found if match is not None]


def agree(store: Store, wanted: Manifest) -> tuple[Manifest, Manifest]:
    """Write the manifest of a new destination, or check that the one there is for the same work.

    Packed files that are new are added to it. One whose size has changed replaces the former one, whose shards are
    removed.

    Returns:
        The manifest of this job, and that of all.

    Raises:
        InputError: The destination belongs to other work, or has shards without a manifest.
    """
    found = read_manifest(store)
    if found is None:
        left = next((name for name, _ in store.names() if _SHARD.fullmatch(name)), None)
        if left is not None:
            raise InputError(f"{store.place} has shards ({left}) but no {MANIFEST}: choose another destination")
        store.create(MANIFEST, wanted.content())
        found = read_manifest(store)  # another job may have been first
        if found is None:
            raise InputError(f"{store.place}/{MANIFEST} cannot be read after it was written")
    _check_same(store, wanted, found)
    if found.source != "packed":
        return found, found
    mine = sum(part.count for part in wanted.parts)
    return replace(found, parts=wanted.parts, items=mine), _union(store, wanted)


def _check_same(store: Store, wanted: Manifest, found: Manifest) -> None:
    packed = wanted.source == found.source == "packed"
    for name, why in WHY.items():
        mine, theirs = getattr(wanted, name), getattr(found, name)
        if mine != theirs and not (packed and name == "items"):
            raise InputError(
                f"{store.place} is for {why} ({name} {theirs!r}, not {mine!r}): choose another destination"
            )
    if packed and not shared_parts(found.parts, ((part.name, part.size) for part in wanted.parts)):
        raise InputError(
            f"{store.place} is for another source, none of whose files is here: choose another destination"
        )


def _union(store: Store, wanted: Manifest) -> Manifest:
    """Add the packed files of a job to the manifest of all.

    The next revision is created only if there is none, so that of two jobs at once one tries again with what the other
    has added.
    """
    revisions = _revisions(store)
    while True:
        newest = _newest(store)
        if newest is None:
            raise InputError(f"{store.place}/{MANIFEST} was removed: start again, or choose another destination")
        number, found = newest
        parts = {part.name: part for part in (*found.parts, *wanted.parts)}
        union = tuple(parts[name] for name in sorted(parts))
        if union == found.parts:
            return found
        everything = replace(found, parts=union, items=sum(part.count for part in union))
        for shard in set(_shard_files(found)) - set(_shard_files(everything)):
            store.remove(shard)
        if not revisions.create(_revision(number + 1), everything.content()):
            continue
        for old in _numbers(revisions):  # a number that was removed can be created, but then it is not the newest
            if old <= number - KEPT:
                revisions.remove(_revision(old))


def _shard_files(manifest: Manifest) -> list[str]:
    """Return the files of all shards, those of the last to be written first."""
    shards = range(manifest.shards)
    return [each for n in shards for each in (*reversed(manifest.names(n)), manifest.failures_name(n))]


def complete_shards(store: Store, manifest: Manifest, everything: Manifest | None = None) -> dict[int, bool]:
    """Return the shards that are there, and whether images of each failed. Damaged ones do not count.

    Shards of packed files that other jobs have added since ``everything`` was read are left alone.

    Raises:
        InputError: A shard was written by other work than that of the destination.
    """
    names = {manifest.name(shard): shard for shard in range(manifest.shards)}
    known = everything or manifest
    sizes = dict(store.names())
    found: dict[int, bool] = {}
    for name in sizes:
        if name in names and all(store.is_whole(each, sizes.get(each, 0)) for each in manifest.names(names[name])):
            found[names[name]] = manifest.failures_name(names[name]) in sizes
    others = {name for name in sizes if name not in names and _SHARD.fullmatch(name)}
    others -= {known.name(shard) for shard in range(known.shards)}
    if others and manifest.source == "packed":  # a manifest that is read now names all shards that were listed before
        known = read_manifest(store) or known
        others -= {known.name(shard) for shard in range(known.shards)}
    if others:
        raise InputError(
            f"{store.place}/{min(others)} is no shard of this manifest (another model or source wrote it): "
            "remove it, or choose another destination"
        )
    return found
