"""Which backbone saw the frames of a training run, so that the model can see clips itself."""

from __future__ import annotations

from vse.configuration import FrameBackboneConfig, FramesConfig
from vse.data.captioned_images import ImageSet
from vse.data.clip_folder import read_clip_header
from vse.data.video_frames import VideoFrames
from vse.data.video_sources import FrameFolder
from vse.errors import InputError
from vse.storage import other_files


def remember_backbone(image: FramesConfig, images: ImageSet) -> FramesConfig:
    """``image`` with the backbone of frames that ``vse features`` computed; of others it is not known."""
    if image.backbone is not None:
        raise InputError("model.image.backbone of frames is known from their features: leave it out of the recipe")
    return image.model_copy(update={"backbone": seen_by(images)})


def seen_by(images: ImageSet) -> FrameBackboneConfig | None:
    """What ``features.json`` beside the frames says; a backbone that is made of other files cannot be had again."""
    if not isinstance(images, VideoFrames) or not isinstance(images.source, FrameFolder):
        return None
    header = read_clip_header(images.source.folder)
    if header is None or other_files(header.options):
        return None
    return FrameBackboneConfig(
        name=header.backbone,
        options=header.options,
        preprocessing=header.preprocessing,
        fingerprint=header.fingerprint,
        frames=header.frames,
    )
