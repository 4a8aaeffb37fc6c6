"""Embed many images with many workers: ``vse embed``, and callables for Ray Data, ``datasets``, Daft and Spark.

>>> from vse.batch import ImageEmbedder
>>> embed = ImageEmbedder("photo", column="image")
>>> dataset.map_batches(embed, batch_size=64)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.batch.embedders import ImageEmbedder, TextEmbedder
    from vse.batch.job import EmbedReport, embed
    from vse.batch.store import StoreError

__all__ = ["EmbedReport", "ImageEmbedder", "StoreError", "TextEmbedder", "embed"]

__getattr__ = lazy_names(
    __name__,
    {
        "embedders": ("ImageEmbedder", "TextEmbedder"),
        "job": ("EmbedReport", "embed"),
        "store": ("StoreError",),
    },
)
