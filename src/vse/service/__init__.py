"""HTTP service over a collection: a JSON API under ``/api/v1`` and a search page. Loads no torch.

::

    settings     address, key and limits
    app          the FastAPI application
    server       the application on a port: sockets, signals, logs
    state        the open collection with its model, cached queries, reload after an upgrade
    context      what a route gets: the service, and threads to compute in
    auth         API key and session cookie
    middleware   hosts, origins, security headers, errors, metrics and request log
    limits       request bodies and connections
    media        opening indexed files safely, byte ranges, thumbnails
    schemas      JSON responses
    problems     errors (RFC 9457)
    routes/      the endpoints
    static/      the page
"""

from vse.service.app import create_app
from vse.service.settings import Limits, ServiceSettings

__all__ = ["Limits", "ServiceSettings", "create_app"]
