"""Search captions by image and text: best first, page by page, each with its file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.index.examples import directions, entry
from tests.index.support import batch, create
from tests.support_models import SIZE, build, grid_config, picture

from vse.errors import InputError
from vse.index.caption_search import search_captions
from vse.index.item_search import DEPTH
from vse.index.query import Query
from vse.index.types import Entry

COUNT = 600
VECTORS = directions(COUNT, SIZE, seed=50)


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """Six hundred images, each with a caption that has the embedding of the image."""
    with create(tmp_path_factory.mktemp("captions") / "c", SIZE, build(grid_config()).fingerprint()) as made:
        made.add(batch(VECTORS))
        yield made


def test_the_best_captions_of_a_picture(collection):
    """The captions with the highest scores, with their files; a query by id needs no model."""
    found = search_captions(collection, Query(like=(5,)), 7)
    (vector,) = collection.vectors([5])
    scores = VECTORS.astype(np.float64) @ vector
    order = np.argsort(-scores)[:7]
    assert [each.caption for each in found.captions] == [f"caption {row}" for row in order]
    assert [each.path for each in found.captions] == [f"/photos/{row:05}.jpg" for row in order]
    np.testing.assert_allclose([each.score for each in found.captions], scores[order], atol=1e-6)
    assert found.more


def test_pictures_and_sentences_as_queries(collection):
    """The model encodes them; unknown words are reported."""
    model = build(grid_config())
    for query, vector in (
        (Query(images=(picture(3),)), model.encode_images([picture(3)])[0]),
        ("a zebra in the snow", model.encode_texts(["a zebra in the snow"])[0]),
    ):
        found = search_captions(collection, query, 1, model=model)
        assert found.captions[0].caption == f"caption {int(np.argmax(VECTORS @ vector))}"
    assert found.unknown == ("zebra",)


def test_caption_pages_are_consistent(collection):
    """Whatever their sizes, even beyond the first search depth; the last page has no more."""
    query = Query(like=(9,))
    whole = search_captions(collection, query, COUNT)
    assert len(whole.captions) == COUNT > 2 * DEPTH
    assert not whole.more
    for size in (100, 256, 257):
        pages = [search_captions(collection, query, size, offset=start) for start in range(0, COUNT, size)]
        assert tuple(each for page in pages for each in page.captions) == whole.captions
        assert [page.more for page in pages] == [*[True] * (len(pages) - 1), False]
    assert search_captions(collection, query, 10**12).captions == whole.captions
    assert search_captions(collection, query, 5, offset=10**12).captions == ()


def test_one_caption_of_several_files(tmp_path):
    """It is returned once per file."""
    with create(tmp_path / "c", SIZE) as made:
        for name in ("a.jpg", "b.jpg"):
            plain = entry(name, VECTORS[0], captions=("a dog",))
            made.add([Entry(plain.file, plain.moments, VECTORS[:1])])
        found = search_captions(made, Query(like=(1,)))
    assert [(each.caption, each.id, each.path) for each in found.captions] == [
        ("a dog", 1, "/photos/a.jpg"),
        ("a dog", 2, "/photos/b.jpg"),
    ]


def test_a_collection_without_captions_says_so(tmp_path):
    """Both without captions, and with captions that have no embeddings."""
    with create(tmp_path / "c", SIZE) as made:
        made.add([entry("a.jpg", VECTORS[0])])
        with pytest.raises(InputError, match=r"holds no captions.*captions\.csv"):
            search_captions(made, Query(like=(1,)))
        made.add([entry("b.jpg", VECTORS[1], captions=("a dog",))])
        with pytest.raises(InputError, match="have no embeddings"):
            search_captions(made, Query(like=(1,)))


@pytest.mark.parametrize(("options", "words"), [({"k": 0}, "k 0"), ({"offset": -1}, "offset -1")])
def test_caption_search_names_invalid_values(collection, options, words):
    """Each error quotes its value."""
    with pytest.raises(InputError, match=words):
        search_captions(collection, Query(like=(1,)), **options)


def test_caption_search_json(collection):
    """Plain values, with unknown words."""
    found = search_captions(collection, "zebra snow", 2, offset=3, model=build(grid_config()))
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (told["query"], told["offset"], told["more"], told["unknown"]) == ("zebra snow", 3, True, ["zebra"])
    assert [set(each) for each in told["captions"]] == [{"caption", "id", "path", "score"}] * 2
