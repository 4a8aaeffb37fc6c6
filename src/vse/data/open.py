"""Open a data set on disk, whichever layout it has."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from vse.data.dataset import CaptionedImages, CaptionedVideos, ImageFiles, VideoCaptions
from vse.data.frames import FRAME_LIMIT
from vse.data.layouts import flickr8k, folder, karpathy, precomp, table
from vse.data.layouts import hgr as video_hgr
from vse.data.layouts import msrvtt as video_msrvtt
from vse.data.layouts import vatex as video_vatex
from vse.data.reading import OnProblem, ReadOptions, Use, find_split, stop
from vse.data.video_sources import open_frames
from vse.errors import InputError, unknown_choice

AUTO = "auto"


@dataclass(frozen=True)
class VideoLayout:
    """How one layout is recognised and read; ``protocols`` are the splits that belong together."""

    detect: Callable[[Path], bool]
    splits: Callable[[Path], tuple[str, ...]]
    read: Callable[[Path, str, OnProblem], VideoCaptions]
    protocols: tuple[tuple[str, ...], ...] = (("train", "val", "test"),)


VIDEO_LAYOUTS = {
    video_hgr.NAME: VideoLayout(video_hgr.detect, video_hgr.splits, video_hgr.read),
    video_msrvtt.NAME: VideoLayout(video_msrvtt.detect, video_msrvtt.splits, video_msrvtt.read, video_msrvtt.PROTOCOLS),
    video_vatex.NAME: VideoLayout(video_vatex.detect, video_vatex.splits, video_vatex.read, video_vatex.PROTOCOLS),
}


def open_videos(
    path: StrPath,
    split: str = "test",
    *,
    features: StrPath | None = None,
    layout: str = AUTO,
    limit: int | None = FRAME_LIMIT,
) -> CaptionedVideos:
    """One split of the videos at ``path`` with their frames.

    ``features`` is an hdf5 or npz file or a folder of arrays, one ``(frames, size)`` a video; in the layout ``hgr`` it
    may be left out, or name one of the folders in ``ordered_feature/SA``, even where a path is called so. Of a longer
    video ``limit`` frames are used, evenly spaced. Videos without frames are left out and listed in ``dropped``.
    """
    captions = read_video_captions(path, split, layout=layout)
    return captions.with_frames(open_frames(find_features(Path(path), captions, features)), limit)


def read_video_captions(
    path: StrPath, split: str = "test", *, layout: str = AUTO, on_problem: OnProblem = stop
) -> VideoCaptions:
    """One split without frames: enough for vocabularies and role graphs."""
    where = Path(path)
    known = VIDEO_LAYOUTS[find_video_layout(where, layout)]
    available = known.splits(where)
    return known.read(where, find_split(split, available, where), on_problem)


def find_video_layout(path: Path, layout: str = AUTO) -> str:
    """The name of the layout of ``path``; ``layout`` itself unless it is ``auto``."""
    if layout != AUTO and layout not in VIDEO_LAYOUTS:
        raise InputError(unknown_choice("video layout", layout, (AUTO, *VIDEO_LAYOUTS)))
    if not path.is_dir():
        raise InputError(f"{path} is no folder: expected one with the captions of videos")
    found = layout if layout != AUTO else next((name for name, one in VIDEO_LAYOUTS.items() if one.detect(path)), None)
    if found is None:
        raise InputError(
            f"{path}: no known layout of videos: expected ref_captions.json with public_split, MSR-VTT's "
            "*_videodatainfo.json or VATEX's vatex_*.json"
        )
    return found


def find_features(path: Path, captions: VideoCaptions, features: StrPath | None) -> Path:
    """The file or folder of the frames of a split; a kind that the data have is not looked for elsewhere."""
    own = captions.layout == video_hgr.NAME and features is not None and str(features) in video_hgr.feature_kinds(path)
    if features is not None and not own and Path(features).exists():
        return video_hgr.split_file(Path(features), captions.split) or Path(features)
    if captions.layout == video_hgr.NAME:
        return video_hgr.features(path, captions.split, None if features is None else str(features))
    if features is None:
        raise InputError(
            f"{path}: layout {captions.layout!r} has no frame features of its own: {video_hgr.GIVE_FEATURES}"
        )
    raise InputError(f"features {str(features)!r} do not exist: expected an hdf5 or npz file or a folder of arrays")


def _no_remarks(path: Path) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Layout:
    """How one layout is recognised and read."""

    detect: Callable[[Path], bool]
    splits: Callable[[Path], tuple[str, ...]]
    read: Callable[[Path, str, ReadOptions], CaptionedImages]
    remarks: Callable[[Path], tuple[str, ...]] = _no_remarks
    """What a check should mention about the data as a whole."""
    videos: bool = False
    """Whether its images are videos, as frame features."""


def _videos(name: str) -> Layout:
    known = VIDEO_LAYOUTS[name]

    def read(path: Path, split: str, options: ReadOptions) -> CaptionedImages:
        if options.use == "files" or options.images is not None:
            raise InputError(
                f"{path}: layout {name!r} holds videos as frame features, no pictures: take a model of frames"
            )
        if split not in known.splits(path):  # asked without looking at what there is
            raise InputError(f"{path}: no list of the videos of split {split!r} in layout {name!r}")
        captions = known.read(path, split, options.on_problem)
        return captions.with_frames(open_frames(find_features(path, captions, options.features)))

    return Layout(known.detect, known.splits, read, videos=True)


# The order of detection: the layouts that are recognised by special names first, any folder of images last.
LAYOUTS: dict[str, Layout] = {
    precomp.NAME: Layout(precomp.detect, precomp.splits, precomp.read),
    flickr8k.NAME: Layout(flickr8k.detect, flickr8k.splits, flickr8k.read, flickr8k.remarks),
    karpathy.NAME: Layout(karpathy.detect, karpathy.splits, karpathy.read),
    **{name: _videos(name) for name in VIDEO_LAYOUTS},  # before tables: MSR-VTT has some beside it
    table.NAME: Layout(table.detect, table.splits, table.read),
    folder.NAME: Layout(folder.detect, folder.splits, folder.read),
}
AUTO = "auto"


def find_layout(path: Path, layout: str = AUTO) -> str:
    """The name of the layout of ``path``; ``layout`` itself unless it is ``auto``."""
    if layout != AUTO and layout not in LAYOUTS:
        raise InputError(unknown_choice("layout", layout, (AUTO, *LAYOUTS)))
    if not path.exists():
        raise InputError(f"{path} does not exist: expected a folder or a file of images and captions")
    if layout != AUTO:
        return layout
    for name, known in LAYOUTS.items():
        if known.detect(path):
            return name
    raise InputError(
        f"{path}: no known layout: expected {{split}}_ims.npy with {{split}}_caps.txt, Flickr8k.token.txt, "
        "dataset_*.json, ref_captions.json, MSR-VTT's or VATEX's files, a .csv, .tsv, .jsonl or .parquet file, or a "
        "folder of images"
    )


def file_size(path: Path) -> int | None:
    """Bytes of a file, None if there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return status.st_size if S_ISREG(status.st_mode) else None


def missing_files(paths: Iterable[Path]) -> list[Path]:
    """The paths that are no files."""
    return [path for path in paths if file_size(path) is None]


def file_digest(path: Path) -> bytes | None:
    """SHA-256 of the content, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None


StrPath = str | os.PathLike[str]


def open_data(
    path: StrPath,
    split: str = "test",
    *,
    layout: str = AUTO,
    images: StrPath | None = None,
    use: Use = "auto",
    features: StrPath | None = None,
    check_files: bool = False,
) -> CaptionedImages:
    """One split of the data at ``path``.

    ``layout`` is ``auto`` or a name of :data:`~vse.data.open.LAYOUTS`; ``dev`` and ``val`` are the same split.
    ``images`` is the folder of the image files, if they are not where the layout has them. ``use`` chooses between the
    ``features`` and the ``files`` of a layout that has both; ``auto`` takes features unless ``images`` is given. Image
    files are not looked at unless ``check_files`` is set: a hundred thousand of them take their time. ``features`` are
    the frame features of videos: an hdf5 or npz file, a folder of arrays, or in the layout ``hgr`` the name of a kind.
    """
    if use not in {"auto", "features", "files"}:
        raise InputError(unknown_choice("use", use, ("auto", "features", "files")))
    where = Path(path)
    known = LAYOUTS[find_layout(where, layout)]
    if features is not None and not known.videos:
        raise InputError(
            f"--features {str(features)!r} (features= in Python) is for videos, and {where} holds images: leave it out"
        )
    available = known.splits(where)
    # Without any split the reader knows best what is wrong: a missing list, or rows of which none can be understood.
    name = find_split(split, available, where) if available else split
    data = known.read(where, name, ReadOptions(None if images is None else Path(images), use, features))
    if check_files and isinstance(data.images, ImageFiles):
        missing = missing_files(data.images.paths)
        if missing:
            raise InputError(
                f"{where}, split {name!r}: {len(missing)} of {len(data.images)} image files are missing, "
                f"{missing[0]} is the first: check the folder or pass images="
            )
    return data


def list_splits(path: StrPath, *, layout: str = AUTO) -> tuple[str, ...]:
    """The names of the splits, train, dev and test first."""
    return LAYOUTS[find_layout(Path(path), layout)].splits(Path(path))


def detect_layout(path: StrPath) -> str:
    """The name of the layout at ``path``."""
    return find_layout(Path(path))
