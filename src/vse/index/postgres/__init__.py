"""A collection in PostgreSQL with the extension pgvector.

A collection is one schema of the database, named by ``?collection=NAME`` of its address::

    meta             one row: format, serving generation, index, settings
    generations      model, dimensions and number of changes of each generation
    files_g1         one row per file: what filters compare, and the rest of the metadata as JSON
    items_g1         one row per item: file, start, end, embedding
    captions_g1      one row per caption, with its embedding if there is one
    words_g1         the words of each file
    files_g2, …      the same for the second generation, which an upgrade fills, and so on

A change is one transaction. Ids come from sequences, so none is used twice, in any generation. The writer holds an
advisory lock on the connection that it writes with: when the process or the connection ends, so does the lock, and
nothing can be written without it. An upgrade switches the generation with one UPDATE; the next writer drops the older
one, and from then on each read of it fails with a request to open the collection again.

Names and digests are stored as bytes, because text in PostgreSQL can hold neither a NUL nor bytes that are not UTF-8.
Every value is a parameter, and every name of a table is quoted by psycopg.
"""

from vse.index.postgres.collection import PostgresCollection, PostgresNextGeneration
from vse.index.postgres.connection import PostgresAddress, parse_address

__all__ = ["PostgresAddress", "PostgresCollection", "PostgresNextGeneration", "parse_address"]
