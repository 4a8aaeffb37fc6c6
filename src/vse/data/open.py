"""Open a dataset on disk: the table of known layouts, and the functions that detect, list and read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vse._util.plugins import Registry
from vse.data.dataset import CaptionedImages, ImageFiles, VideoCaptions
from vse.data.files import missing_files
from vse.data.frames import FRAME_LIMIT
from vse.data.layouts import flickr8k, folder, hgr, karpathy, msrvtt, packed, precomp, table, vatex
from vse.data.reading import ReadOptions, StrPath, Use, find_split
from vse.data.report import Findings
from vse.data.video_sources import open_frames
from vse.errors import InputError, PluginError, unknown_choice

AUTO = "auto"
MediaKind = Literal["image", "video"]
Split = CaptionedImages | VideoCaptions


def _no_check(path: Path, splits: Mapping[str, Split], findings: Findings) -> None:
    """Most layouts have nothing to check beyond their splits."""


@dataclass(frozen=True)
class Layout:
    """How one layout is detected, listed and read.

    ``read`` returns the images and captions of a split, or the captions of its videos: :func:`read_split` adds their
    frames. ``check`` reports findings about the dataset as a whole. ``protocols`` are the splits that belong together
    where not all of them do.
    """

    kind: MediaKind
    detect: Callable[[Path], bool]
    splits: Callable[[Path], tuple[str, ...]]
    read: Callable[[Path, str, ReadOptions], Split]
    check: Callable[[Path, Mapping[str, Split], Findings], None] = _no_check
    protocols: tuple[tuple[str, ...], ...] = ()
    has_frames: bool = False
    """Whether a dataset of videos holds its own frame features."""


# In the order of detection: layouts with distinctive file names first, any folder of images last. Video layouts come
# before tables, because MSR-VTT is published with some.
LAYOUTS: Registry[Layout] = Registry(
    "vse.layouts",
    {
        precomp.NAME: Layout("image", precomp.detect, precomp.splits, precomp.read),
        flickr8k.NAME: Layout("image", flickr8k.detect, flickr8k.splits, flickr8k.read, check=flickr8k.check),
        karpathy.NAME: Layout("image", karpathy.detect, karpathy.splits, karpathy.read),
        hgr.NAME: Layout("video", hgr.detect, hgr.splits, hgr.read, check=hgr.check, has_frames=True),
        msrvtt.NAME: Layout("video", msrvtt.detect, msrvtt.splits, msrvtt.read, protocols=msrvtt.PROTOCOLS),
        vatex.NAME: Layout("video", vatex.detect, vatex.splits, vatex.read, protocols=vatex.PROTOCOLS),
        packed.NAME: Layout("image", packed.detect, packed.splits, packed.read),
        table.NAME: Layout("image", table.detect, table.splits, table.read),
        folder.NAME: Layout("image", folder.detect, folder.splits, folder.read),
    },
)


def holds_videos(path: StrPath) -> bool:
    """Return whether the dataset at ``path`` has a video layout."""
    return LAYOUTS[find_layout(Path(path))].kind == "video"


def open_data(
    path: StrPath,
    split: str = "test",
    *,
    layout: str = AUTO,
    images: StrPath | None = None,
    use: Use = "auto",
    features: StrPath | None = None,
    frame_limit: int | None = FRAME_LIMIT,
    check_files: bool = False,
) -> CaptionedImages:
    """Open one split of the dataset at ``path``.

    Args:
        path: The folder or file of the dataset.
        split: The split to read. ``dev`` and ``val`` name the same split.
        layout: A name in :data:`LAYOUTS`, or ``auto`` to detect it.
        images: The folder of the image files, if they are not where the layout expects them.
        use: ``features`` or ``files``, for a layout that has both. ``auto`` prefers features unless ``images`` is
            given.
        features: The frame features of videos: an hdf5 or npz file, a folder of arrays, or in layout ``hgr`` the name
            of one of the bundled kinds, which takes precedence over a path of the same name.
        frame_limit: At most this many frames of a video are used, evenly spaced; None for all. Videos without frames
            are left out and listed in ``dropped``.
        check_files: Check that every image file exists. Off by default: this takes a while for large datasets.

    Returns:
        The images or videos of the split with their captions.

    Raises:
        InputError: If the dataset, split or features cannot be found or read.
    """
    if use not in {"auto", "features", "files"}:
        raise InputError(unknown_choice("use", use, ("auto", "features", "files")))
    where = Path(path)
    name = find_layout(where, layout)
    expect_videos_for(features, name, where)
    available = LAYOUTS[name].splits(where)
    # Without any split the reader knows best what is wrong: a missing list, or rows of which none is valid.
    wanted = find_split(split, available, where) if available else split
    options = ReadOptions(None if images is None else Path(images), use, features, frame_limit)
    data = read_split(name, where, wanted, options)
    if check_files and isinstance(data.images, ImageFiles):
        missing = missing_files(data.images.paths)
        if missing:
            raise InputError(
                f"{where}, split {wanted!r}: {len(missing)} of {len(data.images)} image files are missing, "
                f"{missing[0]} is the first: check the folder or pass images="
            )
    return data


def list_splits(path: StrPath, *, layout: str = AUTO) -> tuple[str, ...]:
    """Return the names of the splits at ``path``: train, dev and test first."""
    return LAYOUTS[find_layout(Path(path), layout)].splits(Path(path))


def detect_layout(path: StrPath) -> str:
    """Return the name of the layout at ``path``."""
    return find_layout(Path(path))


def find_layout(path: Path, layout: str = AUTO, *, kind: MediaKind | None = None) -> str:
    """Return ``layout`` after checking it, or detect the layout of ``path`` if it is ``auto``.

    Args:
        path: An existing folder or file.
        layout: A name in :data:`LAYOUTS` or ``auto``.
        kind: Consider only the layouts of images or of videos.

    Raises:
        InputError: If the name is unknown, or the path does not exist or has no known layout.
    """
    if layout != AUTO and (layout not in LAYOUTS or kind not in {None, _layout(layout).kind}):
        known = [name for name in LAYOUTS if kind in {None, _layout(name).kind}]
        raise InputError(unknown_choice("layout" if kind is None else f"{kind} layout", layout, (AUTO, *known)))
    if not path.exists():
        raise InputError(f"{path} does not exist: expected a folder or a file of images or videos and captions")
    if layout != AUTO:
        return layout
    found = match_layout(path, kind)
    if found is not None:
        return found
    images = "{split}_ims.npy with {split}_caps.txt, Flickr8k.token.txt, dataset_*.json"
    videos = "ref_captions.json with public_split, MSR-VTT's *_videodatainfo.json or VATEX's vatex_*.json"
    others = "a .csv, .tsv, .jsonl or .parquet file, WebDataset tars, or a folder of images"
    expected = (
        videos if kind == "video" else f"{images}, {others}" if kind == "image" else f"{images}, {videos}, {others}"
    )
    raise InputError(f"{path}: no known layout{'' if kind is None else f' of {kind}s'}: expected {expected}")


def match_layout(path: Path, kind: MediaKind | None = None) -> str | None:
    """Return the first layout that fits; those of plugins come before the one of any folder of images."""
    for name, one in LAYOUTS.builtin.items():
        if name != folder.NAME and kind in {None, one.kind} and one.detect(path):
            return name
    for name in LAYOUTS.plugins():
        if name not in LAYOUTS.builtin and kind in {None, _layout(name).kind} and _layout(name).detect(path):
            return name
    return folder.NAME if kind != "video" and LAYOUTS[folder.NAME].detect(path) else None


def _layout(name: str) -> Layout:
    """Return a layout; one of a plugin is checked."""
    layout = LAYOUTS[name]
    if not isinstance(layout, Layout):
        raise PluginError(f"{LAYOUTS.origin(name)}: expected a vse.data.Layout, got {type(layout).__name__}")
    return layout


def expect_videos_for(features: StrPath | None, layout: str, path: Path) -> None:
    """Refuse frame features for a dataset of images."""
    if features is not None and LAYOUTS[layout].kind == "image":
        raise InputError(
            f"--features {str(features)!r} (features= in Python) is for videos, and {path} holds images: leave it out"
        )


def read_split(layout: str, path: Path, split: str, options: ReadOptions) -> CaptionedImages:
    """Read a split in a known layout, with the frames of its videos."""
    known = LAYOUTS[layout]
    if known.kind == "video":
        if options.use == "files" or options.images is not None:
            raise InputError(
                f"{path}: layout {layout!r} holds videos as frame features, not images: use a model of frames"
            )
        if split not in known.splits(path):  # open_data passes the name on unchecked if there are no splits
            raise InputError(f"{path}: no list of the videos of split {split!r} in layout {layout!r}")
    data = known.read(path, split, options)
    if isinstance(data, VideoCaptions):
        return data.with_frames(open_frames(_find_features(path, data, options.features)), options.frame_limit)
    return data


def _find_features(path: Path, captions: VideoCaptions, features: StrPath | None) -> Path:
    """Return the file or folder of the frames of a split; a bundled kind is not looked up as a path."""
    has_frames = LAYOUTS[captions.layout].has_frames
    bundled = has_frames and features is not None and str(features) in hgr.feature_kinds(path)
    if features is not None and not bundled and Path(features).exists():
        return hgr.split_file(Path(features), captions.split) or Path(features)
    if has_frames:
        return hgr.features(path, captions.split, None if features is None else str(features))
    if features is None:
        raise InputError(f"{path}: layout {captions.layout!r} has no frame features of its own: {hgr.GIVE_FEATURES}")
    raise InputError(f"features {str(features)!r} do not exist: expected an hdf5 or npz file or a folder of arrays")
