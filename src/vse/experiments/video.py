"""The paper's video table: VSE++ and VSE∞, HGR and HGR∞ on one data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vse.errors import InputError, require

for _module in ("torch", "matplotlib", "h5py"):  # asked for now, not after hours of training
    require(_module, extra="train", purpose="vse experiment video")

from vse.data.video_open import find_video_layout  # noqa: E402
from vse.experiments.grid.plan import Claim, Grid, Variant  # noqa: E402
from vse.experiments.grid.report import GridResult  # noqa: E402
from vse.experiments.grid.run import run_grid  # noqa: E402
from vse.progress import ProgressReporter  # noqa: E402
from vse.training.recipes import toml_text  # noqa: E402

MODELS = {"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity", "HGR": "hgr", "HGR∞": "hgr-infinity"}
CLAIMS = (Claim("VSE∞", "VSE++"), Claim("HGR∞", "HGR"))
FAMILIES = {"hgr": "msvd-small", "msrvtt": "msrvtt", "vatex": "vatex"}
"""Layout → the recipes that are trained. Another size or schedule is a matter of ``changes``."""
SEEDS = (0, 1, 2)
QUICK = ("schedule.epochs=2", "schedule.decay_epochs=1", "data.captions_per_image=1", "model.embed_size=32")


def run(
    *,
    quick: bool,
    out: Path,
    seeds: tuple[int, ...] | None,
    jobs: int | None,
    report: ProgressReporter,
    data: Path | None = None,
    features: Path | None = None,
    changes: Sequence[str] = (),
) -> GridResult:
    """Train the four models with every seed, and rank the test split; runs already in ``out`` are not repeated."""
    if data is None:
        raise InputError("no data: name the folder of a video data set with --data DIR (see docs/video.md)")
    family = FAMILIES[find_video_layout(data)]
    places = [f"data.path={toml_text(data)}"] + ([f"data.features={toml_text(features)}"] if features else [])
    grid = Grid(
        name="video",
        title="Video–text retrieval",
        variants=tuple(Variant(label, f"{family}-{name}") for label, name in MODELS.items()),
        claims=CLAIMS,
        changes=(*places, *(QUICK if quick else ()), *changes),
    )
    chosen = seeds if seeds is not None else SEEDS[:1] if quick else SEEDS
    return run_grid(grid, seeds=chosen, out=out, jobs=jobs, report=report, quick=quick)
