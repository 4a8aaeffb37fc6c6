"""The paper's video table: VSE++ and VSE∞, HGR and HGR∞ on one data set."""

from __future__ import annotations

from vse.errors import require

for _module in ("torch", "h5py"):  # asked for now, not after hours of training
    require(_module, extra="train", purpose="vse experiment video")

from vse.data.video_open import find_video_layout  # noqa: E402
from vse.experiments.call import Call  # noqa: E402
from vse.experiments.grid.plan import Claim, Grid, Variant  # noqa: E402
from vse.experiments.grid.report import GridResult  # noqa: E402
from vse.experiments.grid.run import run_grid  # noqa: E402
from vse.training.recipes import toml_text  # noqa: E402

MODELS = {"VSE++": "vse-plus-plus", "VSE∞": "vse-infinity", "HGR": "hgr", "HGR∞": "hgr-infinity"}
CLAIMS = (Claim("VSE∞", "VSE++"), Claim("HGR∞", "HGR"))
FAMILIES = {"hgr": "msvd-small", "msrvtt": "msrvtt", "vatex": "vatex"}
"""Layout → the recipes that are trained."""
SEEDS = (0, 1, 2)
QUICK = ("schedule.epochs=2", "schedule.decay_epochs=1", "data.captions_per_image=1", "model.embed_size=32")


def run(call: Call) -> GridResult:
    """Train the four models with every seed, and rank the test split; runs that are there are not repeated."""
    data = call.needed_data("MSVD's in the layout of HGR")
    family = call.recipe or FAMILIES[find_video_layout(data)]
    places = [f"data.path={toml_text(data)}"]
    places += [f"data.features={toml_text(call.features)}"] if call.features is not None else []
    grid = Grid(
        name="video",
        title="Video–text retrieval",
        variants=tuple(Variant(label, f"{family}-{name}") for label, name in MODELS.items()),
        claims=CLAIMS,
        changes=(*places, *(QUICK if call.quick else ()), *call.changes),
    )
    return run_grid(grid, call.chosen_seeds(SEEDS), call)
