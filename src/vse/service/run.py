"""From an address of a collection to a service that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vse.errors import InputError
from vse.service.app import create_app
from vse.service.engine import Engine
from vse.service.server import listen, serve
from vse.service.serving import Serving, open_serving
from vse.service.settings import ServiceSettings
from vse.service.stopping import leaving_at_once, until_told_to_stop


def run_service(
    where: str, settings: ServiceSettings, *, model: str | None = None, ready: Callable[[str], None] | None = None
) -> None:
    """Serve the collection at ``where`` until SIGTERM, or SIGINT, which is a KeyboardInterrupt.

    ``ready`` gets the address of the page first: from then on connections are accepted.
    """
    listener = listen(settings)
    try:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(Engine(opener(where, model)), settings)
        with until_told_to_stop(), leaving_at_once(lambda: app.state.service.workers.stuck):
            if ready is not None:
                ready(settings.address)
            serve(app, settings, listener)
    finally:
        listener.close()


def opener(where: str, model: str | None) -> Callable[[], Serving]:
    """Opens the collection with the model that is named, and once an upgrade has left that behind, with its own."""
    opened = False

    def open_it() -> Serving:
        nonlocal opened
        try:
            serving = open_serving(where, model)
        except InputError:
            if not opened or model is None:
                raise
            serving = open_serving(where)
        opened = True
        return serving

    return open_it
