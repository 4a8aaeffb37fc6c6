"""Embeddings into and out of a collection, whatever its backend: NumPy and Parquet files, streamed.

Everything goes through :class:`vse.index.types.Collection`, so that any backend can be the source or the target.
"""

from vse.index.transfer.exporting import EmbeddingExport, export_embeddings, stream_items
from vse.index.transfer.importing import EmbeddingImport, import_embeddings
from vse.index.transfer.parquet import Origin
from vse.index.transfer.sources import EmbeddingSource, open_sources

__all__ = [
    "EmbeddingExport",
    "EmbeddingImport",
    "EmbeddingSource",
    "Origin",
    "export_embeddings",
    "import_embeddings",
    "open_sources",
    "stream_items",
]
