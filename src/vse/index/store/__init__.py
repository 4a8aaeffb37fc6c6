"""A collection in one folder, kept by SQLite and searched with FAISS; no server.

::

    FOLDER/collection.json               format and the number of the generation that serves
    FOLDER/.lock                         held by the one writer
    FOLDER/generation-0001/items.sqlite  files, items, captions with their vectors: the truth
    FOLDER/generation-0001/cache/        the vectors as plain matrices, and approximate indexes: can be rebuilt

One is made only in a folder that holds nothing else, and nothing else is ever removed from it.

Commit protocol. A call that changes something is one SQLite transaction (write-ahead log, ``synchronous=FULL``), which
also counts ``changes`` in the table ``meta`` one up; it has happened when the transaction is committed, and whatever
kills the process before leaves nothing of it. The cache follows later: rows are appended behind those it has, flushed,
and then its header is replaced in one step. The header names the number of changes it stands for; what came
afterwards is read from the database, where ids only grow and removals are listed. Removals that both caches took in
long ago are no longer listed, and a reader that is as far behind begins with the cache again. A cache that is absent or
corrupt costs time, never an answer.

Readers see the last committed state: each search looks at the number of changes first, and takes in what is new. One
that may not write to the folder reads the database as a plain file, and opens it again when it has changed.

Long work, which is building and rebuilding the cache and verifying, reads by a connection of its own within one
transaction: searches and changes go on meanwhile, in the same process too. Whoever writes to the cache holds its guard.

A generation belongs to one model. An upgrade fills the next generation beside the one that serves, and replacing
``collection.json`` is the switch. Readers that are open stay with the old generation until they open the collection
again (``superseded`` tells them); its folder is removed by the next process that opens the collection for writing.

A generation with a higher number than the one that serves is unfinished. It is filled by transactions as well, so that
an upgrade that is cut short loses what came after the last one. The next upgrade to the same model resumes it,
after it was compared with its checksums; one to another model removes it. Meanwhile the collection may be changed
as always: files whose items have got other ids leave the unfinished generation when it is opened again, and new ids
come from the sequence of the generation that serves, so that none is given twice. The cache of the new generation is
made before the switch, and with the switch its sequences go on behind those of the old one.

Purged vectors are overwritten in the database at once (``secure_delete``; its log is emptied when the writer closes)
and in the cache when it follows, at the latest when the writer closes. An approximate index keeps their codes, which
are never found, until it is rebuilt.
"""

from vse.index.store.collection import EmbeddedCollection

__all__ = ["EmbeddedCollection"]
