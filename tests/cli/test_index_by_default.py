"""``vse search`` takes the only index of the folder; a name without its ending is hinted at."""

from __future__ import annotations

import pytest
from tests.index.examples import VECTORS, entry
from tests.index.support import create

from vse.cli.options import index_and_texts
from vse.errors import UsageError


def make(folder, *names):
    for name in names:
        with create(folder / name) as collection:
            collection.add([entry("a.jpg", VECTORS[0])])


def test_search_takes_the_only_index_here(tmp_path, monkeypatch):
    """A named index comes first; otherwise all words are texts."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "Photos.vse")
    assert index_and_texts(["a dog"]) == ("Photos.vse", ["a dog"])
    assert index_and_texts(["dog", "snow"]) == ("Photos.vse", ["dog", "snow"])
    assert index_and_texts([]) == ("Photos.vse", [])
    assert index_and_texts(["Photos.vse", "dog"]) == ("Photos.vse", ["dog"])
    assert index_and_texts(["milvus+http://host/x", "dog"]) == ("milvus+http://host/x", ["dog"])
    assert index_and_texts(["Photos"]) == ("Photos.vse", ["Photos"])


@pytest.mark.parametrize("with_folder", [False, True])
def test_ending_of_index_is_hinted_at(tmp_path, monkeypatch, with_folder):
    """Also where the folder of images lies beside the index."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "Photos.vse")
    if with_folder:
        (tmp_path / "Photos").mkdir()
    with pytest.raises(UsageError, match=r"'Photos' is no index: did you mean 'Photos.vse'\?"):
        index_and_texts(["Photos", "dog"])


def test_several_indexes_have_to_be_named(tmp_path, monkeypatch):
    """One text is not enough to choose, and without an index the message says how to create one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no index given, and no \*.vse in this folder"):
        index_and_texts(["dog"])
    make(tmp_path, "a.vse", "b.vse")
    with pytest.raises(UsageError, match=r"several indexes \(a.vse, b.vse\): name one of them"):
        index_and_texts(["dog"])
