"""Layout ``hgr``: videos as HGR published them.

``ref_captions.json`` ``{video: [sentence]}`` in the folder or in ``annotation/RET`` inside it,
``public_split/{trn,val,tst}_names.npy``, ``ordered_feature/SA/<feature>/{trn,val,tst}_ft.hdf5``. Captions are used
unchanged, because role graphs are looked up by them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.lib import format as npy_format

from vse.data.dataset import CaptionedImages, VideoCaptions
from vse.data.files import LISTED_TWICE, distinct_names, expect_videos, parse_json, read_caption, read_text
from vse.data.reading import OnProblem, ReadOptions, first_folder, in_usual_order
from vse.data.report import Findings
from vse.data.roles.graphs import GRAPH_FILES, role_graphs
from vse.data.video_sources import CORRUPT, HDF5_SUFFIXES
from vse.data.vocabulary import WORD_FILE, VideoVocabulary
from vse.errors import InputError, first_line, unknown_choice

NAME = "hgr"
CAPTIONS = "ref_captions.json"
GIVE_FEATURES = "give them with --features PLACE (features= in Python)"
_FEATURES = Path("ordered_feature") / "SA"
_SHORT = {"train": "trn", "val": "val", "test": "tst"}
_CONVERT = (
    'if you trust it, convert it with python -c "import sys, numpy as n; f = sys.argv[1]; '
    'n.save(f, n.load(f, allow_pickle=True).astype(str))" {}'
)


def detect(path: Path) -> bool:
    """Return whether there is a ``ref_captions.json``."""
    return (annotation_folder(path) / CAPTIONS).is_file()


def splits(path: Path) -> tuple[str, ...]:
    """Return the splits with a list of names."""
    return in_usual_order(split for split in _SHORT if _list_file(path, split).is_file())


def annotation_folder(path: Path) -> Path:
    """Return the folder of the captions, role graphs and words."""
    return first_folder([path, path / "annotation" / "RET", path / "annotation"], CAPTIONS)


def read(path: Path, split: str, options: ReadOptions) -> VideoCaptions:
    """Return the videos of a split in the order of its list."""
    file = annotation_folder(path) / CAPTIONS
    names = _names(_list_file(path, split), options.on_problem)
    expect_videos(path, split, len(names))
    captions_of = _captions_of(file, names, options.on_problem)
    return VideoCaptions.of(
        path.resolve().name,
        split,
        NAME,
        [(name, _captions(captions_of.get(name, []), f"{file}, {name!r}", options.on_problem)) for name in names],
    )


def check(path: Path, splits: Mapping[str, CaptionedImages | VideoCaptions], findings: Findings) -> None:
    """Check the published role graphs and the numbered words against the captions."""
    _check_graphs(annotation_folder(path), splits, findings)
    _check_words(annotation_folder(path) / WORD_FILE, splits, findings)


def feature_kinds(path: Path) -> list[str]:
    """Return the kinds of features in the dataset, the names of their folders."""
    home = path / _FEATURES
    return sorted(folder.name for folder in home.iterdir() if folder.is_dir()) if home.is_dir() else []


def features(path: Path, split: str, wanted: str | None) -> Path:
    """Return the file of frames of a split; ``wanted`` chooses between several kinds of features."""
    home = path / _FEATURES
    kinds = feature_kinds(path)
    if not kinds:
        raise InputError(f"{home}: no folder of frame features: {GIVE_FEATURES}")
    if wanted is None and len(kinds) > 1:
        raise InputError(
            f"{home} has {len(kinds)} kinds of features, {', '.join(kinds)}: name one with --features KIND (features= "
            "in Python)"
        )
    if wanted is not None and wanted not in kinds:
        raise InputError(f"{home}: {unknown_choice('kind of features', wanted, kinds)}")
    folder = home / (wanted or kinds[0])
    return split_file(folder, split) or folder / f"{_SHORT[split]}_ft{HDF5_SUFFIXES[0]}"


def split_file(folder: Path, split: str) -> Path | None:
    """Return ``{trn,val,tst}_ft.hdf5`` (or ``.npz``) in a folder of one kind of features, None if there is none."""
    candidates = [folder / f"{_SHORT[split]}_ft{ending}" for ending in (*HDF5_SUFFIXES, ".npz") if split in _SHORT]
    return next((file for file in candidates if file.is_file()), None)


def _list_file(path: Path, split: str) -> Path:
    return path / "public_split" / f"{_SHORT[split]}_names.npy"


def _names(file: Path, on_problem: OnProblem) -> list[str]:
    """Return the names of a split, each once. An object array is not unpickled: that could run code."""
    try:
        with file.open("rb") as opened:
            array = npy_format.read_array(opened, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: expected the names of the split's videos") from None
    except CORRUPT as error:
        fix = _CONVERT.format(shlex.quote(str(file))) if "Object arrays" in str(error) else "copy or save it again"
        raise InputError(f"{file} cannot be read ({first_line(error)}): {fix}") from None
    if array.ndim != 1 or array.dtype.kind not in "US":
        raise InputError(f"{file} holds {array.dtype} of shape {array.shape}: expected a list of names")
    try:
        names = [name.decode() if isinstance(name, bytes) else str(name) for name in array.tolist()]
        "".join(names).encode()
    except (UnicodeError, SystemError) as error:
        raise InputError(f"{file}: a name that is not valid text ({first_line(error)}): write the list again") from None
    return distinct_names(names, str(file), on_problem)


def _captions_of(file: Path, names: Iterable[str], on_problem: OnProblem) -> dict[str, Any]:
    """Return ``{video: captions}``; a wanted video that is described twice is a problem, since JSON keeps the last.

    Objects are read as tuples of pairs, which keep both and are distinct from lists.
    """
    text = read_text(file)
    try:
        pairs = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        pairs = parse_json(text, str(file))  # which reports what is wrong
    if not isinstance(pairs, tuple):
        raise InputError(f"{file}: expected an object {{video: [sentence]}}, got a {type(pairs).__name__}")
    captions_of = dict(pairs)
    if len(captions_of) < len(pairs):
        wanted, seen = set(names), set()
        for name, _ in pairs:
            if name in seen and name in wanted:
                on_problem(LISTED_TWICE, f"{file}: {name} is described twice: put its captions into one list")
            seen.add(name)
    return captions_of


def _captions(found: Any, place: str, on_problem: OnProblem) -> list[str]:
    """Return the sentences of a video; one that is not in the file has none."""
    if not isinstance(found, list):
        raise InputError(f"{place}: expected a list of sentences")
    return [read_caption(sentence, f"{place}[{k}]", on_problem) for k, sentence in enumerate(found)]


def _check_graphs(folder: Path, splits: Mapping[str, CaptionedImages | VideoCaptions], findings: Findings) -> None:
    """Report sentences that a file of role graphs lacks; without a file all of them are parsed, as intended."""
    if not any((folder / name).is_file() for name in GRAPH_FILES):
        return
    try:
        found = role_graphs((caption for one in splits.values() for caption in one.captions), folder)
    except InputError as error:
        findings.error("unreadable role graphs", str(error))
        return
    for sentence in found.missing:
        findings.warning("sentences without a role graph, parsed by rules", sentence)
    for sentence in found.astray:
        findings.warning("role graphs with nodes outside of their sentence, left out", sentence)


def _check_words(file: Path, splits: Mapping[str, CaptionedImages | VideoCaptions], findings: Findings) -> None:
    """Check the file of numbered words, which training uses if it exists."""
    if not file.is_file():
        return
    try:
        words = VideoVocabulary.load(file)
    except InputError as error:
        findings.error("unreadable words", str(error))
        return
    lacking = words.lacking(splits["train"].captions) if "train" in splits else None
    if lacking is not None:
        findings.warning("words that the file of words lacks", lacking)
