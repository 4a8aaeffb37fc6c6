"""``vse demo``: train, evaluate and search on generated scenes, or index and search a folder of images."""

from vse.demo.run import run

__all__ = ["run"]
