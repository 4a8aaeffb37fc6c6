"""What is to be embedded: the numbered images of a folder, a list, packed files, or a URL of any of these.

A listing is deterministic: the same files give the same numbers and the same digest on every machine.
"""

from __future__ import annotations

import bisect
import fnmatch
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, islice, product
from typing import Any, Literal

from vse.batch.parts import DamagedPart, Part, count_parts, open_part
from vse.batch.store import OBJECT_STORES, AccessError, Store, StoreError, is_url, open_store
from vse.data.packed import ENDINGS, TAR, BadFieldsError, Packed
from vse.errors import InputError
from vse.inputs.files import encodable, kind_of_name
from vse.inputs.images import BadImageError

Kind = Literal["folder", "list", "packed"]
LISTS = (".txt", ".lst", ".list")
MAX_LINE = 10_000
MAX_LIST_BYTES = 20_000_000_000
MAX_EXPANDED = 1_000_000
"""Names that braces may stand for."""
PROBES = 16
"""Images that are tried when all of a shard are unreachable."""
SURELY_LOST = 8
"""Files of a folder that do not vanish together unless the folder does."""
FILES_OPEN = 4
"""Packed files that a process keeps open."""
READ_AT_ONCE = 16
"""Threads that read the texts beside the images of a tar in a store."""
FETCHED = OBJECT_STORES | {"http", "https"}
"""Protocols of URLs in lists and tables."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


@dataclass(frozen=True)
class Record:
    """What a shard stores of an image besides its embedding; or, with a ``problem``, why that cannot be read."""

    id: str
    path: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True)
class Listing:
    """The images of a source, numbered from 0.

    Attributes:
        place: The folder of the names: a path or URL.
        kind: What the names are: images of a folder, lines of a list, or packed files.
        names: The images; empty for packed files.
        parts: The packed files.
        digest: Of the names and sizes, whatever the place; of packed files of the kind alone.
        damaged: Packed files that are left out.
        offsets: The place where offsets of tars are kept.
    """

    place: str
    kind: Kind
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    digest: str
    damaged: tuple[DamagedPart, ...] = ()
    offsets: str | None = None

    def __len__(self) -> int:
        return self._starts[-1] if self.kind == "packed" else len(self.names)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((part.count for part in self.parts), initial=0))

    @cached_property
    def store(self) -> Store:
        """Where the names are."""
        return open_store(self.place)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in {"store", "_starts"}}

    def image(self, number: int) -> bytes:
        """Return the content of an image; raise BadImageError if there is none."""
        if self.kind != "packed":
            return self._named(self.names[number])
        part, index = self._find(number)
        content = self._packed(part).image(index)
        return content if isinstance(content, bytes) else self._named(content)

    def records(self, first: int, last: int) -> list[Record]:
        """Return the ids, paths and fields of images; those of a tar in a store are read several at a time."""
        if self.kind != "packed" or not (is_url(self.place) and self._find(first)[0].name.lower().endswith(TAR)):
            return [self._record(number) for number in range(first, last)]
        step = -(-(last - first) // READ_AT_ONCE)
        pieces = [range(start, min(start + step, last)) for start in range(first, last, step)]
        with ThreadPoolExecutor(READ_AT_ONCE) as pool:
            found = list(pool.map(lambda piece: [self._record(number) for number in piece], pieces))
        return [record for piece in found for record in piece]

    def _record(self, number: int) -> Record:
        if self.kind != "packed":
            name = self.names[number]
            return Record(name.lstrip("/"), name)
        part, index = self._find(number)
        packed, place = self._packed(part), f"{part.name}#{index}"
        try:
            fields = plain_fields(packed.fields(index))
            key = encodable(f"{part.name.rpartition('.')[0]}/{packed.key(index)}")
        except BadFieldsError as error:
            return Record("", place, problem=str(error))
        except RecursionError:
            return Record("", place, problem="its JSON is nested too deeply")
        given = fields.get("path")
        return Record(key, given if isinstance(given, str) and given else place, fields)

    def _find(self, number: int) -> tuple[Part, int]:
        at = bisect.bisect_right(self._starts, number) - 1
        return self.parts[at], number - self._starts[at]

    def _packed(self, part: Part) -> Packed:
        packed = _opened(self.place, part.name, part.size, self.offsets)
        if len(packed) != part.count:
            raise InputError(f"{self.place}/{part.name} holds {len(packed):,} images, expected {part.count:,}")
        return packed

    def _named(self, name: str) -> bytes:
        """Return the image at a name of a list or a table: relative to its place, a local path, or a URL."""
        if is_url(name):
            if name.partition("://")[0].lower() not in FETCHED or "::" in name:
                raise BadImageError(name, f"URLs in lists are of {', '.join(sorted(FETCHED))}")
            return _remote(name).content("")
        if is_url(self.place) and (name.startswith("/") or ".." in name.split("/")):
            raise BadImageError(name, f"not below {self.place}")
        return self.store.content(name)


@lru_cache(maxsize=FILES_OPEN)
def _opened(place: str, name: str, size: int, offsets: str | None) -> Packed:
    return open_part(open_store(place), name, size, None if offsets is None else open_store(offsets))


@lru_cache(maxsize=64)
def _remote(url: str) -> Store:
    return open_store(url)


def list_source(source: str, known: Sequence[Part] = (), offsets: Store | None = None) -> Listing:
    """Return the images of a source; packed files that are damaged are left out, unless all are.

    Args:
        source: A folder of images, or of packed files (``.tar``, ``.parquet``, ``.arrow``); one such file, or several
            by a pattern (``data/{000..127}.tar``, ``data/*.parquet``); a list of paths and URLs (``.txt``), a line
            each; or an fsspec URL of one of these.
        known: Packed files that were counted before; equal ones are not opened again.
        offsets: Where offsets of tars are kept.

    Raises:
        InputError: There is no such source, it holds no images, or all packed files are damaged.
        StoreError: It cannot be read now.
    """
    place, slash, name = source.rstrip("/").rpartition("/")
    pattern = name if slash else source
    base = place if slash and place else ("/" if slash else ".")
    if any(letter in source for letter in "*?{["):
        return _patterned(source, known, offsets)
    if pattern.lower().endswith(LISTS):
        return _from_list(open_store(base), pattern)
    if pattern.lower().endswith(ENDINGS):
        store = open_store(base)
        sizes = dict(_only(store, [pattern]))
        return _from_packed(store, sizes, known, offsets, source)
    store = open_store(source.rstrip("/") or "/")
    found = dict(store.names())
    images = sorted(each for each in found if kind_of_name(each) == "image")
    packed = {each: size for each, size in found.items() if each.lower().endswith(ENDINGS)}
    if images and packed:
        raise InputError(
            f"{source} holds image files and packed files ({min(packed)}): expected one kind; name the others with a "
            f"pattern such as '{source.rstrip('/')}/*.tar'"
        )
    if packed:
        return _from_packed(store, packed, known, offsets, source)
    if not images:
        kind = "holds no images" if found else "does not exist or is empty"
        raise InputError(f"{source} {kind}: expected a folder of images, a list, or {', '.join(ENDINGS)} files")
    return Listing(store.place, "folder", tuple(images), (), _digest("folder", ((n, found[n]) for n in images)))


def _patterned(source: str, known: Sequence[Part], offsets: Store | None) -> Listing:
    before = re.split(r"[*?{\[]", source, maxsplit=1)[0]
    base = before.rpartition("/")[0] or ("/" if before.startswith("/") else ".")
    store = open_store(base)
    rest = source[len(before.rpartition("/")[0]) :].lstrip("/")
    wanted = expand_braces(rest)
    if any(letter in rest for letter in "*?["):
        names = dict(store.names())
        chosen = {n: s for n, s in names.items() if any(fnmatch.fnmatchcase(n, each) for each in wanted)}
    else:
        chosen = dict(_only(store, wanted))
    chosen = {name: size for name, size in chosen.items() if name.lower().endswith(ENDINGS)}
    if not chosen:
        raise InputError(f"{source}: no {', '.join(ENDINGS)} files of such names")
    return _from_packed(store, chosen, known, offsets, source)


def expand_braces(pattern: str) -> list[str]:
    """Return the names that ``{a,b}`` and ``{000..127}`` stand for.

    >>> expand_braces("{08..10}.tar")
    ['08.tar', '09.tar', '10.tar']
    """
    choices: list[list[str]] = []
    for number, piece in enumerate(_BRACES.split(pattern)):
        span = _RANGE.fullmatch(piece) if number % 2 else None
        if span is not None:
            first, last = int(span[1]), int(span[2])
            if not 0 <= last - first < MAX_EXPANDED:
                raise InputError(f"{{{piece}}}: expected a range that rises, of at most {MAX_EXPANDED:,} names")
            choices.append([f"{n:0{len(span[1])}}" for n in range(first, last + 1)])
        else:
            choices.append(piece.split(",") if number % 2 else [piece])
    if math.prod(map(len, choices)) > MAX_EXPANDED:
        raise InputError(f"{pattern} stands for more than {MAX_EXPANDED:,} names")
    return ["".join(parts) for parts in product(*choices)]


def _only(store: Store, wanted: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield files that must be there, with their sizes."""
    for name in wanted:
        with store.opener(name)() as file:
            yield name, file.seek(0, 2)


def _from_packed(
    store: Store, sizes: Mapping[str, int], known: Sequence[Part], offsets: Store | None, source: str
) -> Listing:
    if known and not shared_parts(known, sizes.items()):
        offsets = None  # which are of another source: the destination will be refused
    parts, damaged = count_parts(store, sizes, known, offsets)
    if not parts:
        raise InputError(damaged[0].reason)
    listing = Listing(
        place=store.place,
        kind="packed",
        names=(),
        parts=tuple(parts),
        digest=_digest("packed", iter(())),
        damaged=tuple(damaged),
        offsets=None if offsets is None else offsets.place,
    )
    if not len(listing):
        raise InputError(f"{source} holds no images: expected samples or rows")
    return listing


def shared_parts(known: Iterable[Part], sizes: Iterable[tuple[str, int]]) -> bool:
    """Return whether a packed file of the same name and size is among those known: otherwise it is another source."""
    return not {(part.name, part.size) for part in known}.isdisjoint(sizes)


def _from_list(store: Store, name: str) -> Listing:
    """Read a list: a path or URL a line; blank lines and those that begin with # are left out."""
    names: list[str] = []
    with store.opener(name)() as file:
        if file.seek(0, 2) > MAX_LIST_BYTES:
            raise InputError(f"{name} has more than {MAX_LIST_BYTES:,} bytes: split it, or use Parquet")
        file.seek(0)
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 2), b""), start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise InputError(f"{name}:{number} is not UTF-8: expected a path or URL a line") from None
            if len(line) > MAX_LINE or "\0" in text:
                raise InputError(f"{name}:{number} has more than {MAX_LINE:,} bytes or NUL: expected a path or URL")
            if text and not text.startswith("#"):
                names.append(text)
    if not names:
        raise InputError(f"{store.place}/{name} is empty: expected a path or URL a line")
    return Listing(store.place, "list", tuple(names), (), _digest("list", ((each, 0) for each in names)))


def _digest(kind: str, entries: Iterator[tuple[str, int]]) -> str:
    state = hashlib.sha256(kind.encode())
    for name, size in entries:
        state.update(json.dumps([name, size]).encode())
    return state.hexdigest()[:32]


class ShardItems:
    """The images ``first`` to ``last`` of a listing, read when they are asked for."""

    def __init__(self, listing: Listing, first: int, last: int) -> None:
        self._listing, self._first, self._count = listing, first, last - first
        self._unreachable: dict[int, AccessError] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        index = range(self._count)[index]
        try:
            return self._listing.image(self._first + index)
        except AccessError as error:
            self._unreachable[index] = error
            raise

    def expect_source(self) -> None:
        """Raise StoreError if images were unreachable because the source is, and not because these are missing.

        The source is there if an image can be read that was read before; where none was, one of some others.
        """
        if not self._unreachable:
            return
        read = next((self._first + n for n in reversed(range(self._count)) if n not in self._unreachable), None)
        others = len(self._listing)
        # The names of a folder were listed by this job: that all of a shard are gone is no accident of the list.
        sure = self._listing.kind == "folder" and self._count >= SURELY_LOST
        probes = [read] if read is not None else [] if sure else range(0, others, -(-others // PROBES))
        for number in probes:
            try:
                self._listing.image(number)
            except AccessError:
                continue
            except BadImageError:
                pass
            return
        name, reason = min((error.name, error.reason) for error in self._unreachable.values())
        raise StoreError(
            f"{self._listing.place} cannot be read ({reason}): {len(self._unreachable):,} of {self._count:,} images of "
            f"a shard, such as {name}; nothing was written for them, and the same command resumes"
        )


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as JSON has them: times as texts, NaN as null, other values left out."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if value is None or isinstance(value, (bool, int, str)):
            return encodable(value) if isinstance(value, str) else value
        if isinstance(value, list):
            return [plain(each) for each in islice(value, 1000)]
        if isinstance(value, dict):
            return {encodable(str(name)): plain(each) for name, each in islice(value.items(), 1000)}
        return value.isoformat() if hasattr(value, "isoformat") else None

    return {encodable(str(name)): plain(value) for name, value in fields.items()}
