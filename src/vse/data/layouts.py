"""The layouts by name, and which of them a path has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vse.data import flickr8k, folder, karpathy, precomp, table
from vse.data.captioned_images import CaptionedImages
from vse.data.reading import ReadOptions
from vse.data.video_open import VIDEO_LAYOUTS, find_features
from vse.data.video_sources import open_frames
from vse.errors import InputError, unknown_choice


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
