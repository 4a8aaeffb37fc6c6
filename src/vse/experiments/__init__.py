"""The paper's experiments, one module a table or figure; this file only names them and imports nothing heavy."""

from typing import NamedTuple


class ExperimentEntry(NamedTuple):
    """Where an experiment lives and what it shows."""

    summary: str
    module: str
    trains: bool = False
    """On a data set that is given: it takes ``data``, ``features`` and ``changes`` of its recipes."""


EXPERIMENTS: dict[str, ExperimentEntry] = {
    "synthetic": ExperimentEntry(
        "four GPO designs learn five known poolings; coefficient error on seen and unseen set sizes",
        "vse.experiments.synthetic",
    ),
    "speed": ExperimentEntry(
        "time of a text query, VSE against a cross-encoder, for 100 to 100,000 pictures",
        "vse.experiments.speed",
    ),
    "video": ExperimentEntry(
        "VSE++, VSE∞, HGR and HGR∞ trained on a video data set and compared on its test split",
        "vse.experiments.video",
        trains=True,
    ),
}
