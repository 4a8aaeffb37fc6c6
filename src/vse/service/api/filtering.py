"""The parameters that narrow what is found, shared by searching and browsing."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from vse.index.filter_words import read_filter
from vse.index.filters import Filter
from vse.service.schemas import Kind


class FilterParameters(BaseModel):
    """What may be found."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    folder: str | None = Field(None, max_length=1000, description="only below this folder of the collection")
    type: Kind | None = Field(None, description="image or video")
    after: str | None = Field(None, max_length=10, description="taken then or later: 2024, 2024-05 or 2024-05-31")
    before: str | None = Field(None, max_length=10, description="taken before then")
    near: str | None = Field(None, max_length=60, description="latitude,longitude in degrees")
    within: float | None = Field(None, gt=0, le=20_000, description="kilometres around 'near', 10 by default")

    def to_filter(self) -> Filter:
        """As the index understands it; what does not go together is an InputError."""
        found = read_filter(self.type, self.after, self.before, self.near, self.within)
        return replace(found, folder=self.folder) if self.folder else found
