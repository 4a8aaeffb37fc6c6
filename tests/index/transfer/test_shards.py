"""Folders of Parquet shards into and out of a collection: whole or not at all, resumed, and nothing twice."""

from __future__ import annotations

import json
import resource
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.cli.search_support import error_line, reported
from tests.index.examples import VECTORS, directions, entry, picture

from vse.errors import InputError, VSEError
from vse.index import create_collection, export_embeddings, import_embeddings, open_collection, stream_items
from vse.index.transfer import exporting, importing
from vse.index.types import Entry, Moment

pyarrow = pytest.importorskip("pyarrow")
parquet_files = pytest.importorskip("pyarrow.parquet")
WIDTH = 8
ROWS = directions(20, WIDTH, seed=3)


def write_shard(path: Path, first: int, count: int, model: str = "m", width: int = WIDTH) -> Path:
    """Write a shard as ``vse embed`` does: id, path, metadata as JSON, and a list of fixed size."""
    numbers = range(first, first + count)
    vectors = directions(20, width, seed=3)[first : first + count]
    table = pyarrow.table(
        {
            "id": [f"{number}.jpg" for number in numbers],
            "path": [f"bucket/{number}.jpg" for number in numbers],
            "metadata": [json.dumps({"title": f"Title {number}", "other": 1, "root": "x"}) for number in numbers],
            "embedding": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), width),
        }
    ).replace_schema_metadata(
        {"vse-embeddings": json.dumps({"model": model, "model_source": "models/m", "shard": "x"})}
    )
    path.parent.mkdir(exist_ok=True)
    parquet_files.write_table(table, path)
    return path


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for number in range(4):
        write_shard(tmp_path / "shards" / f"shard-{number:05}-abc.parquet", 5 * number, 5)
    (tmp_path / "shards" / "failures").mkdir()
    (tmp_path / "shards" / "manifest.json").write_text("{}")
    return tmp_path / "shards"


def held(where: Path) -> dict[str, tuple[int, str | None, bytes]]:
    with closing(open_collection(where)) as collection:
        return {
            item.file.path: (item.id, item.file.title, vector.tobytes()) for item, vector in stream_items(collection)
        }


@pytest.mark.parametrize("name", ["own.vse", "own.db"])
def test_shards_are_imported_and_a_killed_import_resumes(
    tmp_path: Path, shards: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Rows that were committed keep their ids; the model is that of the shards, metadata come from their JSON."""
    if name.endswith(".db"):
        pytest.importorskip("milvus_lite")
    where = tmp_path / name
    monkeypatch.setattr(importing, "BATCH", 4)
    made: list[object] = []

    def interrupted(*arguments: object) -> Entry:
        made.append(arguments)
        if len(made) == 11:
            raise KeyboardInterrupt
        return Entry(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(importing, "Entry", interrupted)
        with pytest.raises(KeyboardInterrupt):
            import_embeddings(where, [shards])
    before = held(where)
    assert len(before) == 8
    report = import_embeddings(where, [shards])
    assert (report.rows, report.added, report.unchanged, report.info.model) == (20, 12, 8, "m")
    after = held(where)
    assert {path: after[path] for path in before} == before
    assert after["7.jpg"][1:] == ("Title 7", ROWS[7].tobytes())


def test_shards_that_do_not_belong_together_are_named(tmp_path: Path, shards: Path) -> None:
    """A truncated shard, another model, another width, an id in two shards: one line, and nothing is imported."""
    where, odd = tmp_path / "own.vse", shards / "shard-00009-abc.parquet"
    for change, reason in (
        (lambda: odd.write_bytes((shards / "shard-00001-abc.parquet").read_bytes()[:-20]), "expected a Parquet file"),
        (lambda: write_shard(odd, 0, 2, model="other"), "holds embeddings of model other"),
        (lambda: write_shard(odd, 0, 2, width=WIDTH + 1), "has 9 dimensions"),
        (lambda: write_shard(odd, 4, 2), "row 1: id '4.jpg' occurs twice"),
    ):
        change()
        with pytest.raises(InputError, match=reason) as caught:
            import_embeddings(where, [shards])
        assert odd.name in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not where.exists()
    report = import_embeddings(where, [shards], on_bad="skip")
    assert (report.added, [problem.reason[-5:] for problem in report.problems]) == (20, ["twice", "twice"])
    with pytest.raises(InputError, match=r"expected a folder with export\.json, or with \.parquet files"):
        import_embeddings(where, [tmp_path / "shards" / "failures"])


def test_second_import_at_once_is_refused(tmp_path: Path, shards: Path) -> None:
    """The collection has one writer; the first one's rows stay."""
    with closing(create_collection(tmp_path / "own.vse", model="m", dimensions=WIDTH)) as writer:
        writer.add([entry("first.jpg", VECTORS[0])])
        with pytest.raises(VSEError, match="is being written by process"):
            import_embeddings(tmp_path / "own.vse", [shards])
    assert import_embeddings(tmp_path / "own.vse", [shards]).info.files == 21


@pytest.fixture
def collection_of_moments(tmp_path: Path) -> Path:
    with closing(create_collection(tmp_path / "own.vse", model="m", dimensions=WIDTH)) as writer:
        moments = tuple(Moment(vector, float(second), second + 1.0) for second, vector in enumerate(ROWS[:6]))
        images = [entry(f"{number}.jpg", vector) for number, vector in enumerate(ROWS[6:])]
        writer.add([*images[:3], Entry(picture("v.mp4", kind="video"), moments), *images[3:]])
    return tmp_path / "own.vse"


def test_export_to_shards_is_resumed_after_a_full_disk(
    tmp_path: Path, collection_of_moments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete shards stay, the next call adds the others; a video is never split, and nothing else is left."""
    out = tmp_path / "out"
    monkeypatch.setattr(exporting, "BLOCK", 2)
    with closing(open_collection(collection_of_moments)) as collection:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        record, written = exporting._record, []

        def full_after_two(*arguments: object) -> None:
            record(*arguments)  # type: ignore[arg-type]
            written.append(arguments)
            if len(written) == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))

        monkeypatch.setattr(exporting, "_record", full_after_two)
        try:
            with pytest.raises(VSEError, match="out cannot be written") as caught:
                export_embeddings(collection, out, shard_rows=4)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "\n" not in str(caught.value)
        there = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
        assert sorted(there) == ["shard-00000.parquet", "shard-00001.parquet"]
        with pytest.raises(InputError, match="unfinished export: run the same export again"):
            import_embeddings(tmp_path / "copy.vse", [out])
        (out / "shard-00009.parquet").write_bytes(b"renamed, not recorded")
        report = export_embeddings(collection, out, shard_rows=4)
    assert (report.items, report.files) == (20, 15)
    assert {name: (out / name).read_bytes() for name in there} == there
    sizes = [parquet_files.read_metadata(path).num_rows for path in sorted(out.glob("*.parquet"))]
    assert sizes == [9, 4, 4, 3], "the first one ends after the video"
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".parquet") == ["shards.json"]
    copy = import_embeddings(tmp_path / "copy.vse", [out])
    assert (copy.info.files, copy.info.items, copy.info.model) == (15, 20, "m")
    assert held(tmp_path / "copy.vse").keys() == held(collection_of_moments).keys()


def test_import_of_an_export_that_is_not_whole_is_refused(tmp_path: Path, collection_of_moments: Path) -> None:
    """A shard that is missing, foreign or of another export is named before anything is imported."""
    with closing(open_collection(collection_of_moments)) as collection:
        export_embeddings(collection, tmp_path / "out", shard_rows=5)
    second, last = (tmp_path / "out" / f"shard-0000{number}.parquet" for number in (1, 3))
    content, record = second.read_bytes(), tmp_path / "out" / "shards.json"
    for change, reason in (
        (second.unlink, "shard-00001.parquet is missing: fetch the export again"),
        (lambda: shutil.copy(last, second), "shard-00001.parquet has 1 rows, shards.json says 5"),
        (lambda: shutil.copy(last, last.with_name("more.parquet")), "more.parquet is no shard of the export there"),
        (lambda: record.write_text(record.read_text().replace('"name"', '"n"')), r"shards\.json cannot be read"),
    ):
        change()
        with pytest.raises(InputError, match=reason):
            import_embeddings(tmp_path / "copy.vse", [tmp_path / "out"])
        second.write_bytes(content)
    assert not (tmp_path / "copy.vse").exists()
    assert import_embeddings(tmp_path / "copy.vse", [second, last]).info.items == 6


def test_export_to_shards_does_not_mix_two_states(tmp_path: Path, collection_of_moments: Path) -> None:
    """A collection that changed since, or a folder of something else, is refused; a complete export too."""
    out = tmp_path / "out"
    (tmp_path / "other").mkdir()
    with closing(open_collection(collection_of_moments, write=True)) as writer:
        export_embeddings(writer, out, shard_rows=5)
        with pytest.raises(InputError, match="exists already, and is complete"):
            export_embeddings(writer, out, shard_rows=5)
        state = json.loads((out / "shards.json").read_text())
        (out / "shards.json").write_text(json.dumps({**state, "complete": False}))
        writer.remove([("/photos", "0.jpg")])
        with pytest.raises(InputError, match="the collection has changed"):
            export_embeddings(writer, out, shard_rows=5)
        for folder, rows in ((tmp_path / "other", 5), (tmp_path / "new", 0), (tmp_path / "new.parquet", 5)):
            with pytest.raises(InputError, match=r"exists already|shards of"):
                export_embeddings(writer, folder, shard_rows=rows)


def test_export_command_writes_shards(
    tmp_path: Path, collection_of_moments: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into a collection in Milvus and back, embeddings and metadata are the same bit by bit."""
    pytest.importorskip("milvus_lite")
    done = reported("collection", "export", collection_of_moments, tmp_path / "out", "--shard-rows", 6)
    assert (done["items"], done["files"]) == (20, 15)
    assert reported("collection", "import", tmp_path / "own.db", tmp_path / "out")["items"] == 20
    assert reported("collection", "export", tmp_path / "own.db", tmp_path / "again", "--shard-rows", 6)["files"] == 15
    assert reported("collection", "import", tmp_path / "copy.vse", tmp_path / "again")["added"] == 15
    with closing(open_collection(collection_of_moments)) as one, closing(open_collection(tmp_path / "copy.vse")) as two:
        first, second = (
            {(item.file, item.start): vector.tobytes() for item, vector in stream_items(each)} for each in (one, two)
        )
        assert first == second
    assert "exists already" in error_line(capsys, 1, "collection", "export", collection_of_moments, tmp_path / "out")
    assert np.isfinite(ROWS).all()


def test_transfer_through_urls_equals_local_files(shards: Path, tmp_path: Path) -> None:
    """Shards, a folder and a Parquet file in an object store are written and read as on a disk, ids included."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in shards.glob("*.parquet"):
        memory.pipe_file(f"/in/{path.name}", path.read_bytes())
    reported("collection", "import", tmp_path / "local.vse", shards)
    done = reported("collection", "import", tmp_path / "remote.vse", "memory://in")
    assert (done["rows"], done["added"]) == (20, 20)
    assert held(tmp_path / "remote.vse") == held(tmp_path / "local.vse")
    assert reported("collection", "import", tmp_path / "remote.vse", "memory://in")["unchanged"] == 20
    for number, (out, options) in enumerate((("out", ()), ("a/out.parquet", ()), ("parts", ("--shard-rows", 7)))):
        url = f"memory://made/{out}"
        report = reported("collection", "export", tmp_path / "remote.vse", url, *options)
        assert (report["out"], report["items"]) == (url, 20)
        local = tmp_path / out.replace("/", "-")
        reported("collection", "export", tmp_path / "remote.vse", local, *options)
        reported("collection", "import", tmp_path / f"{number}.vse", url)
        assert held(tmp_path / f"{number}.vse") == held(tmp_path / "local.vse")
        made = {path.name: path.read_bytes() for path in ([local] if local.is_file() else local.iterdir())}
        wanted = {name if len(made) > 1 else "out.parquet": content for name, content in made.items()}
        assert {
            name: memory.cat_file(f"/made/{out}/{name}" if len(made) > 1 else f"/made/{out}") for name in wanted
        } == wanted
        with (
            pytest.raises(InputError, match="exists already"),
            closing(open_collection(tmp_path / "0.vse")) as held_there,
        ):
            export_embeddings(held_there, url, shard_rows=7 if options else None)
    assert not list(Path.cwd().glob("memory:*"))
    with pytest.raises(InputError, match=r"memory://in/none\.parquet does not exist"):
        import_embeddings(tmp_path / "x.vse", ["memory://in/none.parquet"])


def test_incomplete_folder_of_embed_is_not_imported(tmp_path: Path) -> None:
    """A shard that is missing or empty is an error that says what completes the folder; its files can be named."""
    from tests.batch.support_batch import COUNT, SHARD, write_folder

    from vse.batch import embed

    source, into = write_folder(tmp_path / "images"), tmp_path / "shards"
    embed(source, into, shard_size=SHARD, threads=1, shard=(1, 2))
    with pytest.raises(InputError, match="has 2 of 3 shards: the same 'vse embed' completes it"):
        import_embeddings(tmp_path / "x.vse", [into])
    assert import_embeddings(tmp_path / "x.vse", sorted(into.glob("shard-*"))).added == COUNT - SHARD
    embed(source, into, shard_size=SHARD, threads=1)
    assert import_embeddings(tmp_path / "x.vse", [into]).added == SHARD
