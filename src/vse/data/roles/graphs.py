"""Role graphs of sentences: from the published file, from the built-in parser where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vse.data.files import one_blank, parse_json, read_text
from vse.data.roles import NOTE, parse_roles
from vse.errors import InputError

GRAPH_FILES = ("sent2rolegraph.augment.json", "sent2rolegraph.json")


@dataclass(frozen=True, eq=False)
class RoleGraphs:
    """``graphs[sentence]`` is ``[nodes, edges]`` in the published shape; ``note`` says where they come from.

    ``missing`` are the sentences that the file does not have: they are parsed here. ``astray`` are those whose graph
    has nodes that cannot be read or places outside of the sentence: whoever reads a graph leaves these out.
    """

    graphs: Mapping[str, Any] = field(repr=False)
    missing: tuple[str, ...]
    astray: tuple[str, ...]
    note: str


def role_graphs(sentences: Iterable[str], folder: Path | None) -> RoleGraphs:
    """A graph for each distinct sentence; ``folder`` is where the annotations are, None for data without any."""
    wanted = list(dict.fromkeys(sentences))
    file = next((folder / name for name in GRAPH_FILES if (folder / name).is_file()), None) if folder else None
    published = {} if file is None else _read(file, wanted)
    missing = tuple(sentence for sentence in wanted if sentence not in published)
    astray = tuple(sentence for sentence, graph in published.items() if _is_astray(graph, len(sentence.split())))
    graphs = {sentence: published.get(sentence) or parse_roles(sentence).graph() for sentence in wanted}
    if file is None:
        note = NOTE
    elif missing:
        note = f"role graphs of {file.name}; {len(missing)} of {len(wanted)} sentences are not in it: {NOTE}"
    else:
        note = f"role graphs of {file.name}"
    if astray:
        note += f"; {len(astray)} of {len(wanted)} have nodes outside of their sentence, which are left out"
    return RoleGraphs(graphs, missing, astray, note)


def _read(file: Path, wanted: Iterable[str]) -> dict[str, Any]:
    """Those of the wanted sentences that the file has; the other graphs, a hundred thousand of them, are let go.

    Sentences have one blank between words, whatever white space the file has in the same place.
    """
    content = parse_json(read_text(file), str(file))
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected an object {{sentence: [nodes, edges]}}, got a {type(content).__name__}")
    content = {one_blank(sentence): graph for sentence, graph in content.items()} | content
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


def _is_astray(graph: list[Any], words: int) -> bool:
    """Whether a node but the root, which stands for the whole sentence, has no role or places that are no words."""
    nodes = (node if isinstance(node, dict) else {} for node in graph[0].values())
    return any(
        node.get("role") != "ROOT" and not (isinstance(node.get("role"), str) and _are_places(node.get("spans"), words))
        for node in nodes
    )


def _are_places(spans: Any, words: int) -> bool:
    return isinstance(spans, list) and spans != [] and all(type(place) is int and 0 <= place < words for place in spans)
