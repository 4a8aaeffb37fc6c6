"""``vse search``: the best pictures and moments of a collection for a sentence, a picture, or both."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vse.cli.console import show
from vse.cli.options import JsonOption
from vse.errors import InputError, UsageError, unknown_choice

if TYPE_CHECKING:
    from vse.index.collection import CollectionInfo
    from vse.index.filters import Filter
    from vse.index.media_file import MediaKind
    from vse.index.query import Model

KINDS = ("image", "video")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")


def search(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="A collection that 'vse index' made.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT...", help="What is to be found.", show_default=False)
    ] = None,
    images: Annotated[
        list[Path] | None, typer.Option("--image", metavar="FILE", help="A picture like it; repeat it.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--not", metavar="TEXT", help="What is not wanted; repeat it.")
    ] = None,
    like: Annotated[
        list[int] | None, typer.Option("--like", metavar="ID", help="More like this result; repeat it.")
    ] = None,
    folder: Annotated[str | None, typer.Option(metavar="F", help="Only below this folder of the collection.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="DATE", help="Taken on this day or later: 2024, 2024-05 or 2024-05-31.")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar="DATE", help="Taken before this day begins.")] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="image or video.")] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="Results on a page.")] = 10,
    page: Annotated[int, typer.Option(metavar="N", min=1, help="Which page.")] = 1,
    min_confidence: Annotated[
        float | None, typer.Option(metavar="P", help="Leave out what is less sure, from 0 to 1.")
    ] = None,
    group_duplicates: Annotated[
        bool, typer.Option("--group-duplicates", help="Show what looks the same once.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The collection's model, if it is elsewhere now.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find pictures and moments of clips by what they show."""
    if min_confidence is not None and not 0 <= min_confidence <= 1:
        raise UsageError(f"--min-confidence {min_confidence}: expected a number from 0 to 1")
    if not (texts or images or like):
        raise UsageError("nothing to search for: write a text, or use --image FILE or --like ID")
    where = make_filter(folder, kind, after, before)

    from vse.index.duplicates import NEAR
    from vse.index.open import open_collection
    from vse.index.query import Query
    from vse.index.search import search as find

    query = Query(tuple(texts or ()), tuple(images or ()), tuple(exclude or ()), tuple(like or ()))
    with closing(open_collection(index)) as collection:
        loaded = load_model(collection.info(), model) if query.needs_model else None
        results = find(
            collection,
            loaded,
            query,
            k,
            offset=(page - 1) * k,
            where=where,
            cutoff=min_confidence,
            group_duplicates=NEAR if group_duplicates else None,
        )
    show(results, as_json=as_json)


def load_model(info: CollectionInfo, given: str | None) -> Model:
    """The model whose vectors a collection holds, from where it was when indexing unless it is ``given``."""
    import vse

    try:
        model = vse.load(given or info.model_source)
    except InputError as error:
        if given is not None:
            raise
        raise InputError(f"the model of {info.where} cannot be loaded ({error}): name it with --model") from error
    if model.fingerprint() != info.model:
        name = given or info.model_source
        raise InputError(
            f"{name!r} is model {model.fingerprint()}, and {info.where} holds vectors of {info.model}: "
            "name that one with --model, or index again with this one"
        )
    return model


def make_filter(folder: str | None, kind: str | None, after: str | None, before: str | None) -> Filter:
    """The filter of the options; None leaves a part out."""
    from vse.index.filters import Filter

    if kind is not None and kind not in KINDS:
        raise UsageError(f"--type: {unknown_choice('type', kind, KINDS)}")
    first = None if after is None else parse_date("--after", after)
    last = None if before is None else parse_date("--before", before)
    if first is not None and last is not None and first >= last:
        raise UsageError(f"--after {after} --before {before}: nothing lies between, exchange them")
    return Filter(folder=folder, kind=cast("MediaKind | None", kind), after=first, before=last)


def parse_date(option: str, text: str) -> float:
    """The moment at which a year, a month or a day begins, in the manner of ``MediaFile.taken``."""
    match = _DATE.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        year, month, day = (int(part or 1) for part in match.groups())
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        raise UsageError(f"{option} {text!r}: expected a date like 2024, 2024-05 or 2024-05-31") from None
