"""``vse search``: find images, video moments or captions of a collection by text, by image, or both."""

from __future__ import annotations

import math
import os
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vse.cli.console import Result, progress_on_stderr, show
from vse.cli.options import DeviceOption, JsonOption, ThreadsOption
from vse.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vse.index.filters import Filter
    from vse.index.results import SearchResults
    from vse.index.typed import Typed


@dataclass(frozen=True)
class Page:
    """Results on page ``number``.

    Attributes:
        more: Whether another page follows.
        cut: Whether the default cut-off, rather than the collection, ends these results.
    """

    found: Result
    number: int
    more: bool
    cut: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the results."""
        return self.found.to_json()


SHOWN = 60
"""Characters of an invalid value that are shown."""


def read_texts(texts: list[str], literal: bool) -> tuple[list[str], list[Typed]]:
    """Return the texts to search for, and each text as the search box reads it; ``literal`` ones are not read."""
    from vse.index.typed import parse_typed

    if literal:
        return texts, []
    typed = [parse_typed(text) for text in texts]
    found = [each.text or text for each, text in zip(typed, texts, strict=True) if each.text or not text.strip()]
    if texts and not found:
        raise UsageError(f"nothing to search for beside filters in {texts[0][:SHOWN]!r}: add a text, --image or --like")
    return found, typed


def make_filter(given: Mapping[str, Any], typed: Sequence[Typed] = ()) -> tuple[Filter, str | None]:
    """Return the filter except the folder, which needs the collection, and the folder.

    Args:
        given: The options, by the names of :func:`vse.index.filters.read_filter`, and ``folder``.
        typed: Texts whose filters replace the options.
    """
    from vse.index.filters import read_filter

    values = dict(given)
    try:
        for each in typed:
            typed_kind = each.where.kind  # checks every value, without the names of options
            found = {name: getattr(each, name) for name in ("name", "folder", "camera", "place", "before", "after")}
            values |= {name: value for name, value in found.items() if value is not None}
            values["kind"] = typed_kind or values["kind"]
        folder = values.pop("folder")
        words = tuple(word for each in typed for word in each.words)
        return read_filter(**values, words=words, mark="--"), folder
    except InputError as error:
        raise UsageError(str(error)) from None


def parse_weights(text: str | None, wanted: int) -> tuple[float, ...] | None:
    """Return comma-separated positive numbers, one for each text, image and id."""
    if text is None:
        return None
    weights = []
    for part in text.split(","):
        try:
            weights.append(float(part))
        except ValueError:
            weights.append(math.nan)
        if not (math.isfinite(weights[-1]) and weights[-1] > 0):
            raise UsageError(
                f"--weights {text[:SHOWN]!r}: {part.strip()[:SHOWN]!r} is not a positive number: write weights like "
                '"1,0.3", and use --not for unwanted content'
            )
    if len(weights) != wanted:
        raise UsageError(
            f"--weights {text[:SHOWN]!r}: {len(weights)} weights for {wanted} texts, images and ids: expected one "
            "for each, in this order"
        )
    return tuple(weights)


def in_folder(where: Filter, folder: str | None, roots: tuple[str, ...]) -> Filter:
    """Add a folder to the filter: relative to any indexed folder, or an absolute path as results show it."""
    if folder is None:
        return where
    if not (folder.startswith("/") or Path(folder).is_absolute()):
        try:
            return replace(where, folder=folder)
        except InputError as error:
            raise UsageError(f"--folder: {error}") from None
    path = Path(os.path.normpath(folder if Path(folder).is_absolute() else "/" + folder.strip("/")))
    for root in sorted(roots, key=len, reverse=True):
        if path.is_relative_to(root):
            return replace(where, root=root, folder=path.relative_to(root).as_posix())
    known = ", ".join(roots[:3]) + (" …" if len(roots) > 3 else "")
    raise UsageError(f"--folder {folder[:SHOWN]!r}: expected a folder below an indexed one ({known})")


def check_evidence_folder(folder: Path | None) -> None:
    """Raise an error if the folder cannot be created."""
    for place in () if folder is None else (folder, *folder.parents):
        if place.is_dir():
            return
        if place.exists():
            raise UsageError(f"--evidence {str(folder)!r}: {str(place)!r} is a file, expected a folder")


def read_reranking(
    model: str | None, depth: int | None, seconds: float | None, texts: Sequence[str], sort: str, captions: bool
) -> dict[str, Any]:
    """Return the options of re-ranking that were given, checked before anything is loaded."""
    given: dict[str, Any] = {"depth": depth, "seconds": seconds}
    found = {name: value for name, value in given.items() if value is not None}
    if model is None:
        if found:
            option = "--depth" if "depth" in found else "--rerank-seconds"
            raise UsageError(f"{option} is for re-ranking: add --rerank MODEL, or leave it out")
        return {}
    if captions:
        raise UsageError("--rerank orders images again: leave out --captions")
    from vse.index.rerank import DEPTH, SECONDS, check_reranking

    try:
        check_reranking(found.get("depth", DEPTH), found.get("seconds", SECONDS), texts, sort)
    except InputError as error:
        raise UsageError(f"--rerank: {error}") from None
    return found


def page_of(
    find: Callable[..., SearchResults],
    k: int,
    offset: int,
    model: str | None,
    texts: Sequence[str],
    options: dict[str, Any],
) -> SearchResults:
    """Return a page of results, re-ranked if there is a model for it."""
    if model is None:
        return find(k, offset=offset)
    from vse.index.rerank import load_reranker, search_reranked

    reranker = load_reranker(model, device=options.pop("device"), threads=options.pop("threads"))
    with progress_on_stderr() as progress:
        return search_reranked(
            lambda size, skip: find(size, offset=skip),
            reranker,
            texts,
            k=k,
            offset=offset,
            progress=progress,
            **options,
        )


def search(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INDEX] TEXT...",
            help="A collection of 'vse index' [default: the only *.vse in this folder], and what to search for. "
            'In a text, "…" are exact words, -word excludes, and name: folder: camera: place: before: after: type: '
            "filter.",
            show_default=False,
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option("--image", metavar="FILE", help="Search by this image; may be repeated."),
    ] = None,
    like: Annotated[
        list[int] | None,
        typer.Option("--like", metavar="ID", help="More results like this one, which is excluded; may be repeated."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--not", metavar="TEXT", help="Unwanted content; may be repeated.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="W,W...", help="Weight of each query part, like 1,0.3: texts, then images, then ids."),
    ] = None,
    literal: Annotated[
        bool, typer.Option("--literal", help='Take texts as they are: no "…", -word or filters such as camera:canon.')
    ] = False,
    captions: Annotated[
        bool, typer.Option("--captions", help="Find captions in the collection instead of images.")
    ] = False,
    folder: Annotated[str | None, typer.Option(metavar="F", help="Only results below this folder.")] = None,
    after: Annotated[
        str | None, typer.Option(metavar="DATE", help="Taken on this day or later: 2024, 2024-05 or 2024-05-31.")
    ] = None,
    before: Annotated[str | None, typer.Option(metavar="DATE", help="Taken before this day.")] = None,
    near: Annotated[
        str | None, typer.Option(metavar="LAT,LON", help="Taken near this place, in degrees: 48.14,11.58.")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(metavar="KM", help="Distance from that place, north–south and east–west [default: 10]."),
    ] = None,
    kind: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="image or video.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Words of the file name, like beach or IMG_04*.")
    ] = None,
    camera: Annotated[str | None, typer.Option(metavar="WORDS", help="Words of the camera's name.")] = None,
    place: Annotated[str | None, typer.Option(metavar="WORDS", help="Words of the place's name.")] = None,
    sort: Annotated[
        str, typer.Option(metavar="ORDER", help="relevance, or date: the best 1,000 results, newest first.")
    ] = "relevance",
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="Results per page.")] = 10,
    page: Annotated[int, typer.Option(metavar="N", min=1, help="The page to show.")] = 1,
    min_relevance: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Leave out results that fit less, from 0 to 1 [default: 0.1, or all if the best fits too little].",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the closest results, whether they match or not.")
    ] = False,
    min_confidence: Annotated[
        float | None,
        typer.Option(metavar="P", help="Leave out results less likely to be the one that is meant, from 0 to 1."),
    ] = None,
    all_moments: Annotated[
        bool, typer.Option("--all-moments", help="Show every moment of a video [default: its best one].")
    ] = False,
    group_duplicates: Annotated[bool, typer.Option("--group-duplicates", help="Show near-duplicates once.")] = False,
    rerank: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Order the best results again with this model of pairs (cross-encoder)."),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(metavar="K", help="Results that --rerank orders again [default: 50].")
    ] = None,
    rerank_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Time limit of --rerank; the rest keeps its order [default: 30].")
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Draw why each result was found, as FOLDER/NN-name.png: red cells of an image or frames of a moment "
            "match the query, blue ones do not. The folder is created, existing files are overwritten.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model of the collection, if it has moved.")
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search images and video moments by text or image."""
    for option, given in (("--min-confidence", min_confidence), ("--min-relevance", min_relevance)):
        if given is not None and not 0 <= given <= 1:
            raise UsageError(f"{option} {given}: expected a number from 0 to 1")
    if everything and not min_confidence is min_relevance is None:
        raise UsageError("--all leaves nothing out: give it without --min-relevance and --min-confidence")
    from vse.cli.options import index_and_texts

    index, texts = index_and_texts(words or [])
    if not (texts or images or like):
        raise UsageError("nothing to search for: give a text, --image FILE or --like ID")
    if sort not in ("relevance", "date"):
        raise UsageError(f"--sort {sort[:SHOWN]!r}: expected relevance or date")
    texts, typed = read_texts(texts, literal)
    where, folder = make_filter(
        {
            "kind": kind,
            "after": after,
            "before": before,
            "near": near,
            "within": within,
            "folder": folder,
            "name": name,
            "camera": camera,
            "place": place,
        },
        typed,
    )
    for_images = not where.empty or group_duplicates or not (folder is None and evidence is None)
    minima = everything or not min_confidence is min_relevance is None
    if captions and (for_images or minima or sort == "date"):
        raise UsageError(
            "--captions finds captions: leave out filters, --sort, --evidence, --all, --min-relevance, "
            "--min-confidence and --group-duplicates"
        )
    check_evidence_folder(evidence)
    again = read_reranking(rerank, depth, rerank_seconds, texts, sort, captions)
    unwanted = (*(exclude or ()), *(text for each in typed for text in each.exclude))
    parts = tuple(texts), tuple(images or ()), unwanted, tuple(like or ())
    factors = parse_weights(weights, len(parts[0]) + len(parts[1]) + len(parts[3]))
    # For one query, numpy's threads take longer to start than they save. numpy reads this when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from vse.index.duplicates import NEAR
    from vse.index.item_search import search as find
    from vse.index.open import collection_relevance, load_collection_model, open_collection, upgrade_hint
    from vse.index.query import Query
    from vse.index.relevance import WEAK

    query = Query(*parts, factors)
    at: dict[str, Any] = {"model": model, "device": device, "threads": threads}
    with closing(open_collection(index)) as collection:
        info = collection.info()
        where = in_folder(where, folder, info.roots)
        if model is None and (hint := upgrade_hint(info)) is not None:
            print(hint, file=sys.stderr)
        if captions:
            from vse.index.caption_search import search_captions

            sentences = search_captions(collection, query, k, offset=(page - 1) * k, **at)
            show(Page(sentences, page, sentences.more), as_json=as_json)
            return
        relevance = collection_relevance(collection, model)
        cut = relevance is not None and not minima
        search_page = partial(
            find,
            collection,
            query,
            where=where,
            cutoff=min_confidence,
            min_relevance=WEAK if cut else min_relevance,
            relevance=relevance,
            group_duplicates=NEAR if group_duplicates else None,
            group_videos=not all_moments,
            sort="date" if sort == "date" else "relevance",
            **at,
        )
        results = page_of(
            search_page, k, (page - 1) * k, rerank, texts, {**again, "device": device, "threads": threads}
        )
        cut = cut and any(result.relevance is not None for result in results.results)
        if evidence is None:
            show(Page(results, page, results.more, cut), as_json=as_json)
            return
        from vse.index.explanation import explain

        with progress_on_stderr() as progress:
            explained = explain(
                collection, load_collection_model(collection, **at), results, evidence, progress=progress
            )
    show(Page(explained, page, results.more, cut), as_json=as_json)
