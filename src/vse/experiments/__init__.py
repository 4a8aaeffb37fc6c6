"""The paper's experiments by name; this module imports nothing heavy."""

from typing import NamedTuple


class ExperimentEntry(NamedTuple):
    """What an experiment shows, and the function that runs it."""

    summary: str
    target: str
    """``module:function``."""
    trains: bool = False
    """Whether it trains on a given dataset: its function then takes a :class:`vse.experiments.plan.Call`."""


EXPERIMENTS: dict[str, ExperimentEntry] = {
    "synthetic": ExperimentEntry(
        "four GPO designs learn five known poolings; coefficient error on seen and unseen set sizes",
        "vse.experiments.synthetic:run",
    ),
    "speed": ExperimentEntry(
        "time of a text query, VSE against a cross-encoder, for 100 to 100,000 images",
        "vse.experiments.speed:run",
    ),
    "video": ExperimentEntry(
        "VSE++, VSE∞, HGR and HGR∞ trained on a video dataset and compared on its test split",
        "vse.experiments.whole_models:run_video",
        trains=True,
    ),
    "headline": ExperimentEntry(
        "the four contrasts of the paper on images, five seeds each",
        "vse.experiments.tables:run_headline",
        trains=True,
    ),
    "local-elements": ExperimentEntry(
        "average, GPO and shares of the largest values over many local elements, with and without augmentation",
        "vse.experiments.tables:run_local_elements",
        trains=True,
    ),
    "main-table": ExperimentEntry(
        "VSE++ and VSE∞ on one kind of features (tab:vse_main)",
        "vse.experiments.whole_models:run_main_table",
        trains=True,
    ),
    "aggregators": ExperimentEntry(
        "complex visual aggregators against the best simple pooling (tab:intro)",
        "vse.experiments.tables:run_aggregators",
        trains=True,
    ),
    "poolings": ExperimentEntry(
        "GPO against other poolings, of images and of words (fig:compare_pool)",
        "vse.experiments.tables:run_poolings",
        trains=True,
    ),
    "k-max-search": ExperimentEntry(
        "K-max with every pair of K against GPO (fig:grid_search)",
        "vse.experiments.k_max_search:run",
        trains=True,
    ),
    "either-side": ExperimentEntry(
        "GPO on images, on words, on both (tab:gpo_ablation)",
        "vse.experiments.tables:run_either_side",
        trains=True,
    ),
    "augmentation": ExperimentEntry(
        "size augmentation of neither side, of images, of both (tab:aug)",
        "vse.experiments.tables:run_augmentation",
        trains=True,
    ),
    "sequence-model": ExperimentEntry(
        "BiGRU or Transformer inside GPO (tab:gpo_rnn)",
        "vse.experiments.tables:run_sequence_model",
        trains=True,
    ),
    "per-dimension": ExperimentEntry(
        "coefficients for each dimension (tab:gpo_per_dim)",
        "vse.experiments.tables:run_per_dimension",
        trains=True,
    ),
    "data-dependent": ExperimentEntry(
        "coefficients that depend on features (tab:gpo_data_dep)",
        "vse.experiments.tables:run_data_dependent",
        trains=True,
    ),
    "gpo-start": ExperimentEntry(
        "coefficients that begin at random or as the average (not in the paper)",
        "vse.experiments.tables:run_start",
        trains=True,
    ),
    "ensemble": ExperimentEntry(
        "the mean of two models' scores (the starred rows of tab:vse_main)",
        "vse.experiments.whole_models:run_ensemble",
        trains=True,
    ),
    "bench": ExperimentEntry(
        "all systems on one dataset: rsum, training time, parameters and scoring time",
        "vse.experiments.bench:run",
        trains=True,
    ),
    "coefficients": ExperimentEntry(
        "the poolings that VSE∞ learned (fig:viz_gpo)",
        "vse.experiments.whole_models:run_coefficients",
        trains=True,
    ),
}
