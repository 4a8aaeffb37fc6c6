"""Contracts of tables of paths and captions."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.support import write_image

from vse.data import list_splits, open_data
from vse.errors import InputError

ROWS = [
    {"path": "a.jpg", "caption": 'says "hi", loudly', "split": "train", "id": "A"},
    {"path": "sub/b.jpg", "caption": "zwei\nZeilen", "split": "train", "id": "B"},
    {"path": "./a.jpg", "caption": " größer ", "split": "train", "id": "A"},
    {"path": "c.jpg", "caption": "three", "split": "val", "id": "C"},
]


def write_table(path: Path, rows, columns=None) -> Path:
    """Write rows with the libraries everybody uses."""
    columns = columns or list(rows[0])
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".CSV"])
def test_table_formats_are_equivalent(tmp_path, suffix):
    """A path that is repeated is one image with several captions; paths start at the folder of the file."""
    path = write_table(tmp_path / f"mine{suffix.lower()}", ROWS)
    path = path.rename(path.with_suffix(suffix))
    assert list_splits(path) == ("train", "val")
    data = open_data(path, "train")
    assert (data.name, data.layout) == ("mine", "table")
    assert data.images.paths == (tmp_path / "a.jpg", tmp_path / "sub/b.jpg")
    assert data.images.ids == ("A", "B")
    assert data.captions == ('says "hi", loudly', "zwei\nZeilen", "größer")
    assert data.caption_to_image.tolist() == [0, 1, 0]
    assert open_data(path, "dev").captions == ("three",)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_table_accepts_list_of_captions(tmp_path, suffix):
    """A list of texts is as many captions, an empty one none."""
    rows = [{"path": "a.jpg", "caption": ["x", "y"]}, {"path": "b.jpg", "caption": []}]
    data = open_data(write_table(tmp_path / f"t{suffix}", rows), "all")
    assert data.captions_of(0) == ("x", "y")
    assert data.captions_of(1) == ()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r\ufeff"), min_size=1).filter(str.strip)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), TEXT), min_size=1, max_size=5),
    st.sampled_from([".csv", ".tsv", ".jsonl"]),
)
def test_table_captions_round_trip(pairs, suffix):
    """Whatever a caption contains, it comes back as it was, without the whitespace around it."""
    rows = [{"path": path, "caption": caption} for path, caption in pairs]
    with tempfile.TemporaryDirectory() as folder:
        data = open_data(write_table(Path(folder) / f"t{suffix}", rows), "all")
    seen = [(data.images.ids[i], caption) for i, caption in zip(data.caption_to_image, data.captions, strict=True)]
    assert seen == [(path, caption.strip()) for path, caption in pairs]


def test_table_without_splits_is_one_split(tmp_path):
    """Asking a table without a split column for a split says what there is."""
    path = write_table(tmp_path / "t.csv", [{"path": "a.jpg", "caption": "x"}])
    assert list_splits(path) == ("all",)
    with pytest.raises(InputError, match=r"unknown split 'test': there is no split column.*'all'"):
        open_data(path)


def test_table_accepts_any_paths(tmp_path):
    """Absolute paths and paths upwards are the user's business; ``images`` moves the start of relative ones."""
    (tmp_path / "deep").mkdir()
    rows = [{"path": str(tmp_path / "a.jpg"), "caption": "x"}, {"path": "../b.jpg", "caption": "y"}]
    path = write_table(tmp_path / "deep/t.csv", rows)
    assert open_data(path, "all").images.paths == (tmp_path / "a.jpg", tmp_path / "b.jpg")
    (tmp_path / "x/y").mkdir(parents=True)
    moved = open_data(path, "all", images=tmp_path / "x/y").images.paths
    assert moved == (tmp_path / "a.jpg", tmp_path / "x/b.jpg")


def test_table_accepts_spreadsheet_headers(tmp_path):
    """A byte order mark, capitals, other columns, Windows line ends and blank lines do no harm."""
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeffPath,stars, Caption\r\na.jpg,5,hello\r\n\r\nb.jpg,4,there\r\n".encode())
    assert open_data(path, "all").captions == ("hello", "there")


BAD = {
    "columns": ("t.csv", "path,text\na,b\n", "columns path, text: expected path and caption"),
    "column twice": ("t.csv", "path,caption,caption\na,b,c\n", "'caption' twice"),
    "empty file": ("t.csv", "", "is empty"),
    "no rows": ("t.csv", "path,caption\n", "zero images"),
    "too many values": ("t.csv", "path,caption\na,b\na,b,c\n", r"t\.csv:3: 3 values, expected 2"),
    "line after a long row": ("t.csv", 'path,caption\na,"b\nc"\na\n', r"t\.csv:4: 1 values"),
    "open quote": ("t.csv", 'path,caption\na,"b\nc,d\n', r"t\.csv:2: .*quotation marks"),
    "empty caption": ("t.csv", "path,caption\na,b\na, \n", r"t\.csv:3: empty caption"),
    "empty path": ("t.csv", "path,caption\na,b\n ,x\n", r"t\.csv:3: path is ' '"),
    "empty split": ("t.csv", "path,caption,split\na,b,all\na,b,\n", r"t\.csv:3: split is ''"),
    "two ids": ("t.csv", "path,caption,id\na,b,1\na,c,2\n", r"t\.csv:3: id '2' for a, which is '1' at .*:2"),
    "not UTF-8": ("t.tsv", b"path\tcaption\na\t\xff\n", r"t\.tsv:2: byte 0xff is not UTF-8"),
    "not JSON": ("t.jsonl", '{"path": "a", "caption": "b"}\n{"path"\n', r"t\.jsonl:2: not JSON"),
    "no object": ("t.jsonl", '{"path": "a", "caption": "b"}\n7\n', r"t\.jsonl:2: no path and caption"),
    "no caption": ("t.jsonl", '{"path": "a", "caption": "b"}\n{"path": "b"}\n', r"t\.jsonl:2: no caption"),
    "caption a number": (
        "t.jsonl",
        '{"path": "a", "caption": "b"}\n{"path": "b", "caption": [1]}\n',
        r"t\.jsonl:2: caption is \[1\]",
    ),
    "id a list": (
        "t.jsonl",
        '{"path": "a", "caption": "b"}\n{"path": "b", "caption": "c", "id": []}\n',
        r":2: id is \[\]",
    ),
    "empty in a list": ("t.jsonl", '{"path": "a", "caption": ["b", ""]}\n', r"t\.jsonl:1, caption 2: empty caption"),
    "half a character": ("t.jsonl", '{"path": "a", "caption": ["b", "\\ud800"]}\n', r":1, caption 2: holds '\\ud800'"),
    "no Parquet": ("t.parquet", b"PAR1 not really", "cannot be read as Parquet"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_tables_are_named_by_line(tmp_path, case):
    """What is wrong with a table is one line with file and line."""
    name, content, message = BAD[case]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        open_data(tmp_path / name, "all")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_table_reports_missing_images_on_request(tmp_path):
    """Files are looked for only on request."""
    path = write_table(tmp_path / "t.csv", [{"path": n, "caption": "x"} for n in ("a.jpg", "b.jpg", "c\x01.jpg")])
    write_image(tmp_path / "a.jpg")
    assert len(open_data(path, "all").images) == 3
    with pytest.raises(InputError, match=r"2 of 3 image files are missing, .*b\.jpg"):
        open_data(path, "all", check_files=True)
