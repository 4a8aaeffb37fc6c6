"""What in an item speaks for a query, read from the file through the safe way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vse.errors import InputError
from vse.index.collection import Item, Vectors
from vse.index.evidence import evidence, seen
from vse.index.media_file import full_path
from vse.index.moment_frames import frame_evidence, moment_frames
from vse.index.scan.digest import digest_of
from vse.inputs.clips.limits import VideoLimits
from vse.inputs.images import ImageLimits
from vse.service.clip_frames import reachable
from vse.service.media import open_media
from vse.service.problems import ProblemError
from vse.service.schemas import ClipEvidenceModel, FrameModel, PictureEvidenceModel, SeenModel

if TYPE_CHECKING:
    from vse.index.query import Model

CHANGED = "the file has changed since it was indexed: its evidence would be that of another picture"


def explain(model: Model, item: Item, vector: Vectors, seconds: float) -> PictureEvidenceModel | ClipEvidenceModel:
    """The parts that add up to the score; 409 when the file is no longer the one that was indexed.

    Reading a clip may take ``seconds``. Its size and time of change tell whether it is the same: its digest would take
    longer than its frames.
    """
    return _clip(model, item, vector, seconds) if item.file.kind == "video" else _picture(model, item, vector)


def _picture(model: Model, item: Item, vector: Vectors) -> PictureEvidenceModel:
    opened = open_media(item.file)
    with opened.stream:
        content = opened.read(ImageLimits().max_bytes)
    if digest_of(content) != item.file.digest:
        raise ProblemError(409, CHANGED)
    if model.preprocessing is None:
        raise InputError("this model takes sets of features, not pictures")
    cells = evidence(model, content, vector)
    height, width = item.file.height, item.file.width
    top, left, rows, columns = seen((height, width), model.preprocessing)
    return PictureEvidenceModel(
        score=float(cells.sum()),
        grid=(cells.shape[0], cells.shape[1]),
        cells=[[round(float(cell), 6) for cell in row] for row in cells],
        seen=SeenModel(top=top / height, left=left / width, height=rows / height, width=columns / width),
    )


def _clip(model: Model, item: Item, vector: Vectors, seconds: float) -> ClipEvidenceModel:
    opened = open_media(item.file)
    with opened.stream:
        if not opened.is_as_indexed(item.file):
            raise ProblemError(409, CHANGED)
        path = reachable(opened, full_path(item.file))
        window = moment_frames(path, item.start or 0.0, VideoLimits(max_time=seconds))
    shares = frame_evidence(model, window, vector)
    pairs = zip(window.times, shares.tolist(), strict=True)
    return ClipEvidenceModel(
        score=float(shares.sum()), frames=[FrameModel(at=round(at, 3), share=round(share, 6)) for at, share in pairs]
    )
