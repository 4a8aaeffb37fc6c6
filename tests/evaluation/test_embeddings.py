"""Contracts of the vectors of a split: what they are refused for, their folder on disk, the hash of their test."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.support import features, write_image, write_precomp
from tests.support_models import CAPTIONS, FEATURES, build, feature_sets, grid_config

from vse.data import CaptionedImages, FeatureRows, open_data
from vse.errors import InputError
from vse.evaluation.embeddings import (
    Embeddings,
    EmbeddingsHeader,
    captions_hash,
    embed_split,
    model_traits,
    split_hash,
)


def unit_vectors(rows: int, size: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal((rows, size))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def make(owners: Any, images: int, *, seed: int = 0, size: int = 4, hint: float = 0.0, **header: Any) -> Embeddings:
    """Random unit vectors; ``hint`` moves each text towards its image, so that larger means a better model."""
    owners = np.asarray(owners, dtype=np.int64)
    pictures = unit_vectors(images, size, seed)
    texts = unit_vectors(len(owners), size, seed + 1) + hint * pictures[owners]
    texts = (texts / np.linalg.norm(texts, axis=1, keepdims=True)).astype(np.float32)
    about = {"data": "toys", "split": "test", "split_hash": "0" * 16, "model": "tiny", "fingerprint": "f" * 16} | header
    return Embeddings(pictures, texts, owners, EmbeddingsHeader(**about))


def small() -> Embeddings:
    return make([0, 0, 1, 2, 2, 2], 3, traits={"image": "region"})


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


class TestFolder:
    """``save`` and ``load``."""

    def test_saved_embeddings_are_memory_mapped(self, tmp_path):
        """Every bit and the header come back, the vectors as maps of their files."""
        saved = small()
        saved.save(tmp_path / "new" / "folder")
        found = Embeddings.load(tmp_path / "new" / "folder")
        for name in ("images", "texts", "text_to_image"):
            assert getattr(found, name).dtype == getattr(saved, name).dtype
            np.testing.assert_array_equal(getattr(found, name), getattr(saved, name))
        assert found.header == saved.header
        for vectors in (found.images, found.texts):
            assert isinstance(vectors if isinstance(vectors, np.memmap) else vectors.base, np.memmap)

    def test_saved_embeddings_are_replaced(self, tmp_path):
        """A second model in the same folder leaves nothing of the first."""
        small().save(tmp_path)
        other = make([0, 1], 2, seed=5, model="other")
        other.save(tmp_path)
        found = Embeddings.load(tmp_path)
        assert (found.header, len(found.images), len(found.texts)) == (other.header, 2, 2)

    def test_without_a_header_nothing_is_complete(self, tmp_path, monkeypatch):
        """The header is written last: a save that was interrupted, also over an older one, is not taken for a whole."""
        small().save(tmp_path)
        monkeypatch.setattr("vse.evaluation.embeddings.write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            small().save(tmp_path)
        with pytest.raises(InputError, match="no saved embeddings here") as error:
            Embeddings.load(tmp_path)
        one_line(error)

    @pytest.mark.parametrize("name", ["images.npy", "texts.npy", "text_to_image.npy"])
    @pytest.mark.parametrize("damage", ["cut", "cut header", "absent", "no array"])
    def test_a_damaged_array_is_one_line(self, tmp_path, name, damage):
        """A file that is cut, missing or no array is named, with what to do."""
        small().save(tmp_path)
        path = tmp_path / name
        whole = path.read_bytes()
        if damage == "absent":
            path.unlink()
        else:
            path.write_bytes({"cut": whole[:-4], "cut header": whole[:20], "no array": b"<html>log in</html>"}[damage])
        with pytest.raises(InputError, match="save the embeddings again") as error:
            Embeddings.load(tmp_path)
        assert str(path) in one_line(error)

    @pytest.mark.parametrize("name", ["images.npy", "texts.npy", "text_to_image.npy"])
    def test_an_empty_file_is_one_line(self, tmp_path, name):
        """What a full disk leaves of an array is no array either."""
        small().save(tmp_path)
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(InputError, match="save the embeddings again") as error:
            Embeddings.load(tmp_path)
        one_line(error)

    def test_objects_are_not_unpickled(self, tmp_path):
        """An array of objects could run code, and is refused."""
        small().save(tmp_path)
        np.save(tmp_path / "texts.npy", np.array([{}], dtype=object), allow_pickle=True)
        with pytest.raises(InputError, match=r"texts\.npy: not a complete array") as error:
            Embeddings.load(tmp_path)
        one_line(error)

    def test_counts_on_disk_must_agree(self, tmp_path):
        """Arrays of two different saves do not go together."""
        small().save(tmp_path)
        np.save(tmp_path / "text_to_image.npy", np.zeros(5, dtype=np.int64))
        with pytest.raises(InputError, match="6 texts and 5 entries of text_to_image"):
            Embeddings.load(tmp_path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [({"modell": "x"}, "unknown key 'modell'"), ({"split": None}, "'split' is None"), (None, "not JSON")],
    )
    def test_a_wrong_header_is_one_line(self, tmp_path, change, message):
        """A key that is foreign, of another type, or text that is no JSON names itself and its file."""
        small().save(tmp_path)
        path = tmp_path / "embeddings.json"
        path.write_text("{" if change is None else json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(InputError, match=message) as error:
            Embeddings.load(tmp_path)
        assert one_line(error).startswith(str(path))


class TestChecks:
    """What can be no embeddings is refused where they are made."""

    @pytest.mark.parametrize("side", ["images", "texts"])
    @pytest.mark.parametrize("length", [0.0, 0.9, 1.01, 30.0])
    def test_embeddings_must_be_unit_vectors(self, side, length):
        """Only unit vectors have cosines for scores; the first that is none is named with its length."""
        whole = small()
        arrays = {"images": whole.images.copy(), "texts": whole.texts.copy()}
        arrays[side][2] *= length
        with pytest.raises(InputError, match=rf"{side}\[2\] has length .*divide each by its length") as error:
            Embeddings(**arrays, text_to_image=whole.text_to_image, header=whole.header)
        one_line(error)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("side", ["images", "texts"])
    def test_embeddings_must_be_finite(self, side, bad):
        """NaN and infinity are found in any row."""
        whole = small()
        arrays = {"images": whole.images.copy(), "texts": whole.texts.copy()}
        arrays[side][1, 3] = bad
        with pytest.raises(InputError, match=rf"{side}\[1\] holds NaN or infinite values"):
            Embeddings(**arrays, text_to_image=whole.text_to_image, header=whole.header)

    @pytest.mark.parametrize("side", ["images", "texts"])
    def test_embeddings_must_not_be_empty(self, side):
        """A split without images or without texts is named."""
        whole = small()
        arrays = {"images": whole.images, "texts": whole.texts, side: np.zeros((0, 4), dtype=np.float32)}
        owners = whole.text_to_image if side == "images" else np.zeros(0, dtype=np.int64)
        with pytest.raises(InputError, match=rf"toys, split 'test': no {side}"):
            Embeddings(**arrays, text_to_image=owners, header=whole.header)

    def test_embeddings_need_one_owner_per_text(self):
        """One owner for each text."""
        whole = small()
        with pytest.raises(InputError, match="6 texts and 4 entries of text_to_image"):
            Embeddings(whole.images, whole.texts, whole.text_to_image[:4], whole.header)

    @pytest.mark.parametrize("shape", [(3,), (3, 2, 2)])
    def test_embeddings_must_be_matrices(self, shape):
        """Vectors are rows of a matrix."""
        whole = small()
        with pytest.raises(InputError, match="images must be vectors"):
            Embeddings(np.ones(shape, dtype=np.float32), whole.texts, whole.text_to_image, whole.header)

    @pytest.mark.parametrize("owner", [-1, 3])
    def test_an_owner_outside_the_images(self, owner):
        """A text belongs to one of the images; a number outside is named, not counted from the end."""
        whole = small()
        owners = whole.text_to_image.copy()
        owners[4] = owner
        with pytest.raises(InputError, match=rf"text_to_image\[4\] is {owner}"):
            Embeddings(whole.images, whole.texts, owners, whole.header)


class TestHash:
    """Equal hashes, equal tests."""

    @given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 3)), min_size=1, max_size=8), st.data())
    def test_one_change_changes_it(self, pairs, data):
        """Another caption, another owner, another order of two different lines: each gives another hash."""
        captions, owners = [text for text, _ in pairs], np.array([owner for _, owner in pairs])
        found = captions_hash(captions, owners)
        assert found == captions_hash(tuple(captions), owners.copy())
        assert len(found) == 16
        place = data.draw(st.integers(0, len(pairs) - 1))
        assert captions_hash([*captions[:place], captions[place] + "!", *captions[place + 1 :]], owners) != found
        moved = owners.copy()
        moved[place] += 1
        assert captions_hash(captions, moved) != found
        if pairs[::-1] != pairs:
            assert captions_hash(captions[::-1], owners[::-1]) != found
        assert captions_hash(captions[:-1], owners[:-1]) != found

    def test_features_and_files_of_one_split_have_the_same(self, tmp_path):
        """A region model and a grid model that were given the same split can be averaged."""
        captions = [f"caption {j}" for j in range(6)]
        folder = write_precomp(tmp_path / "data", "test", features(3), captions, ids=["7", "8", "9"])
        names = {number: write_image(tmp_path / "data" / "files" / f"{number}.jpg").name for number in "789"}
        (folder / "id_mapping.json").write_text(json.dumps({n: f"files/{name}" for n, name in names.items()}))
        as_features = open_data(folder, "test", use="features")
        as_files = open_data(folder, "test", use="files", images=folder)
        assert (as_features.images.kind, as_files.images.kind) == ("features", "files")
        assert split_hash(as_features) == split_hash(as_files)


def captioned(captions: tuple[str, ...], owners: list[int], images: int) -> CaptionedImages:
    rows = np.stack(feature_sets(*[4] * images))
    names = tuple(map(str, range(images)))
    data = FeatureRows(rows, np.arange(images), names)
    return CaptionedImages("toys", "test", "precomp", data, captions, np.array(owners, dtype=np.int64))


class TestEmbedSplit:
    """From a model and a split to embeddings."""

    def test_vectors_are_those_of_the_model(self):
        """Row by row what the model encodes, with everything that says where they come from."""
        model, data = build(), captioned(tuple(CAPTIONS), [2, 0, 0, 1], 3)
        found = embed_split(model, data, name="mine", batch_size=2)
        np.testing.assert_allclose(found.images, model.encode_images([data.images[i] for i in range(3)]), atol=1e-6)
        np.testing.assert_allclose(found.texts, model.encode_texts(CAPTIONS), atol=1e-6)
        assert found.text_to_image.tolist() == [2, 0, 0, 1]
        assert found.header == EmbeddingsHeader(
            data="toys",
            split="test",
            split_hash=split_hash(data),
            model="mine",
            fingerprint=model.fingerprint(),
            traits={"image": "region", "text": "bigru", "image_pooling": "gpo", "text_pooling": "gpo"},
        )

    def test_words_that_the_model_does_not_know_are_texts_too(self):
        """A test set is taken as it is, unknown words included."""
        found = embed_split(build(), captioned(("qwertz zuiop",), [0], 1), name="mine")
        assert found.texts.shape[0] == 1

    def test_without_captions_there_is_no_test(self):
        """A split of images alone is one line."""
        with pytest.raises(InputError, match="toys, split 'test': no captions"):
            embed_split(build(), captioned((), [], 2), name="mine")

    def test_traits_of_a_grid_model(self):
        """A grid model names its backbone."""
        traits = model_traits(build(grid_config()))
        assert traits["image"] == "grid"
        assert traits["backbone"]

    def test_features_of_another_size_are_refused(self):
        """The model's own check is passed on as one line."""
        wide = FeatureRows(np.zeros((1, 4, FEATURES + 1), dtype=np.float32), np.arange(1), ("0",))
        data = CaptionedImages("toys", "test", "precomp", wide, ("a dog",), np.array([0]))
        with pytest.raises(InputError) as error:
            embed_split(build(), data, name="mine")
        one_line(error)
