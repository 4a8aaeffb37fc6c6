"""Role graphs of sentences: from the published file, from the built-in parser where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vse.data.role_parser import NOTE, parse_roles
from vse.data.text_files import parse_json, read_text
from vse.errors import InputError

GRAPH_FILES = ("sent2rolegraph.augment.json", "sent2rolegraph.json")


@dataclass(frozen=True, eq=False)
class RoleGraphs:
    """``graphs[sentence]`` is ``[nodes, edges]`` in the published shape; ``note`` says where they come from.

    ``missing`` are the sentences that the file does not have: they are parsed here.
    """

    graphs: Mapping[str, Any] = field(repr=False)
    missing: tuple[str, ...]
    note: str


def role_graphs(sentences: Iterable[str], folder: Path | None) -> RoleGraphs:
    """A graph for each distinct sentence; ``folder`` is where the annotations are, None for data without any."""
    wanted = list(dict.fromkeys(sentences))
    file = next((folder / name for name in GRAPH_FILES if (folder / name).is_file()), None) if folder else None
    published = {} if file is None else _read(file, wanted)
    missing = tuple(sentence for sentence in wanted if sentence not in published)
    graphs = {sentence: published.get(sentence) or parse_roles(sentence).graph() for sentence in wanted}
    if file is None:
        note = NOTE
    elif missing:
        note = f"role graphs of {file.name}; {len(missing)} of {len(wanted)} sentences are not in it: {NOTE}"
    else:
        note = f"role graphs of {file.name}"
    return RoleGraphs(graphs, missing, note)


def _read(file: Path, wanted: Iterable[str]) -> dict[str, Any]:
    """Those of the wanted sentences that the file has; the other graphs, a hundred thousand of them, are let go."""
    content = parse_json(read_text(file), str(file))
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected an object {{sentence: [nodes, edges]}}, got a {type(content).__name__}")
    found = {}
    for sentence in wanted:
        graph = content.get(sentence)
        if graph is None:
            continue
        if not (
            isinstance(graph, list) and len(graph) == 2 and isinstance(graph[0], dict) and isinstance(graph[1], list)
        ):
            raise InputError(f"{file}, {sentence[:60]!r}: expected [nodes, edges], delete the file to go without it")
        found[sentence] = graph
    return found
