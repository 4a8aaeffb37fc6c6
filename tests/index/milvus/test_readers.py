"""Reading from Milvus while a writer is at work."""

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
    """All files in a version: one vector for all, and a caption that tells which."""
    vector = VECTORS[number % len(VECTORS)]
    plain = [entry(f"{row}.jpg", vector, digest=str(number), captions=(f"{number}/{row}",)) for row in range(5)]
    return [Entry(each.file, each.moments, vector[None]) for each in plain]


def test_a_reader_never_sees_half_of_a_change(tmp_path: Path) -> None:
    """While all files are replaced again and again, each answer is of one version, whole."""
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
