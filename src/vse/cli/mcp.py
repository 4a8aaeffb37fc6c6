"""``vse mcp``: let assistants search a collection over the Model Context Protocol."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from vse.cli.options import DeviceOption, ThreadsOption


def mcp(
    index: Annotated[
        str | None,
        typer.Argument(metavar="[INDEX]", help="The collection [default: the only *.vse in this folder]."),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Let assistants search a collection, over MCP.

    The Model Context Protocol runs over stdin and stdout. An assistant starts this command itself; its configuration
    names "vse" with the arguments "mcp" and INDEX.
    """
    from vse.errors import require

    require("mcp", extra="mcp", purpose="vse mcp")
    from vse.adapters import create_server
    from vse.cli.options import only_index_here
    from vse.index import load_collection_model, open_collection

    with closing(open_collection(index or only_index_here())) as collection:
        load_collection_model(collection, device=device, threads=threads)  # now, not at the first question
        create_server(collection).run("stdio")
