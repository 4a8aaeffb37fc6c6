"""A collection in Milvus: a server, or Milvus Lite in a folder whose name ends in ``.db``.

::

    NAME             an alias of the items of the serving generation: an upgrade switches it, atomically
    NAME_g1          one row per item: its vector, the columns that filters compare, its file as JSON
    NAME_g1_captions one row per caption
    NAME_g1_meta     keys and values: model, options, settings, roots, changes
    NAME_g2, …       the same for the second generation, which an upgrade fills, and so on

Requires Milvus 2.5 or newer, for nullable columns.

The primary key of an item is its id: a hash of root, path, digest and moments of its file, plus the number of the
moment. Writing the same file again therefore writes the same rows, from any machine: changes can be repeated and
several writers can work at once. What a cluster guarantees and what it does not is in ``docs/collections.md``; how a
change is ordered so that a kill loses nothing is in :mod:`vse.index.milvus.writing`.

An open collection stays with its generation, because vectors of another model cannot be compared with its queries;
``superseded`` reports that there is a newer one. The next writer drops the old generation; from then on, each read of
it fails with a request to open the collection again.

Limits: 65,535 bytes for captions and metadata of a file. On a server, the name of a collection cannot end like those of
the parts above. A Milvus collection that has one of these names but other columns belongs to somebody else and is never
dropped: if it is in the way, an error reports it.
"""

from vse.index.milvus.collection import MilvusCollection, convert_collection
from vse.index.milvus.connection import MilvusAddress, parse_address
from vse.index.milvus.next_generation import MilvusNextGeneration

__all__ = ["MilvusAddress", "MilvusCollection", "MilvusNextGeneration", "convert_collection", "parse_address"]
