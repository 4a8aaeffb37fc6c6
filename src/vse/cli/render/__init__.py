"""How results are shown on a terminal: one renderer for each class of result, found by the name of the class.

Renderers are imported when they are needed, so that showing search results loads neither rich nor the tables of others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PLAIN = {
    "Calibrated": ".collection:calibrated_lines",
    "CalibrationReport": ".collection:calibration_lines",
    "CaptionResults": ".search:caption_lines",
    "CoefficientsResult": ".experiments:coefficients_lines",
    "Converted": ".models:conversion_lines",
    "DoctorReport": ".models:doctor_lines",
    "Duplicates": ".collection:duplicates_lines",
    "EmbedReport": ".data:embed_lines",
    "EmbeddingExport": ".collection:embedding_export_lines",
    "EmbeddingImport": ".collection:embedding_import_lines",
    "Explained": ".search:explained_lines",
    "FeaturesReport": ".data:features_lines",
    "Indexed": ".collection:indexed_lines",
    "IndexReport": ".collection:index_lines",
    "Listening": ".collection:listening_lines",
    "Overview": ".collection:overview_lines",
    "Page": ".search:page_lines",
    "PhotosResult": ".collection:photos_lines",
    "PullReport": ".models:pull_lines",
    "Pushed": ".models:pushed_lines",
    "SearchResults": ".search:search_lines",
    "UpgradeReport": ".collection:upgrade_lines",
    "VerifyReport": ".collection:verify_lines",
    "VocabularyReport": ".data:vocabulary_lines",
    "WrittenScenes": ".data:scenes_lines",
}
"""Class name → ``module:function`` that returns lines; they are printed without rich."""

RICH = {
    "BenchResult": ".experiments:render_bench",
    "CxcReport": ".evaluation:render_cxc",
    "DataReport": ".data:render_data_report",
    "DemoResult": ".training:render_demo",
    "EccvReport": ".evaluation:render_eccv",
    "EnsembleResult": ".training:render_ensemble",
    "EvaluationReport": ".evaluation:render_evaluation",
    "ExportReport": ".models:render_export",
    "GridResult": ".experiments:render_grid",
    "ModelList": ".models:render_list",
    "ModelReport": ".models:render_model",
    "RecipeList": ".training:render_recipes",
    "SearchResult": ".experiments:render_k_max_search",
    "SpeedResult": ".experiments:render_speed",
    "SyntheticResult": ".experiments:render_synthetic",
    "TrainingResult": ".training:render_training",
}
"""Class name → ``module:function`` that draws on a rich console."""


def is_plain(result: object) -> bool:
    """Return whether a result is shown as plain lines, without rich."""
    return type(result).__name__ in PLAIN


def lines_of(result: object) -> list[str]:
    """Return the lines of a plain result, without line ends."""
    lines: list[str] = _renderer(PLAIN, result)(result)
    return lines


def render(result: object, console: Console) -> None:
    """Draw a result that is more than plain lines."""
    _renderer(RICH, result)(result, console)


def _renderer(registry: dict[str, str], result: object) -> Callable[..., Any]:
    module, _, function = registry[type(result).__name__].partition(":")
    renderer: Callable[..., Any] = getattr(import_module(module, __name__), function)
    return renderer
