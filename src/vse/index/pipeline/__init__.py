"""Bringing a collection up to date with a folder: what is new, changed, moved or gone since the last time.

::

    plan        the folder beside what is known of it, both in the order of paths: who has to be looked at
    contents    digests of those: files that were only touched or moved keep their vectors and ids
    parts       a file as pixels for the model: a picture, or windows of a clip some at a time
    ahead       parts read by threads while the model computes
    moments     pixels to vectors
    commits     entries into the collection, every few hundred files or seconds

>>> from vse.index.pipeline import index_folder
>>> report = index_folder(collection, model, "photos")                 # doctest: +SKIP
>>> report.new, report.moved, report.problems                          # doctest: +SKIP
(1204, 3, (Problem(path='old/scan.jpg', reason='empty'),))
"""

from vse.index.pipeline.folder import IndexReport, index_folder, index_folders

__all__ = ["IndexReport", "index_folder", "index_folders"]
