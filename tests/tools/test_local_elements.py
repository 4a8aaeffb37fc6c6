"""The dataset of many local elements: ``tools/local_elements.py`` on tiny folders of COCO's and Flickr8k's layout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from vse.data import open_data
from vse.inputs.vocabulary import Vocabulary

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import local_elements

CAPTIONS = {
    "train": [["one rare word"], ["a dog runs", "a dog sits"], ["a dog", "a dog eats", "a", "the dog", "dog"]],
    "val": [["first"], ["second"]],
    "test": [["third"]],
}


def write_karpathy(folder: Path, name: str) -> Path:
    images = []
    (folder / "images").mkdir(parents=True)
    for split, captions in CAPTIONS.items():
        for number, texts in enumerate(captions):
            file = f"{split}-{number}.png"
            Image.new("RGB", (8, 8)).save(folder / "images" / file)
            images.append({"filename": file, "split": split, "sentences": [{"raw": text} for text in texts]})
    (folder / f"dataset_{name}.json").write_text(json.dumps({"images": images}))
    return folder


@pytest.mark.parametrize("both", [True, False])
def test_local_elements_writes_splits_and_a_vocabulary_of_distinct_captions(tmp_path, both):
    """Captions are repeated up to five, and words counted once for each caption; Flickr8k may be left out."""
    coco = write_karpathy(tmp_path / "coco", "coco")
    options = ["--flickr8k", str(write_karpathy(tmp_path / "flickr8k", "flickr8k"))] if both else []
    local_elements.main(["--coco", str(coco), *options, "--into", str(tmp_path / "local")])
    splits = ("train", "dev", "test", "coco") if both else ("train", "dev", "test")
    found = {split: open_data(tmp_path / "local", split, use="files") for split in splits}
    assert [len(found[split].images) for split in splits] == ([6, 1, 1, 1] if both else [3, 1, 1])
    assert {len(each.captions) / len(each.images) for each in found.values()} == {5}
    assert found["test"].captions[0] == ("third" if both else "second")
    words = Vocabulary.load(tmp_path / "local/vocabulary.json")
    assert "dog" in words
    assert ("rare" in words, "runs" in words) == (False, False)
    assert "rare" in Vocabulary.build(found["train"].captions)
