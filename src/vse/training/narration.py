"""What a run says of itself: lines for people, made of its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vse.data import CaptionedImages, VideoFrames
from vse.evaluation.metrics import RetrievalMetrics
from vse.training.batches import Samples
from vse.training.step import NotFiniteError, StepFigures

NAMED_SAMPLES = 3  # in a message about a loss that is not finite
SOFTENED = "; the loss is softened until they have spread out"


def headline(figures: StepFigures, epoch: int, epochs: int, best: Mapping[str, Any] | None) -> str:
    """Beside the bar of progress, after a step of ``epoch``, which counts from 0."""
    dev = f" · best dev rsum {best['rsum']:.1f}" if best else ""
    return (
        f"epoch {min(epoch + 1, epochs)}/{epochs} · loss {figures.loss:.4g} · "
        f"zero-loss {100 * figures.satisfied:.0f} %{dev}"
    )


def epoch_line(
    means: Mapping[str, float], found: Mapping[str, RetrievalMetrics], epoch: int, epochs: int, *, better: bool
) -> str:
    """The means of an epoch and the figures on dev of the weights that were evaluated after it."""
    shown = ", ".join(
        f"dev{'' if name == 'last' else f' {name}'} R@1 {metrics.i2t.r1:.1f}/{metrics.t2i.r1:.1f} "
        f"rsum {metrics.rsum:.1f}"
        for name, metrics in found.items()
    )
    return (
        f"epoch {epoch + 1}/{epochs}: loss {means['loss']:.4g}, "
        f"zero-loss pairs {100 * means['satisfied']:.0f} %, spread {means['spread']:.3f}, {shown}"
        f"{' (best so far)' if better else ''}"
    )


def recovered(where: str, spread: float) -> str:
    """The guard has seen the embeddings spread out, those of both sides to at least ``spread``."""
    return f"{where}: the embeddings have spread out again ({spread:.3f})"


def collapsing(where: str, side: str, spread: float, loss: float) -> str:
    """The guard has seen them come together, those of ``side`` (images, videos or texts)."""
    return (
        f"{where}: the embeddings are collapsing, different {side} have a mean cosine of {1 - spread:.3f} "
        f"(loss {loss:.4g})"
    )


def stopped_by_guard(told: str) -> str:
    """The error of a guard that stops a run."""
    return (
        f"{told}: stopped by guard.action; the last checkpoint is intact; train in a new folder (--into) with "
        'loss.objective = "contrastive", or with guard.action = "soften"'
    )


def blame(error: NotFiniteError, samples: Samples, data: CaptionedImages, step: int, epoch: int) -> str:
    """Which step and which samples have no finite loss or gradient, in one line."""
    rows = error.rows or range(len(samples))
    kind = "video" if isinstance(data.images, VideoFrames) else "image"
    named = [
        f"caption {samples[row]} of {kind} {data.images.ids[data.caption_to_image[samples[row]]]!r}"
        for row in list(rows)[:NAMED_SAMPLES]
    ]
    more = f" and {len(rows) - NAMED_SAMPLES} more" if len(rows) > NAMED_SAMPLES else ""
    whose = "samples with vectors that are not finite" if error.rows else "samples of the batch"
    return (
        f"the {error.what} is not finite at step {step} (epoch {epoch + 1}); {whose}: "
        f"{', '.join(named)}{more}: no weight was updated and the last checkpoint is intact; mend these samples "
        "and continue, or train in a new folder (--into) with a lower optimizer.lr"
    )
