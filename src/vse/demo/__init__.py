"""``vse demo``: the whole way on generated scenes, without any data: draw, train, evaluate, look, keep a model.

Or, with a folder of photographs, the way from there to the page alone.
"""

from vse.demo.run import run

__all__ = ["run"]
