"""A collection kept by Milvus: a server, or Milvus Lite in a folder whose name ends in ``.db``.

::

    NAME             a row for each version of each item: vector, moment, the fields of its file, captions
    NAME_captions    a row for each version of each caption that has a vector
    NAME_meta        the published state, the row with the highest batch: origin, counts, roots, next ids, writer
    NAME_g2, …       the same three for the second generation, which an upgrade makes, and so on

Milvus 2.5 or newer is needed, for columns that may be empty. Everything is written and read at the consistency Strong.

Commit protocol. Milvus has no transactions, and promises that one row appears whole. A row therefore says with which
batch it was ``born`` and with which it ``died``, and at batch P exactly the rows with ``born <= P < died`` are there.
A change takes the number after the published one, N, and

1. inserts the new rows, born with N, which nobody sees yet;
2. writes the rows that will go once more, to die with N, which everybody still sees;
3. inserts one row into ``NAME_meta`` that publishes N: here all of the change happens at once;
4. deletes the rows that died and the older state.

Whatever stops a writer before step 3 leaves the state as it was; what stops it afterwards leaves rows that nobody sees.
The next writer clears away both before its first change. A reader asks for the published batch before and after it
reads, and reads again when a change came between; so it never sees half of one.

Generations. The next one is filled like any collection, by the same protocol, with its states in ``NAME_g2_meta``.
Nobody else looks there. ``commit`` clears away what a failed change may have left in it, and inserts one row into
``NAME_meta`` that publishes it: here the switch happens. Whatever stops a process before leaves the old generation
serving and the new one as far as it was filled, to be resumed; what stops it afterwards leaves Milvus collections
that nobody needs. The next writer that opens drops those: the old generation, and ``NAME_g2_meta``.

Whoever has a collection open stays with its generation, also in the middle of a read, since the vectors of another
model cannot be compared with its queries; ``superseded`` says that there is a newer one. From when the old
generation is dropped on, each read is told to open the collection again. Whoever opens at this moment looks again
which generation serves.

What does not hold:

- Durability is that of Milvus. Milvus Lite hands its log to the system without waiting for the disk: a process that
  is killed loses nothing that was acknowledged, a machine that loses power may.
- Deleted rows are never found again; their bytes stay in the files of Milvus until it compacts them.
- One writer. With Milvus Lite a lock of the folder holds for all processes; and since Milvus Lite itself serves one
  process, readers have to be in the same process as the writer, or a server has to be used. Milvus has no
  compare-and-set, so on a server nobody is kept out: whoever opens for writing takes over, and the writer before is
  refused at its next change. It looks before it writes and before it publishes; a takeover within one change, between
  the last look and step 3, can mix the two; within a ``commit`` it decides which generation serves. Give each
  collection one writer by other means.

Limits: 65,535 bytes for the captions of a file, and for the list of all roots. On a server no collection has
a name that ends like those of the parts above. A Milvus collection that has one of these names and other columns
belongs to somebody else and is never dropped: where it is in the way, an error says so.
"""

from vse.index.milvus.collection import MilvusCollection
from vse.index.milvus.connection import MilvusAddress, parse_address
from vse.index.milvus.next_generation import MilvusNextGeneration

__all__ = ["MilvusAddress", "MilvusCollection", "MilvusNextGeneration", "parse_address"]
