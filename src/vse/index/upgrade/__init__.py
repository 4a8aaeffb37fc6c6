"""The parts of :func:`vse.index.upgrade.run.upgrade_collection`.

::

    missing     files that an upgrade would lose, because they are not there to be read
    work        the old generation beside the new one: what is done, what is no longer right, what is to be encoded
    encoding    pages of files through the reading path of indexing
    report      what it came to
"""
