"""Caption files: valid rows are read, invalid ones reported."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.data.files import read_rows
from vse.errors import InputError
from vse.index.pipeline.commits import folder_captions
from vse.index.scan import ScanLimits, read_captions


def read(root, **options):
    problems = []
    return read_captions(root, on_problem=problems.append, **options), [str(problem) for problem in problems]


def test_folder_without_caption_file(tmp_path):
    """No caption file means no captions and no problems."""
    assert read(tmp_path) == ({}, [])
    assert read(tmp_path / "absent") == ({}, [])
    (tmp_path / "captions.csv").mkdir()
    assert read(tmp_path) == ({}, [])


def test_captions_from_csv(tmp_path):
    """Rows in order, quoted commas and line breaks, deduplicated captions, and paths in non-canonical form."""
    (tmp_path / "captions.csv").write_text(
        'path,caption\na.jpg,A dog\nsub/b.jpg,"one, two\nthree"\n./a.jpg,A cat\na.jpg,A dog\n'
        f'"{tmp_path}/c.jpg",Far\nsub//./b.jpg,four\n',
        encoding="utf-8-sig",
    )
    assert read(tmp_path) == (
        {"a.jpg": ("A dog", "A cat"), "sub/b.jpg": ("one, two three", "four"), "c.jpg": ("Far",)},
        [],
    )


def test_captions_from_jsonl_and_csv(tmp_path):
    """JSONL may hold lists of texts; with both files, CSV rows come first."""
    (tmp_path / "captions.jsonl").write_text(
        '{"path": "a.jpg", "caption": ["One", "Two"]}\n\n{"path": "日.jpg", "caption": "Drei"}\n', encoding="utf-8"
    )
    assert read(tmp_path) == ({"a.jpg": ("One", "Two"), "日.jpg": ("Drei",)}, [])
    (tmp_path / "captions.csv").write_text("caption,path\nZero,a.jpg\nTwo,a.jpg\n")
    assert read(tmp_path)[0]["a.jpg"] == ("Zero", "Two", "One")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"path": "a.jpg"}', "no caption"),
        ("{", "not JSON"),
        ('{"path": 5, "caption": "x"}', "path is 5"),
        ('{"path": " ", "caption": "x"}', "path is ' '"),
        ('{"path": "../a.jpg", "caption": "x"}', "below the folder"),
        ('{"path": ".", "caption": "x"}', "below the folder"),
        ('{"path": "/etc/passwd", "caption": "x"}', "below the folder"),
        ('{"path": "a.jpg", "caption": 7}', "caption is '7'"),
        ('{"path": "a.jpg", "caption": ["x", null]}', "caption is 'None'"),
        ('{"path": "a.jpg", "caption": "  "}', "empty caption"),
        ('{"path": "a.jpg", "caption": "\\ud800"}', "expected a text"),
        (json.dumps({"path": "a.jpg", "caption": "x" * 10_001}), "10,001 characters"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_bad_caption_rows_are_reported(tmp_path, row, reason):
    """An invalid row is reported by its line and skipped; the others count."""
    good = '{"path": "good.jpg", "caption": "Good"}\n'
    (tmp_path / "captions.jsonl").write_text(f"{good}{row}\n{good}")
    captions, problems = read(tmp_path)
    assert captions == {"good.jpg": ("Good",)}
    assert len(problems) == 1
    assert problems[0].startswith("captions.jsonl: line 2: ")
    assert reason in problems[0]


def test_bad_caption_files_are_reported(tmp_path):
    """Wrong columns, invalid UTF-8 and exceeded limits are one problem each."""
    (tmp_path / "captions.csv").write_text("image,text\na.jpg,x\n")
    (tmp_path / "captions.jsonl").write_bytes(b'{"path": "a.jpg", "caption": "caf\xe9"}\n')
    captions, problems = read(tmp_path)
    assert captions == {}
    assert ["columns" in problems[0], "not UTF-8" in problems[1]] == [True, True]
    (tmp_path / "captions.csv").write_text("path,caption\na.jpg,x\nb.jpg,y\n")
    (tmp_path / "captions.jsonl").unlink()
    assert "max_caption_bytes" in read(tmp_path, limits=ScanLimits(max_caption_bytes=10))[1][0]
    captions, problems = read(tmp_path, limits=ScanLimits(max_captions=1))
    assert captions == {"a.jpg": ("x",)}
    assert "max_captions" in problems[0]


@given(st.binary(max_size=200))
def test_caption_files_of_any_bytes(tmp_path_factory, content):
    """No content raises an error."""
    root = tmp_path_factory.mktemp("captions")
    (root / "captions.csv").write_bytes(b"path,caption\n" + content)
    (root / "captions.jsonl").write_bytes(content)
    captions, problems = read(root)
    assert all(isinstance(caption, str) for texts in captions.values() for caption in texts)
    assert all(problem.isprintable() for problem in problems)


def test_captions_of_missing_files_take_no_memory(tmp_path, monkeypatch):
    """Beyond a number of paths only those of files that exist are remembered."""
    monkeypatch.setattr("vse.index.scan.captions.UNCHECKED", 3)
    (tmp_path / "there.jpg").write_bytes(b"")
    rows = [f"gone{number}.jpg,a dog" for number in range(10)] + [
        "there.jpg,a cat",
        "there.jpg,two cats",
        "gone0.jpg,x",
    ]
    (tmp_path / "captions.csv").write_text("\n".join(["path,caption", *rows]), encoding="utf-8")
    found = read_captions(tmp_path)
    assert list(found) == ["gone0.jpg", "gone1.jpg", "gone2.jpg", "there.jpg"]
    assert found["gone0.jpg"] == ("a dog", "x")
    assert found["there.jpg"] == ("a cat", "two cats")


def test_captions_take_bounded_memory(tmp_path):
    """Counted with what a text takes in memory: one emoji makes four bytes of each character."""
    texts = [f"{number:04} " + "x" * 4000 for number in range(60)]
    rows = [json.dumps({"path": f"{number % 4}.jpg", "caption": text + "🙂"}) for number, text in enumerate(texts)]
    (tmp_path / "captions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    captions, problems = read(tmp_path, limits=ScanLimits(max_captions_per_file=10))
    assert [len(each) for each in captions.values()] == [10] * 4
    assert len(problems) == 20
    assert "line 41: more than 10 captions of this file" in problems[0]
    limit = 20 * 16_000
    captions, problems = read(tmp_path, limits=ScanLimits(max_caption_memory=limit))
    assert 0.8 * limit < sum(sys.getsizeof(text) for each in captions.values() for text in each) < limit
    assert "max_caption_memory" in problems[0]


def test_problems_of_captions_are_counted_beyond_a_number(tmp_path, monkeypatch):
    """Two megabytes of broken rows are a million problems; the number is exact, and an unreadable file is listed."""
    monkeypatch.setattr("vse.index.pipeline.commits.MAX_ROW_PROBLEMS", 5)
    (tmp_path / "captions.csv").write_text("path,caption\n" + "a.jpg\n" * 30, encoding="utf-8")
    (tmp_path / "captions.jsonl").write_bytes(b"{\n" * 40 + b"\xff\n")
    found = folder_captions(tmp_path, ScanLimits())
    assert not found.complete
    reasons = [problem.reason for problem in found.problems]
    assert len(reasons) == 8
    assert "not UTF-8" in reasons[5]
    assert reasons[6:] == ["and 25 more rows that cannot be used", "and 40 more rows that cannot be used"]


def test_caption_file_that_grows_is_not_read_for_ever(tmp_path, monkeypatch):
    """The limit holds for what is read, not only for the size at the start."""
    (tmp_path / "captions.csv").write_text("path,caption\na.jpg,x\nb.jpg,y\n")
    with pytest.raises(InputError, match="more than 20 bytes"):
        list(read_rows(tmp_path / "captions.csv", lambda *_: None, max_bytes=20))


def test_endless_line_of_captions_is_refused(tmp_path, monkeypatch):
    """A caption file is read line by line, and a line has a limit."""
    monkeypatch.setattr("vse.data.files.MAX_LINE", 1000)
    (tmp_path / "captions.csv").write_text("path,caption\n" + "x" * 5000, encoding="utf-8")
    problems = []
    assert read_captions(tmp_path, on_problem=problems.append) == {}
    assert "a line of more than 1,000 bytes" in problems[0].reason
