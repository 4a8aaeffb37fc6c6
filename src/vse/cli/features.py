"""``vse features``: extract features of images or videos once, for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, ThreadsOption, check_device_option
from vse.errors import InputError, UsageError, require, unknown_choice

Kind = Literal["auto", "images", "videos"]
Boxes = Literal["windows", "selective-search"]
"""``vse.inputs.regions.BoxMethod``, without loading numpy; mypy compares them."""
Precision = Literal["fp32", "bf16"]


def features(
    place: Annotated[Path, typer.Argument(metavar="PLACE", help="A folder of images or videos, or a dataset.")],
    backbone: Annotated[str, typer.Option(metavar="NAME", help="The backbone, such as efficientnet-lite0.")],
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the features are written; a stopped run is resumed.")
    ],
    kind: Annotated[Kind, typer.Option(help="What to read if a folder holds both.")] = "auto",
    size: Annotated[
        int | None, typer.Option(min=1, metavar="PIXELS", help="The input size [default: that of the backbone].")
    ] = None,
    regions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Store N regions of each image, means of the cells inside boxes."),
    ] = None,
    boxes: Annotated[
        Boxes, typer.Option(help="The boxes of regions: a grid of windows, or proposals by selective search.")
    ] = "windows",
    precomp: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write the features and captions of a dataset in the layout precomp."),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="Evenly spaced frames of each video [default: 20].")
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="Arithmetic of the backbone for images; bf16 is faster where the CPU has it.")
    ] = "fp32",
    batch_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images or frames in a batch.")] = 16,
    layout: Annotated[str, typer.Option(metavar="NAME", help="The layout of a dataset.")] = "auto",
    split: Annotated[str | None, typer.Option(metavar="NAME", help="One split of a dataset [default: all].")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="VSE_DEVICE",
            callback=check_device_option,
            help="Where the backbone runs: auto, cpu, cuda or mps [default: cuda if there is one, else cpu].",
        ),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Extract features of images or videos for training.

    Images get grid or region features, videos frame features. The same command resumes a run that stopped.
    """
    from vse.data.open import AUTO, LAYOUTS

    if layout != AUTO and layout not in LAYOUTS:
        raise UsageError(f"--layout: {unknown_choice('layout', layout, (AUTO, *LAYOUTS))}")
    is_dataset = layout != AUTO or split is not None
    if kind == "videos" and is_dataset:
        raise UsageError(f"{'--layout' if layout != AUTO else '--split'} is for datasets of images: leave it out")
    if kind == "auto":
        kind = "images" if is_dataset else _kind_of(place)
    if kind == "images" and frames is not None:
        raise UsageError("--frames is for videos, and these are images: leave it out, or add --kind videos")
    for option, given in (("--regions", regions), ("--precomp", precomp)):
        if kind == "videos" and given is not None:
            raise UsageError(f"{option} is for images, and these are videos: leave it out")
    if kind == "videos" and precision != "fp32":
        raise UsageError(f"--precision {precision} is for images, and these are videos: leave it out")
    if regions is None and boxes != "windows":
        raise UsageError(f"--boxes {boxes} is for regions: add --regions N")
    captioned = _captioned_splits(place, layout, split) if precomp is not None else ()
    require("torch", "train", "vse features")
    from vse.inputs.video.windows import FRAMES
    from vse.models.extract import extract_features, find_images, find_videos

    found = find_videos(place) if kind == "videos" else find_images(place, layout=layout, split=split)
    with progress_on_stderr() as progress:
        report = extract_features(
            found,
            backbone,
            into,
            frames=frames or FRAMES,
            regions=regions,
            boxes=boxes,
            size=size,
            precision=precision,
            batch_size=batch_size,
            device=device,
            threads=threads,
            progress=progress,
        )
    if precomp is not None:
        _write_precomp(place, layout, captioned, into, precomp)
    show(report, as_json=as_json)


def _captioned_splits(place: Path, layout: str, split: str | None) -> tuple[str, ...]:
    """Return the splits to write, before anything is computed; images without captions are an error."""
    from vse.data.open import list_splits, open_data

    splits = (split,) if split is not None else list_splits(place, layout=layout)
    found = tuple(each for each in splits if open_data(place, each, layout=layout, use="files").captions)
    if not found:
        raise InputError(f"{place}: no captions, which the layout precomp holds beside features: leave out --precomp")
    return found


def _write_precomp(place: Path, layout: str, splits: tuple[str, ...], features: Path, into: Path) -> None:
    from vse.data import FeatureStore, attach
    from vse.data.layouts import precomp
    from vse.data.open import open_data

    store = FeatureStore.open(features)
    into.mkdir(parents=True, exist_ok=True)
    for split in splits:
        precomp.write(into, attach(open_data(place, split, layout=layout, use="files"), store, on_bad="drop"))


def _kind_of(place: Path) -> Literal["images", "videos"]:
    """A dataset holds images; a folder is what it holds."""
    from vse.data.layouts.folder import NAME as FOLDER
    from vse.data.media import media_kinds
    from vse.data.open import LAYOUTS, match_layout

    if not place.is_dir():
        return "images"
    layout = match_layout(place)
    if layout is not None and LAYOUTS[layout].kind == "video":
        raise InputError(
            f"{place} holds captions of videos (layout {layout!r}): name the folder of video files, with --kind videos"
        )
    if layout not in {None, FOLDER}:
        return "images"
    kinds = media_kinds(place)
    if len(kinds) > 1:
        raise InputError(f"{place} holds images and videos: choose with --kind images or --kind videos")
    return "videos" if "video" in kinds else "images"
