"""Layout ``hgr``: videos as HGR published them.

``ref_captions.json`` ``{video: [sentence]}`` in the folder or in ``annotation/RET`` inside it,
``public_split/{trn,val,tst}_names.npy``, ``ordered_feature/SA/<feature>/{trn,val,tst}_ft.hdf5``. Captions are taken as
they stand: the role graphs are found by them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vse.data.reading import OnProblem, expect_images, first_folder
from vse.data.splits import in_usual_order
from vse.data.text_files import parse_json, read_text, report_empty
from vse.data.video_sources import HDF5_ENDINGS
from vse.data.videos import VideoCaptions
from vse.errors import InputError, first_line, unknown_choice

NAME = "hgr"
CAPTIONS = "ref_captions.json"
_SHORT = {"train": "trn", "val": "val", "test": "tst"}


def detect(path: Path) -> bool:
    """Whether there is a ``ref_captions.json``."""
    return (annotation_folder(path) / CAPTIONS).is_file()


def splits(path: Path) -> tuple[str, ...]:
    """The splits with a list of names."""
    return in_usual_order(split for split in _SHORT if _list_file(path, split).is_file())


def annotation_folder(path: Path) -> Path:
    """The folder of the captions, role graphs and words."""
    return first_folder([path, path / "annotation" / "RET", path / "annotation"], CAPTIONS)


def read(path: Path, split: str, on_problem: OnProblem) -> VideoCaptions:
    """The videos of a split in the order of its list."""
    file = annotation_folder(path) / CAPTIONS
    captions_of = parse_json(read_text(file), str(file))
    if not isinstance(captions_of, dict):
        raise InputError(f"{file}: expected an object {{video: [sentence]}}, got a {type(captions_of).__name__}")
    names = _names(_list_file(path, split), on_problem)
    expect_images(path, split, len(names))
    return VideoCaptions.of(
        path.resolve().name, split, NAME, [(name, _captions(captions_of, name, file, on_problem)) for name in names]
    )


def features(path: Path, split: str, wanted: str | None) -> Path:
    """The file of frames of a split; ``wanted`` chooses between several kinds of features."""
    home = path / "ordered_feature" / "SA"
    kinds = sorted(folder.name for folder in home.iterdir() if folder.is_dir()) if home.is_dir() else []
    if not kinds:
        raise InputError(f"{home}: no folder of frame features: give them with features=")
    if wanted is None and len(kinds) > 1:
        raise InputError(f"{home} has {len(kinds)} kinds of features, {', '.join(kinds)}: name one with features=")
    if wanted is not None and wanted not in kinds:
        raise InputError(f"{home}: {unknown_choice('kind of features', wanted, kinds)}")
    folder = home / (wanted or kinds[0])
    return split_file(folder, split) or folder / f"{_SHORT[split]}_ft{HDF5_ENDINGS[0]}"


def split_file(folder: Path, split: str) -> Path | None:
    """``{trn,val,tst}_ft.hdf5`` (or ``.npz``) in a folder of one kind of features, where it is."""
    candidates = [folder / f"{_SHORT[split]}_ft{ending}" for ending in (*HDF5_ENDINGS, ".npz") if split in _SHORT]
    return next((file for file in candidates if file.is_file()), None)


def _list_file(path: Path, split: str) -> Path:
    return path / "public_split" / f"{_SHORT[split]}_names.npy"


def _names(file: Path, on_problem: OnProblem) -> list[str]:
    """The names of a split, each once. An array of Python objects is not opened: that could run what is in it."""
    try:
        array = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: expected the names of the split's videos") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{file} cannot be read ({first_line(error)}): if you trust it, convert it with python -c "
            f"\"import numpy as n; n.save('{file.name}', n.load('{file.name}', allow_pickle=True).astype(str))\""
        ) from None
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise InputError(f"{file} holds {array.dtype} of shape {array.shape}: expected a list of names")
    names = [name.decode() if isinstance(name, bytes) else str(name) for name in array.tolist()]
    for name in {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ():
        on_problem("name listed twice", f"{file}: {name} is listed {names.count(name)} times")
    return list(dict.fromkeys(names))


def _captions(captions_of: dict[str, Any], name: str, file: Path, on_problem: OnProblem) -> list[str]:
    """The sentences of a video; one that the file does not know has none."""
    found = captions_of.get(name, [])
    if not isinstance(found, list) or not all(isinstance(sentence, str) for sentence in found):
        raise InputError(f"{file}, {name!r}: expected a list of sentences")
    for k, sentence in enumerate(found):
        if not sentence.strip():
            report_empty(on_problem, f"{file}, {name!r}[{k}]")
    return [sentence.strip() for sentence in found]
