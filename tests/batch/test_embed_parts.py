"""Contracts of ``vse embed`` on many packed files: damaged and added ones, and what is read of tars in a store."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from pyarrow import parquet
from tests.batch.support_batch import (
    COUNT,
    SHARD,
    contents,
    image_table,
    model,
    read_shards,
    sample_members,
    tar_of,
    write_folder,
)

from vse.batch import StoreError, embed, sources
from vse.batch.manifest import Manifest, agree, read_manifest
from vse.batch.parts import Part
from vse.batch.store import open_store
from vse.cli.main import main
from vse.errors import InputError
from vse.index.transfer.sources import open_sources
from vse.progress import SilentProgress

BOUNDS = ((0, 2), (2, 4), (4, COUNT))


def write_parts(folder: Path, kind: str) -> list[Path]:
    """The images in three packed files."""
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.{kind}" for number in range(3)]
    for path, (first, last) in zip(paths, BOUNDS, strict=True):
        if kind == "tar":
            path.write_bytes(tar_of(sample_members(first, last)))
        else:
            parquet.write_table(image_table().slice(first, last - first), path)
    return paths


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*")}


def run(*arguments: object) -> int:
    return main(["embed", *map(str, arguments), "--threads", "1", "--shard-size", str(SHARD)])


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_damaged_file_is_listed_and_others_are_embedded(kind, tmp_path, capsys):
    """A truncated file is a failure with its reason; repaired, its shards alone are computed, and so for a new one."""
    paths, into = write_parts(tmp_path / "source", kind), tmp_path / "out"
    whole, later = paths[1].read_bytes(), paths[2].read_bytes()
    paths[1].write_bytes(whole[: len(whole) // 2])
    paths[2].unlink()
    assert run(tmp_path / "source", "--into", into) == 0
    assert "1 packed files are damaged" in capsys.readouterr().out
    (row,) = parquet.read_table(into / "failures").to_pylist()
    assert row["path"] == paths[1].name
    assert "damaged" in row["reason"] or "truncated" in row["reason"]
    before = stamps(into)
    assert len(before) == 1
    paths[1].write_bytes(whole)
    report = embed(tmp_path / "source", into, shard_size=SHARD, threads=1)
    assert (report.computed, report.skipped, report.damaged, report.remaining) == (1, 1, 0, 0)
    assert not list((into / "failures").iterdir())
    paths[2].write_bytes(later)
    report = embed(tmp_path / "source", into, shard_size=SHARD, threads=1)
    assert (report.computed, report.skipped, report.items) == (1, 2, COUNT)
    assert stamps(into).items() >= before.items()
    _, vectors = read_shards(into)
    expected = [model().encode_images(contents()[first:last]) for first, last in BOUNDS]
    np.testing.assert_array_equal(vectors, np.concatenate(expected))


def test_changed_file_replaces_its_shards(tmp_path):
    """Shards of the former version go; those of a file that is not named this time stay; other files are refused."""
    paths, into = write_parts(tmp_path / "source", "tar"), tmp_path / "out"
    embed(tmp_path / "source", into, shard_size=1, threads=1)
    before = stamps(into)
    paths[0].write_bytes(tar_of(sample_members(0, 1)))
    report = embed(tmp_path / "source/{0,1}.tar", into, shard_size=1, threads=1)
    assert (report.computed, report.skipped, report.shards, report.remaining) == (1, 2, 3, 0)
    after = stamps(into)
    assert len(after) == len(before) - 1
    assert len(after.items() & before.items()) == len(before) - 2
    with pytest.raises(InputError, match="another source, none of whose files is here"):
        embed(write_parts(tmp_path / "other", "parquet")[0], into, shard_size=1, threads=1)
    with pytest.raises(InputError, match="another source"):
        embed(write_folder(tmp_path / "images"), into, shard_size=1, threads=1)
    assert stamps(into) == after


def test_damaged_values_of_parquet_leave_other_files_embedded(tmp_path, capsys):
    """A file whose footer is intact and whose pages are not is found when it is read: one line, after the others."""
    paths, into = write_parts(tmp_path / "source", "parquet"), tmp_path / "out"
    content = bytearray(paths[0].read_bytes())
    content[4:400] = bytes(396)
    paths[0].write_bytes(content)
    assert run(tmp_path / "source", "--into", into) == 1
    assert "0.parquet" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(name[:7] for name in stamps(into)) == ["shard-1", "shard-2"]


DEEP = b'{"a":' * 900 + b"0" + b"}" * 900
BAD_SIDES = {
    "txt": (b"caf\xe9", "000.txt: it is not UTF-8"),
    "json": (b"[1]", "000.json: it holds list: expected a JSON object"),
    "large.json": (b'"' + bytes(10**6) + b'"', "000.json: 1,000,002 bytes, at most 1,000,000"),
    "deep.json": (DEEP, "JSON"),
}


@pytest.mark.parametrize("side", BAD_SIDES)
def test_text_that_cannot_be_read_is_a_failure_of_its_sample(side, tmp_path):
    """The other images of the shard are embedded."""
    content, message = BAD_SIDES[side]
    members = sample_members(0, 3)
    bad = [(name, content if name == f"000.{side.rpartition('.')[2]}" else given) for name, given in members]
    (tmp_path / "a.tar").write_bytes(tar_of(bad))
    kind = "clip-retrieval" if side == "txt" else "parquet"
    report = embed(tmp_path / "a.tar", tmp_path / "out", format=kind, text="caption", threads=1)
    assert (report.embedded, report.failed, report.remaining) == (2, 1, 0)
    (row,) = parquet.read_table(tmp_path / "out/failures").to_pylist()
    assert row["path"] == "a.tar#0"
    assert message in row["reason"]


def test_fields_that_are_no_text_are_stored(tmp_path):
    """Half of a surrogate pair, which JSON may hold, is escaped in keys and values."""
    image = sample_members(0, 1)[0]
    (tmp_path / "a.tar").write_bytes(tar_of([image, ("000.json", b'{"\\ud800": "\\udc00", "path": "\\udfff"}')]))
    assert embed(tmp_path / "a.tar", tmp_path / "out", threads=1).embedded == 1
    (row,) = read_shards(tmp_path / "out")[0].select(["path", "metadata"]).to_pylist()
    assert row["path"] == "\\udfff"
    assert "\\\\udc00" in row["metadata"]


def test_large_text_of_a_table_is_a_failure_of_its_row(tmp_path):
    """In Parquet as in tars."""
    table = image_table().slice(0, 2)
    table = table.set_column(1, "caption", [["x" * 1_000_001, "short"]])
    parquet.write_table(table, tmp_path / "a.parquet")
    report = embed(tmp_path / "a.parquet", tmp_path / "out", threads=1)
    assert (report.embedded, report.failed) == (1, 1)
    (row,) = parquet.read_table(tmp_path / "out/failures").to_pylist()
    assert row["reason"] == "a.parquet, row 1, column 'caption': 1,000,001 characters, at most 1,000,000"


class Beside(SilentProgress):
    """Runs another job once, when the first one has found out what there is to do."""

    def __init__(self, job):
        self.job = job

    def start(self, total, description):
        job, self.job = self.job, None
        if job is not None:
            job()


def test_job_ends_well_beside_one_that_adds_files(tmp_path):
    """Shards of files that came after its start are of the manifest, and both jobs' files are in it."""
    write_parts(tmp_path / "source", "tar")
    into, done = tmp_path / "out", []

    def job(names: str, beside=None) -> None:
        source = tmp_path / "source" / names
        done.append(embed(source, into, shard_size=SHARD, threads=1, progress=Beside(beside)))

    job("{0,1}.tar", beside=lambda: job("{0,2}.tar"))
    assert [(report.computed, report.remaining) for report in done] == [(2, 0), (1, 0)]
    manifest = read_manifest(open_store(str(into)))
    assert [part.name for part in manifest.parts] == ["0.tar", "1.tar", "2.tar"]
    assert open_sources([into])[0].dimensions == manifest.dimensions
    next(into.glob("shard-2-*")).unlink()
    with pytest.raises(InputError, match="2 of 3 shards"):
        open_sources([into])


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_jobs_that_add_files_at_the_same_time_lose_none(place, tmp_path, monkeypatch):
    """Whatever another job writes between reading and writing the manifest, all files are in it."""
    store = open_store(str(tmp_path / "out") if place == "disk" else f"memory://{tmp_path.name}")
    common, others = Part("0.tar", 9, 1), [Part(f"{number}.tar", 9, 1) for number in range(1, 30)]
    described = {"model_source": "", "dimensions": 2, "source_digest": "", "shard_size": 9, "format": "parquet"}
    first = Manifest("m", **described, source="packed", items=1, dtype="float32", text=None, batch_size=1, parts=())
    agree(store, replace(first, parts=(common,)))
    kind, waiting = type(store), list(others)
    write, create = kind.write, kind.create

    def overtaken(original, *given):
        if waiting:
            part = waiting.pop()
            agree(store, replace(first, items=2, parts=(common, part)))
        return original(*given)

    monkeypatch.setattr(kind, "write", lambda *given: overtaken(write, *given))
    monkeypatch.setattr(kind, "create", lambda *given: overtaken(create, *given))
    agree(store, replace(first, items=2, parts=(common, waiting.pop())))
    manifest = read_manifest(store)
    assert set(manifest.parts) == {common, *others}
    assert manifest.items == 1 + len(others)
    assert sum(name.startswith("manifest") for name, _ in store.names()) <= 10, "old revisions are removed"


class RenamingStore(MemoryFileSystem):
    """A store such as sftp, where a file that is being written is visible; the first writing is killed."""

    protocol = "renaming"
    kills = 1

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        super().pipe_file(path, value[: len(value) // 2] if self.kills else value, mode, **kwargs)
        if self.kills:
            self.kills = 0
            raise KeyboardInterrupt


def test_manifest_is_not_cut_short_when_its_job_is_killed(tmp_path):
    """On a store where files are renamed, as on a disk; the next job writes it."""
    fsspec.register_implementation("renaming", RenamingStore, clobber=True)
    store = open_store(f"renaming://{tmp_path.name}")
    with pytest.raises(KeyboardInterrupt):
        store.create("manifest.json", b"{}")
    assert store.read("manifest.json") is None
    assert store.create("manifest.json", b"{}")
    assert not store.create("manifest.json", b"[]")
    assert store.read("manifest.json") == b"{}"


class CountedFile(AbstractBufferedFile):
    """A file of a store that counts the bytes it sends."""

    def _fetch_range(self, start, end):
        if CountedStore.lost:
            raise ConnectionError("reset by peer")
        CountedStore.active += 1
        CountedStore.most = max(CountedStore.most, CountedStore.active)
        time.sleep(CountedStore.latency)
        CountedStore.active -= 1
        content = CountedStore.files[self.path][start:end]
        CountedStore.sent += len(content)
        return content


class CountedStore(AbstractFileSystem):
    protocol = "counted"
    files: dict[str, bytes] = {}  # noqa: RUF012
    sent = active = most = 0
    latency = 0.0
    lost = False

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        if path not in self.files:
            return {"name": path, "size": 0, "type": "directory"}
        return {"name": path, "size": len(self.files[path]), "type": "file"}

    def ls(self, path, detail=True, **kwargs):
        return [self.info(name) if detail else name for name in self.files]

    def _open(self, path, mode="rb", block_size=None, **kwargs):
        return CountedFile(self, path, mode, block_size=block_size or "default", **kwargs)


def test_tars_are_listed_by_their_headers_once(tmp_path, monkeypatch):
    """A few kilobytes are read of each sample, and none when another job listed the tars for this destination."""
    fsspec.register_implementation("counted", CountedStore, clobber=True)
    samples = [
        (f"{number}.{ending}", bytes(size)) for number in range(20) for ending, size in (("jpg", 10**6), ("txt", 9))
    ]
    tars = {f"bucket/{name}.tar": tar_of(samples) for name in ("a", "b")}
    monkeypatch.setattr(CountedStore, "files", tars)
    monkeypatch.setattr(CountedStore, "sent", 0)
    offsets = open_store(str(tmp_path / "out"))
    first = sources.list_source("counted://bucket", (), offsets)
    assert [part.count for part in first.parts] == [20, 20]
    assert CountedStore.sent < sum(map(len, tars.values())) / 50
    before = CountedStore.sent
    again = sources.list_source("counted://bucket", (), offsets)
    assert (again, CountedStore.sent) == (first, before)
    assert len(again.image(39)) == 10**6
    assert again.records(39, 40)[0].fields["caption"] == "\0" * 9
    for kept in (tmp_path / "out/index").iterdir():
        kept.write_bytes(b"PAR1 damaged")
    sources._opened.cache_clear()
    assert sources.list_source("counted://bucket", (), offsets) == first
    assert CountedStore.sent > before
    monkeypatch.setattr(CountedStore, "lost", True)
    for ending in (".tar", ".parquet"):
        monkeypatch.setattr(CountedStore, "files", {f"bucket/a{ending}": tars["bucket/a.tar"]})
        with pytest.raises(StoreError, match=r"bucket/a\..* cannot be read \(reset by peer\)"):
            sources.list_source("counted://bucket")


def test_texts_of_a_tar_in_a_store_are_read_several_at_a_time(tmp_path, monkeypatch):
    """With the result of one after the other, as from a disk."""
    fsspec.register_implementation("counted", CountedStore, clobber=True)
    samples = [
        (f"{number:02}.{ending}", content * size)
        for number in range(40)
        for ending, content, size in (("jpg", b"\0", 20_000), ("txt", str(number).encode(), 3))
    ]
    (tmp_path / "a.tar").write_bytes(tar_of(samples))
    monkeypatch.setattr(CountedStore, "files", {"texts/a.tar": tar_of(samples)})
    listing = sources.list_source("counted://texts/a.tar")
    monkeypatch.setattr(CountedStore, "most", 0)
    monkeypatch.setattr(CountedStore, "latency", 0.01)
    records = listing.records(1, 40)
    assert records == sources.list_source(str(tmp_path / "a.tar")).records(1, 40)
    assert [record.fields["caption"] for record in records] == [3 * str(number) for number in range(1, 40)]
    assert CountedStore.most > 4
