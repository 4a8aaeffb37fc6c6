"""``vse demo``: the whole way on generated scenes, without any data: draw, train, evaluate, look, keep a model."""

from vse.demo.run import run

__all__ = ["run"]
