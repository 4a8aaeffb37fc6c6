"""Embeddings into and out of a collection: what is written is read again, and nothing invalid gets in."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.cli.search_support import error_line, reported

from vse.errors import InputError
from vse.index import (
    Entry,
    Filter,
    MediaFile,
    Moment,
    create_collection,
    export_embeddings,
    import_embeddings,
    open_collection,
    search,
    search_encoded,
    stream_items,
    vector_query,
)
from vse.index.transfer import importing, parquet, sources

pyarrow = pytest.importorskip("pyarrow")
parquet_files = pytest.importorskip("pyarrow.parquet")
WIDTH = 6
GENERATOR = np.random.default_rng(7)
VECTORS = GENERATOR.standard_normal((20, WIDTH)).astype(np.float32)
UNITS = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
ROWS = [
    {"id": f"group/{number}", "title": f"Title {number}", "keywords": ["red", f"n{number}"], "taken": "2024-05-31"}
    for number in range(len(VECTORS))
]


def write_npy(folder: Path, vectors: np.ndarray = VECTORS, name: str = "vectors.npy") -> Path:
    np.save(folder / name, vectors)
    return folder / name


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path: Path, rows: list[dict], vectors: np.ndarray | None = VECTORS, **options: object) -> Path:
    table = pyarrow.Table.from_pylist(rows)
    if vectors is not None:
        table = table.append_column("embedding", pyarrow.array(list(vectors), pyarrow.list_(pyarrow.float32())))
    parquet_files.write_table(table, path, **options)
    return path


def held(where: Path) -> dict[str, tuple[int, MediaFile, np.ndarray]]:
    """Id, file and embedding of each item, by path and start."""
    with closing(open_collection(where)) as collection:
        found = list(stream_items(collection, block=3))
    return {f"{item.file.path}@{item.start}": (item.id, item.file, vector) for item, vector in found}


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    return [write_npy(tmp_path), write_jsonl(tmp_path / "rows.jsonl", ROWS)]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "json", "parquet", "one parquet", "one jsonl", "none"])
def test_import_reads_each_kind_of_file(tmp_path, kind):
    """Embeddings are normalised and found by vector, whatever file they and their metadata came in."""
    vectors = [write_npy(tmp_path)]
    if kind == "csv":
        with (tmp_path / "rows.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROWS[0]))
            writer.writeheader()
            writer.writerows({**row, "keywords": ";".join(row["keywords"])} for row in ROWS)
        files = [*vectors, tmp_path / "rows.csv"]
    elif kind == "json":
        (tmp_path / "rows.json").write_text(json.dumps(ROWS))
        files = [*vectors, tmp_path / "rows.json"]
    elif kind == "jsonl":
        files = [*vectors, write_jsonl(tmp_path / "rows.jsonl", ROWS)]
    elif kind == "parquet":
        files = [*vectors, write_parquet(tmp_path / "rows.parquet", ROWS, None)]
    elif kind == "one parquet":
        files = [write_parquet(tmp_path / "rows.parquet", ROWS, row_group_size=7)]
    elif kind == "one jsonl":
        rows = [{**row, "embedding": vector.tolist()} for row, vector in zip(ROWS, VECTORS, strict=True)]
        files = [write_jsonl(tmp_path / "rows.jsonl", rows)]
    else:
        files = vectors
    report = import_embeddings(tmp_path / "own.vse", files, model="mine")
    assert (report.rows, report.added, report.info.model, report.info.dimensions) == (20, 20, "mine", WIDTH)
    with closing(open_collection(tmp_path / "own.vse")) as collection:
        (best,) = search_encoded(collection, vector_query(VECTORS[4] * 30, collection), 1).results
        assert best.score == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(collection.vectors([best.id])[0], UNITS[4], atol=1e-6)
        file = best.item.file
        if kind == "none":
            assert (file.root, file.path) == ("imported", "vectors/4")
            return
        assert (file.path, file.title, file.keywords) == ("group/4", "Title 4", ("red", "n4"))
        assert file.taken == 1717113600.0
        found = search_encoded(collection, vector_query(VECTORS[4], collection), 9, where=Filter(words=("n5",)))
        assert [each.item.file.path for each in found.results] == ["group/5"]


def test_import_again_changes_nothing(tmp_path, pair):
    """Unchanged rows keep their ids, changed ones are replaced, in any order."""
    where = tmp_path / "own.vse"
    import_embeddings(where, pair)
    before = held(where)
    again = import_embeddings(where, pair)
    assert (again.added, again.replaced, again.unchanged) == (0, 0, 20)
    assert {name: found[0] for name, found in held(where).items()} == {name: found[0] for name, found in before.items()}
    vectors = VECTORS[::-1].copy()
    vectors[0] = -vectors[0]
    rows = [dict(row) for row in ROWS[::-1]]
    rows[1]["title"] = "Another"
    report = import_embeddings(where, [write_npy(tmp_path, vectors), write_jsonl(tmp_path / "rows.jsonl", rows)])
    assert (report.added, report.replaced, report.unchanged) == (0, 2, 18)
    after = held(where)
    assert {name for name in after if after[name][0] != before[name][0]} == {"group/19@None", "group/18@None"}
    np.testing.assert_allclose(after["group/19@None"][2], -UNITS[19], atol=1e-6)


@pytest.mark.parametrize("out", ["out", "out.parquet"])
def test_export_is_imported_bit_by_bit(tmp_path, out):
    """Metadata, moments of videos and embeddings come back as they were, under the same model."""
    where = tmp_path / "own.vse"
    times = [(None, None), (0.0, 2.0), (1.0, 3.5), (None, None)]
    first = MediaFile(
        "/a b", "x/ä.jpg", "image", 5, 6, "d1", 7, 8, 9.5, 48.1, 11.5, None, ("a dog",), "Leica", "Munich"
    )
    video = MediaFile("/a b", "clip.mp4", "video", 5, -6, "d2", 7, 8, duration=3.5, keywords=("k 1", "k2"), ocr="")
    last = MediaFile("own", "z", "image", 0, 0, "d3", 0, 0, title="t", description="d")
    moments = [Moment(vector, *span) for vector, span in zip(UNITS[:4], times, strict=True)]
    with closing(create_collection(where, model="fingerprint", model_source="models/m", dimensions=WIDTH)) as made:
        made.add([Entry(first, (moments[0],)), Entry(video, tuple(moments[1:3])), Entry(last, (moments[3],))])
        report = export_embeddings(made, tmp_path / out)
    assert (report.items, report.files, report.dimensions) == (4, 3, WIDTH)
    again = import_embeddings(tmp_path / "copy.vse", [tmp_path / out])
    assert (again.info.model, again.info.model_source) == ("fingerprint", "models/m")
    assert (again.info.files, again.info.items) == (3, 4)
    for name, (_, file, vector) in held(where).items():
        copy = held(tmp_path / "copy.vse")[name]
        assert copy[1] == file
        np.testing.assert_array_equal(copy[2], vector)
    assert import_embeddings(where, [tmp_path / out]).unchanged == 3
    with pytest.raises(InputError, match="exists already"):
        export_embeddings(open_collection(where), tmp_path / out)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_exported_npy_is_a_plain_matrix(tmp_path, pair):
    """NumPy reads it without vse, row by row with the lines of metadata."""
    import_embeddings(tmp_path / "own.vse", pair)
    with closing(open_collection(tmp_path / "own.vse")) as collection:
        export_embeddings(collection, tmp_path / "out")
    matrix = np.load(tmp_path / "out" / "embeddings.npy", allow_pickle=False)
    lines = [json.loads(line) for line in (tmp_path / "out" / "items.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [row["id"] for row in ROWS]
    np.testing.assert_allclose(matrix, UNITS, atol=1e-6)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": ""}, "neither 'id' nor 'path'"),
        ({"id": "group/1"}, "occurs twice"),
        ({"id": "/etc/passwd"}, "begins with '/'"),
        ({"id": "x\0"}, "without NUL"),
        ({"id": "x", "kind": "text"}, "kind 'text': expected image or video"),
        ({"id": "x", "taken": "yesterday"}, "taken 'yesterday'"),
        ({"id": "x", "latitude": 91}, "out of range"),
        ({"id": "x", "width": -1}, "width '-1'"),
        ({"id": "x", "start": 3}, "a moment from 3.0 to None"),
        ({"id": "x", "start": 3, "end": 2}, "a moment from 3.0 to 2.0"),
        ({"id": "x", "keywords": {"a": 1}}, "keywords: expected a list"),
        ({"id": "x", "title": "a\ud800"}, "lone surrogate"),
        ({"id": "x", "title": 7}, "title is int"),
        ({"id": True}, "id is bool"),
    ],
)
def test_import_refuses_invalid_metadata(tmp_path, row, reason):
    """The error names the row; nothing is written, not even an empty collection."""
    rows = [*ROWS[:5], row, *ROWS[6:]]
    files = [write_npy(tmp_path), write_jsonl(tmp_path / "rows.jsonl", rows)]
    with pytest.raises(InputError, match=r"rows\.jsonl, row 6: ") as error:
        import_embeddings(tmp_path / "own.vse", files)
    assert reason in str(error.value)
    assert not (tmp_path / "own.vse").exists()
    report = import_embeddings(tmp_path / "own.vse", files, on_bad="skip")
    assert (report.rows, report.added, len(report.problems)) == (20, 19, 1)
    assert reason in report.problems[0].reason


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_import_refuses_embeddings_without_direction(tmp_path, pair, value):
    """NaN, infinity and zero: an existing collection stays as it was, and skipping leaves out just this row."""
    import_embeddings(tmp_path / "own.vse", pair)
    vectors = VECTORS + 1
    vectors[3] = value
    files = [write_npy(tmp_path, vectors), pair[1]]
    before = held(tmp_path / "own.vse")
    with pytest.raises(InputError, match="row 4: the embedding"):
        import_embeddings(tmp_path / "own.vse", files)
    after = held(tmp_path / "own.vse")
    assert {name: found[0] for name, found in after.items()} == {name: found[0] for name, found in before.items()}
    report = import_embeddings(tmp_path / "own.vse", files, on_bad="skip")
    assert (report.replaced, len(report.problems), report.info.files) == (19, 1, 20)


def damaged_files(folder: Path) -> dict[str, str]:
    """Write files that must be refused; return the reason of each."""
    whole = write_npy(folder).read_bytes()
    (folder / "short.npy").write_bytes(whole[:-10])
    (folder / "text.npy").write_bytes(b"no array")
    np.save(folder / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.save(folder / "flat.npy", VECTORS[0])
    np.save(folder / "whole.npy", VECTORS.astype(int))
    good = write_parquet(folder / "good.parquet", ROWS).read_bytes()
    (folder / "cut.parquet").write_bytes(good[: len(good) // 2])
    (folder / "zeros.parquet").write_bytes(good[:40] + bytes(200) + good[240:])
    write_parquet(folder / "text.parquet", [{**row, "embedding": "1,2"} for row in ROWS], None)
    write_parquet(folder / "ragged.parquet", ROWS, [*VECTORS[:-1], VECTORS[0][:4]])
    write_parquet(folder / "bomb.parquet", [{"id": str(n), "title": "x" * 10**6} for n in range(20)])
    (folder / "broken.jsonl").write_text('{"id": "a", "embedding": [1, 2]}\n{"id": ')
    (folder / "narrow.jsonl").write_text('{"id": "a", "embedding": [1, 2]}\n{"id": "b", "embedding": [1]}\n')
    (folder / "words.jsonl").write_text('{"id": "a", "embedding": ["1", 2]}\n')
    (folder / "deep.jsonl").write_text('{"id": ' + "[" * 100_000 + "\n")
    return {
        "short.npy": "is truncated",
        "text.npy": "is not a .npy file",
        "pickled.npy": "holds Python objects, which are not unpickled",
        "flat.npy": "expected (rows, dimensions)",
        "whole.npy": "expected float16, float32 or float64",
        "cut.parquet": "expected a Parquet file",
        "zeros.parquet": "cannot be read",
        "text.parquet": "expected lists of floating-point numbers",
        "ragged.parquet": "differ in width",
        "bomb.parquet": "a text of 1,000,000 bytes",
        "broken.jsonl": "line 2 is no JSON",
        "narrow.jsonl": "row 2: an embedding of 1 numbers, expected 2",
        "words.jsonl": "expected an embedding, a list of numbers",
        "deep.jsonl": "is no JSON",
        "nothing.npy": "does not exist",
        "nothing.txt": "is no file of embeddings",
    }


def test_import_refuses_damaged_files(tmp_path):
    """One line that names the file and the reason; nothing is created, nothing is unpickled."""
    for name, reason in damaged_files(tmp_path).items():
        with pytest.raises(InputError) as error:
            import_embeddings(tmp_path / "own.vse", [tmp_path / name], on_bad="skip")
        assert reason in str(error.value)
        assert name in str(error.value)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "own.vse").exists()


@pytest.mark.parametrize("rows", [ROWS[:-1], [*ROWS, {"id": "more"}]])
def test_import_refuses_metadata_of_other_length(tmp_path, rows):
    """A row too few or too many would shift the embeddings."""
    files = [write_npy(tmp_path), write_jsonl(tmp_path / "rows.jsonl", rows)]
    with pytest.raises(InputError, match="expected one row of metadata for each embedding"):
        import_embeddings(tmp_path / "own.vse", files)


def test_import_refuses_what_does_not_fit_the_collection(tmp_path, pair):
    """Another width or another model."""
    import_embeddings(tmp_path / "own.vse", pair, model="mine")
    wide = write_npy(tmp_path, np.ones((2, WIDTH + 1)), "wide.npy")
    with pytest.raises(InputError, match=r"has 7 dimensions, and .* 6"):
        import_embeddings(tmp_path / "own.vse", [wide])
    with pytest.raises(InputError, match="holds embeddings of model mine, not of other"):
        import_embeddings(tmp_path / "own.vse", pair, model="other")
    with pytest.raises(InputError, match=r"wide\.npy has 7 dimensions"):
        import_embeddings(tmp_path / "two.vse", [*pair, wide])


def test_import_is_resumed_after_an_interruption(tmp_path, pair, monkeypatch):
    """What was committed stays and keeps its ids; the same call adds the rest."""
    monkeypatch.setattr(importing, "BATCH", 4)
    add = importing.Entry
    made = []

    def interrupted(*arguments):
        made.append(arguments)
        if len(made) == 11:
            raise KeyboardInterrupt
        return add(*arguments)

    monkeypatch.setattr(importing, "Entry", interrupted)
    with pytest.raises(KeyboardInterrupt):
        import_embeddings(tmp_path / "own.vse", pair)
    before = held(tmp_path / "own.vse")
    assert len(before) == 8
    report = import_embeddings(tmp_path / "own.vse", pair)
    assert (report.added, report.unchanged) == (12, 8)
    after = held(tmp_path / "own.vse")
    assert len(after) == 20
    assert all(after[name][0] == before[name][0] for name in before)


def test_import_holds_few_rows_in_memory(tmp_path, monkeypatch):
    """Blocks are bounded in rows and bytes, for each kind of source."""
    monkeypatch.setattr(sources, "BLOCK_ROWS", 6)
    rows = [{**row, "embedding": vector.tolist()} for row, vector in zip(ROWS, VECTORS, strict=True)]
    files = [write_npy(tmp_path), write_parquet(tmp_path / "a.parquet", ROWS), write_jsonl(tmp_path / "b.jsonl", rows)]
    for file in files:
        (source,) = sources.open_sources([file])
        lengths = [len(list(block.rows)) for block in source.blocks()]
        assert lengths == [6, 6, 6, 2]
    monkeypatch.setattr(sources, "BLOCK_BYTES", 8 * WIDTH * 2)
    assert max(len(block.vectors) for block in sources.open_sources(files[:1])[0].blocks()) == 2


def test_parquet_row_groups_are_bounded(tmp_path, monkeypatch):
    """A file that declares more than fits into memory is refused before it is decompressed."""
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    monkeypatch.setattr(parquet, "MAX_GROUP_BYTES", 100)
    with pytest.raises(InputError, match="write smaller row groups"):
        import_embeddings(tmp_path / "own.vse", [path])


def test_search_of_own_embeddings_by_text_says_why_not(tmp_path, pair, capsys):
    """There is no model to encode a text with; items and vectors work."""
    where = tmp_path / "own.vse"
    import_embeddings(where, pair, model="mine")
    with closing(open_collection(where)) as collection:
        with pytest.raises(InputError, match="'mine', which are computed elsewhere: search by a vector"):
            search(collection, "a dog")
        for wrong in (np.zeros(WIDTH), [1.0] * 5, [np.nan] * WIDTH, "text", [10**400] * WIDTH):
            with pytest.raises(InputError, match="vector"):
                vector_query(wrong, collection)
        tiny = search_encoded(collection, vector_query(VECTORS[2].astype(float) * 1e-200, collection), 1)
        assert tiny.results[0].item.file.path == "group/2"
    assert "computed elsewhere" in error_line(capsys, 1, "search", where, "a dog")
    (tmp_path / "photos").mkdir()
    line = error_line(capsys, 1, "index", tmp_path / "photos", "--into", where)
    assert "'vse collection import' adds to it" in line
    found = reported("search", where, "--like", 3, "-k", 4)["results"]
    assert len(found) == 4
    assert {each["confidence"] for each in found} == {None}


def test_collection_commands_import_export_and_remove(tmp_path, pair, capsys):
    """The commands report what they did, as text and as JSON; removal takes the names that search shows."""
    where = tmp_path / "own.vse"
    write_jsonl(pair[1], [{**row, "colour": "red"} for row in ROWS])
    done = reported("collection", "import", where, *pair, "--root", "own")
    assert (done["added"], done["files"], done["ignored"], done["problems"]) == (20, 20, ["colour"], [])
    assert reported("collection", "export", where, tmp_path / "out")["items"] == 20
    assert reported("collection", "remove", where, "own/group/3", "own/group/7")["files"] == 18
    assert reported("collection", "import", where, tmp_path / "out")["added"] == 2
    line = error_line(capsys, 1, "collection", "export", where, tmp_path / "out")
    assert "exists already" in line


def test_import_and_export_on_milvus(tmp_path, pair):
    """The same calls on another backend: known ids stay, and a copy in a folder has the same embeddings."""
    pytest.importorskip("milvus_lite")
    where = tmp_path / "own.db"
    report = import_embeddings(where, pair, model="mine")
    assert (report.added, report.info.backend, report.info.items) == (20, "milvus", 20)
    again = import_embeddings(where, pair)
    assert (again.replaced, again.unchanged) == (0, 20)
    with closing(open_collection(where)) as collection:
        assert export_embeddings(collection, tmp_path / "out").items == 20
    assert import_embeddings(tmp_path / "copy.vse", [tmp_path / "out"]).info.model == "mine"
    copy = held(tmp_path / "copy.vse")
    np.testing.assert_allclose(copy["group/4@None"][2], UNITS[4], atol=1e-6)
    assert (copy["group/4@None"][1].title, copy["group/4@None"][1].keywords) == ("Title 4", ("red", "n4"))
