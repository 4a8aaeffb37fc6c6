"""Visual semantic embedding with learned pooling: a library, a command and a search service.

Importing this package costs nothing: the parts load what they need when they are imported themselves
(``from vse.pooling import GPO`` needs torch, ``import vse`` does not).
"""

from vse._version import __version__

__all__ = ["__version__"]
