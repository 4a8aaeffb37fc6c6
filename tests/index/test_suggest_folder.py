"""Filters on empty folders: a one-line error with a suggestion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.index.examples import directions, entry
from tests.index.support import create

from vse.errors import InputError
from vse.index.filters import Filter
from vse.index.item_search import search
from vse.index.query import Query
from vse.index.store import EmbeddedCollection

PLACES = [("/photos", path) for path in ("trip/sea/a.jpg", "trip/lake/b.jpg", "party/c.jpg", "d.jpg", "home/e.jpg")]
PLACES += [("/phones", "work/f.jpg"), ("/phones", "zoo/g.jpg")]
LIKE = Query(like=(1,))


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCollection]:
    with create(tmp_path_factory.mktemp("folders") / "c") as made:
        vectors = directions(len(PLACES), seed=70)
        made.add([entry(path, vector, root) for (root, path), vector in zip(PLACES, vectors, strict=True)])
        yield made


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (Filter("trpi"), "no file lies in folder 'trpi': did you mean 'trip'?"),
        (Filter("trip/2031/x"), "no file lies in folder 'trip/2031/x': the nearest that holds files is 'trip'"),
        (Filter("trip/see"), "no file lies in folder 'trip/see': did you mean 'trip/sea'?"),
        (Filter("d.jpg"), "no file lies in folder 'd.jpg': there are 'home', 'party', 'trip' …"),
        (Filter("trip", root="/phones"), "no file lies in folder '/phones/trip': there are 'work', 'zoo'"),
        (Filter("trip", root="/elsewhere"), "no file lies in folder '/elsewhere/trip': leave it out, or index it"),
        (Filter(root="/elsewhere"), "no file lies in folder '/elsewhere': leave it out, or index it"),
        (Filter("trpi", kind="video"), "no file lies in folder 'trpi': did you mean 'trip'?"),
    ],
)
def test_suggested_folder_line(collection, where, line):
    """The error has the folder and the nearest existing one, on later pages too."""
    for offset in (0, 30):
        with pytest.raises(InputError) as caught:
            search(collection, LIKE, where=where, offset=offset)
        assert str(caught.value) == line


@pytest.mark.parametrize(
    ("where", "offset"), [(Filter("trip", kind="video"), 0), (Filter(kind="video"), 0), (Filter("trip"), 30)]
)
def test_a_folder_with_files_of_which_none_is_found(collection, where, offset):
    """No results in a folder that holds files is not an error."""
    assert search(collection, LIKE, where=where, offset=offset).results == ()


def test_only_what_was_asked_for_left_out(collection):
    """A folder that holds only the excluded query item is not empty."""
    assert search(collection, LIKE, where=Filter("trip/sea")).results == ()
