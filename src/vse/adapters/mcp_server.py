"""A Model Context Protocol server over a collection, so that assistants can search it (``vse mcp INDEX``)."""

from __future__ import annotations

import threading
from typing import Any

from vse._version import __version__
from vse.adapters.retrievers import find
from vse.errors import InputError, VSEError, require
from vse.index import overview_of
from vse.index.types import Collection

MAX_RESULTS = 50
MAX_TEXT = 2000
INSTRUCTIONS = (
    "Search a local collection of images and videos by what they show. Results are paths on this machine, best first; "
    "for a video, with the moment in seconds."
)


def search_collection(collection: Collection, query: str, limit: int = 10) -> dict[str, Any]:
    """Return the results of a query as JSON, for an assistant.

    Raises:
        InputError: The query is empty or too long, or the limit is out of range.
    """
    if not query.strip() or len(query) > MAX_TEXT:
        raise InputError(f"a query of {len(query)} characters: expected 1 to {MAX_TEXT}")
    if not 1 <= limit <= MAX_RESULTS:
        raise InputError(f"limit {limit}: expected 1 to {MAX_RESULTS}")
    results = find(collection, query, limit)
    return {"query": query, "results": [result.to_json() for result in results]}


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
