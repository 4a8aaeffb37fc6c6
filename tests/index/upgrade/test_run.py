"""Upgrade a collection to another model: nothing is lost, ids stay, and errors come before any work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import closing

import numpy as np
import pytest
from tests.index.pipeline.support import ids_of, later, model, save_picture
from tests.index.upgrade.support import OTHER_SIZE, Counting, assert_like_indexing_anew, filled, other
from tests.inputs.video.clips import write_clip
from tests.support_models import SIZE, build

from vse.errors import InputError, VSEError
from vse.index.open import create_collection, open_collection
from vse.index.pipeline import index_folder
from vse.index.store import EmbeddedCollection
from vse.index.upgrade.run import upgrade_collection


@pytest.fixture
def root(tmp_path):
    """Images, one of them in a subfolder, a video of two windows, and captions."""
    folder = tmp_path / "photos"
    for seed, path in enumerate(("a.png", "b.bmp", "trip/c.png", "é.png")):
        save_picture(folder, path, seed)
    write_clip(folder / "d.mp4", seconds=8.0, rate=5)
    (folder / "captions.csv").write_text("path,caption\na.png,snow\na.png,a dog runs\nd.mp4,two cats\n")
    return folder


@pytest.fixture
def more(tmp_path):
    save_picture(tmp_path / "more", "m.png", 9)
    return tmp_path / "more"


@pytest.fixture
def index(tmp_path, root, more):
    filled(tmp_path / "index.vse", root, more).close()
    return tmp_path / "index.vse"


@pytest.fixture
def upgrade(index):
    """Return a function that opens, upgrades and closes the collection."""

    def work(encoder=None, **options):
        with EmbeddedCollection.open(index, write=True) as collection:
            return upgrade_collection(collection, encoder or other(), "models/other", **options)

    return work


@pytest.fixture
def many(index, root):
    """Add so many videos before the last image that it is not prefetched; return the number of files."""
    for number in range(12):
        write_clip(root / f"clip{number}.mp4", seconds=8.0, rate=5)
    with EmbeddedCollection.open(index, write=True) as collection:
        index_folder(collection, model(), root)
        return collection.info().files


def serves_as_before(index, files=6):
    """Return whether the old generation is served intact."""
    with EmbeddedCollection.open(index, model=model().fingerprint()) as reader:
        hits = reader.search(model().encode_texts(["snow"])[0], 100)
        return reader.info().files == files and len(hits.ids) == reader.info().items and reader.verify().ok


@pytest.mark.parametrize("batch_size", [3, 32])
def test_upgrade_equals_indexing_again(index, upgrade, tmp_path, monkeypatch, batch_size):
    """Files, embeddings of images and windows, and captions equal a rebuilt collection, with the old ids.

    For any batch size and page size.
    """
    monkeypatch.setattr("vse.index.upgrade.encode.PAGE", batch_size - 1)
    with EmbeddedCollection.open(index) as reader:
        before = ids_of(reader)
    counting = Counting(other())
    report = upgrade(counting, batch_size=batch_size)
    assert (report.encoded, report.resumed, report.left_out, report.problems, report.notes) == (6, 0, 0, (), ())
    assert report.images == counting.images
    assert report.images_per_second > 0
    with EmbeddedCollection.open(index, model=other().fingerprint()) as reader:
        info = reader.info()
        assert info == report.info
        assert (info.generation, info.dimensions, info.model_source) == (2, OTHER_SIZE, "models/other")
        assert ids_of(reader) == before
        assert_like_indexing_anew(reader, tmp_path / "anew.vse")


def test_captions_come_from_the_collection(index, upgrade, root):
    """Captions are kept even if the caption file is gone."""
    (root / "captions.csv").unlink()
    upgrade()
    with EmbeddedCollection.open(index) as reader:
        assert reader.info().captions == 3
        best = reader.search_captions(other().encode_texts(["two cats"])[0], 1)[0]
        assert best[0] == "two cats"
        assert best[1] == ids_of(reader)["d.mp4"][0]
        assert best[2] == pytest.approx(1, abs=1e-5)


def test_a_changed_file_is_taken_as_it_is_now(index, upgrade, root, tmp_path):
    """It gets the embedding of its new content and a new id; new files are left to indexing."""
    with EmbeddedCollection.open(index) as reader:
        before = ids_of(reader)
    later(save_picture(root, "a.png", 50))
    save_picture(root, "new.png", 51)
    assert upgrade().encoded == 6
    with EmbeddedCollection.open(index, write=True) as collection:
        after = ids_of(collection)
        assert after.pop("a.png")[0] > max(max(ids) for ids in before.values())
        assert after == {path: ids for path, ids in before.items() if path != "a.png"}
        assert index_folder(collection, other(), root).new == 1
        assert_like_indexing_anew(collection, tmp_path / "anew.vse")


def test_missing_files_are_refused_before_anything_is_encoded(index, upgrade, root, more):
    """The error has their number, the first, and the fixes; with ``drop_missing`` they are dropped and counted."""
    more.rename(more.parent / "away")
    counting = Counting(other())
    with pytest.raises(InputError, match=rf"1 files of .* those of {more} .*mount the disk.*--drop-missing"):
        upgrade(counting)
    (root / "trip/note.txt").touch()  # otherwise the folder could be a mount point
    (root / "trip/c.png").unlink()
    with pytest.raises(InputError, match=r"2 files of ") as caught:
        upgrade(counting)
    assert "\n" not in str(caught.value)
    (more.parent / "away").rename(more)
    expected = rf"1 files of {index} .*{root}/trip/c.png \(no such file\).*vse index {root} --into {index}"
    with pytest.raises(InputError, match=expected):
        upgrade(counting)
    assert counting.images == 0
    assert serves_as_before(index)
    assert not (index / "generation-0002").exists()
    more.rename(more.parent / "away")
    report = upgrade(counting, drop_missing=True)
    assert (report.encoded, report.left_out) == (4, 2)
    assert any(str(more) in note and "1 files were left out" in note for note in report.notes)
    assert any("trip/c.png" in note for note in report.notes)
    with EmbeddedCollection.open(index) as reader:
        assert [file.path for file in reader.files()] == ["a.png", "b.bmp", "d.mp4", "é.png"]


@pytest.mark.parametrize("drop_missing", [False, True])
def test_a_disk_that_is_pulled_out_meanwhile(index, many, upgrade, root, drop_missing):
    """Its files are never mistaken for corrupt ones; once the disk is back, the upgrade resumes."""

    def pull_out(images):
        if images and root.exists():
            root.rename(root.parent / "away")

    with pytest.raises(InputError, match=r"would be lost.*mount the disk"):
        upgrade(Counting(other(), pull_out), batch_size=1, commit_files=1, drop_missing=drop_missing)
    assert serves_as_before(index, many)
    (root.parent / "away").rename(root)
    report = upgrade()
    assert report.resumed > 0
    assert report.encoded + report.resumed == many


@pytest.mark.parametrize("drop_missing", [False, True])
def test_a_file_that_is_deleted_meanwhile(index, many, upgrade, root, drop_missing):
    """It is dropped if that was allowed, and aborts the upgrade if not."""

    def delete(images):
        (root / "é.png").unlink(missing_ok=True)

    encoder = Counting(other(), delete)
    if drop_missing:
        report = upgrade(encoder, batch_size=1, drop_missing=True)
        assert (report.encoded, report.left_out) == (many - 1, 1)
        assert "é.png (no such file)" in report.notes[0]
    else:
        with pytest.raises(InputError, match=r"1 files .*é\.png \(no such file\)"):
            upgrade(encoder, batch_size=1)
        assert serves_as_before(index, many)


def test_files_that_can_no_longer_be_used(index, upgrade, root):
    """Corrupt files are dropped and reported with their path; the others are there."""
    (root / "b.bmp").write_bytes(b"damaged")
    (root / "d.mp4").write_bytes(b"damaged as well")
    report = upgrade()
    assert [problem.path for problem in report.problems] == [f"{root}/b.bmp", f"{root}/d.mp4"]
    assert report.encoded == 4
    with EmbeddedCollection.open(index) as reader:
        assert reader.info().files == 4


def test_upgrade_never_empties_collection(index, upgrade, root, more):
    """An upgrade that would empty the collection is an error."""
    for path in (*root.rglob("*.*"), *more.iterdir()):
        path.write_bytes(b"damaged")
    with pytest.raises(VSEError, match=r"none of the 6 files .*still serve"):
        upgrade()
    assert serves_as_before(index)
    shutil.rmtree(root)
    shutil.rmtree(more)
    with pytest.raises(VSEError, match="none of the 6 files"):
        upgrade(drop_missing=True)
    assert serves_as_before(index)


def test_upgrade_of_empty_collection(tmp_path):
    (tmp_path / "photos").mkdir()
    with filled(tmp_path / "index.vse", tmp_path / "photos") as collection:
        report = upgrade_collection(collection, other(), "other")
        assert collection.superseded
    assert (report.encoded, report.info.files, report.info.generation) == (0, 0, 2)


def test_upgrade_refuses_unsuitable_models(index, upgrade):
    """The same model, one that takes features and an invalid batch size are errors that change nothing."""
    with pytest.raises(InputError, match="holds embeddings of that model already"):
        upgrade(model())
    with pytest.raises(InputError, match="sets of features"):
        upgrade(build())
    with pytest.raises(InputError, match="batch_size"):
        upgrade(batch_size=0)
    with EmbeddedCollection.open(index) as reader, pytest.raises(VSEError, match="open for reading only"):
        upgrade_collection(reader, other(), "other")
    assert serves_as_before(index)
    assert not (index / "generation-0002").exists()


def test_another_process_searches_meanwhile(index, upgrade):
    """During the upgrade it finds the old embeddings, intact, and cannot write; afterwards it finds the new ones."""
    script = """
        import sys
        import numpy as np
        from vse.errors import VSEError
        from vse.index.store import EmbeddedCollection

        for line in sys.stdin:
            with EmbeddedCollection.open(sys.argv[1]) as reader:
                info = reader.info()
                query = np.eye(info.dimensions, dtype=np.float32)[0]
                hits = reader.search(query, 100)
                assert len(reader.items(hits.ids.tolist())) == info.items
            try:
                EmbeddedCollection.open(sys.argv[1], write=True).close()
                writes = True
            except VSEError as error:
                assert "is being written by process" in str(error)
                writes = False
            print(info.generation, info.files, writes, flush=True)
        """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(index)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def ask():
        process.stdin.write("look\n")
        process.stdin.flush()
        return process.stdout.readline().split()

    said = []
    upgrade(Counting(other(), lambda images: said.append(ask())), batch_size=1, commit_files=1)
    assert len(said) > 6
    assert all(each == ["1", "6", "False"] for each in said)
    assert ask() == ["2", "6", "True"]
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == 0


@pytest.mark.slow
def test_a_collection_in_milvus(tmp_path, root):
    """With Milvus too, an interrupted upgrade resumes, ids stay, and embeddings are those of the new model."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    where = tmp_path / "photos.db"
    about = {"model": model().fingerprint(), "model_source": "tiny", "dimensions": SIZE}
    with closing(create_collection(where, **about)) as collection:
        index_folder(collection, model(), root)
        before = ids_of(collection)

        def stop(images):
            if images > 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            upgrade_collection(collection, Counting(other(), stop), "other", batch_size=1, commit_files=1)
        (root / "a.png").unlink()
        index_folder(collection, model(), root)
        report = upgrade_collection(collection, other(), "other")
        assert report.resumed > 0
        assert report.resumed + report.encoded == 4
        assert collection.superseded
    with closing(open_collection(where, model=other().fingerprint())) as reader:
        assert reader.info() == report.info
        assert ids_of(reader) == {path: ids for path, ids in before.items() if path != "a.png"}
        for path in ("b.bmp", "trip/c.png", "é.png"):
            (found,) = reader.vectors(ids_of(reader)[path])
            np.testing.assert_allclose(found, other().encode_images([root / path])[0], atol=1e-5)


def test_upgrade_reports_progress(index, upgrade):
    """One stage for checking, one for encoding with a rate, others for building the index; each completes."""
    from vse.progress import SilentProgress

    class Recording(SilentProgress):
        def __init__(self):
            self.stages = []

        def start(self, total, description):
            self.stages.append([description, total, 0, ""])

        def advance(self, steps=1, description=None):
            self.stages[-1][2] += steps
            self.stages[-1][3] = description

    progress = Recording()
    upgrade(progress=progress, batch_size=2)
    assert [stage[:3] for stage in progress.stages[:2]] == [["looking for the files", 6, 6], ["upgrading", 6, 6]]
    assert all(total == done for _, total, done, _ in progress.stages)
    assert "files/s" in progress.stages[1][3]
