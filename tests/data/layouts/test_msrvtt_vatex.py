"""Contracts of the layouts of MSR-VTT and VATEX."""

from __future__ import annotations

import json
import zipfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.video_support import frames, msrvtt_json, read_captions, write_json

from vse.data import open_data
from vse.data.layouts.vatex import halves
from vse.data.vocabulary import video_words
from vse.errors import InputError
from vse.inputs.text import plain_sentence

TRAIN = {"video0": ("train", ["A dog runs.", "a dog  barks"]), "video1": ("validate", ["a cat"])}
TEST = {"video2": ("test", ["a man sings", "a man's song"]), "video3": ("test", ["a man sings"])}


def write_msrvtt(folder, zipped: bool):
    names = ("train_val_videodatainfo.json", "test_videodatainfo.json")
    for name, videos in zip(names, (TRAIN, TEST), strict=True):
        file = write_json(folder / name, msrvtt_json(videos))
        if zipped:
            archive = "train_val_annotation.zip" if name.startswith("train") else f"{name}.zip"
            with zipfile.ZipFile(folder / archive, "w") as target:
                target.write(file, f"inside/{name}")
                target.writestr("readme.txt", "x")
            file.unlink()
    (folder / "MSRVTT_train.9k.csv").write_text("video_id\nvideo3\nvideo0\n")
    (folder / "MSRVTT_JSFUSION_test.csv").write_text("key,vid_key,video_id,sentence\nret0,msr2,video2,A song\n")
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_msrvtt_splits_and_lists(tmp_path, zipped):
    """Official splits by their field, lists in their order over both files, 1k-A with its own sentence."""
    root = write_msrvtt(tmp_path, zipped)
    train, val, test = (read_captions(root, split) for split in ("train", "dev", "test"))
    assert (train.ids, train.captions) == (("video0",), ("a dog runs", "a dog barks"))
    assert (val.ids, val.split) == (("video1",), "val")
    assert test.ids == ("video2", "video3")
    assert test.captions == ("a man sings", "a man s song", "a man sings")
    assert test.caption_to_image.tolist() == [0, 0, 1]
    listed = read_captions(root, "train-9k")
    assert (listed.ids, listed.captions) == (("video3", "video0"), ("a man sings", "a dog runs", "a dog barks"))
    one = read_captions(root, "test-1k-A")
    assert (one.ids, one.captions) == (("video2",), ("a song",))
    assert "one sentence" in one.remarks[0]
    with pytest.raises(InputError, match="unknown split 'train-7k'"):
        read_captions(root, "train-7k")


def test_msrvtt_needs_frames(tmp_path):
    """Its frames have to be given; videos without any are skipped."""
    root = write_msrvtt(tmp_path, False)
    with pytest.raises(InputError, match=r"give them with --features PLACE \(features= in Python\)"):
        open_data(root)
    with pytest.raises(InputError, match="do not exist"):
        open_data(root, features=tmp_path / "nothing")
    np.savez(tmp_path / "x.npz", video3=frames(3))
    data = open_data(root, features=tmp_path / "x.npz")
    assert (data.images.ids, data.dropped, data.captions) == (("video3",), ("video2",), ("a man sings",))


def test_msrvtt_names_malformed_files(tmp_path):
    """A list that names unknown videos, an unknown split, a caption that is none."""
    (write_msrvtt(tmp_path, False) / "MSRVTT_train.9k.csv").write_text("video_id\nvideo0\nvideo9\n")
    with pytest.raises(InputError, match="1 of 2 videos are in no annotation file, 'video9'"):
        read_captions(tmp_path, "train-9k")
    for videos, message in (
        ({"video0": ("dev", ["x"])}, "\"split\" is 'dev'"),
        ({"video0": (["test"], ["x"])}, r"\"split\" is \['test'\], expected train, validate or test"),
        ({"\ud800": ("test", ["x"])}, r"videos\[0\]: the name '\\ud800' holds a lone surrogate"),
        ({"video0": ("test", [3])}, r"sentences\[0\]: the caption is 3, expected a sentence"),
        ({None: ("test", ["x"])}, r'videos\[0\]: "video_id" is None'),
        ({"video0": ("test", [" "])}, r"sentences\[0\]: empty caption"),
    ):
        write_json(tmp_path / "test_videodatainfo.json", msrvtt_json(videos))
        with pytest.raises(InputError, match=message):
            read_captions(tmp_path, "test")
    write_json(tmp_path / "test_videodatainfo.json", {"videos": [{"video_id": "video0", "split": "test"}]})
    with pytest.raises(InputError, match='"sentences"'):
        read_captions(tmp_path, "test")


def test_published_captions_have_single_spaces(tmp_path):
    """Words have single spaces between them, also in a caption without any letter, which stays as it is."""
    videos = {"video0": ("test", ["a\x1cdog\u2028runs", "?\x1f!"])}
    write_json(tmp_path / "msrvtt" / "test_videodatainfo.json", msrvtt_json(videos))
    assert read_captions(tmp_path / "msrvtt").captions == ("a dog runs", "? !")
    write_json(tmp_path / "vatex" / "vatex_validation.json", [{"videoID": "a", "enCap": ["A\x1cdog.", "?\x1f!"]}])
    assert read_captions(tmp_path / "vatex", "val").captions == ("a dog", "? !")


ARCHIVE = "test_videodatainfo.json.zip"
SIZE = 24  # where a zip's directory, behind its mark, says how large a file is unpacked; 14 before it how it is packed


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (SIZE, 2**29, r"has 536870912 bytes, expected at most 268435456: copy it again"),
        (SIZE - 14, 14, r"has compression 14, expected deflate"),
        (SIZE - 14, 77, r"has compression 77, expected deflate"),
    ],
)
def test_msrvtt_refuses_unsupported_archives(tmp_path, place, value, message):
    """One that announces more than any annotations have, and ways of packing that hardly anybody has."""
    root = write_msrvtt(tmp_path, True)
    content = bytearray((root / ARCHIVE).read_bytes())
    start = content.index(b"PK\x01\x02") + place
    content[start : start + (4 if place == SIZE else 2)] = value.to_bytes(4 if place == SIZE else 2, "little")
    (root / ARCHIVE).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_captions(root, "test")


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3), st.floats(0, 1), st.booleans())
def test_msrvtt_corrupt_archive_gives_captions_or_input_error(tmp_path_factory, flips, kept, packed):
    """Whatever bytes are changed, and wherever it is cut."""
    file = tmp_path_factory.mktemp("damaged") / ARCHIVE
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        archive.writestr("test_videodatainfo.json", json.dumps(msrvtt_json(TEST)))
    content = bytearray(file.read_bytes())
    for place, value in flips:
        content[place % len(content)] = value
    file.write_bytes(content[: round(kept * len(content)) if not flips else None])
    told = "nothing"
    try:
        assert read_captions(file.parent, "test").ids
    except InputError as error:
        told = str(error)
    assert len(told.splitlines()) == 1


def test_msrvtt_reads_video_of_two_files_once(tmp_path):
    """Whoever has both forms of the annotations has every sentence twice on disk: those of the official files count."""
    root = write_msrvtt(tmp_path, False)
    write_json(root / "MSRVTT_data.json", msrvtt_json(TRAIN | TEST | {"video0": ("train", ["a dog runs", "a bird"])}))
    assert read_captions(root, "train").captions == ("a dog runs", "a dog barks")
    assert read_captions(root, "train-9k").captions == ("a man sings", "a dog runs", "a dog barks")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("video2,", r"JSFUSION_test\.csv:2: empty caption"),
        ("video2", r"JSFUSION_test\.csv:2: the caption is None"),
        ("video2,x\nvideo2,y", "video2 is listed 2 times"),
        (",x", "expected rows with a column video_id"),
        ("video2,x\nvideo3," + "y" * 200_000, r"JSFUSION_test\.csv:3: field larger than field limit"),
        ('video2,x\nvideo3,"y\nvideo4,z', r"JSFUSION_test\.csv:3: unexpected end of data: check the quotation marks"),
    ],
)
def test_msrvtt_names_malformed_sentence_list(tmp_path, rows, message):
    """A row without a sentence or a video, a video twice, and a quotation mark that is never closed."""
    write_msrvtt(tmp_path, False)
    (tmp_path / "MSRVTT_JSFUSION_test.csv").write_text(f"video_id,sentence\n{rows}\n")
    with pytest.raises(InputError, match=message):
        read_captions(tmp_path, "test-1k-A")


@pytest.mark.slow
def test_msrvtt_published_files(shared_data):
    """The real files: 6,513 / 497 / 2,990 videos with 20 captions each; 7,010, 9,000 and 1,000 in the lists."""
    expected = {"train": 6513, "val": 497, "test": 2990, "train-7k": 7010, "train-9k": 9000, "test-1k-A": 1000}
    found = {split: read_captions(shared_data / "msrvtt", split) for split in expected}
    assert {split: len(one.ids) for split, one in found.items()} == expected
    for split, one in found.items():
        assert set(Counter(one.caption_to_image.tolist()).values()) == {1 if split == "test-1k-A" else 20}
    assert not set(found["train-9k"].ids) & set(found["test-1k-A"].ids)
    assert set(found["train-7k"].ids) == set(found["train"].ids) | set(found["val"].ids)


def write_vatex(folder, count: int = 9):
    entries = [{"videoID": f"v{i}", "enCap": [f"A man {i}.", "A dog."], "chCap": ["x"]} for i in range(count)]
    write_json(folder / "vatex_validation_v1.0.json", entries)
    write_json(folder / "vatex_training_v1.0.json", entries[:1])
    return folder


def test_vatex_splits_and_halves(tmp_path):
    """Official splits as they are, English captions; the halves divide the official val and say that they are ours."""
    root = write_vatex(tmp_path)
    whole = read_captions(root, "val")
    assert whole.captions[:2] == ("a man 0", "a dog")
    assert (len(whole.ids), whole.remarks) == (9, ())
    first, second = read_captions(root, "val-1500"), read_captions(root, "test-1500")
    assert set(first.ids) | set(second.ids) == set(whole.ids)
    assert len(first.ids) + len(second.ids) == 9
    assert first.ids == tuple(video for video in whole.ids if video in first.ids)
    assert "seed 0" in first.remarks[0]
    assert "4 videos here, 1500 in the whole set" in first.remarks[0]
    with pytest.raises(InputError, match="unknown split 'test'"):
        read_captions(root, "test")


@given(st.sets(st.text(min_size=1), min_size=1, max_size=20), st.integers(0, 3), st.randoms())
def test_vatex_halves_ignore_file_order(videos, seed, random):
    """The same videos in any order give the same halves, whose sizes differ by one at most."""
    names = sorted(videos)
    shuffled = random.sample(names, len(names))
    first, second = halves(names, seed)
    assert halves(shuffled, seed) == (first, second)
    assert first | second == videos
    assert not first & second
    assert 0 <= len(second) - len(first) <= 1


def test_vatex_halves_are_pinned():
    """Results are reported on them."""
    assert sorted(halves([f"v{i}" for i in range(9)])[0]) == HALF_OF_NINE


HALF_OF_NINE = ["v3", "v4", "v5", "v7"]  # the four smallest of sha256("0:v0") … sha256("0:v8")


def test_vatex_names_malformed_files(tmp_path):
    """Two versions of a file, a test without captions, entries without a name or with that of another."""
    root = write_vatex(tmp_path)
    for entries, message in (
        ([{"videoID": "a"}], '"enCap" is not a list'),
        ([{"enCap": []}], '"videoID" is None'),
        ([{"videoID": "\ud800", "enCap": []}], r"\[0\]: the name '\\ud800' holds a lone surrogate"),
        ([3], "None"),
        ([{"videoID": "a", "enCap": ["x", 3]}], r"enCap\[1\]: the caption is 3"),
        ([{"videoID": "a", "enCap": ["x"]}] * 2, "a is listed 2 times"),
        ([], "zero videos"),
    ):
        write_json(root / "vatex_training_v1.0.json", entries)
        with pytest.raises(InputError, match=message):
            read_captions(root, "train")
    write_json(root / "vatex_training_v1.1.json", [])
    with pytest.raises(InputError, match="exactly one vatex_training"):
        read_captions(root, "train")


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a man runs", "a man runs"),
        (" A man's DOG,  runs... fast! ", "a man s dog runs fast"),
        ("a t-shirt - and 20 cats", "a t-shirt and 20 cats"),
        ("he said “go”", "he said go"),
        ("Ein Mädchen läuft", "ein mädchen läuft"),
        ("?!", "?!"),
    ],
)
def test_plain_sentence_is_lower_case_without_punctuation(caption, expected):
    """Lower case without punctuation; a plain sentence stays as it is, and a caption never becomes empty."""
    assert plain_sentence(caption) == expected
    assert plain_sentence(expected) == expected


def test_video_words_stop_at_limit():
    """Thirty words, or as many as are asked for."""
    assert video_words(" ".join(map(str, range(40)))) == list(map(str, range(30)))
    assert video_words("a b c", 2) == ["a", "b"]
