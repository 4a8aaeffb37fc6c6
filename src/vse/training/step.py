"""One training step: embeddings, scores, loss, gradients, update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast

import torch
import torch.distributed.nn.functional as collective
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vse.encoders.image import Projection
from vse.errors import InputError, VSEError
from vse.models.storage import TorchModel
from vse.training.batches import Batch
from vse.training.distributed import Ranks
from vse.training.keyed import Purpose, keyed_seed
from vse.training.matcher import Side, create_matcher
from vse.training.optimizer import BACKBONE
from vse.training.recipe import Recipe
from vse.training.schedule import Objective


class SynchronisedBatchNorm(nn.BatchNorm1d):
    """:class:`torch.nn.BatchNorm1d` over the rows ``(R, H)`` of all processes; R may differ between them.

    ``mean = Σ x / n`` and then ``var = Σ (x - mean)² / n``, each sum over all processes and differentiable, so that the
    gradients too are those of one process with all rows. Running statistics are equal in every process.
    """

    @classmethod
    def around(cls, norm: nn.BatchNorm1d) -> SynchronisedBatchNorm:
        """Return a synchronised norm that shares the parameters and statistics of ``norm``."""
        new = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        new._parameters, new._buffers, new.training = norm._parameters, norm._buffers, norm.training
        return new

    def forward(self, rows: Tensor) -> Tensor:
        if not self.training:
            return super().forward(rows)
        given, rows = (
            rows.dtype,
            rows if rows.dtype == torch.float64 else rows.float(),
        )  # 16 bits cannot count rows
        count = rows.new_tensor([len(rows)])
        total = _sum(torch.cat([rows.sum(dim=0), count]))  # (H + 1,)
        number = total[-1].detach()
        mean = total[:-1] / number
        variance = _sum(((rows - mean) ** 2).sum(dim=0)) / number
        self._remember(mean.detach(), variance.detach(), float(number))
        return ((rows - mean) / (variance + self.eps).sqrt() * self.weight + self.bias).to(given)

    def _remember(self, mean: Tensor, variance: Tensor, number: float) -> None:
        tracked = cast(Any, self)
        tracked.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / float(tracked.num_batches_tracked)
        tracked.running_mean.lerp_(mean, share)
        tracked.running_var.lerp_(variance * number / max(1.0, number - 1), share)


def synchronise_norms(module: nn.Module) -> None:
    """Replace every :class:`torch.nn.BatchNorm1d` below ``module`` by a synchronised one."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm1d:
            setattr(module, name, SynchronisedBatchNorm.around(child))
        else:
            synchronise_norms(child)


def _sum(value: Tensor) -> Tensor:
    return cast(Tensor, collective.all_reduce(value))


MAX_SKIPPED = 20  # steps in a row that loss scaling may skip while it looks for its factor
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class StepFigures:
    """What a step reports.

    Attributes:
        loss: of the batch, auxiliary losses included.
        satisfied: the share of pairs without loss.
        spread: of the image embeddings, see :func:`vse.training.guard.spread`.
        text_spread: of the text embeddings.
        gradient: the norm of the gradients before clipping.
        auxiliary: the auxiliary losses by name, before their weights.
    """

    loss: float
    satisfied: float
    spread: float
    text_spread: float
    gradient: float
    auxiliary: dict[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """Return the figures by name; an auxiliary loss is ``loss_NAME``."""
        plain = asdict(self)
        return plain | {f"loss_{name}": value for name, value in plain.pop("auxiliary").items()}

    @property
    def closest(self) -> tuple[str, float]:
        """The side whose embeddings are closer together, and its spread."""
        return min(("images", self.spread), ("texts", self.text_spread), key=lambda each: each[1])


class NotFiniteError(VSEError):
    """The loss or a gradient is NaN or infinite because of ``rows`` of the batch; empty if the rows are unknown."""

    def __init__(self, what: str, rows: list[int]) -> None:
        super().__init__(f"the {what} is not finite")
        self.what = what
        self.rows = rows


class TrainingStep:
    """Update a model with batches.

    With ``micro_batches`` m the batch is encoded in m parts twice: first without gradients, for the loss of the whole
    batch and its gradient with respect to the embeddings; then each part again, to propagate that gradient. The
    negatives are those of the whole batch; the memory is that of one part.
    """

    def __init__(
        self,
        model: TorchModel,
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        objective: Objective,
        recipe: Recipe,
        ranks: Ranks,
        *,
        gpo: Collection[str] = (),
    ) -> None:
        self.model = model
        self._gpo = frozenset(gpo)
        self.parameters = dict(parameters)
        self.optimizer = optimizer
        self.objective = objective
        self.recipe = recipe
        self.ranks = ranks
        self.skipped = 0
        self.scaler = torch.amp.GradScaler(enabled=recipe.run.precision == "fp16")
        self.matcher = create_matcher(model)
        self.weights = auxiliary_weights(self.matcher.auxiliary_weights, recipe.loss.auxiliary)
        self._network: nn.Module = self.matcher
        self._trained: frozenset[str] = frozenset()
        local_batch = recipe.schedule.batch_size // ranks.world
        if local_batch % recipe.run.micro_batches:
            raise InputError(
                f"run.micro_batches {recipe.run.micro_batches} does not divide the {local_batch} pairs of each process "
                f"(schedule.batch_size {recipe.schedule.batch_size}, {ranks.world} processes)"
            )
        if recipe.run.micro_batches > 1:
            _refuse_batch_statistics(model)
        if not ranks.alone:
            synchronise_norms(model)
        if recipe.released.padded_norm:
            _count_padding(model)
        if recipe.run.compile:
            model.compile_encoders()

    def prepare(self, *, train_backbone: bool, train_gpo: bool = True) -> None:
        """Choose what is trained from now on; with several processes a change rebuilds their connection.

        What is not trained has no gradient, hence no weight decay and no state in the optimizer.
        """
        trained = frozenset(
            name
            for name in self.parameters
            if (train_backbone or not name.startswith(BACKBONE)) and (train_gpo or name not in self._gpo)
        )
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in trained)
        self.model.train()
        if not self.ranks.alone and trained != self._trained:
            self._network = self.matcher  # releases the buffers of the previous one
            # Every process computes all scores, and so the whole gradient of the parameters of the scores.
            apart = [*self.matcher.scoring_parameters()]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.matcher, apart)
            self._network = DistributedDataParallel(self.matcher)
        self._trained = trained

    def __call__(self, batch: Batch, step: int, *, softened: bool = False, scale: float = 1.0) -> StepFigures:
        """Update the weights once, with the loss times ``scale``.

        Raises:
            NotFiniteError: the loss or a gradient is not finite; no weight has changed.
        """
        self.optimizer.zero_grad(set_to_none=True)
        inputs = self._inputs(batch)
        ids = torch.from_numpy(batch.image_ids).to(self.model.device)
        all_ids = self.ranks.gather(ids)
        parts = _split(inputs, self.recipe.run.micro_batches)
        if len(parts) == 1:
            image, text = self._encode(inputs, step, 0)
        else:
            with torch.no_grad():
                encoded = [self._encode(part, step, number) for number, part in enumerate(parts)]
            image, text = (_joined(side) for side in zip(*encoded, strict=True))
        images, texts = self._gather(image), self._gather(text)
        scores = self.matcher.scores(images, texts)
        match = partial(self.objective, image_ids=all_ids, step=step, softened=softened)
        auxiliary = self.matcher.auxiliary(images, texts, match, self.recipe.loss.reduction)
        loss = match(scores)
        for name, extra in auxiliary.items():
            loss = loss + self.weights[name] * extra
        value = float(loss.detach())
        if not _finite(value):
            raise NotFiniteError("loss", self._bad_rows(inputs[self.matcher.item_input], (*images, *texts)))
        whole = self.scaler.scale(loss * (scale * self.ranks.world))
        if len(parts) == 1:
            whole.backward()
        else:
            self._backward_in_parts(whole, image, text, parts, step)
        norm = self._update()
        measured = self.matcher.measures(scores.detach(), images, texts, all_ids, self.recipe.loss.margin)
        extras = {name: float(extra.detach()) for name, extra in auxiliary.items()}
        return StepFigures(value, *measured, norm, extras)

    def _gather(self, side: Side) -> Side:
        return tuple(self.ranks.gather(self.ranks.widest(tensor)) for tensor in side)

    def _bad_rows(self, inputs: Tensor | None, computed: Side) -> list[int]:
        """Return the rows of the batch whose input is not finite; if there are none, those with such embeddings.

        The input comes first, since a batch norm spreads one bad input over all embeddings.
        """
        if inputs is not None:
            broken = self.ranks.gather((~inputs.isfinite().flatten(1).all(1)).long())
            if broken.any():
                return broken.nonzero().flatten().tolist()
        finite = torch.stack([tensor.isfinite().flatten(1).all(1) for tensor in computed]).all(0)
        return (~finite).nonzero().flatten().tolist()

    def _inputs(self, batch: Batch) -> dict[str, Tensor | None]:
        device = self.model.device
        wide = self.recipe.run.precision == "fp64"
        tensors: dict[str, Tensor | None] = {}
        for name, array in self.matcher.inputs(batch).items():
            tensor = None if array is None else torch.from_numpy(array).to(device)
            tensors[name] = tensor.double() if tensor is not None and wide and tensor.is_floating_point() else tensor
        return tensors

    def _encode(self, inputs: Mapping[str, Tensor | None], step: int, part: int) -> tuple[Side, Side]:
        """Encode both sides of one part. Random numbers (dropout) are keyed by step, rank and part."""
        number = self.ranks.rank * self.recipe.run.micro_batches + part
        torch.manual_seed(keyed_seed(self.recipe.seed, step, Purpose.NETWORK, number))
        with self._autocast():
            image, text = self._network(**inputs)
        if self.recipe.run.precision == "fp64":
            return image, text
        return tuple(map(_single, image)), tuple(map(_single, text))

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.recipe.run.precision)
        return nullcontext() if dtype is None else torch.autocast(self.model.device.type, dtype=dtype)

    def _backward_in_parts(
        self, loss: Tensor, image: Side, text: Side, parts: list[dict[str, Tensor | None]], step: int
    ) -> None:
        sides, scoring = _floats((*image, *text)), [*self.matcher.scoring_parameters().values()]
        toward = torch.autograd.grad(loss, [*sides, *scoring])
        for parameter, gradient in zip(scoring, toward[len(sides) :], strict=True):
            parameter.grad = gradient
        size = len(image[0]) // len(parts)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            network = self._network
            quiet = nullcontext() if last or not isinstance(network, DistributedDataParallel) else network.no_sync()
            rows = slice(number * size, (number + 1) * size)
            with quiet:
                part_image, part_text = self._encode(part, step, number)
                torch.autograd.backward(
                    _floats((*part_image, *part_text)), [gradient[rows] for gradient in toward[: len(sides)]]
                )

    def _update(self) -> float:
        for parameter in self.matcher.scoring_parameters().values():
            if parameter.grad is not None:  # the loss has a factor for the mean over the processes
                parameter.grad /= self.ranks.world
        self.scaler.unscale_(self.optimizer)
        trained = [parameter for parameter in self.parameters.values() if parameter.grad is not None]
        clip = self.recipe.optimizer.clip or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(trained, clip))
        self.skipped = 0 if _finite(norm) else self.skipped + 1
        if self.skipped > (MAX_SKIPPED if self.scaler.is_enabled() else 0):
            raise NotFiniteError("gradient", [])
        self.scaler.step(self.optimizer)  # skips a step that is not finite; update() then lowers the scale
        self.scaler.update()
        return norm if _finite(norm) else 0.0


def auxiliary_weights(defaults: Mapping[str, float], changed: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of a system's losses, those of the recipe over the defaults."""
    unknown = sorted(changed.keys() - defaults.keys())
    if unknown:
        known = f"its system has {', '.join(defaults)}" if defaults else "the model has none"
        raise InputError(f"loss.auxiliary.{unknown[0]}: no such auxiliary loss, {known}")
    return {**defaults, **changed}


def _split(inputs: Mapping[str, Tensor | None], count: int) -> list[dict[str, Tensor | None]]:
    """Split the inputs into ``count`` equal parts."""
    chunks = {name: [None] * count if value is None else list(value.chunk(count)) for name, value in inputs.items()}
    return [{name: values[number] for name, values in chunks.items()} for number in range(count)]


def _joined(parts: Sequence[Side]) -> Side:
    """Join the rows of all parts as leaves, so that they receive gradients."""
    return tuple(_leaf(torch.cat(tensors)) for tensors in zip(*parts, strict=True))


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _floats(tensors: Side) -> list[Tensor]:
    """The tensors with gradients; masks have none."""
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def _single(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _count_padding(model: nn.Module) -> None:
    """Let the batch norm of residual heads count padded rows, as the released code does."""
    for module in model.modules():
        if isinstance(module, Projection):
            module.padded_norm = True


def _refuse_batch_statistics(model: nn.Module) -> None:
    """Refuse batch norm with micro batches: its statistics would differ from those of the whole batch."""
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not f"{name}.".startswith(BACKBONE)
    ]
    if found:
        raise InputError(
            f"run.micro_batches: {found[0]} takes statistics over the whole batch, which parts of it cannot; "
            + ('set model.image.head to "linear", or ' if "projection" in found[0] else "set ")
            + "micro_batches to 1"
        )


def _finite(value: float) -> bool:
    return value - value == 0
