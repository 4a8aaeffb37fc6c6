"""Contracts of images inside tars, Parquet and Arrow files."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc, parquet
from tests.batch.support_batch import (
    CAPTIONS,
    COUNT,
    contents,
    image_table,
    sample_members,
    tar_of,
    write_folder,
    write_parquet,
    write_tars,
)

from vse.cli.main import main
from vse.data import check_data, detect_layout, list_splits, open_data
from vse.data.packed import MAX_HEADER, local_packed
from vse.errors import InputError


def write_arrow(path: Path, table: pyarrow.Table, compression: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_stream(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def make(kind: str, folder: Path) -> Path:
    if kind == "tars":
        return write_tars(folder / "set")
    if kind == "parquet":
        return write_parquet(folder / "set/data/only.parquet").parents[1]
    if kind == "parquet file":
        return write_parquet(folder / "set.parquet")
    return write_arrow(folder / "set/data-00000-of-00001.arrow", image_table()).parent


@pytest.mark.parametrize("kind", ["tars", "parquet", "parquet file", "arrow"])
def test_packed_images_equal_their_files(kind, tmp_path):
    """The layout is detected, and images and captions are those that were packed, in any order of access."""
    path = make(kind, tmp_path)
    assert (detect_layout(path), list_splits(path)) == ("packed", ("all",))
    data = open_data(path, "all", check_files=True)
    assert (data.name, data.captions) == ("set", tuple(CAPTIONS))
    assert data.caption_to_image.tolist() == list(range(COUNT))
    copy = pickle.loads(pickle.dumps(data.images))  # as another process gets it
    for number in np.random.default_rng(0).permutation(COUNT):
        assert data.images[number] == copy[number] == contents()[number]
    assert len(set(data.ids)) == COUNT
    report = check_data(path)
    assert (report.errors, report.warnings, report.splits[0].captions) == ((), (), COUNT)


def test_packed_splits_follow_names(tmp_path):
    """``train``, ``validation`` and ``test`` at the start of a file or folder name are splits."""
    for name in ("data/train-00000-of-00002.parquet", "data/validation-0.parquet"):
        write_parquet(tmp_path / "hub" / name)
    write_arrow(tmp_path / "hub/test/data-0.arrow", image_table())
    (tmp_path / "hub/test/state.json").write_text("{}")
    assert list_splits(tmp_path / "hub") == ("train", "val", "test")
    assert len(open_data(tmp_path / "hub", "dev").images) == COUNT


def test_check_command_reports_samples_without_image_or_caption(tmp_path, capsys):
    """A sample without a caption is a warning, one without an image an error."""
    members = [*sample_members(0, 2), ("8.png", contents()[3]), ("9.txt", b"a caption")]
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    assert main(["data", "check", str(tmp_path / "a.tar"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in report["errors"]] == ["sample without an image"]
    assert [finding["kind"] for finding in report["warnings"]] == ["images without captions"]
    captions = pyarrow.table({"image": contents()[:2], "caption": [1, 2]})
    parquet.write_table(captions, tmp_path / "numbers.parquet")
    with pytest.raises(InputError, match="caption is '1', expected texts"):
        open_data(tmp_path / "numbers.parquet", "all")


names = st.text("ab./-", min_size=1, max_size=6)


@given(st.lists(st.tuples(names, st.binary(max_size=4)), max_size=12))
def test_tar_index_equals_naive_grouping(tmp_path_factory, members):
    """Samples are runs of members with one name up to the first dot of its last part, or the tar is refused."""
    content = tar_of(members)
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    path.write_bytes(content)
    groups: list[tuple[str, dict[str, bytes]]] = []
    valid = True
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for member in tar:
            *folders, base = member.name.split("/")
            stem, dot, ending = base.partition(".")
            if not member.isreg() or not stem or not dot:
                continue
            key = "/".join([*folders, stem])
            if not groups or groups[-1][0] != key:
                valid &= key not in [known for known, _ in groups]
                groups.append((key, {}))
            valid &= ending not in groups[-1][1]
            groups[-1][1][ending] = tar.extractfile(member).read()
    if not valid:
        with pytest.raises(InputError, match="is there twice"):
            local_packed(path)
        return
    packed = local_packed(path)
    assert [packed.key(number) for number in range(len(packed))] == [key for key, _ in groups]


def test_truncated_tar_is_refused_at_every_byte(tmp_path):
    """A tar that ends early is one line, wherever it ends; the whole one is read."""
    content = tar_of(sample_members(0, 2))
    whole = content[: content.rindex(b"}") // 512 * 512 + 1024]  # with one block of the end mark
    path = tmp_path / "a.tar"
    for size in [*range(1, len(whole) - 512, 97), len(whole) - 512]:
        path.write_bytes(content[:size])
        with pytest.raises(InputError) as caught:
            local_packed(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(whole)
    assert len(local_packed(path)) == 2


def test_tar_headers_are_limited(tmp_path):
    """A header that declares gigabytes, a compressed tar, and links are not followed."""
    path = tmp_path / "a.tar"
    member = tarfile.TarInfo("x" * 200 + ".png")
    header = bytearray(member.tobuf(tarfile.PAX_FORMAT))
    header[124:136] = b"%011o\0" % (MAX_HEADER * 4)
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + sum(header[156:512]) + 8 * 32)
    path.write_bytes(bytes(header) + bytes(MAX_HEADER * 5))
    with pytest.raises(InputError, match="at most 1,000,000"):
        local_packed(path)
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("a.png"), io.BytesIO())
    with pytest.raises(InputError, match="expected an uncompressed tar"):
        local_packed(path)
    link = tarfile.TarInfo("b.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    with tarfile.open(path, "w") as tar:
        tar.addfile(link)
    assert len(local_packed(path)) == 0


def test_damaged_tables_are_one_line(tmp_path):
    """A truncated or altered Parquet or Arrow file, or one without images, is refused and never ends the process."""
    good = write_parquet(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "b.parquet"
    generator = np.random.default_rng(0)
    for trial in range(60):
        broken = bytearray(good[: generator.integers(len(good))] if trial % 2 else good)
        for place in generator.integers(len(broken) or 1, size=3):
            if broken:
                broken[place] ^= 0xFF
        path.write_bytes(broken)
        with suppress(InputError):  # or what is left is whole
            packed = local_packed(path)
            for number in range(len(packed)):
                packed.image(number)
                packed.fields(number)
    parquet.write_table(pyarrow.table({"x": [1]}), path)
    with pytest.raises(InputError, match="has the columns x: expected image bytes"):
        local_packed(path)
    arrow = write_arrow(tmp_path / "a.arrow", image_table(), "zstd")
    with pytest.raises(InputError, match="compressed batches"):
        local_packed(arrow)
    arrow.write_bytes(write_arrow(arrow, image_table()).read_bytes()[:-2000])
    with pytest.raises(InputError, match="cannot be read"):
        local_packed(arrow)
    arrow.write_bytes(struct.pack("<I", 0xFFFFFFFF) * 4)
    with pytest.raises(InputError):
        local_packed(arrow)


def test_repeated_values_of_parquet_do_not_fill_memory(tmp_path, monkeypatch):
    """A small file that repeats a large value is stopped at the limit of a row group."""
    monkeypatch.setattr("vse.data.packed_tables.MAX_GROUP_BYTES", 3_000_000)
    table = pyarrow.table({"image": pyarrow.array([bytes(200_000)] * 100)})
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=True, compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    with pytest.raises(InputError, match="more than 3,000,000 bytes"):
        local_packed(tmp_path / "a.parquet").image(0)


def test_folder_of_images_beside_a_tar_stays_a_folder(tmp_path):
    """A folder with image files keeps its layout."""
    write_folder(tmp_path / "set")
    write_tars(tmp_path / "set")
    assert detect_layout(tmp_path / "set") == "folder"
