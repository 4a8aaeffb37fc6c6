"""What a training run is, as strict TOML: one table for each part, every key typed, unknown keys refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_serializer, model_validator

from vse.data.open import AUTO, LAYOUTS
from vse.errors import unknown_choice
from vse.losses import LOSSES, MARGIN, TEMPERATURE
from vse.training.cross_recipe import CrossRecipe
from vse.training.model_recipe import AnyModelRecipe, ModelRecipe, Rate, Table

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class DataRecipe(Table):
    """Where images and captions come from.

    Attributes:
        path: the dataset.
        layout: how it is laid out; ``auto`` detects it.
        images: the folder of the image files, if it is elsewhere.
        features: a store of ``vse features`` in place of images (the backbone is then not trained), or of the features
            of the dataset for a model of regions; for videos their frames: a file, a folder, or the name of a kind
            that the dataset has.
        train: the split to train on.
        dev: the split by which the best epoch is chosen.
        vocabulary: a word list for a BiGRU. Default: the ``word2int.json`` of a video dataset, if there is one, else
            the words that occur at least ``min_count`` times in the training captions.
        min_count: see ``vocabulary``.
        max_tokens: truncate longer captions; those of videos are truncated at 30 words by default.
        captions_per_image: draw that many captions of each image for every epoch. Default: all captions.
        dev_captions: select the best epoch by the first captions of ``dev`` and their images. Default: by all.
    """

    path: str = ""
    layout: str = AUTO
    images: str | None = None
    features: str | None = None
    train: str = "train"
    dev: str = "dev"
    vocabulary: str | None = None
    min_count: Count = 4
    max_tokens: Count | None = None
    captions_per_image: Count | None = None
    dev_captions: Count | None = None

    @field_validator("layout")
    @classmethod
    def _known_layout(cls, value: str) -> str:
        if value != AUTO and value not in LAYOUTS:
            raise ValueError(unknown_choice("layout", value, (AUTO, *LAYOUTS)))
        return value


class LossRecipe(Table):
    """The loss, and how it changes during training.

    - ``triplet``: the hinge of :func:`vse.losses.triplet_from_scores`: all negatives for the first ``warmup_epochs``,
      then ``negatives``.
    - ``annealed``: the smooth hinge of :func:`vse.losses.smooth_triplet_from_scores`, whose temperature falls
      geometrically from ``temperature`` to ``final_temperature`` over the whole run: from all negatives, softly
      weighted, to the hardest one.
    - ``contrastive``: cross-entropy over the batch at ``temperature``.
    - ``matching``: the binary loss of :func:`vse.losses.matching_from_scores`, for a cross-encoder. Every pair has two
      negatives, an image for its caption and a caption for its image, drawn for every epoch from the ``candidates``
      best wrong ones of ``first_stage``; from all wrong ones without it.
    - The name of a plugin (group ``vse.losses``): a function of the scores ``(B, B)`` and of ``image_ids (B,)`` or
      None, called with ``options``.

    ``first_stage`` is a VSE model, or the folder ``first-stage`` of an earlier run, whose candidates are then used
    again. The best epoch is chosen by re-ranking its first ``dev_depth`` results.

    ``margin`` is that of the hinges; ``reduction`` sums or averages the pairs of a batch. ``same_image`` treats other
    captions of the same image as ``masked`` (left out) or as ``negatives``, as the released code does.

    ``negatives = "blended"`` is LIWE's: ``β^n`` of the loss of all negatives and ``1 - β^n`` of that of the hardest at
    step n, with ``blend`` β. ``softmax_margin`` is subtracted from the scores of pairs in ``contrastive``.
    ``auxiliary`` are weights of the losses that the model's system adds, over its defaults.
    """

    objective: str = "triplet"
    options: dict[str, Any] = Field(default_factory=dict)
    negatives: Literal["hardest", "semi-hard", "all", "blended"] = "semi-hard"
    warmup_epochs: NonNegative = 1
    margin: Positive = MARGIN
    temperature: Positive = TEMPERATURE
    final_temperature: Positive = 0.01
    reduction: Literal["sum", "mean"] = "sum"
    same_image: Literal["masked", "negatives"] = "masked"
    first_stage: str | None = None
    candidates: Count = 30
    dev_depth: Count = 20
    blend: Annotated[float, Field(gt=0, lt=1)] = 0.991
    softmax_margin: NonNegative = 0.0
    auxiliary: dict[str, NonNegative] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_objective(self) -> LossRecipe:
        if self.objective not in LOSSES:
            raise ValueError(unknown_choice("objective", self.objective, LOSSES))
        if self.options and self.objective in LOSSES.builtin:
            raise ValueError(f"options are those of a plugin, and {self.objective!r} is built in: leave them out")
        return self

    @model_serializer(mode="wrap")
    def _without_absent(self, write: Any) -> dict[str, Any]:
        """Leave empty ``options`` out, so that recipes of earlier versions are equal."""
        plain: dict[str, Any] = write(self)
        return {key: value for key, value in plain.items() if key != "options" or value}


class OptimizerRecipe(Table):
    """Adam or AdamW; the learning rate of pretrained parts is multiplied by their factor.

    ``clip`` bounds the global norm of the gradients; 0 disables clipping. ``backbone_parts`` are prefixes of names in
    the image backbone, such as ``model.blocks.6``: only these parts of it are trained; all of it if there are none.
    Layers below the first of them need no gradients. ``pooling_factor`` is that of GPO, of both sides; unless it
    is 1, its parameters have no weight decay. Other learned poolings are trained as the rest of the model.
    """

    name: Literal["adamw", "adam"] = "adamw"
    lr: Positive = 5e-4
    weight_decay: NonNegative = 1e-4
    clip: NonNegative = 2.0
    backbone_factor: Positive = 0.1
    backbone_parts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    transformer_factor: Positive = 0.1
    pooling_factor: Positive = 1.0


class ScheduleRecipe(Table):
    """Epochs, batch size and learning rate.

    The learning rate rises linearly over ``warmup_epochs`` from epoch ``warmup_from`` on (0 is the first; before it,
    the rate is the full one). Afterwards ``decay`` lowers it: ``step`` multiplies it by ``decay_factor`` in the last
    ``decay_epochs``, ``cosine`` lowers it smoothly to zero. The image backbone is frozen in the first
    ``frozen_epochs``.

    ``search_epochs`` is for poolings ``top-percent`` with ``percent = "search"``: in the first epochs every step draws
    a percentage for each of them; then each takes the one with the highest rsum on dev, images first.

    The parameters of GPO are held as they begin until epoch ``pooling_from``, and trained from then on; with the option
    ``start`` of GPO a share of the largest values, or their average, is the pooling meanwhile.
    """

    epochs: Count = 25
    batch_size: Annotated[int, Field(ge=2)] = 128
    warmup_from: NonNegative = 0
    warmup_epochs: NonNegative = 0
    decay: Literal["step", "cosine"] = "step"
    decay_epochs: Annotated[int, Field(ge=0)] = 10
    decay_factor: Positive = 0.1
    frozen_epochs: Annotated[int, Field(ge=0)] = 1
    search_epochs: Annotated[int, Field(ge=0)] = 0
    pooling_from: Annotated[int, Field(ge=0)] = 0


class AugmentationRecipe(Table):
    """Size augmentation of either side, and random views of images.

    ``drop`` removes each element with probability ``rate``; at least one stays. ``released`` is what the authors' code
    does: regions as ``drop``, grid cells at a rate drawn for each image, words masked, exchanged or deleted.
    """

    image: Literal["none", "drop", "released"] = "drop"
    text: Literal["none", "drop", "released"] = "drop"
    rate: Rate = 0.2
    views: bool = True


class ReleasedRecipe(Table):
    """Habits of the authors' code that the paper does not mention; ``vse train --as-released`` turns them on.

    Attributes:
        scaled_loss: the warm-up of ``[schedule]`` scales the loss of step i of n by i / n, not the learning rate.
        padded_norm: the batch norm of a residual head counts the padded rows of a batch.
        partial_batch: an epoch of a model of image files ends with the remaining pairs, a smaller batch.
        special_words: ``augmentation.text = "released"`` may exchange a word for a special token.
    """

    scaled_loss: bool = False
    padded_norm: bool = False
    partial_batch: bool = False
    special_words: bool = False


class GuardRecipe(Table):
    """What to do when the embeddings collapse: the spread of images or texts stays below ``spread`` for ``patience``
    steps.

    A model that learns has a spread above 0.5, mostly above 0.9. On Flickr8k the paper's schedule falls to 0.09 in its
    second epoch and recovers in the third; on MSVD the texts of VSE fall to 0.07 and recover in the tenth epoch. At 0
    nothing recovers.

    ``warn`` reports a collapse once, ``stop`` ends the run, ``soften`` uses all negatives until the spread has
    recovered.
    """

    action: Literal["off", "warn", "stop", "soften"] = "soften"
    spread: Positive = 0.15
    patience: Count = 30


class RunRecipe(Table):
    """How the machine is used.

    Attributes:
        precision: ``fp16`` needs a GPU.
        micro_batches: split a batch to save memory; negatives stay those of the whole batch.
        average: decay of an EMA of the weights, which is evaluated and saved beside the trained weights.
        compile: compile the image tower, and the text tower of a transformer. The batch norm of a residual head then
            takes its statistics over padded rows too, so a run resumes with the value that it began with.
        device: torch's name of a device; ``auto`` is the GPU if there is one.
        threads: of torch; None leaves them unchanged.
        readers: threads that prepare batches.
        checkpoint_minutes: time between checkpoints; 0 writes them only after epochs.
        tensorboard: write TensorBoard files beside ``metrics.jsonl``.
        trackers: where numbers are sent beside ``metrics.jsonl``: ``tensorboard``, ``wandb``, ``mlflow``.
    """

    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    micro_batches: Count = 1
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    compile: bool = False
    device: str = "auto"
    threads: Count | None = None
    readers: Count = 2
    checkpoint_minutes: NonNegative = 5
    tensorboard: bool = False
    trackers: Annotated[tuple[Literal["tensorboard", "wandb", "mlflow"], ...], Field(strict=False)] = ()

    @property
    def all_trackers(self) -> tuple[str, ...]:
        """``trackers``, and TensorBoard if ``tensorboard`` asks for it; each once."""
        return tuple(dict.fromkeys((*(["tensorboard"] if self.tensorboard else []), *self.trackers)))


FREE: Any = {
    "about": True,
    "data": {"path", "images", "features", "vocabulary"},
    "model": {"backbone_weights", "start"},
    "loss": {"first_stage"},
    "run": {"micro_batches", "device", "threads", "readers", "checkpoint_minutes", "tensorboard", "trackers"},
}
"""What may differ when a run resumes: paths (the data itself is compared), and how the machine is used."""


class Recipe(Table):
    """One training run."""

    about: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    data: DataRecipe = DataRecipe()
    model: Annotated[AnyModelRecipe | CrossRecipe, Field(discriminator="kind")] = ModelRecipe()
    loss: LossRecipe = LossRecipe()
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: ScheduleRecipe = ScheduleRecipe()
    augmentation: AugmentationRecipe = AugmentationRecipe()
    released: ReleasedRecipe = ReleasedRecipe()
    guard: GuardRecipe = GuardRecipe()
    run: RunRecipe = RunRecipe()

    @model_validator(mode="before")
    @classmethod
    def _usual_model(cls, value: Any) -> Any:
        """Fill in the default kind of the model."""
        if isinstance(value, dict) and isinstance(value.get("model"), dict):
            return value | {"model": {"kind": "vse", **value["model"]}}
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.schedule.decay == "step" and self.schedule.decay_epochs >= self.schedule.epochs:
            raise ValueError(
                f"schedule.decay_epochs is {self.schedule.decay_epochs}, which leaves no epoch of "
                f"{self.schedule.epochs} at the full rate: lower it, or --set schedule.decay_epochs=0 for none"
            )
        if self.schedule.batch_size % self.run.micro_batches:
            raise ValueError(
                f"schedule.batch_size {self.schedule.batch_size} cannot be split into {self.run.micro_batches} equal "
                "micro batches"
            )
        if self.run.compile and self.run.micro_batches > 1:
            raise ValueError("run.compile and run.micro_batches: compiled dropout may differ between the two passes")
        if self.model.searches and not 1 <= self.schedule.search_epochs < self.schedule.epochs:
            raise ValueError(
                f"schedule.search_epochs is {self.schedule.search_epochs}: a searched pooling needs 1 to "
                f"{self.schedule.epochs - 1} of the {self.schedule.epochs} epochs"
            )
        if self.model.searches and self.run.average is not None:
            raise ValueError('run.average is not for a pooling with percent = "search": leave it out')
        if self.schedule.pooling_from >= self.schedule.epochs:
            raise ValueError(
                f"schedule.pooling_from is {self.schedule.pooling_from}, which leaves no epoch of "
                f"{self.schedule.epochs} that trains GPO: lower it"
            )
        if self.released.partial_batch and self.run.micro_batches > 1:
            raise ValueError("released.partial_batch and run.micro_batches: a smaller batch has no equal parts")
        self.model.check(self)
        matching, cross = self.loss.objective == "matching", self.model.kind == "cross"
        if matching != cross:
            wanted = '"matching" for' if cross else 'not "matching", which is for'
            raise ValueError(f'loss.objective is "{self.loss.objective}", expected {wanted} model.kind "cross"')
        if self.loss.first_stage is not None and not cross:
            raise ValueError('loss.first_stage is for model.kind "cross": leave it out')
        return self

    def identity(self) -> dict[str, Any]:
        """Return everything that the result depends on, which must be equal for a run to resume."""
        return self.model_dump(mode="json", exclude=FREE)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dotted keys.

    >>> flat({"run": {"threads": 2}, "seed": 0})
    {'run.threads': 2, 'seed': 0}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


class Member(Table):
    """One model of an ensemble: a recipe by name, and the seed it is trained with."""

    recipe: str
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class EnsembleRecipe(Table):
    """Models that are trained one after the other and averaged: the score is the mean of their scores."""

    about: str = ""
    members: Annotated[tuple[Member, ...], Field(min_length=2, strict=False)]
