"""``vse serve``: serve collections as a search page and an HTTP API."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vse.cli.console import show
from vse.cli.options import DeviceOption, JsonOption, ThreadsOption
from vse.errors import InputError, UsageError

KEY_VARIABLE = "VSE_API_KEY"


def serve(
    indexes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INDEX]...",
            help="The collections, the one that is shown first first [default: the only *.vse in this folder].",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on; a public one needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="The port; 0 picks a free one.")] = 8080,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"The file of the API key; {KEY_VARIABLE} may hold the key instead."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="A host name that clients use; may be repeated."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="The model of the collection, if it has moved.")
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A model of pairs (cross-encoder) that orders the best results again if a client asks for it.",
        ),
    ] = None,
    originals: Annotated[
        bool,
        typer.Option(
            "--originals", help="Let clients on other machines download original files and see the indexed folders."
        ),
    ] = False,
    shown: Annotated[
        list[str] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="A folder of the index whose files may be shown, if it was not indexed on this machine; may be "
            "repeated.",
        ),
    ] = None,
    log: Annotated[
        bool | None,
        typer.Option(
            "--log/--no-log",
            help="Log each request to stderr [default: unless that is a terminal].",
            show_default=False,
        ),
    ] = None,
    log_queries: Annotated[bool, typer.Option("--log-queries", help="Log the queries, too.")] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a search page and an HTTP API until Ctrl-C."""
    from vse.service.settings import ServiceSettings

    try:
        settings = ServiceSettings(
            host,
            port,
            read_key(key_file),
            tuple(names or ()),
            log_queries,
            log_requests=_is_logged(log, log_queries),
            originals=originals,
        )
    except InputError as error:
        raise UsageError(str(error)) from None
    from vse.cli.options import only_index_here
    from vse.service.server import run_service

    places = indexes or [only_index_here()]
    if len(set(places)) < len(places):
        raise UsageError("an index is named twice: name each once")
    if model is not None and len(places) > 1:
        raise UsageError("--model is for a single index: leave it out, or serve one")

    from vse.index.open import open_collection, upgrade_hint

    notes: list[str] = []
    roots: dict[str, tuple[str, ...]] = {}
    for where in places:
        with closing(open_collection(where)) as collection:
            info = collection.info()
        roots[where] = info.roots
        hint = upgrade_hint(info) if model is None else None
        notes += [] if hint is None else [hint]
    confirmed, unconfirmed = _confirmed(roots, shown or [])
    settings = replace(settings, roots=confirmed)
    notes += unconfirmed

    def ready(address: str) -> None:
        for note in notes:  # not before: an error is one line
            print(note, file=sys.stderr)
        show(Listening(tuple(places), address), as_json=as_json)
        sys.stdout.flush()  # the parent process may wait for this line

    served = places[0] if len(places) == 1 else places
    run_service(served, settings, model=model, rerank=rerank, device=device, threads=threads, ready=ready)


def _confirmed(roots: Mapping[str, Sequence[str]], named: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the folders that the user named, after recording them, and a line for each that stays unconfirmed.

    Args:
        roots: The folders of each index.
        named: The values of --root.
    """
    from vse.index.confirmed import confirm_roots, how_to_confirm, unconfirmed_roots
    from vse.index.pipeline.folder import root_of

    every = [root for known in roots.values() for root in known]
    given = tuple(root if root in every else root_of(root) for root in named)
    for root in given:
        if root not in every:
            folders = ", ".join(every) or "none"
            raise UsageError(f"--root {root}: not a folder of {', '.join(roots)}; its folders are: {folders}")
    notes: list[str] = []
    for where, known in roots.items():
        confirm_roots(where, [root for root in given if root in known])
        real = [root for root in known if Path(root).is_absolute()]  # of imported embeddings, it may be any name
        notes += [how_to_confirm(where, root) for root in unconfirmed_roots(where, real) if root not in given]
    return given, notes


@dataclass(frozen=True)
class Listening:
    """The address of a service, and the collections that it serves."""

    indexes: tuple[str, ...]
    address: str

    @property
    def index(self) -> str:
        """The collection that is shown first."""
        return self.indexes[0]

    def to_json(self) -> dict[str, Any]:
        values = {"index": self.index, "indexes": list(self.indexes)}
        return {**values, "address": self.address, "api": f"{self.address}api/v1/"}


def _is_logged(wanted: bool | None, queries: bool) -> bool:
    """On a terminal the address should stay in sight, so requests are logged elsewhere only."""
    return wanted if wanted is not None else queries or not sys.stderr.isatty()


def read_key(file: Path | None) -> str | None:
    """Return the API key from a file or the environment; None without either."""
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        key = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as an API key ({error}): expected a file with one line") from None
    if not key:
        raise InputError(f"{file} is empty: expected a file with the API key in one line")
    return key
