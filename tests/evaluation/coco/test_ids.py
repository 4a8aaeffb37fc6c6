"""Contracts of the ids that ratings refer to."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from vse.data.dataset import CaptionedImages, ImageFiles
from vse.errors import InputError
from vse.evaluation.coco.ids import CocoIds, read_coco_ids

COMPACT = [
    {"image_id": 7, "file": "b_7.jpg", "sentids": [30, 10], "captions": ["A cat .", "Two, cats"]},
    {"image_id": 3, "file": "a_3.jpg", "sentids": [20, 40, 50], "captions": ["a dog", "DOGS!", "it 's a dog"]},
]


def karpathy(entries, split: str = "test") -> dict:
    return {
        "images": [
            {"cocoid": 1, "filename": "train.jpg", "split": "train", "sentids": [1], "sentences": [{"raw": "x"}]},
            *(
                {
                    "cocoid": entry["image_id"],
                    "filename": entry["file"],
                    "split": split,
                    "sentids": entry["sentids"],
                    "sentences": [{"raw": text, "sentid": 0} for text in entry["captions"]],
                }
                for entry in entries
            ),
        ]
    }


def write(path: Path, value) -> Path:
    text = value if isinstance(value, str) else json.dumps(value)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def split_of(captions, owners) -> CaptionedImages:
    count = max(owners) + 1
    images = ImageFiles(tuple(Path(f"{i}.jpg") for i in range(count)), tuple(map(str, range(count))))
    return CaptionedImages("coco", "test", "precomp", images, tuple(captions), np.array(owners))


@pytest.mark.parametrize("name", ["ids.json", "ids.json.gz"])
@pytest.mark.parametrize("content", [COMPACT, karpathy(COMPACT)], ids=["compact", "karpathy"])
def test_both_files_give_the_same_rows(tmp_path, name, content):
    """Images have rows in the order of the file; captions are numbered through in image order."""
    ids = read_coco_ids(write(tmp_path / name, content))
    assert ids.shape == (2, 5)
    assert ids.file_rows == {"b_7.jpg": 0, "a_3.jpg": 1}
    assert ids.image_rows == {7: 0, 3: 1}
    assert ids.caption_rows == {30: 0, 10: 1, 20: 2, 40: 3, 50: 4}
    assert ids.caption_to_image.tolist() == [0, 0, 1, 1, 1]
    assert read_coco_ids(tmp_path / "ids.json") == ids  # the packed file stands for the plain one


def test_coco_ids_drop_extra_captions():
    """Images with more captions than others lose the last ones."""
    ids = CocoIds(("a", "b"), (1, 2), ((10,), (20, 21, 22)), (("x",), ("y", "z", "w")))
    assert ids.first_captions(2) == CocoIds(("a", "b"), (1, 2), ((10,), (20, 21)), (("x",), ("y", "z")))
    with pytest.raises(InputError, match="count must be at least 1, got 0"):
        ids.first_captions(0)


def test_coco_ids_of_official_test_split(shared_data):
    """COCO's test split has 5,000 images with five captions each, and is in its own order."""
    ids = read_coco_ids(shared_data / "coco" / "karpathy_test_captions.json.gz")
    assert ids.shape == (5000, 25000)
    released = np.load(shared_data / "eccv" / "coco_test_ids.npy", allow_pickle=False)
    assert [ids.caption_rows[int(sentid)] for sentid in released] == list(range(25000))
    texts = [text for each in ids.captions for text in each]
    ids.check_captions(split_of([text.upper().replace(" .", ".") for text in texts], ids.caption_to_image.tolist()))
    with pytest.raises(InputError, match=r"2\d{4} of 25000 captions differ"):
        ids.check_captions(split_of(texts[1:] + texts[:1], ids.caption_to_image.tolist()))


def test_captions_are_compared_by_letters_and_digits(tmp_path):
    """Case, white space and punctuation do not matter; words, counts and order do."""
    ids = read_coco_ids(write(tmp_path / "ids.json", COMPACT))
    same = ["a cat", "two cats.", "A dog.", "dogs", "It's a dog"]
    ids.check_captions(split_of(same, [0, 0, 1, 1, 1]))
    with pytest.raises(
        InputError, match=r"2 of 5 captions differ .* first caption 0: 'two cats.' instead of 'A cat .'"
    ):
        ids.check_captions(split_of([same[1], same[0], *same[2:]], [0, 0, 1, 1, 1]))
    with pytest.raises(InputError, match="caption 2 belongs to another image"):
        ids.check_captions(split_of(same, [0, 0, 0, 1, 1]))
    with pytest.raises(InputError, match=r"2 images and 4 captions, the ids are for 2 and 5: .*first_captions\(5\)"):
        ids.check_captions(split_of(same[:4], [0, 0, 1, 1]))
    with pytest.raises(InputError, match="3 images and 5 captions, the ids are for 2 and 5: use the split that"):
        ids.check_captions(split_of(same, [0, 0, 1, 1, 2]))


def changed(position: int, **fields) -> list:
    return [entry | fields if i == position else entry for i, entry in enumerate(COMPACT)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ({"a": 1}, "expected Karpathy's object"),
        ([], "at least one image"),
        ([3], 'image 0: expected an object with "file"'),
        (changed(1, image_id="x"), "image 1: \"image_id\" is 'x', expected the number"),
        (changed(1, image_id=True), 'image 1: "image_id" is True'),
        (changed(0, sentids=7), 'image 0: "sentids" is 7, expected a list'),
        (changed(0, sentids=[30, -1]), "image 0: a sentence id is -1"),
        (changed(0, sentids=[30]), "b_7.jpg: 1 sentence ids and 2 captions"),
        (changed(0, sentids=[30, 20]), "sentence id 20 is there twice"),
        (changed(1, file="b_7.jpg"), "file 'b_7.jpg' is there twice"),
        (changed(1, image_id=7), "image id 7 is there twice"),
        (changed(0, captions=["x", 3]), "image 0: the captions are no list of texts"),
        (changed(0, captions=None), "1 of 2 images have captions"),
        (karpathy(COMPACT, "val"), "no image in split 'test', expected one of 'train', 'val'"),
    ],
)
def test_coco_ids_refuse_malformed_files(tmp_path, content, message):
    """An error names the file or the id, and what was expected."""
    with pytest.raises(InputError) as caught:
        read_coco_ids(write(tmp_path / "ids.json", content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_coco_ids_distinguish_unreadable_files(tmp_path):
    """Absent, cut off and wrongly encoded files are reported apart."""
    with pytest.raises(InputError, match=r"ids\.json does not exist, nor does ids\.json\.gz"):
        read_coco_ids(tmp_path / "ids.json")
    whole = write(tmp_path / "ids.json.gz", COMPACT).read_bytes()
    for broken in (whole[:-12], whole[:12] + b"\xff\xff\xff" + whole[15:]):
        (tmp_path / "ids.json.gz").write_bytes(broken)
        with pytest.raises(InputError, match="not a whole gzip file"):
            read_coco_ids(tmp_path / "ids.json.gz")
    (tmp_path / "latin.json").write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(InputError, match="byte 2 is not UTF-8"):
        read_coco_ids(tmp_path / "latin.json")
