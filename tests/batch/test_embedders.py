"""Contracts of the callables for Ray Data, ``datasets``, Daft and Spark; Ray itself runs in ``test_embed_ray``."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pandas
import pyarrow
import pytest
from PIL import Image
from tests.batch.support_batch import CAPTIONS, NAMES, contents, image_table, model, write_folder

from vse.batch import ImageEmbedder, TextEmbedder, embedders
from vse.errors import InputError
from vse.models import BadImageWarning

FEW = 3


def wanted() -> np.ndarray:
    return model().encode_images(contents()[:FEW])


def test_image_embedder_takes_every_kind_of_value(tmp_path):
    """Bytes, paths, URLs, arrays, PIL images and the cells of ``datasets`` have the embedding of the image."""
    folder = write_folder(tmp_path / "images")
    opened = [Image.open(io.BytesIO(content)) for content in contents()[:FEW]]
    embed = ImageEmbedder(threads=1)
    for values in (
        contents()[:FEW],
        np.array(contents()[:FEW], dtype=object),
        [str(folder / name) for name in NAMES[:FEW]],
        [(folder / name).as_uri() for name in NAMES[:FEW]],
        opened,
        np.stack([np.asarray(image) for image in opened]),
        [{"bytes": content, "path": None} for content in contents()[:FEW]],
    ):
        batch = {"image": values, "n": list(range(FEW))}
        found = embed(batch)
        assert found.keys() == {"image", "n", "embedding"}
        assert "embedding" not in batch
        np.testing.assert_array_equal(found["embedding"], wanted())


def test_embedder_keeps_kind_of_batch():
    """A DataFrame and a Table gain a column; a plain sequence or series returns the embeddings."""
    embed = pickle.loads(pickle.dumps(ImageEmbedder(threads=1, dtype="float16")))
    exact = wanted().astype(np.float16)
    frame = embed(pandas.DataFrame({"image": contents()[:FEW]}))
    np.testing.assert_array_equal(np.stack(frame["embedding"].tolist()), exact)
    table = embed(image_table().slice(0, FEW))
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float16(), exact.shape[1])
    np.testing.assert_array_equal(np.array(table.column("embedding").to_pylist(), np.float16), exact)
    for plain in (contents()[:FEW], pandas.Series(contents()[:FEW]), pyarrow.array(contents()[:FEW])):
        np.testing.assert_array_equal(embed(plain), exact)
    assert embed([]).shape == (0, exact.shape[1])


def test_embedder_loads_model_once_per_process(monkeypatch):
    """Copies of an embedder share the model of their process."""
    first = embedders.worker_model("photo", None, 1)
    assert embedders.worker_model("photo", None, 1) is first
    pickled = pickle.dumps(ImageEmbedder(threads=1))
    assert len(pickled) < 1000


def test_bad_values_are_nan_or_errors():
    """A value that is no image or no text has a row of NaN; ``on_bad='raise'`` stops."""
    with pytest.warns(BadImageWarning, match="2 images could not be encoded"):
        found = ImageEmbedder(threads=1)({"image": [contents()[0], b"x", None]})["embedding"]
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True]
    with pytest.raises(InputError, match="empty value"):
        ImageEmbedder(threads=1, on_bad="raise")([None])
    with pytest.raises(InputError, match="no column 'image' in the batch: it has jpg"):
        ImageEmbedder(threads=1)({"jpg": []})
    with pytest.warns(BadImageWarning, match="text 1"):
        found = TextEmbedder(threads=1)({"text": ["a dog", None]})["text_embedding"]
    np.testing.assert_array_equal(found[0], model().encode_texts(["a dog"])[0])
    assert np.isnan(found[1]).all()


def test_embedder_runs_in_datasets_map():
    """``datasets.map`` with an undecoded or a decoded image column gives the embeddings."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset(image_table().slice(0, FEW)).cast_column("image", datasets.Image())
    found = rows.map(ImageEmbedder(threads=1), batched=True, batch_size=FEW, load_from_cache_file=False)
    np.testing.assert_array_equal(np.array(found["embedding"][:], np.float32), wanted())
    texts = rows.map(TextEmbedder(column="caption", threads=1), batched=True, load_from_cache_file=False)
    exact = model().encode_texts(CAPTIONS[:FEW], unknown="allow")
    np.testing.assert_array_equal(np.array(texts["text_embedding"][:], np.float32), exact)


def test_embedder_runs_in_daft_function():
    """A Daft batch function gives the embeddings."""
    daft = pytest.importorskip("daft")
    embed = ImageEmbedder(threads=1)
    width = wanted().shape[1]

    @daft.func.batch(return_dtype=daft.DataType.embedding(daft.DataType.float32(), width))
    def vectors(images: daft.Series):
        return list(embed(images))

    frame = daft.from_pydict({"image": contents()[:FEW]}).select(vectors(daft.col("image")).alias("embedding"))
    found = np.array(frame.to_pydict()["embedding"], np.float32)
    np.testing.assert_array_equal(found, wanted())
