"""Role graphs of sentences: from the published file, or from the built-in parser if there is none."""

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
    """``graphs[sentence]`` is ``[nodes, edges]`` in the published format; ``note`` describes their source.

    ``missing`` are the sentences that are not in the file and parsed here. ``astray`` are those whose graph has invalid
    nodes or positions outside of the sentence, which readers of a graph skip.
    """

    graphs: Mapping[str, Any] = field(repr=False)
    missing: tuple[str, ...]
    astray: tuple[str, ...]
    note: str


def role_graphs(sentences: Iterable[str], folder: Path | None) -> RoleGraphs:
    """Return a graph for each distinct sentence.

    Args:
        sentences: Captions with single spaces between words.
        folder: The folder of the annotations; None to parse every sentence.

    Raises:
        InputError: If the published file cannot be read.
    """
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
    """Return the graphs of the wanted sentences that are in the file.

    Sentences have single spaces between words; the whitespace in the file may differ.
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
            raise InputError(
                f"{file}, {sentence[:60]!r}: expected [nodes, edges], delete the file to parse all sentences"
            )
        found[sentence] = graph
    return found


def _is_astray(graph: list[Any], words: int) -> bool:
    """Return whether a node other than the root, the whole sentence, has no role or invalid positions."""
    nodes = (node if isinstance(node, dict) else {} for node in graph[0].values())
    return any(
        node.get("role") != "ROOT"
        and not (isinstance(node.get("role"), str) and _are_positions(node.get("spans"), words))
        for node in nodes
    )


def _are_positions(spans: Any, words: int) -> bool:
    return isinstance(spans, list) and spans != [] and all(type(place) is int and 0 <= place < words for place in spans)
