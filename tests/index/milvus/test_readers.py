"""Reading from Milvus beside a writer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.index.examples import DIMENSIONS, QUERIES, VECTORS, entry

from vse.errors import VSEError
from vse.index.milvus import MilvusCollection
from vse.index.types import Entry

pytest.importorskip("milvus_lite")
CHANGES = 40


def version(number: int) -> list[Entry]:
    """Return all files in one version: a single vector for all, and a caption that names the version."""
    vector = VECTORS[number % len(VECTORS)]
    plain = [entry(f"{row}.jpg", vector, digest=str(number), captions=(f"{number}/{row}",)) for row in range(5)]
    return [Entry(each.file, each.moments, vector[None]) for each in plain]


def test_milvus_reader_never_sees_partial_change(tmp_path: Path) -> None:
    """While all files are replaced repeatedly, each result is of one version, complete."""
    folder = tmp_path / "photos.db"
    with MilvusCollection.create(folder, model="m", model_source="s", dimensions=DIMENSIONS) as writer:
        writer.add(version(0))
        failures: list[BaseException] = []

        def write() -> None:
            try:
                for number in range(1, CHANGES):
                    writer.add(version(number))
            except VSEError as error:
                failures.append(error)

        with MilvusCollection.open(folder) as reader:
            working = threading.Thread(target=write)
            working.start()
            seen = set()
            while working.is_alive():
                hits = reader.search(QUERIES[0], 100)
                assert len(hits.ids) == 5
                assert len(set(hits.scores.tolist())) == 1
                captions = [text.split("/") for text, _, _ in reader.search_captions(QUERIES[0], 100)]
                assert sorted(row for _, row in captions) == list("01234")
                (number,) = {number for number, _ in captions}
                ids = [ids for ids, _ in reader.all_vectors()]
                assert [len(some) for some in ids] == [5]
                seen.add(number)
            working.join()
            assert not failures
            assert len(seen) > 3
            assert {file.digest for file in reader.files()} == {str(CHANGES - 1)}
