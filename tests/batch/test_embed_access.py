"""Contracts of ``vse embed`` where a source cannot be read for a while, and where shards are damaged or incomplete."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import parquet
from tests.batch.support_batch import COUNT, NAMES, SHARD, contents, files, write_folder

from vse.batch import StoreError, embed, store
from vse.cli.main import main
from vse.progress import SilentProgress


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("source") / "photos")


@pytest.fixture(scope="module")
def complete(photos, tmp_path_factory) -> dict[str, bytes]:
    """The files of a job without interruption."""
    into = tmp_path_factory.mktemp("whole") / "out"
    embed(photos, into, shard_size=SHARD, threads=1)
    return files(into)


class ExpiringStore(MemoryFileSystem):
    """An object store whose token expires after some reads."""

    protocol = "expiring"
    store: dict = {}  # noqa: RUF012 - of its own, as the class of fsspec has
    pseudo_dirs = [""]  # noqa: RUF012
    reads = 10**9

    def cat_file(self, path, start=None, end=None, **kwargs):
        ExpiringStore.reads -= 1
        if ExpiringStore.reads < 0:
            raise PermissionError("the token has expired")
        return super().cat_file(path, start, end, **kwargs)


@pytest.mark.parametrize("reads", [0, 3, 4])
def test_expired_token_writes_no_shard_of_failures(photos, complete, tmp_path, monkeypatch, capsys, reads):
    """At the first image, between shards and within one: a line and code 1; with a new token the job is completed."""
    monkeypatch.setattr(store, "OBJECT_STORES", store.OBJECT_STORES | {"expiring"})
    fsspec.register_implementation("expiring", ExpiringStore, clobber=True)
    remote = fsspec.filesystem("expiring")
    for name, content in zip(NAMES, contents(), strict=True):
        remote.pipe_file(f"expiring://bucket/photos/{name}", content)
    monkeypatch.setattr(ExpiringStore, "reads", reads)
    into = tmp_path / "out"
    command = ["embed", "expiring://bucket/photos", "--into", str(into), "--shard-size", str(SHARD), "--threads", "1"]
    assert main(command) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "expiring://bucket/photos cannot be read (no permission: the token has expired)" in message
    assert "resumes" in message
    there = files(into)
    assert [name for name in there if name != "manifest.json"] == [n for n in complete if "shard-00000" in n and reads]
    monkeypatch.setattr(ExpiringStore, "reads", 10**9)
    assert main(command) == 0
    assert {name.partition("-")[2][:5] for name in files(into)} == {name.partition("-")[2][:5] for name in complete}
    assert not (into / "failures").exists()


class RemoveFolder(SilentProgress):
    """Rename the source away when the first shard is done, as if its disk had been unmounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def advance(self, steps: int = 1, description: str | None = None) -> None:
        if self.folder.exists():
            self.folder.rename(self.folder.with_name("away"))


@pytest.mark.parametrize("kind", ["folder", "list"])
def test_vanished_source_writes_no_shard_of_failures(complete, tmp_path, kind):
    """A folder that is gone in the middle is an error; when it is back the job is completed."""
    folder = write_folder(tmp_path / "photos")
    (tmp_path / "list.txt").write_text("".join(f"photos/{name}\n" for name in NAMES))
    source, into = tmp_path / ("list.txt" if kind == "list" else "photos"), tmp_path / "out"
    with pytest.raises(StoreError, match=r"no such file.*resumes"):
        embed(source, into, shard_size=SHARD, threads=1, progress=RemoveFolder(folder))
    assert len(list(into.glob("shard-*"))) == 1
    assert not (into / "failures").exists()
    (tmp_path / "away").rename(folder)
    report = embed(source, into, shard_size=SHARD, threads=1)
    assert (report.computed, report.skipped, report.failed, report.remaining) == (2, 1, 0, 0)
    if kind == "folder":
        assert files(into) == complete


def test_missing_files_of_list_are_failures(tmp_path):
    """A shard of names without files is written when the others are there: the list is wrong, not the disk."""
    write_folder(tmp_path / "images")
    wrong = [f"images/gone-{number}.png\n" for number in range(SHARD)]
    (tmp_path / "list.txt").write_text("".join([*wrong, *(f"images/{name}\n" for name in NAMES)]))
    report = embed(tmp_path / "list.txt", tmp_path / "out", shard_size=SHARD, threads=1)
    assert (report.failed, report.embedded, report.remaining) == (SHARD, COUNT, 0)


def test_retry_failed_recomputes_shards_with_failures(complete, tmp_path, capsys):
    """Failures are kept without the option; with it, images that can be read by now are embedded."""
    folder, into = write_folder(tmp_path / "photos"), tmp_path / "out"
    (folder / NAMES[4]).write_bytes(bytes(len(contents()[4])))
    command = ["embed", str(folder), "--into", str(into), "--shard-size", str(SHARD), "--threads", "1"]
    assert main(command) == 0
    assert len(list((into / "failures").iterdir())) == 1
    (folder / NAMES[4]).write_bytes(contents()[4])
    assert main(command) == 0
    assert "0 images embedded in 0 shards" in capsys.readouterr().out
    assert main([*command, "--retry-failed"]) == 0
    assert f"{SHARD} images embedded in 1 shards" in capsys.readouterr().out
    assert files(into) == complete


def test_damaged_shards_count_as_missing(photos, complete, tmp_path):
    """An empty or truncated shard is computed again; a whole one is not."""
    into = tmp_path / "out"
    for name, content in complete.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(content)
    first, second, _ = sorted(into.glob("shard-*"))
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:-1])
    report = embed(photos, into, shard_size=SHARD, threads=1)
    assert (report.computed, report.skipped, report.remaining) == (2, 1, 0)
    assert files(into) == complete


def test_damaged_clip_retrieval_shards_count_as_missing(photos, tmp_path):
    """Also one whose embeddings are gone while its metadata is there."""
    into = tmp_path / "out"
    embed(photos, into, shard_size=SHARD, threads=1, format="clip-retrieval")
    before = files(into)
    next(into.glob("img_emb/img_emb_00001-*.npy")).write_bytes(b"")
    next(into.glob("metadata/metadata_00002-*.parquet")).write_bytes(b"")
    assert embed(photos, into, shard_size=SHARD, threads=1, format="clip-retrieval").computed == 2
    assert files(into) == before
    origin = [parquet.read_schema(path).metadata[b"vse-embeddings"] for path in (into / "metadata").iterdir()]
    assert len(set(origin)) == len(origin) == 3, "the marker of a shard carries its digest"
