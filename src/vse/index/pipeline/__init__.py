"""Bring a collection up to date with folders: files that are new, changed, moved or deleted.

::

    folder      the run over one or several folders, and its report
    plan        compare folders with the collection; recognise touched and moved files by digest
    reading     decode and encode the remaining files, prefetched by threads
    commits     add entries to the collection every few hundred files or seconds

>>> from vse.index.pipeline import index_folder
>>> report = index_folder(collection, model, "photos")                 # doctest: +SKIP
>>> report.new, report.moved, report.problems                          # doctest: +SKIP
(1204, 3, (Problem(path='old/scan.jpg', reason='empty'),))
"""

from vse.index.pipeline.folder import IndexReport, index_folder, index_folders

__all__ = ["IndexReport", "index_folder", "index_folders"]
