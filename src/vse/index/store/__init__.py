"""A collection in one folder: SQLite holds the rows, FAISS searches them; no server.

::

    FOLDER/collection.json               format version and number of the serving generation
    FOLDER/.lock                         held by the single writer
    FOLDER/generation-0001/items.sqlite  files, items and captions with their vectors: the source of truth; their words
    FOLDER/generation-0001/cache/        the vectors as plain matrices, and approximate indexes: can be rebuilt

A collection is created only in a folder that holds nothing else, and only its own files are ever removed.

Commit protocol. Every change is one SQLite transaction (write-ahead log, ``synchronous=FULL``) that also increments
``changes`` in the table ``meta``. The change takes effect when the transaction commits; a process killed earlier
leaves no trace of it. The cache is updated later: new rows are appended after the existing ones and flushed, then the
cache header is replaced atomically. The header records the value of ``changes`` it represents; everything newer is read
from the database, where ids only grow and removals are listed. Removals that both caches applied long ago are trimmed
from that list; a reader that is further behind starts over from the cache. A missing or corrupt cache costs time,
never a result.

Readers see the last committed state: each search first compares ``changes`` and reads what is new. A reader without
write permission on the folder opens the database as an immutable file, and reopens it when the file has changed.

Long operations (building or rebuilding the cache, verifying) use a separate connection and a single read transaction,
so searches and changes continue meanwhile, in the same process too. Whoever writes the cache holds its ``guard``.

A generation belongs to one model. An upgrade fills the next generation beside the serving one; replacing
``collection.json`` is the switch. Open readers stay with the old generation until they reopen the collection
(``superseded`` reports it). The next process that opens the collection for writing removes the old folder.

A generation with a higher number than the serving one is unfinished. It is filled in transactions as well, so an
interrupted upgrade loses only what came after the last commit. The next upgrade to the same model verifies its
checksums and resumes it; an upgrade to another model removes it. The collection can be changed meanwhile: files
whose items now have different ids are dropped from the unfinished generation when it is reopened, and new ids come
from the sequence of the serving generation, so that no id is assigned twice. The cache of the new generation is built
before the switch; at the switch its sequences continue after those of the old generation.

Purged vectors are overwritten in the database at once (``secure_delete``; the write-ahead log is truncated when the
writer closes) and in the cache at its next update, at the latest when the writer closes. An approximate index keeps
their codes, which are never returned, until it is rebuilt. Removed words leave the full-text index in the same
transaction; :mod:`vse.index.store.words` says how, and how the words are compared with the files they follow from.
"""

from vse.index.store.collection import EmbeddedCollection

__all__ = ["EmbeddedCollection"]
