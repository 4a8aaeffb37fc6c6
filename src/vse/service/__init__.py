"""A collection behind HTTP: an interface for programs, and a page for people. No torch.

::

    settings     where to listen, who may ask, and the limits of everything that comes from outside
    serving      a collection with its model, and the questions that were asked, by id
    engine       what is served, kept current
    workers      who computes when: so many at once, so many waiting, so long
    media        files of the collection, opened so that nothing else can be reached
    renditions   thumbnails and previews, without the data that cameras add
    remembered   what was used last, up to so many bytes
    api/         one module for each part of the interface
    asgi/        what happens around every request: hosts, keys, limits, headers, logs, figures
    problems     errors as a client gets them
    document     the OpenAPI document
    app          all of it as one application
    connections  HTTP on one connection, with an end to its patience
    server       the application on a port; logs and stopping belong to it
    static/      the page
"""

from vse.service.app import create_app
from vse.service.settings import Limits, ServiceSettings

__all__ = ["Limits", "ServiceSettings", "create_app"]
