"""A collection in Milvus: a server, or Milvus Lite in a folder whose name ends in ``.db``.

::

    NAME             one row per version of an item: vector, moment, the columns of its file, captions
    NAME_captions    one row per version of a caption that has a vector
    NAME_meta        the published state, the row with the highest batch: model, counts, roots, next ids, writer
    NAME_g2, …       the same three for the second generation, which an upgrade creates, and so on

Requires Milvus 2.5 or newer, for nullable columns. All reads and writes use consistency level Strong.

Commit protocol. Milvus has no transactions; it only guarantees that a single row appears atomically. Each row
therefore records the batch in which it was ``born`` and the one in which it ``died``, and the snapshot at batch P
consists of exactly the rows with ``born <= P < died``. A change takes the next batch number N and

1. inserts the new rows with ``born = N``, which nobody sees yet;
2. rewrites the rows to be removed with ``died = N`` (tombstones), which everybody still sees;
3. inserts one row into ``NAME_meta`` that publishes N: this commits the whole change;
4. deletes the dead rows and the previous state.

A writer that stops before step 3 leaves the state unchanged; one that stops after it leaves rows that nobody sees. The
next writer cleans up both before its first change. A reader compares the published batch before and after it reads, and
retries when they differ; so it never sees a partial change.

Generations. The next generation is filled like any collection, by the same protocol, with its states in
``NAME_g2_meta``, where nobody else looks. ``commit`` cleans up what a failed change may have left there, then inserts
one row into ``NAME_meta`` that publishes the new generation: this is the switch. A process that stops before it leaves
the old generation serving and the new one to be resumed; one that stops after it leaves Milvus collections that nobody
needs. The next writer drops those on opening: the old generation, and ``NAME_g2_meta``.

An open collection stays with its generation, even in the middle of a read, because vectors of another model cannot be
compared with its queries; ``superseded`` reports that there is a newer one. Once the old generation is dropped, each
read fails with a request to open the collection again. Opening while it is dropped retries with the serving one.

What is not guaranteed:

- Durability is that of Milvus. Milvus Lite writes its log without fsync: a killed process loses nothing that was
  acknowledged, a power failure may.
- Deleted rows are never found again, but their bytes stay in Milvus's files until it compacts them.
- Exclusive writing. With Milvus Lite the lock of the folder excludes other processes; and because Milvus Lite serves
  one process only, readers have to be in the writer's process, or use a server. Milvus has no compare-and-set, so
  on a server nobody is locked out: opening for writing takes over, and the previous writer fails at its next
  change. A writer checks before it writes and before it publishes; a takeover within one change, between the last
  check and step 3, can mix the two; within a ``commit`` it decides which generation serves. Ensure by other means that
  each collection has one writer.

Limits: 65,535 bytes for the captions of a file, and for the list of all roots. On a server, the name of a collection
cannot end like those of the parts above. A Milvus collection that has one of these names but other columns belongs to
somebody else and is never dropped: if it is in the way, an error reports it.
"""

from vse.index.milvus.collection import MilvusCollection
from vse.index.milvus.connection import MilvusAddress, parse_address
from vse.index.milvus.next_generation import MilvusNextGeneration

__all__ = ["MilvusAddress", "MilvusCollection", "MilvusNextGeneration", "parse_address"]
