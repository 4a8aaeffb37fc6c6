"""Write the model card: ``README.md`` beside the weights, with the pooling curves as numbers and as a figure.

What is unknown about a model is shown as not recorded; nothing is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vse._util.atomic import write_text
from vse._version import __version__
from vse.errors import MissingDependencyError
from vse.inputs.preprocessing import ImagePreprocessing
from vse.models.config import CrossConfig, HGRConfig, ImageConfig, PairConfig, PoolingConfig, TextConfig
from vse.models.curves import CARD_FILE, CURVES_FILE, FIGURE_FILE, PoolingCurve, Tower, write_curves
from vse.models.curves_plot import plot_curves
from vse.models.front_matter import UNNAMED, front_matter
from vse.models.pair_options import system_label

if TYPE_CHECKING:
    from vse.inputs.tokenizer import TextTokenizer
    from vse.models.config import About
    from vse.models.storage import TorchModel


NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class TowerReport:
    """One encoder; None where unknown."""

    tower: Tower
    kind: str
    network: str
    pooling: str
    feature_size: int | None = None
    parameters: int | None = None


def image_tower(config: ImageConfig, feature_size: int | None = None, parameters: int | None = None) -> TowerReport:
    """Describe the image encoder of a configuration."""
    if config.kind == "region":
        network, feature_size = f"regions from disk, {config.head} head", config.feature_size
    elif config.kind == "frames":
        origin = "from disk" if config.backbone is None else f"seen by {config.backbone.name}"
        network, feature_size = f"frames of videos {origin}, linear", config.feature_size
    elif config.kind == "dual":
        network = f"{config.architecture.get('model_type', config.library)}, image half"
    else:
        architecture = config.backbone.options.get("architecture", {})
        model_type = architecture.get("model_type") if isinstance(architecture, dict) else None
        network = config.backbone.name + (f" ({model_type})" if model_type else "") + f", {config.head} head"
    return TowerReport("image", config.kind, network, describe_pooling(config.pooling), feature_size, parameters)


def text_tower(config: TextConfig, feature_size: int | None = None, parameters: int | None = None) -> TowerReport:
    """Describe the text encoder of a configuration."""
    if config.kind == "transformer":
        model_type = config.architecture.get("model_type", "transformer")
        network = f"{model_type}{f' from {config.pretrained}' if config.pretrained else ''}"
    elif config.kind == "dual":
        network = f"{config.architecture.get('model_type', config.library)}, text half"
    elif config.kind == "plugin":
        network = f"{config.encoder} (plugin), {config.vocabulary_size:,} words"
    elif config.kind == "characters":
        network, feature_size = "words from characters, bidirectional GRU", config.character_size
    else:
        directions = "GRU" if config.kind == "gru" else "bidirectional GRU"
        network, feature_size = f"{directions}, {config.vocabulary_size:,} words", config.word_size
    return TowerReport("text", config.kind, network, describe_pooling(config.pooling), feature_size, parameters)


def hgr_towers(
    config: HGRConfig, video_parameters: int | None = None, text_parameters: int | None = None
) -> tuple[TowerReport, TowerReport]:
    """Describe both encoders of an HGR model, with the poolings of whole videos and sentences."""
    words = f"bidirectional GRU, {config.vocabulary_size:,} words, role graph"
    pooled = describe_pooling(config.video_pooling), describe_pooling(config.sentence_pooling)
    return (
        TowerReport("image", "hgr", "frames of videos, three levels", pooled[0], config.feature_size, video_parameters),
        TowerReport("text", "hgr", words, pooled[1], config.word_size, text_parameters),
    )


def cross_towers(
    config: CrossConfig, image_parameters: int | None = None, text_parameters: int | None = None
) -> tuple[TowerReport, TowerReport]:
    """Describe the regions and the joint transformer of a cross-encoder, which has no poolings."""
    described = config.architecture
    network = f"{described.get('model_type', 'bert')}, {described.get('num_hidden_layers', 12)} joint layers"
    regions = "regions from disk" + (" with boxes" if config.boxes else "")
    width = described.get("hidden_size", 768)
    return (
        TowerReport("image", "cross", regions, "none", config.feature_size, image_parameters),
        TowerReport("text", "cross", network, "first token", width, text_parameters),
    )


def describe_pooling(config: PoolingConfig) -> str:
    """Return a description such as ``gpo`` or ``k-max (k = 5)``."""
    options = ", ".join(f"{name} = {value}" for name, value in config.options.items())
    return f"{config.name} ({options})" if options else config.name


def describe_preprocessing(how: ImagePreprocessing | None) -> str:
    """Describe the preprocessing in one line; a model without it takes features."""
    if how is None:
        return "sets of features, no images"
    mean, std = (" ".join(f"{value:g}" for value in values) for values in (how.mean, how.std))
    fitted = "stretched to" if how.fit == "stretch" else "cropped to"
    return f"{fitted} {how.size[0]} x {how.size[1]}, {how.resize}, {how.channels}, mean {mean}, std {std}"


def describe_tokenizer(tokenizer: TextTokenizer | None) -> str:
    """Describe the tokenizer in one line; a converted model may have no vocabulary."""
    if tokenizer is None:
        return "token numbers: no vocabulary was saved with it"
    return f"{tokenizer.kind}, {tokenizer.vocab_size:,} of them known, at most {tokenizer.max_length} tokens a text"


SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|#~$"} | {"<": "&lt;", ">": "&gt;"})


def save_with_card(model: TorchModel, folder: str | Path, *, draw: bool = True) -> Path:
    """Save a model and write its card beside it.

    Args:
        model: The model to save.
        folder: Where to save it; created if needed.
        draw: Whether the card shows a figure of the pooling curves.

    Returns:
        The folder.
    """
    from vse.models.storage import save_model  # loads torch, which reading a report does not need

    saved = save_model(model, Path(folder))
    write_card(saved, model, draw=draw)
    return saved


def write_card(folder: Path, model: TorchModel, *, draw: bool = True) -> None:
    """Write ``README.md``, ``pooling_curves.json`` and, given curves and matplotlib, ``pooling.png``.

    Args:
        folder: The folder of the saved model.
        model: The model that the card describes.
        draw: False skips the figure, which takes longer than the rest; training saves after every epoch.
    """
    from vse.models.learned_curves import curves_of  # loads torch

    curves = curves_of(model)
    write_curves(folder / CURVES_FILE, curves)
    figure = draw and any(curve.coefficients for curve in curves)
    if figure:
        try:
            plot_curves(curves, folder / FIGURE_FILE)
        except MissingDependencyError:  # matplotlib is optional
            figure = False
    write_text(folder / CARD_FILE, card_text(model, curves, figure=figure))


def card_text(model: TorchModel, curves: Sequence[PoolingCurve], *, figure: bool) -> str:
    """Return the card as Markdown; ``figure`` includes ``pooling.png``."""
    about = model.config.about
    parts = [
        f"{front_matter(about)}\n# {escaped(about.name or '') or UNNAMED}",
        _what_it_is(model),
        f"## Use\n\n{_usage(model)}",
        f"## Data\n\n{escaped(about.data or NOT_RECORDED)}",
        *([f"## Licence\n\n{escaped(about.license)}"] if about.license else []),
        f"## Recipe\n\n{_recipe(about)}",
        f"## Scores\n\n{_scores(about)}",
        f"## Inputs\n\n{_inputs(model)}",
        f"## Pooling curves\n\n{_curves(curves, figure=figure)}",
    ]
    if about.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {escaped(note)}" for note in about.notes))
    return "\n\n".join(parts) + f"\n\n---\nWritten by vse {__version__}.\n"


def escaped(text: object) -> str:
    """Return one line of text, escaped for a paragraph or a table of Markdown."""
    return " ".join(str(text).split()).translate(SPECIAL)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; every cell is escaped."""
    lines = [" | ".join(map(escaped, cells)) for cells in (head, *rows)]
    lines.insert(1, " | ".join("---" for _ in head))
    return "\n".join(f"| {line} |" for line in lines)


def _what_it_is(model: TorchModel) -> str:
    def size(tower: str) -> int:
        return sum(parameter.numel() for parameter in getattr(model, tower).parameters())

    if isinstance(model.config, HGRConfig):
        summary = (
            "Videos and sentences compared in three ways, as wholes, by verbs and by nouns; the score of a pair is the "
            "mean of the three, each a cosine. There is no single vector of either."
        )
        towers = hgr_towers(model.config, size("video_encoder"), size("text_encoder"))
        return _described(summary, towers, model.config.about)
    if isinstance(model.config, CrossConfig):
        summary = (
            "Regions of an image and tokens of a sentence in one transformer; the score of a pair is the logit that "
            "they match. There is no single vector of either: it re-ranks what a VSE model finds."
        )
        towers = cross_towers(model.config, size("regions"), size("transformer"))
        return _described(summary, towers, model.config.about)
    linear = getattr(model.text_encoder, "linear", None)  # of a transformer; a BiGRU's width is in the configuration
    towers = (
        image_tower(model.config.image, model.feature_size, size("image_encoder")),
        text_tower(model.config.text, getattr(linear, "in_features", None), size("text_encoder")),
    )
    if isinstance(model.config, PairConfig):
        chosen = ", ".join(f"{name} = {value}" for name, value in model.config.options.items())
        summary = (
            f"Images and sentences as sets of unit vectors of {model.embed_size} dimensions, compared element by "
            f"element: {system_label(model.config.system, model.config.options)} ({escaped(chosen)}). There is no "
            f"single vector of either. The scoring has {size('scoring'):,} parameters.\n\n"
            f"{_differences(model.config.system)}"
        )
        return _described(summary, towers, model.config.about)
    items = "Videos" if model.config.image.kind == "frames" else "Images"
    summary = (
        f"{items} and sentences as unit vectors of {model.embed_size} dimensions in one space; the score of a pair is "
        "their cosine."
    )
    if model.config.system is not None:
        summary += f"\n\n{_differences(model.config.system.name)}"
    return _described(summary, towers, model.config.about)


def _differences(name: str) -> str:
    """Return in what a system differs from its code or paper, in one line."""
    from vse.systems.registry import DIFFERENCES  # loads torch, which reading a report does not need

    return f"Against the paper and its code: {escaped(DIFFERENCES[name])}"


def _described(summary: str, towers: Sequence[TowerReport], about: About) -> str:
    def row(report: TowerReport) -> tuple[object, ...]:
        count = "" if report.parameters is None else f"{report.parameters:,}"
        return report.tower, report.kind, report.network, report.feature_size or NOT_RECORDED, report.pooling, count

    shown = table(("tower", "encoder", "network", "features", "pooling", "parameters"), map(row, towers))
    return f"{summary}\n\n{shown}\n\nSource: {escaped(about.source or NOT_RECORDED)}"


def _usage(model: TorchModel) -> str:
    lines = ["import vse", "", 'model = vse.load("path/to/this/folder")  # or its id on the hub']
    if isinstance(model.config, HGRConfig):
        lines.insert(0, "import numpy as np")
        lines.append(f'videos = [np.load("frames.npy")]  # (n, {model.feature_size}) each')
        lines.append('scores = model.score_pairs(videos, ["two dogs play in the snow"])  # (videos, sentences)')
        return _python(lines)
    if isinstance(model.config, CrossConfig):
        lines.insert(0, "import numpy as np")
        lines.append(f'images = [np.load("features.npy")]  # (regions, {model.feature_size}) each')
        lines.append('scores = model.score_pairs(images, ["two dogs play in the snow"])  # (images, texts)')
        return _python(lines)
    if isinstance(model.config, PairConfig):
        reads = model.preprocessing is not None
        lines.append('images = ["photo.jpg"]' if reads else 'images = [np.load("features.npy")]  # (regions, features)')
        lines.append('scores = model.score_pairs(images, ["two dogs play in the snow"])  # (images, sentences)')
        return _python(lines if reads else ["import numpy as np", *lines])
    if model.preprocessing is None:
        lines.insert(0, "import numpy as np")
        lines.append(f'images = model.encode_images(np.load("features.npy"))  # (n, regions, {model.feature_size})')
    else:
        lines.append('images = model.encode_images(["photo.jpg"])')
    if model.tokenizer is None:
        return _python(lines) + "\n\nIt was saved without a vocabulary, so it cannot read text: only token numbers."
    lines.append('texts = model.encode_texts(["two dogs play in the snow"])')
    lines.append("scores = images @ texts.T  # (images, texts), cosine")
    return _python(lines)


def _python(lines: Sequence[str]) -> str:
    return "\n".join(("```python", *lines, "```"))


def _recipe(about: About) -> str:
    if not about.recipe:
        return NOT_RECORDED
    spelled = (
        (key, value if isinstance(value, str) else json.dumps(value, default=str))
        for key, value in about.recipe.items()
    )
    return table(("setting", "value"), spelled)


def _scores(about: About) -> str:
    if not about.scores:
        return NOT_RECORDED
    names = list(dict.fromkeys(name for score in about.scores for name in score.values))
    rows = (
        (score.data, score.split, score.protocol, *(_figure(score.values.get(name)) for name in names))
        for score in about.scores
    )
    return table(("data", "split", "protocol", *names), rows)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


def _inputs(model: TorchModel) -> str:
    images, texts = describe_preprocessing(model.preprocessing), describe_tokenizer(model.tokenizer)
    return f"- images: {escaped(images)}\n- texts: {escaped(texts)}"


def _curves(curves: Sequence[PoolingCurve], *, figure: bool) -> str:
    rows = (
        (
            curve.tower,
            curve.pooling,
            curve.size or "",
            curve.nearest.label if curve.nearest else "",
            "mean over dimensions" if curve.per_dimension else curve.note or "",
        )
        for curve in curves
    )
    explained = (
        "The weight that each pooling gives to the sorted values of a set, compared with simple poolings: 1.00 is "
        f"equality, 0 no overlap. The weights are in `{CURVES_FILE}`."
    )
    shown = [explained, table(("tower", "pooling", "set of", "resembles", "remark"), rows)]
    if figure:
        shown.insert(1, f"![Pooling curves by set size]({FIGURE_FILE})")
    return "\n\n".join(shown)
