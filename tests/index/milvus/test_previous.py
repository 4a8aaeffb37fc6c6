"""Collections of the previous format, written here as that version did, are refused with one command, and converted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.search_support import error_line, reported
from tests.index.conformance_generations import ids_of
from tests.index.examples import DIMENSIONS, VECTORS, entry

from vse.errors import InputError
from vse.index.milvus import MilvusCollection, convert_collection, previous, tables
from vse.index.open import collection_exists

pymilvus = pytest.importorskip("pymilvus")
server = pytest.importorskip("milvus_lite.adapter.grpc.server")
NEVER = 2**62
VERSION = {"row": "INT64", "born": "INT64", "died": "INT64"}
ITEM = {
    **dict.fromkeys(("item", "position", "size", "modified", "width", "height"), "INT64"),
    **dict.fromkeys(("place", "root", "path", "kind", "digest", "captions"), "VARCHAR"),
    **dict.fromkeys(("taken", "latitude", "longitude", "duration", "start", "end"), "DOUBLE"),
}
STATE = {
    "format": 1, "model": "old", "model_source": "models/old", "dimensions": DIMENSIONS, "index": "flat", "batch": 5,
    "generation": 1, "next_item": 6, "next_caption": 3, "next_row": 9, "items": 4, "captions": 2,
    "roots": {"/photos": 3}, "writer": "x", "settings": {"folders": {}},
}  # fmt: skip


def make(client: Any, name: str, columns: dict[str, str], dimensions: int, rows: list[dict[str, Any]]) -> None:
    """Create a Milvus collection, whose first column is the primary key, with rows."""
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    for number, (column, kind) in enumerate(columns.items()):
        more = {"VARCHAR": {"max_length": 65_535}, "DOUBLE": {"nullable": True}}.get(kind, {})
        schema.add_field(column, getattr(pymilvus.DataType, kind), is_primary=not number, **more)
    schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=dimensions)
    indexes = client.prepare_index_params()
    indexes.add_index(field_name="vector", index_type="FLAT", metric_type="IP")
    client.create_collection(name, schema=schema, consistency_level="Strong")
    client.create_index(name, indexes, sync=False)
    client.insert(name, rows)


def write_previous(client: Any, name: str = "vse", generation: int = 1) -> None:
    """Write an image with captions, a video of two moments and a replaced image, beside rows that nobody sees."""
    base = name if generation == 1 else f"{name}_g{generation}"

    def item(row: int, number: int, path: str, *, position: int = 0, died: int = NEVER, **more: Any) -> dict[str, Any]:
        plain = dict.fromkeys(("taken", "latitude", "longitude", "duration", "start", "end"))
        known = {"place": "", "root": "/photos", "path": path, "kind": "image", "digest": "d", "captions": "[]"}
        counts = {"size": 1, "modified": 2, "width": 3, "height": 4, "born": 1, "died": died}
        values = {"row": row, "item": number, "position": position, **plain, **known, **counts, **more}
        return {**values, "vector": VECTORS[row % len(VECTORS)].tolist()}

    captions = json.dumps(["a dog", "no vector"])
    rows = [
        item(1, 1, "gone.jpg", died=4),
        item(2, 2, "a%22.jpg", captions=captions, taken=5.0),
        item(3, 3, "v.mp4", kind="video", start=0.0, end=1.0, duration=2.0),
        item(4, 4, "v.mp4", kind="video", position=1, start=1.0, end=2.0, duration=2.0),
        item(5, 5, "b.jpg"),
        item(6, 6, "unpublished.jpg", born=6),
    ]
    make(client, base, {**VERSION, **ITEM}, DIMENSIONS, rows)
    spoken = [
        {"row": 7, "born": 1, "died": NEVER, "caption": 1, "first": 2, "text": "a dog", "vector": VECTORS[6].tolist()}
    ]
    captions_columns = {**VERSION, "caption": "INT64", "first": "INT64", "text": "VARCHAR"}
    make(client, f"{base}_captions", captions_columns, DIMENSIONS, spoken)
    state = {**STATE, "generation": generation}
    states = [{"batch": n, "state": json.dumps({**state, "batch": n}), "vector": [0.0, 0.0]} for n in (4, 5)]
    make(client, f"{name}_meta", {"batch": "INT64", "state": "VARCHAR"}, 2, states)


def write_previous_folder(folder: Path) -> None:
    """Write a collection of Milvus Lite."""
    client = pymilvus.MilvusClient(uri=str(folder))
    write_previous(client)
    client.close()
    from milvus_lite.server_manager import server_manager_instance

    server_manager_instance.release_server(str(folder.resolve()))


def test_collection_of_the_previous_format_is_converted(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """It is refused with the command that converts it; a conversion that stops anywhere is resumed, and ids stay."""
    folder = tmp_path / "photos.db"
    write_previous_folder(folder)
    assert collection_exists(folder)
    command = f"vse collection upgrade {folder}"
    for write in (False, True):
        with pytest.raises(InputError, match="written by an earlier version of vse") as caught:
            MilvusCollection.open(folder, write=write)
        assert command in str(caught.value)
    with pytest.raises(InputError, match="already a collection"):
        MilvusCollection.create(folder, model="old", model_source="s", dimensions=DIMENSIONS)
    assert command in error_line(capsys, 1, "search", folder, "--like", 2)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for place, name in ((tables.Tables, "upsert"), (previous, "_serve")):  # nothing is copied, the old rows are dropped
        with monkeypatch.context() as patch:
            patch.setattr(place, name, stop)
            with pytest.raises(KeyboardInterrupt):
                convert_collection(folder)
        with pytest.raises(InputError, match="written by an earlier version of vse"):
            MilvusCollection.open(folder)
    assert convert_collection(folder) == 3
    assert convert_collection(folder) is None
    with MilvusCollection.open(folder, write=True) as writer:
        assert ids_of(writer) == {'a".jpg': [2], "v.mp4": [3, 4], "b.jpg": [5]}
        np.testing.assert_array_equal(writer.vectors([2, 3, 4, 5]), VECTORS[2:6])
        (first, video) = writer.items([2, 4])
        assert (first.file.captions, first.file.taken) == (("a dog", "no vector"), 5.0)
        assert (video.start, video.file.kind, video.file.duration) == (1.0, "video", 2.0)
        assert [hit[:2] for hit in writer.search_captions(VECTORS[6], 5)] == [("a dog", 2)]
        info = writer.info()
        assert (info.model, info.model_source, info.files, info.items, info.captions) == ("old", "models/old", 3, 4, 2)
        assert writer.settings() == {"folders": {}}
        assert {name.rpartition("_g")[0] for name in writer.tables.connection.names()} == {"vse"}


def test_upgrade_command_converts_the_previous_format(tmp_path: Path) -> None:
    """The command that the error names, without a model."""
    write_previous_folder(tmp_path / "photos.db")
    done = reported("collection", "upgrade", tmp_path / "photos.db")
    assert (done["files"], done["note"]) == (3, "converted to the current format")


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    running, database, port = server.start_server_in_thread(str(tmp_path / "data"))
    yield f"http://127.0.0.1:{port}"
    running.stop(grace=0)
    database.close()


def test_conversion_keeps_old_collections_whose_names_begin_alike(uri: str) -> None:
    """On one server each is converted by itself, also one that an old upgrade had switched."""
    client = pymilvus.MilvusClient(uri=uri)
    names = {"photos": 1, "photos_2024": 1, "photos_gallery": 2}
    for name, generation in names.items():
        write_previous(client, name, generation)
    before = set(client.list_collections())
    assert convert_collection(f"milvus+{uri}/photos") == 3
    assert before - set(client.list_collections()) == {"photos", "photos_captions", "photos_meta"}
    for name in list(names)[1:]:
        assert convert_collection(f"milvus+{uri}/{name}") == 3
    for name in names:
        with MilvusCollection.open(f"milvus+{uri}/{name}") as reader:
            np.testing.assert_array_equal(reader.vectors([2, 3, 4, 5]), VECTORS[2:6])
    assert len(client.list_collections()) == 3 * len(names)
    client.close()


@pytest.mark.parametrize("step", ["_copy", "upsert", "put"])
def test_conversions_at_once_lose_no_rows(uri: str, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Before a step of one, another one converts the whole collection, and somebody adds to it: both succeed."""
    client = pymilvus.MilvusClient(uri=uri)
    write_previous(client, "photos")
    client.close()
    address, late = f"milvus+{uri}/photos", list[int | None]()
    place: Any = previous if step.startswith("_") else tables.Tables
    original = getattr(place, step)

    def overtaken(*given: Any) -> Any:
        if not late:
            late.append(None)
            late[0] = convert_collection(address)
            with MilvusCollection.open(address, write=True) as writer:
                writer.add([entry("new.jpg", VECTORS[0])])
        return original(*given)

    monkeypatch.setattr(place, step, overtaken)
    assert (convert_collection(address), late) == (4, [3])
    with MilvusCollection.open(address, write=True) as writer:
        np.testing.assert_array_equal(writer.vectors([2, 3, 4, 5]), VECTORS[2:6])
        assert writer.info().files == 4
        assert sorted(writer.tables.connection.names()) == sorted(writer.tables.names())
