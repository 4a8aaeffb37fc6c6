"""``vse features``: extract features of images or videos once, for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vse.cli.console import progress_on_stderr, show
from vse.cli.options import JsonOption, ThreadsOption, check_device_option
from vse.errors import InputError, UsageError, require, unknown_choice

Kind = Literal["auto", "images", "videos"]


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
    frames: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="Evenly spaced frames of each video [default: 20].")
    ] = None,
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

    Images get grid features, videos frame features. The same command resumes a run that stopped.
    """
    from vse.data.open import AUTO, LAYOUTS

    if layout not in {AUTO, *LAYOUTS}:
        raise UsageError(f"--layout: {unknown_choice('layout', layout, (AUTO, *LAYOUTS))}")
    is_dataset = layout != AUTO or split is not None
    if kind == "videos" and is_dataset:
        raise UsageError(f"{'--layout' if layout != AUTO else '--split'} is for datasets of images: leave it out")
    if kind == "auto":
        kind = "images" if is_dataset else _kind_of(place)
    if kind == "images" and frames is not None:
        raise UsageError("--frames is for videos, and these are images: leave it out, or add --kind videos")
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
            size=size,
            batch_size=batch_size,
            device=device,
            threads=threads,
            progress=progress,
        )
    show(report, as_json=as_json)


def _kind_of(place: Path) -> Literal["images", "videos"]:
    """A dataset holds images; a folder is what it holds."""
    from vse.data.layouts.folder import NAME as FOLDER
    from vse.data.media import media_kinds
    from vse.data.open import LAYOUTS

    if not place.is_dir():
        return "images"
    layout = next((name for name, known in LAYOUTS.items() if known.detect(place)), None)
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
