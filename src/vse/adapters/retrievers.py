"""Let other programs search a collection: retrievers for LangChain and LlamaIndex, and a server for assistants (MCP).

A result becomes a document whose text says what was found, and whose metadata is the JSON of ``vse search``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from vse._version import __version__
from vse.errors import InputError, VSEError, require
from vse.index import collection_relevance, open_collection, overview_of, parse_typed, search
from vse.index.relevance import WEAK
from vse.index.results import Result, SearchResults, clock
from vse.index.types import Collection

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from llama_index.core.retrievers import BaseRetriever as LlamaRetriever


def find(collection: Collection, text: str, k: int, **options: Any) -> SearchResults:
    """Search for a text, which may hold quotes and filters as in the search box."""
    typed = parse_typed(text)
    return search(collection, typed.query, k, where=typed.where, **options)


def describe(result: Result) -> str:
    """Return one line about a result: its kind, its moment, its path and how well it fits."""
    moment = "" if result.start is None else f" from {clock(result.start)} to {clock(result.end or result.start)}"
    fit = "" if result.grade is None else f" ({result.grade} match)"
    return f"{result.kind}{moment}: {result.path}{fit}"


def _opened(collection: Collection | str | PathLike[str]) -> Collection:
    return open_collection(collection) if isinstance(collection, str | PathLike) else collection


def langchain_retriever(collection: Collection | str | PathLike[str], k: int = 4, **options: Any) -> BaseRetriever:
    """Return a LangChain retriever over a collection.

    Args:
        collection: An open collection or its place.
        k: Documents per query.
        options: Of :func:`vse.search`, such as ``min_relevance``.

    Example:
        >>> langchain_retriever("Photos.vse", k=8).invoke("two dogs in snow")  # doctest: +SKIP
    """
    require("langchain_core", extra="adapters", purpose="a LangChain retriever")
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    opened = _opened(collection)

    class VSERetriever(BaseRetriever):
        """Searches a collection of vse."""

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            found = find(opened, query, k, **options).results
            return [Document(page_content=describe(each), metadata=each.to_json(), id=str(each.id)) for each in found]

    return VSERetriever()


def llama_index_retriever(collection: Collection | str | PathLike[str], k: int = 4, **options: Any) -> LlamaRetriever:
    """Return a LlamaIndex retriever over a collection; arguments as for :func:`langchain_retriever`."""
    require("llama_index.core", extra="adapters", purpose="a LlamaIndex retriever")
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    opened = _opened(collection)

    class VSERetriever(BaseRetriever):
        """Searches a collection of vse."""

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            found = find(opened, query_bundle.query_str, k, **options).results
            return [
                NodeWithScore(
                    node=TextNode(text=describe(each), id_=str(each.id), metadata=each.to_json()), score=each.score
                )
                for each in found
            ]

    return VSERetriever()


def langchain_embeddings(model: Any = "photo") -> Embeddings:
    """Return the text tower of a model as LangChain embeddings.

    Args:
        model: A loaded model, or what :func:`vse.load` accepts.

    Example:
        >>> len(langchain_embeddings("photo").embed_query("a dog"))  # doctest: +SKIP
        512
    """
    require("langchain_core", extra="adapters", purpose="LangChain embeddings")
    from langchain_core.embeddings import Embeddings

    import vse

    loaded = vse.load(fspath(model)) if isinstance(model, str | PathLike) else model

    class VSEEmbeddings(Embeddings):
        """Embeds texts."""

        def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
            rows: list[list[float]] = loaded.encode_texts(list(texts), unknown="allow").tolist()
            return rows

        def embed_query(self, text: str) -> list[float]:
            return self.embed_documents([text])[0]

    return VSEEmbeddings()


MAX_RESULTS = 50
MAX_TEXT = 2000
INSTRUCTIONS = (
    "Search a local collection of images and videos by what they show. Results are paths on this machine, best first; "
    "for a video, with the moment in seconds."
)


def search_collection(collection: Collection, query: str, limit: int = 10) -> dict[str, Any]:
    """Return the results of a query as JSON, for an assistant: like ``vse search``, without what does not match.

    Returns:
        ``query``, ``results``, ``notes`` about the query, and ``empty_reason``: the condition that leaves no result.

    Raises:
        InputError: The query is empty or too long, or the limit is out of range.
    """
    if not query.strip() or len(query) > MAX_TEXT:
        raise InputError(f"a query of {len(query)} characters: expected 1 to {MAX_TEXT}")
    if not 1 <= limit <= MAX_RESULTS:
        raise InputError(f"limit {limit}: expected 1 to {MAX_RESULTS}")
    relevance = collection_relevance(collection)
    minimum = None if relevance is None else WEAK
    found = find(collection, query, limit, min_relevance=minimum, relevance=relevance).to_json()
    return {"query": query} | {name: found[name] for name in ("results", "notes", "empty_reason")}


def create_server(collection: Collection) -> Any:
    """Return an MCP server with the tools ``search`` and ``about``.

    It reads the collection and nothing else: no tool returns the contents of files or writes.

    Example:
        >>> create_server(vse.open_collection("Photos.vse")).run("stdio")  # doctest: +SKIP
    """
    require("mcp", extra="mcp", purpose="vse mcp")
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("vse", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    one_at_a_time = threading.Lock()  # tools run in threads, a collection serves one at a time

    @server.tool(name="search", description="Search images and videos by a text. Filters: place:, camera:, after:.")
    def search_tool(query: str, limit: int = 10) -> dict[str, Any]:
        try:
            with one_at_a_time:
                return search_collection(collection, query, limit)
        except VSEError as error:
            raise ToolError(str(error)) from error

    @server.tool(name="about", description="What the collection holds: how many images and videos, which model.")
    def about_tool() -> dict[str, Any]:
        with one_at_a_time:
            found: dict[str, Any] = overview_of(collection).to_json()
            return found

    return server
