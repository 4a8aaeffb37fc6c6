"""The coefficients of the confidence and relevance formulas: those of the package, or fitted to a model.

:mod:`vse.index.confidence` and :mod:`vse.index.relevance` have the formulas; ``vse calibrate`` fits both to a model.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse._util.schema import Positive, parse_plain, read_json
from vse.errors import InputError
from vse.models.sources import named_place

FILE = "confidence.json"
"""Its name, in a model's folder and beside this module."""
RELEVANCE_FILE = "relevance.json"
"""Its name, in a model's folder."""
COEFFICIENT_FILES = (FILE, RELEVANCE_FILE)
CONFIG = "config.json"
OWN_KEYS = {"runtime", "vse_version"}
"""They occur in configurations of this package only."""
FOREIGN_KEYS = {"architectures", "model_type"}
FOREIGN_FILES = ("open_clip_config.json", "modules.json")

FEWEST_REFERENCES = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficients:
    """a, b, d and e of the formula; ``source`` says what they were fitted on."""

    intercept: float
    collection: float
    query: float
    items: float
    source: str
    format: Literal[1] = 1

    def probability(self, features: NDArray[Any]) -> Floats:
        """Return the probability ``(r,)`` for rows (ln k⁺, ln z⁺, -ln n) ``(r, 3)``."""
        slopes = np.array([self.collection, self.query, self.items])
        return logistic(self.intercept + np.asarray(features, np.float64) @ slopes)


@cache
def shipped_coefficients() -> Coefficients:
    """Return the bundled coefficients."""
    return read_coefficients(Path(__file__).with_name(FILE))


def coefficients_of(folder: str | Path) -> Coefficients | None:
    """Return the coefficients of a model, with the bundled ones as fallback for models of this package.

    Args:
        folder: Local folder of a model, or the name of a bundled one; a hub id has no coefficients of its own.

    Returns:
        The coefficients; None for a foreign model that was not calibrated, whose scores the bundled ones do not fit.
    """
    return own_coefficients(folder) or (None if is_foreign(folder) else shipped_coefficients())


def is_foreign(folder: str | Path) -> bool:
    """Return whether a local folder holds a model that another library trained.

    Our configuration marks such a model by an object ``foreign``, in an export by ``source.foreign``. A folder without
    our configuration holds one if it has the files of transformers, sentence-transformers or open_clip, or ONNX files.

    Args:
        folder: Local folder of a model, or the name of a bundled one; False for anything else, such as a hub id.
    """
    place = Path(named_place(folder)).expanduser()
    try:
        config = read_json(place / CONFIG)
    except InputError:  # absent or corrupt: loading the model reports it
        config = {}
    described = (config, config.get("source"))
    if any(isinstance(part, dict) and isinstance(part.get("foreign"), dict) for part in described):
        return True
    if not OWN_KEYS.isdisjoint(config):
        return False
    return (
        not FOREIGN_KEYS.isdisjoint(config)
        or any((place / name).is_file() for name in FOREIGN_FILES)
        or any(next(place.glob(pattern), None) is not None for pattern in ("*.onnx", "*/*.onnx"))
    )


def own_coefficients(folder: str | Path) -> Coefficients | None:
    """Return the coefficients of a local or bundled model, None if it has none."""
    path = Path(named_place(folder)).expanduser() / FILE
    return read_coefficients(path) if path.exists() else None


def read_coefficients(path: Path) -> Coefficients:
    """Read coefficients written by ``vse calibrate``; raise :class:`InputError` if they are invalid."""
    try:
        found = parse_plain(Coefficients, read_json(path), str(path))
    except InputError as error:
        raise InputError(f"{error}; 'vse calibrate' writes it again") from None
    for name in ("collection", "query", "items"):
        if getattr(found, name) < 0:  # results would be surer the lower their score
            raise InputError(f"{path}: {name!r} is {getattr(found, name)}: expected 0 or more; 'vse calibrate' fits it")
    return found


@dataclass(frozen=True)
class RelevanceCoefficients:
    """The relevance formula of one model, and the images that it compares a query with.

    Attributes:
        intercept: a of the formula.
        cosine: b, at least 0.
        mean: d.
        spread: e.
        dimensions: Width D of the embeddings.
        reference: Embeddings of the reference images ``(R, D)``, as float16 (little-endian) in base64.
        source: What they were fitted on.
    """

    intercept: float
    cosine: float
    mean: float
    spread: float
    dimensions: Positive
    reference: str
    source: str
    format: Literal[1] = 1

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The embeddings of the reference images ``(R, D)``."""
        return decode_reference(self.reference, self.dimensions)

    def probability(self, features: NDArray[Any]) -> Floats:
        """Return the probability ``(r,)`` for rows (c, m, ln s) ``(r, 3)``."""
        slopes = np.array([self.cosine, self.mean, self.spread])
        return logistic(self.intercept + np.asarray(features, np.float64) @ slopes)


def own_relevance(folder: str | Path) -> RelevanceCoefficients | None:
    """Return the relevance coefficients of a local or bundled model, None if it has none: there is no default."""
    path = Path(named_place(folder)).expanduser() / RELEVANCE_FILE
    return read_relevance(path) if path.exists() else None


def read_relevance(path: Path) -> RelevanceCoefficients:
    """Read what ``vse calibrate`` wrote; raise :class:`InputError` if it is invalid."""
    try:
        found = parse_plain(RelevanceCoefficients, read_json(path), str(path))
        if found.cosine < 0:  # results would fit better the lower their score
            raise InputError(f"{path}: 'cosine' is {found.cosine}: expected 0 or more")
        try:
            vectors = found.vectors
        except ValueError as error:
            raise InputError(f"{path}: 'reference' is {error}") from None
        if len(vectors) < FEWEST_REFERENCES or not np.isfinite(vectors).all():
            raise InputError(f"{path}: 'reference' holds {len(vectors)} embeddings: expected 2 or more, all finite")
    except InputError as error:
        raise InputError(f"{error}; 'vse calibrate' writes it again") from None
    return found


def encode_reference(vectors: NDArray[Any]) -> str:
    """Return embeddings ``(R, D)`` as text."""
    return base64.b64encode(np.ascontiguousarray(vectors, "<f2").tobytes()).decode("ascii")


def decode_reference(text: str, dimensions: int) -> NDArray[np.float32]:
    """Return the embeddings ``(R, D)``; raise ``ValueError`` if the text does not hold whole rows."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if len(raw) % (2 * dimensions):
        raise ValueError(f"{len(raw)} bytes: expected rows of {dimensions} float16 numbers")
    return np.frombuffer(raw, "<f2").reshape(-1, dimensions).astype(np.float32)


def logistic(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0, -values))
