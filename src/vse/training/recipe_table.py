"""What the tables of a recipe are made of: strict values, and numbers within bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from vse.strict import Strict

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Table(Strict):
    """A table of a recipe. ``true`` is no number and ``"3"`` neither."""

    model_config = ConfigDict(strict=True)
