"""A checkpoint from a stranger: whatever is in the file, nothing of it runs."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from tests.convert.official_style import bigru_state, options, region_state, write

from vse.convert import load_official
from vse.errors import InputError


class Call:
    """An object whose unpickling calls a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def attacks(mark: Path) -> dict[str, Call]:
    """Ways to create the file ``mark`` while being unpickled."""
    return {
        "system": Call(os.system, f"touch {mark}"),
        "open": Call(open, str(mark), "w"),
        "exec": Call(exec, f"open({str(mark)!r}, 'w').close()"),
        "eval": Call(eval, f"open({str(mark)!r}, 'w').close()"),
        "popen": Call(subprocess.Popen, ["touch", str(mark)]),
        "path": Call(Path.touch, mark),
        "nested": Call(getattr, Call(__import__, "os"), "system"),
    }


ATTACKS = list(attacks(Path("mark")))
WAYS = ["alone", "option", "tensor", "score", "raw", "raw-old", "legacy", "tar"]


def plant(path: Path, bait: object, way: str) -> None:
    """Write ``bait`` into a file that looks like a checkpoint, in one of several places and formats."""
    honest = {"model": [region_state(), bigru_state()], "opt": options(), "epoch": 1}
    if way == "alone":
        torch.save(bait, path)
    elif way == "option":
        torch.save(honest | {"opt": options(trick=bait)}, path)
    elif way == "tensor":
        torch.save(honest | {"model": [region_state() | {"fc.bias": bait}, bigru_state()]}, path)
    elif way == "score":
        torch.save(honest | {"best_rsum": bait}, path)
    elif way == "raw":
        path.write_bytes(pickle.dumps(bait))
    elif way == "raw-old":
        path.write_bytes(pickle.dumps(bait, protocol=0))
    elif way == "legacy":
        torch.save(honest | {"opt": bait}, path, _use_new_zipfile_serialization=False)
    else:
        with tarfile.open(path, "w") as archive:
            for name in ("storages", "tensors", "pickle"):
                data = pickle.dumps(bait)
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_checkpoint_code_is_never_run(attack, way, tmp_path):
    """Refused in one line, and the file that the attack would create is not there."""
    mark, path = tmp_path / "mark", tmp_path / "trap.pth"
    plant(path, attacks(mark)[attack], way)
    with pytest.raises(InputError) as caught:
        load_official(path)
    assert not mark.exists()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "weights_only" not in str(caught.value)  # torch's advice to trust the file is not passed on


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("attack", ["system", "open", "exec", "eval", "path"])
def test_malicious_pickles_run_without_protection(attack, tmp_path):
    """The attacks are real: plain unpickling does create the file."""
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(attacks(mark)[attack]))
    assert mark.exists()


def test_refused_checkpoint_reports_content(tmp_path):
    """The name that the file wanted to call is in the message."""
    path = tmp_path / "trap.pth"
    plant(path, attacks(tmp_path / "mark")["system"], "option")
    with pytest.raises(InputError, match=r"refused, and nothing in it was run.*system"):
        load_official(path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("zipped", [True, False])
def test_truncated_checkpoint_is_refused(share, zipped, tmp_path):
    """Wherever a download broke off."""
    content = {"model": [region_state(), bigru_state()], "opt": options()}
    torch.save(content, tmp_path / "whole.pth", _use_new_zipfile_serialization=zipped)
    load_official(tmp_path / "whole.pth")
    data = (tmp_path / "whole.pth").read_bytes()
    path = tmp_path / "cut.pth"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InputError) as caught:
        load_official(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_checkpoint_with_flipped_byte_never_crashes(tmp_path):
    """Damage in any place is either told in one line or lies in the values of a tensor."""
    path = write(tmp_path / "a.pth", region_state(), bigru_state())
    data = path.read_bytes()
    for place in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        message = ""
        try:
            load_official(path)
        except InputError as error:
            message = str(error)
        assert "\n" not in message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a checkpoint\nat all\n",
        b"PK\x03\x04 and then nothing",
        b"\x80\x02}q\x00.",
        b"\x89PNG\r\n\x1a\n",
        b"\x00" * 5000,
        b"<html>login first</html>",
    ],
)
def test_files_that_are_no_checkpoint_are_refused(content, tmp_path):
    """Empty files, texts, images, the page of a download that needs a login."""
    path = tmp_path / "a.pth"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_official(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_foreign_zip_archive_is_refused(tmp_path):
    """A zip file, as a checkpoint is one, but without a pickle inside."""
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match=r"not a complete torch checkpoint|not a torch checkpoint"):
        load_official(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_module_is_refused(tmp_path):
    """TorchScript holds code; it is not loaded."""
    path = tmp_path / "a.pth"
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), path)
    with pytest.raises(InputError) as caught:
        load_official(path)
    assert "\n" not in str(caught.value)


def test_missing_checkpoint_differs_from_folder(tmp_path):
    """A folder is a folder, a missing file is missing."""
    with pytest.raises(InputError, match="a folder, expected a checkpoint"):
        load_official(tmp_path)
    with pytest.raises(InputError, match=r"none\.pth: no such file"):
        load_official(tmp_path / "none.pth")
