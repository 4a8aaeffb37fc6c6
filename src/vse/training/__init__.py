"""Training: recipes, the loop, checkpoints, several processes.

>>> from vse.training import read_recipe, train
>>> result = train(read_recipe("flickr8k-vse-infinity"), "runs/flickr8k")   # doctest: +SKIP
>>> result.best["rsum"], result.model                                       # doctest: +SKIP
"""

from vse.errors import require

require("torch", extra="train", purpose="vse.training")

from vse.training.ensemble import EnsembleResult, train_recipe  # noqa: E402
from vse.training.recipe import EnsembleRecipe, Recipe  # noqa: E402
from vse.training.recipes import list_recipes, read_recipe  # noqa: E402
from vse.training.result import TrainingResult  # noqa: E402
from vse.training.train import train  # noqa: E402

__all__ = [
    "EnsembleRecipe",
    "EnsembleResult",
    "Recipe",
    "TrainingResult",
    "list_recipes",
    "read_recipe",
    "train",
    "train_recipe",
]
