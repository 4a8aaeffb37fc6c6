"""The next generation: filled beside the serving one, switched to atomically."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.index.conformance_generations import NEW, WIDE, next_generation
from tests.index.examples import QUERIES, VECTORS, entry, picture
from tests.index.support import batch, database, filled

from vse.errors import InputError, VSEError
from vse.index.store import EmbeddedCollection
from vse.index.types import Entry, Moment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path / "collection")


def test_commit_switches_generation(folder: Path) -> None:
    """Before ``commit`` everybody finds the old generation; afterwards opening finds the new one."""
    with EmbeddedCollection.open(folder, write=True) as writer, EmbeddedCollection.open(folder) as reader:
        with next_generation(writer) as new:
            new.add(batch(NEW))
            assert new.search(NEW[2], 1).scores[0] > 0.999
            with EmbeddedCollection.open(folder, model="old") as opened:
                assert opened.info().files == len(VECTORS)
            assert not reader.superseded
            new.commit()
            with pytest.raises(VSEError, match="closed"):
                new.add(batch(NEW, "more"))
        assert reader.superseded
        assert reader.search(VECTORS[2], 1).scores[0] > 0.999, "an open reader stays with the old generation"
        with EmbeddedCollection.open(folder, model="new") as opened:
            info = opened.info()
            assert (info.generation, info.dimensions, info.model_source) == (2, WIDE, "models/new")
            assert opened.search(NEW[2], 1).scores[0] > 0.999
            assert opened.verify().ok
        with pytest.raises(VSEError, match="newer generation"):
            writer.add(batch(VECTORS, "late"))
        with pytest.raises(VSEError, match="newer generation"):
            next_generation(writer)
    assert database(folder, 1).exists(), "the old generation stays for readers that are open"
    with EmbeddedCollection.open(folder, write=True) as writer:
        assert not database(folder, 1).parent.exists()
        writer.add(batch(NEW[:1], "late"))
    with pytest.raises(InputError, match="upgrade"):
        EmbeddedCollection.open(folder, model="old")


def test_upgrade_keeps_item_ids(folder: Path) -> None:
    """While file and moments are the same; others get ids that no generation has used."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        clip = picture("clip.mp4", kind="video", digest="c")
        moments = (Moment(VECTORS[0], 0.0, 1.0), Moment(VECTORS[1], 1.0, 2.0))
        writer.add([Entry(clip, moments), Entry(replace(clip, path="other.mp4"), moments)])
        writer.add([entry("gone.jpg", VECTORS[0])])
        writer.remove([("/photos", "gone.jpg")])
        old = {item.id: item for item in writer.items(writer.search(QUERIES[0], 100).ids.tolist())}
        last = max(old) + 1
        with next_generation(writer) as new:
            same = tuple(Moment(NEW[row], moment.start, moment.end) for row, moment in enumerate(moments))
            new.add([Entry(replace(clip, path="other.mp4"), same[:1]), Entry(clip, same)])
            new.add([entry("new.jpg", NEW[3])])
            assert len(new.search(NEW[0], 100).ids) == 4
            changed = batch(NEW)
            changed[2] = replace(changed[2], file=replace(changed[2].file, digest="changed"))
            new.add(changed)
            new.commit()
    with EmbeddedCollection.open(folder, write=True) as again:
        now = {item.id: item for item in again.items(again.search(NEW[0], 100).ids.tolist())}
        kept = {each for each in now if each in old}
        assert all(now[each] == old[each] for each in kept)
        assert {item.file.path for item in (now[each] for each in now.keys() - kept)} == {
            "00002.jpg", "other.mp4", "new.jpg",
        }  # fmt: skip
        assert all(each > last for each in now.keys() - kept)
        assert again.verify().ok
        again.add([entry("later.jpg", NEW[4])])
        assert max(again.search(NEW[4], 100).ids) > max(now)


def test_reading_process_never_fails_during_switch(folder: Path) -> None:
    """A process that keeps opening and searching finds the old or the new generation, complete, and never an error."""
    script = """
        import sys
        from tests.index.examples import QUERIES, VECTORS, directions
        from vse.index.store import EmbeddedCollection

        wide = directions(1, 12)[0]
        seen = []
        while len(seen) < 4:
            with EmbeddedCollection.open(sys.argv[1]) as reader:
                info = reader.info()
                hits = reader.search(QUERIES[0] if info.dimensions == 8 else wide, 100)
                assert len(hits.ids) == info.items == len(VECTORS)
                assert len(reader.items(hits.ids.tolist())) == len(VECTORS)
                if info.generation not in seen:
                    seen.append(info.generation)
                    print(info.generation, flush=True)
        """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    for generation in (2, 3, 4):
        with EmbeddedCollection.open(folder, write=True) as writer, next_generation(writer) as new:
            new.add(batch(NEW))
            new.commit()
        assert process.stdout.readline() == f"{generation}\n"
    assert process.stdout.read() == ""
    process.stdout.close()
    assert process.wait() == 0


def test_ids_that_were_kept_are_searched_in_order(folder: Path) -> None:
    """Ids are added in another order than they were assigned: results and ties are unaffected."""
    with EmbeddedCollection.open(folder, write=True) as writer:
        ids = {item.file.path: item.id for item in writer.items(writer.search(QUERIES[0], 100).ids.tolist())}
        same = np.tile(NEW[:1], (len(VECTORS), 1))
        with next_generation(writer) as new:
            for each in reversed(batch(same)):
                new.add([each])
                hits = new.search(NEW[0], 100).ids.tolist()
                assert hits == sorted(hits)
            new.commit()
    with EmbeddedCollection.open(folder) as reader:
        hits = reader.search(NEW[0], 100).ids.tolist()
        assert hits == sorted(ids.values())
        assert [item.file.path for item in reader.items(hits)] == sorted(ids)
