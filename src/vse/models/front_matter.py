"""Write the front matter of a model card: the YAML that the hub indexes, filters and lists models by.

It holds only what is known. The hub's own library could write it too, but is an optional dependency; every value here
is a plain word or a JSON string, which YAML reads as well.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vse.models.config import About, Score

LIBRARY = "vse"
PIPELINE = "feature-extraction"
TAGS = ("vse", "image-text-retrieval", "visual-semantic-embedding")
TASK = {"type": "image-text-retrieval", "name": "Image-Text Retrieval"}
DECIMALS, LARGEST = 4, 1e15  # YAML takes 1e-05 and 1e+16, as JSON writes them, for texts; it has no NaN
UNNAMED = "A visual semantic embedding"
LICENCE_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
_RESERVED = {"y", "yes", "n", "no", "true", "false", "on", "off", "null"}  # "no" is also a language
_RECALL = re.compile(r"(?P<side>\w*?)[ _]?(?:R@|r)(?P<rank>\d+)")  # "i2t_r1", and "i2t R@1" of other evaluations


def front_matter(about: About) -> str:
    """Return the front matter of a card, from ``---`` to ``---``.

    Args:
        about: What is known about the model; unknown fields are left out.
    """
    values: dict[str, Any] = {
        "library_name": LIBRARY,
        "pipeline_tag": PIPELINE,
        "tags": list(TAGS),
        **_licence(about.license),
        "datasets": list(about.datasets),
        "language": list(about.languages),
        "base_model": about.base_model,
        "model-index": model_index(about),
    }
    lines = [line for key, value in values.items() if value for line in _entry(key, value)]
    return "\n".join(("---", *lines, "---", ""))


def model_index(about: About) -> list[dict[str, Any]]:
    """Return the recorded scores in the form of the hub's ``model-index``; empty without scores.

    The protocol is the ``config`` of a dataset: results that differ in it alone are kept apart.
    """
    results = [result for score in about.scores if (result := _result(score))["metrics"]]
    return [{"name": about.name or UNNAMED, "results": results}] if results else []


def _result(score: Score) -> dict[str, Any]:
    dataset = {"type": _slug(score.data), "name": score.data, "config": score.protocol, "split": score.split}
    metrics = [
        _metric(name) | {"value": round(value, DECIMALS)}
        for name, value in score.values.items()
        if math.isfinite(value) and abs(value) < LARGEST
    ]
    return {"task": dict(TASK), "dataset": dataset, "metrics": metrics}


def _metric(name: str) -> dict[str, Any]:
    """Return type and name of a metric: ``recall_at_1`` and ``i2t R@1`` for ``i2t_r1``."""
    found = _RECALL.fullmatch(name)
    if found is None:
        return {"type": _slug(name).replace("-", "_"), "name": name.replace("_", " ")}
    return {"type": f"recall_at_{found['rank']}", "name": f"{found['side']} R@{found['rank']}".strip()}


def _slug(text: str) -> str:
    """Return text as an identifier: lower case, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def _licence(licence: str | None) -> dict[str, str]:
    """Return the licence as the hub wants it: an identifier, or ``other`` with a name."""
    if licence is None or LICENCE_ID.fullmatch(licence):
        return {} if licence is None else {"license": licence}
    return {"license": "other", "license_name": _slug(licence)}


def _entry(key: str, value: Any) -> Sequence[str]:
    """Return the lines of one key; lists have an item on each line."""
    if isinstance(value, list):
        return (f"{key}:", *(f"- {_scalar(item)}" for item in value))
    return (f"{key}: {_scalar(value)}",)


def _scalar(value: Any) -> str:
    """Return a value in one line: a plain word where YAML cannot mistake it for anything else, otherwise JSON."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return json.dumps(_printable(value), ensure_ascii=False)


def _printable(value: Any) -> Any:
    """Return ``value`` with spaces for characters that YAML does not allow in a file."""
    if isinstance(value, str):
        return "".join(character if character.isprintable() else " " for character in value)
    if isinstance(value, Mapping):
        return {key: _printable(inner) for key, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, list | tuple) else value
