"""Read what is typed into one search box: words, exact words, exclusions and filters.

    aunt mathilda "Quito" -people camera:canon place:"New York" after:2019 type:video

- ``"…"`` are exact words: they must occur in the texts of a file, next to each other. They are part of the query too.
- ``-word`` and ``-"several words"`` exclude.
- ``name:``, ``folder:``, ``camera:``, ``place:``, ``before:``, ``after:`` and ``type:`` filter, with quotes around a
  value that has blanks. Of two with the same name the last one counts. ``type:`` takes image, photo or video.

Names of filters may be in capitals, curly quotes are quotes, and a quote that is not closed reaches to the end. All the
rest is plain text: ``foo:bar``, ``10:30``, ``https://…``, ``--``, a hyphen within a word. ``static/typed.js`` of the
service reads the same; both are tested with ``tests/index/typed_cases.json``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vse.errors import InputError
from vse.index.filters import KINDS, SHOWN, Filter, read_filter
from vse.index.words import fold

if TYPE_CHECKING:
    from vse.index.query import Query

FILTERS = ("name", "folder", "camera", "place", "before", "after", "type")
_QUOTED = '"([^"]*)"?'
_TOKEN = re.compile(rf"({'|'.join(FILTERS)}):(?:{_QUOTED}|(\S*))|{_QUOTED}|-{_QUOTED}|\S+", re.IGNORECASE)
_CURLY = dict.fromkeys(map(ord, "“”„‟«»＂"), '"')
_KINDS = {**{kind: kind for kind in KINDS}, "images": "image", "photo": "image", "photos": "image", "videos": "video"}


@dataclass(frozen=True)
class Typed:
    """What a text in the search box asks for.

    Attributes:
        text: The words to search for, those in quotes included; "" if there are only filters.
        words: Exact words, as in ``Filter.words``.
        exclude: Texts to exclude.
        name: Filters as typed, and so on; None if absent.
    """

    text: str = ""
    words: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    name: str | None = None
    folder: str | None = None
    camera: str | None = None
    place: str | None = None
    before: str | None = None
    after: str | None = None
    type: str | None = None

    @property
    def query(self) -> Query:
        """The query.

        Raises:
            InputError: There is no text, or it is too long.
        """
        from vse.index.query import Query

        return Query(texts=(self.text,) if self.text else (), exclude=self.exclude)

    @cached_property
    def where(self) -> Filter:
        """The filter.

        Raises:
            InputError: A value is empty or invalid.
        """
        for filter_name in FILTERS:
            if getattr(self, filter_name) == "":
                raise InputError(f"{filter_name}: has no value: write one right after the colon, or leave it out")
        kind = None if self.type is None else _KINDS.get(self.type.lower())
        if self.type is not None and kind is None:
            raise InputError(f"type:{self.type[:SHOWN]}: expected type:image or type:video")
        found = read_filter(
            kind, self.after, self.before, name=self.name, camera=self.camera, place=self.place, words=self.words
        )
        return found if self.folder is None else replace(found, folder=self.folder)


def parse_typed(text: str) -> Typed:
    """Read a text of the search box; the module docstring describes the syntax.

    Values of filters are checked when :attr:`Typed.where` is read. A text without any of it is returned unchanged.

    >>> typed = parse_typed('beach "Quito" -people camera:canon')
    >>> typed.text, typed.words, typed.exclude, typed.camera
    ('beach Quito', ('Quito',), ('people',), 'canon')
    >>> found = search(collection, typed.query, where=typed.where)  # doctest: +SKIP
    """
    wanted: list[str] = []
    words: list[str] = []
    exclude: list[str] = []
    filters: dict[str, str] = {}
    special = False
    for match in _TOKEN.finditer(text.translate(_CURLY)):
        name, quoted, plain, exact, unwanted = match.groups()
        token = match.group()
        if name is not None:
            filters[name.lower()] = (plain if quoted is None else quoted).strip()
        elif exact is not None:
            wanted.append(exact.strip())
            words += [exact.strip()] if fold(exact) else []
        elif unwanted is not None:
            exclude.append(unwanted.strip())
        elif re.match("-[^-]", token):
            exclude.append(token[1:])
        else:
            wanted.append(token)
            continue
        special = True
    if not special:
        return Typed(text)
    return Typed(" ".join(filter(None, wanted)), tuple(words), tuple(filter(None, exclude)), **filters)
