"""A collection in one folder, kept by SQLite and searched with FAISS; no server.

::

    FOLDER/collection.json               format and the number of the generation that serves
    FOLDER/.lock                         held by the one writer
    FOLDER/generation-0001/items.sqlite  files, items, captions with their vectors: the truth
    FOLDER/generation-0001/cache/        the vectors as plain matrices, and approximate indexes: can be made anew

Commit protocol. A call that changes something is one SQLite transaction (write-ahead log, ``synchronous=FULL``), which
also counts ``changes`` in the table ``meta`` one up; it has happened when the transaction is committed, and whatever
kills the process before leaves nothing of it. The cache follows later: rows are appended behind those it has, flushed,
and then its header is replaced in one step. The header names the number of changes it stands for; what came
afterwards is read from the database, where ids only grow and removals are listed. A cache that is absent or damaged
costs time, never an answer.

Readers see the last committed state: each search looks at the number of changes first, and takes in what is new.

A generation belongs to one model. An upgrade fills the next generation beside the one that serves, and replacing
``collection.json`` is the switch. Readers that are open stay with the old generation until they open the collection
again (``superseded`` tells them); its folder is removed by the next process that opens the collection for writing.

Purged vectors are overwritten in the database at once (``secure_delete``; its log is emptied when the writer closes)
and in the cache when it follows, at the latest when the writer closes. An approximate index keeps their codes, which
are never found, until it is built anew.
"""

from vse.index.embedded.collection import EmbeddedCollection
from vse.index.embedded.new_generation import NewGeneration
from vse.index.embedded.verify_report import VerifyReport

__all__ = ["EmbeddedCollection", "NewGeneration", "VerifyReport"]
