"""What is published: one row of JSON, which a change replaces by a newer one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from vse.errors import InputError, VSEError
from vse.index.collection import CollectionInfo

Index = Literal["flat", "hnsw"]
FORMAT = 1
MOST_BYTES = 65_535


@dataclass(frozen=True)
class State:
    """The collection as of ``batch``.

    ``next_item``, ``next_caption`` and ``next_row`` were never used; ``roots`` counts the files of each root;
    ``writer`` is the token of whoever may change the collection.
    """

    model: str
    model_source: str
    dimensions: int
    index: Index
    batch: int = 1
    generation: int = 1
    next_item: int = 1
    next_caption: int = 1
    next_row: int = 1
    items: int = 0
    captions: int = 0
    roots: Mapping[str, int] = field(default_factory=dict)
    writer: str = ""

    @property
    def files(self) -> int:
        return sum(self.roots.values())

    @property
    def alive(self) -> str:
        """The expression for rows that are there."""
        return f"born <= {self.batch} and died > {self.batch}"

    def info(self, where: str) -> CollectionInfo:
        """The same as for every collection."""
        roots, given = dict(sorted(self.roots.items())), self.next_item - 1
        return CollectionInfo(
            where, "milvus", self.model, self.model_source, self.dimensions, self.generation,
            self.files, self.items, self.captions, tuple(roots), given + (given - self.items), tuple(roots.values()),
        )  # fmt: skip

    def to_text(self) -> str:
        """ASCII, also where a root holds bytes that are no UTF-8."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)
        if len(text) > MOST_BYTES:
            raise InputError(
                f"{len(self.roots)} roots take {len(text)} bytes, expected {MOST_BYTES} at most: index fewer folders "
                "into one collection"
            )
        return text


def state_of(where: str, text: str) -> State:
    """The state that was written as ``text``."""
    try:
        values = json.loads(text)
        found = values.pop("format")
        if found == FORMAT:
            return State(**values)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise VSEError(f"{where} is damaged, its state cannot be read: restore it or index again") from None
    raise InputError(f"{where} has format {found!r}, expected {FORMAT}: use the version of vse that wrote it")
