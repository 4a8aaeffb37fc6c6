"""Contracts of ``vse embed``: one result for every source and every division of the work, and nothing lost."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fsspec
import numpy as np
import pyarrow
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import parquet
from tests.batch.support_batch import (
    CAPTIONS,
    COUNT,
    NAMES,
    SHARD,
    contents,
    expected,
    files,
    image_table,
    model,
    read_shards,
    write_folder,
    write_parquet,
    write_tars,
)

from vse.batch import StoreError, embed, store
from vse.cli.main import main
from vse.errors import InputError
from vse.progress import SilentProgress


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("source") / "photos")


@pytest.fixture(scope="module")
def whole(photos, tmp_path_factory) -> Path:
    """A job that ran without interruption."""
    into = tmp_path_factory.mktemp("whole") / "out"
    embed(photos, into, shard_size=SHARD, threads=1)
    return into


def run(*arguments: object) -> int:
    return main(["embed", *map(str, arguments), "--threads", "1", "--shard-size", str(SHARD)])


def make_source(kind: str, folder: Path) -> str:
    """The same images as a folder, a list, tars, Parquet with bytes or with paths, or behind a URL."""
    images = write_folder(folder / "images")
    if kind == "list":
        (folder / "list.txt").write_text("# mine\n" + "".join(f"images/{name}\n" for name in NAMES))
        return str(folder / "list.txt")
    if kind == "tars":
        return f"{write_tars(folder / 'tars')}/{{00..01}}.tar"
    if kind.startswith("parquet"):
        write_parquet(folder / "rows.parquet")
        if kind == "parquet paths":
            parquet.write_table(pyarrow.table({"path": [f"images/{name}" for name in NAMES]}), folder / "rows.parquet")
        return str(folder / "*.parquet")
    if kind == "arrow":
        with pyarrow.ipc.new_stream(str(folder / "data.arrow"), image_table().schema) as writer:
            writer.write_table(image_table(), max_chunksize=2)
        return str(folder / "data.arrow")
    if kind.startswith("memory"):
        write_parquet(folder / "parquet/bytes.parquet")
        local = {"memory tars": write_tars(folder / "tars"), "memory folder": images}.get(kind, folder / "parquet")
        for path in local.iterdir():
            fsspec.filesystem("memory").pipe_file(f"/{kind[7:]}/{path.name}", path.read_bytes())
        return f"memory://{kind[7:]}"
    return images.as_uri() if kind == "file url" else str(images)


KINDS = ["folder", "file url", "list", "tars", "parquet bytes", "parquet paths", "arrow"]
URLS = ["memory tars", "memory folder", "memory parquet"]


@pytest.mark.parametrize("kind", KINDS + URLS)
def test_embeddings_do_not_depend_on_packing(kind, tmp_path):
    """Each kind of source gives the embeddings that the model computes, in order, with distinct ids."""
    report = embed(make_source(kind, tmp_path), tmp_path / "out", shard_size=SHARD, threads=1)
    assert (report.items, report.embedded, report.failed, report.shards, report.remaining) == (COUNT, COUNT, 0, 3, 0)
    table, vectors = read_shards(tmp_path / "out")
    tars = kind in {"tars", "memory tars"}  # a shard is of one file
    np.testing.assert_array_equal(vectors, expected((0, 3, 4, COUNT)) if tars else expected())
    assert len(set(table.column("id").to_pylist())) == COUNT
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32(), vectors.shape[1])
    if tars:
        rows = [json.loads(text) for text in table.column("metadata").to_pylist()]
        assert rows == [{"width": 40 + number, "caption": CAPTIONS[number]} for number in range(COUNT)]


def test_four_workers_write_what_one_writes(photos, whole, tmp_path, capsys):
    """The shards of ``--shard I/N`` together are those of one process, byte by byte."""
    for part in (2, 4, 1, 3):
        assert run(photos, "--into", tmp_path / "out", "--shard", f"{part}/4", "--json") == 0
    assert json.loads(capsys.readouterr().out.rpartition("}\n{")[2].join("{ "))["remaining"] == 0
    assert files(tmp_path / "out") == files(whole)


def test_killed_job_resumes_with_missing_shards_only(photos, whole, tmp_path):
    """After SIGKILL whole shards alone are there; the same command computes the rest."""
    into = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "vse",
        "embed",
        photos,
        "--into",
        into,
        "--shard-size",
        str(SHARD),
        "--threads",
        "1",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list(into.glob("shard-*")):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    there = files(into)
    assert all(files(whole)[name] == content for name, content in there.items() if name.startswith("shard"))
    report = embed(photos, into, shard_size=SHARD, threads=1)
    assert report.computed + report.skipped == 3
    assert report.skipped >= 1
    assert files(into) == files(whole)


def test_two_jobs_share_a_destination(photos, whole, tmp_path):
    """Jobs that start together on a new destination both succeed and leave the files of one."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            embed(photos, tmp_path / "out", shard_size=SHARD, threads=1)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert files(tmp_path / "out") == files(whole)


def test_destination_of_other_work_is_refused(photos, whole, tmp_path, capsys):
    """Another source, shard size, type or model is one line and changes nothing."""
    before = files(whole)
    other = write_folder(tmp_path / "other")
    (other / NAMES[0]).write_bytes(contents()[1])
    for arguments, message in (
        ([photos, "--into", whole, "--dtype", "float16"], "another type of numbers"),
        ([photos, "--into", whole, "--text", "caption"], "has no column 'caption'"),
        ([photos, "--into", whole, "--format", "clip-retrieval"], "another format"),
        ([photos, "--into", whole, "--batch-size", "8"], "another batch size"),
        ([other, "--into", whole], "another source"),
        ([photos, "--into", photos / "out"], "inside the source"),
        ([tmp_path / "none", "--into", tmp_path / "o"], "does not exist or is empty"),
    ):
        assert run(*arguments) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(InputError, match="another shard size"):
        embed(photos, whole, shard_size=SHARD + 1)
    assert files(whole) == before
    copied = tmp_path / "copied"
    for name, content in before.items():
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).write_bytes(content.replace(model().fingerprint().encode(), b"another"))
    with pytest.raises(InputError, match="another model"):
        embed(photos, copied, shard_size=SHARD)
    (copied / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest\.json"):
        embed(photos, copied, shard_size=SHARD)
    (copied / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="cannot be used"):
        embed(photos, copied, shard_size=SHARD)


def test_foreign_shard_in_destination_is_refused(photos, tmp_path):
    """A shard that another model wrote does not count as done."""
    embed(photos, tmp_path / "out", shard_size=SHARD, threads=1, shard=(1, 3))
    shard = next((tmp_path / "out").glob("shard-00000-*"))
    shard.rename(shard.with_name("shard-00001-0123456789ab.parquet"))
    with pytest.raises(InputError, match="another model or source wrote it"):
        embed(photos, tmp_path / "out", shard_size=SHARD, threads=1)


def test_bad_images_are_listed_with_reasons(tmp_path):
    """An image that cannot be read is left out of its shard and listed in a Parquet file; the rest is embedded."""
    source = write_folder(tmp_path / "images")
    (source / "bad.png").write_bytes(b"no image")
    (tmp_path / "list.txt").write_text(f"images/{NAMES[0]}\nimages/bad.png\nimages/gone.png\nmemory://gone/x.png\n")
    report = embed(tmp_path / "list.txt", tmp_path / "out", shard_size=SHARD, threads=1)
    assert (report.embedded, report.failed) == (1, 3)
    rows = [
        row for path in sorted((tmp_path / "out/failures").iterdir()) for row in parquet.read_table(path).to_pylist()
    ]
    assert [row["path"] for row in rows] == ["images/bad.png", "images/gone.png", "memory://gone/x.png"]
    assert [bool(row["reason"]) for row in rows] == [True] * 3
    assert read_shards(tmp_path / "out")[0].column("path").to_pylist() == [f"images/{NAMES[0]}"]


def test_shards_are_imported_and_searched(tmp_path, capsys):
    """``vse collection import`` takes the shards with their model, one without a readable image included."""
    source = write_folder(tmp_path / "images")
    for name in NAMES[:SHARD]:
        (source / name).write_bytes(b"no image")
    assert run(source, "--into", tmp_path / "out") == 0
    shards = sorted(map(str, (tmp_path / "out").glob("shard-*.parquet")))
    assert main(["collection", "import", str(tmp_path / "x.vse"), *shards]) == 0
    assert f"{COUNT - SHARD} embeddings of model {model().fingerprint()}" in capsys.readouterr().out


@pytest.mark.parametrize("url", [False, True])
def test_clip_retrieval_files_hold_images_and_texts(tmp_path, url):
    """``img_emb``, ``text_emb`` and ``metadata`` have the same rows; a sample without a caption is a failure."""
    table = image_table().to_pylist()
    table[2]["caption"] = None
    parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "rows.parquet")
    into = tmp_path / "out"
    report = embed(
        tmp_path / "rows.parquet",
        "memory://clip/out" if url else into,
        shard_size=SHARD,
        threads=1,
        format="clip-retrieval",
        dtype="float16",
        text="caption",
    )
    assert (report.embedded, report.failed) == (COUNT - 1, 1)
    if url:
        fsspec.filesystem("memory").get("memory://clip/out", str(into), recursive=True)
    kept = [number for number in range(COUNT) if number != 2]
    images = np.concatenate([np.load(path) for path in sorted((into / "img_emb").iterdir())])
    texts = np.concatenate([np.load(path) for path in sorted((into / "text_emb").iterdir())])
    np.testing.assert_array_equal(images, expected()[kept].astype(np.float16))
    batches = [[n for n in kept if n // SHARD == shard] for shard in range(3)]
    wanted = [model().encode_texts([CAPTIONS[n] for n in batch], unknown="allow") for batch in batches]
    np.testing.assert_array_equal(texts, np.concatenate(wanted).astype(np.float16))
    rows = pyarrow.concat_tables(parquet.read_table(path) for path in sorted((into / "metadata").iterdir()))
    assert rows.column("caption").to_pylist() == [CAPTIONS[number] for number in kept]


def test_text_embedding_is_nan_without_caption(tmp_path):
    """With ``--text`` each row has the embedding of its caption, NaN where there is none."""
    table = image_table().to_pylist()
    table[1]["caption"] = " "
    parquet.write_table(pyarrow.Table.from_pylist(table[:2]), tmp_path / "rows.parquet")
    embed(tmp_path / "rows.parquet", tmp_path / "out", threads=1, text="caption")
    first, second = read_shards(tmp_path / "out")[0].column("text_embedding").to_pylist()
    np.testing.assert_allclose(first, model().encode_texts(CAPTIONS[:1], unknown="allow")[0], atol=1e-6)
    assert np.isnan(second).all()


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits on the size of files")
def test_full_disk_leaves_whole_shards_and_resumes(photos, whole, tmp_path):
    """A shard that does not fit is one line and leaves no file; with room again the job ends as if nothing was."""
    into = tmp_path / "out"
    embed(photos, into, shard_size=SHARD, threads=1, shard=(1, 3))
    before = files(into)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(StoreError, match="complete shards are kept") as caught:
            embed(photos, into, shard_size=SHARD, threads=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value)
    assert files(into) == before
    embed(photos, into, shard_size=SHARD, threads=1)
    assert files(into) == files(whole)


class LostStore(MemoryFileSystem):
    """An object store that fails after some writes, and for good."""

    protocol = "lost"
    store: dict = {}  # noqa: RUF012 - of its own, as the class of fsspec has
    pseudo_dirs = [""]  # noqa: RUF012
    writes = 0

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if LostStore.writes == 0:
            raise OSError("connection reset")
        LostStore.writes -= 1
        return super().pipe_file(path, value, mode, **kwargs)


def test_lost_object_store_is_one_line_and_resumes(photos, whole, tmp_path, monkeypatch, capsys):
    """Shards that were uploaded stay; when the store is back, the job goes on with the others."""
    monkeypatch.setattr(store, "PAUSE", 0.0)
    monkeypatch.setattr(store, "OBJECT_STORES", store.OBJECT_STORES | {"lost"})
    fsspec.register_implementation("lost", LostStore, clobber=True)
    monkeypatch.setattr(LostStore, "writes", 2)  # the manifest and a shard
    assert run(photos, "--into", "lost://bucket/out") == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "lost://bucket/out cannot be written (connection reset)" in message
    assert "the same command resumes" in message
    monkeypatch.setattr(LostStore, "writes", 100)
    report = embed(photos, "lost://bucket/out", shard_size=SHARD, threads=1)
    assert (report.skipped, report.computed, report.remaining) == (1, 2, 0)
    found = {path.rpartition("/")[2]: file.getvalue() for path, file in LostStore.store.items()}
    assert found == files(whole)


class StopAtOnce(SilentProgress):
    def advance(self, steps: int = 1, description: str | None = None) -> None:
        raise KeyboardInterrupt


def test_interrupted_job_leaves_no_partial_shard(photos, tmp_path):
    """Ctrl-C in the middle of a shard leaves the manifest alone."""
    with pytest.raises(KeyboardInterrupt):
        embed(photos, tmp_path / "out", shard_size=SHARD, threads=1, progress=StopAtOnce())
    assert list(files(tmp_path / "out")) == ["manifest.json"]


def test_source_lists_do_not_reach_around_their_place(tmp_path):
    """A list in an object store names no local files, and no list chains URLs."""
    fsspec.filesystem("memory").pipe_file(
        "/lists/a.txt", b"/etc/hostname\n../x.png\nfile:///etc/hostname\nzip://a::b\n"
    )
    report = embed("memory://lists/a.txt", tmp_path / "out", threads=1)
    assert (report.embedded, report.failed) == (0, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "0/4"], "1 ≤ I ≤ N"),
        (["--shard", "1/2", "--ray", "auto"], "use one of them"),
        (["--format", "npz"], "--help"),
        (["--ray", "nowhere"], "expected auto or HOST:PORT"),
        (["--ray", "127.0.0.1:1"], "no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_embed_usage_errors_are_one_line(photos, tmp_path, capsys, arguments, message):
    """Wrong options end with code 2, an address without a cluster with 1; nothing is written."""
    code = 1 if arguments[0] == "--ray" else 2
    assert run(photos, "--into", tmp_path / "out", *arguments) == code
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_store_that_renames_is_left_without_temporary_files(photos, whole, tmp_path):
    """Where uploads are files first, those of a killed job are removed once their shard is complete."""
    url, into = f"local://{tmp_path}/out", tmp_path / "out"
    embed(photos, url, shard_size=SHARD, threads=1, shard=(1, 3))
    (first,) = (path.name for path in into.glob("shard-*"))
    left = [into / f"{name}.0123abcd.part" for name in (first, "shard-00009-0123456789ab.parquet")]
    for path in left:
        path.write_bytes(b"half")
    embed(photos, url, shard_size=SHARD, threads=1)
    assert [path.exists() for path in left] == [False, True], "the other one may be written right now"
    left[1].unlink()
    assert files(into) == files(whole)
