"""The training loop: epochs of steps, evaluation on dev, and checkpoints from which a run resumes exactly."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from vse.data import CaptionedImages
from vse.data.dataset import VIDEOS
from vse.errors import InputError, VSEError
from vse.evaluation.metrics import RetrievalMetrics
from vse.evaluation.retrieval_test import evaluate_split
from vse.hgr.graphs import SentenceGraphs
from vse.models.card import save_with_card
from vse.models.config import Score
from vse.models.storage import TorchModel, load_state
from vse.progress import ProgressReporter
from vse.training.batches import Batch, Samples, TrainingPairs, prefetch_batches
from vse.training.distributed import Ranks
from vse.training.guard import CollapseGuard
from vse.training.log import SOFTENED, MetricsLog, blame, collapsing, epoch_line, headline, recovered, stopped_by_guard
from vse.training.mining import FirstStage
from vse.training.optimizer import (
    create_optimizer,
    gpo_parameters,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
    trained_parameters,
)
from vse.training.recipe import Recipe
from vse.training.run_folder import RunFolder
from vse.training.schedule import AveragedWeights, Objective, PoolingSearch, rate_factor, warmup_factor
from vse.training.step import NotFiniteError, StepFigures, TrainingStep

MODEL, OPTIMIZER, AVERAGE = "model|", "optimizer|", "average|"


@dataclass
class Position:
    """The state of a run apart from its tensors, as JSON values."""

    epoch: int = 0
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    guard: dict[str, Any] = field(default_factory=dict)
    average_steps: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)
    metrics_bytes: int = 0
    models: dict[str, str] = field(default_factory=dict)


class Trainer:
    """One run; :meth:`run` trains from the checkpoint of the folder to the end."""

    def __init__(
        self,
        recipe: Recipe,
        model: TorchModel,
        pairs: TrainingPairs,
        dev: CaptionedImages,
        folder: RunFolder,
        ranks: Ranks,
        report: ProgressReporter,
        *,
        stored_features: bool,
        stopping: Callable[[], bool],
        graphs: SentenceGraphs | None = None,
        first_stage: FirstStage | None = None,
    ) -> None:
        self.recipe, self.model, self.pairs, self.dev = recipe, model, pairs, dev
        self.folder, self.ranks, self.report, self._stopping = folder, ranks, report, stopping
        self._graphs, self._first_stage = graphs, first_stage
        schedule = recipe.schedule
        size = len(pairs.order(0, recipe.data.captions_per_image))
        self.steps_per_epoch = size // schedule.batch_size
        if recipe.released.partial_batch and pairs.data.images.kind == "files" and size % schedule.batch_size:
            if not ranks.alone:
                raise InputError("released.partial_batch: a smaller batch cannot be split over processes")
            self.steps_per_epoch += 1
        if self.steps_per_epoch == 0:
            raise InputError(
                f"{pairs.data.name}, split {pairs.data.split!r}: an epoch has {size} captions, fewer than one batch of "
                f"{schedule.batch_size}: lower schedule.batch_size"
            )
        self.local_rows = ranks.part(schedule.batch_size)
        self.fine_tuning = model.image_backbone is not None and not stored_features
        parts = recipe.optimizer.backbone_parts
        parameters = trained_parameters(model, backbone=self.fine_tuning, parts=parts)
        objective = Objective(recipe.loss, self.steps_per_epoch, schedule.epochs)
        gpo = gpo_parameters(model)
        if schedule.pooling_from and not gpo:
            raise InputError(
                f"schedule.pooling_from is {schedule.pooling_from}, and no side of the model is pooled with GPO: leave "
                "it out"
            )
        optimizer = create_optimizer(parameters, recipe.optimizer, gpo=gpo)
        self.step = TrainingStep(model, parameters, optimizer, objective, recipe, ranks, gpo=gpo)
        self.guard = CollapseGuard(recipe.guard)
        self.search = PoolingSearch(model, recipe.seed, schedule.search_epochs * self.steps_per_epoch)
        self._cpu = time.process_time()
        self.average = AveragedWeights(model, recipe.run.average) if recipe.run.average is not None else None
        self.position = Position()

    @property
    def total_steps(self) -> int:
        return self.steps_per_epoch * self.recipe.schedule.epochs

    def restore(self) -> bool:
        """Restore the checkpoint of the folder; return False if there is none."""
        found = self.folder.read_checkpoint()
        if found is None:
            return False
        state, tensors = found
        where = str(self.folder.path)
        unknown = state.keys() ^ asdict(self.position).keys()
        if unknown:
            raise InputError(f"{where}: a checkpoint of another version of vse (it differs in {sorted(unknown)[0]!r})")
        self.position = Position(**state)
        if self.ranks.first:
            self.folder.show_models(self.position.models)
        load_state(self.model, _under(MODEL, tensors), where)
        load_optimizer_tensors(self.step.optimizer, self.step.parameters, _under(OPTIMIZER, tensors))
        if self.average is not None:
            self.average.load(_under(AVERAGE, tensors), self.position.average_steps)
        if self.position.scaler:
            self.step.scaler.load_state_dict(self.position.scaler)
        self.guard = CollapseGuard(self.recipe.guard, **self.position.guard)
        return True

    def run(self) -> None:
        """Train to the end."""
        log = None
        if self.ranks.first:
            log = MetricsLog(
                self.folder.path,
                self.position.metrics_bytes,
                first_step=self.position.step,
                trackers=self.recipe.run.all_trackers,
                recipe=self.recipe.model_dump(mode="json"),
            )
        try:
            self.report.start(self.total_steps - self.position.step, "training")
            last_saved = time.monotonic()
            while self.position.epoch < self.recipe.schedule.epochs:
                last_saved = self._epoch(log, last_saved)
            self.report.finish()
        finally:
            if log is not None:
                log.close()

    def _epoch(self, log: MetricsLog | None, last_saved: float) -> float:
        epoch = self.position.epoch
        train_backbone = self.fine_tuning and epoch >= self.recipe.schedule.frozen_epochs
        self.step.prepare(train_backbone=train_backbone, train_gpo=epoch >= self.recipe.schedule.pooling_from)
        batches = self._batches(epoch)
        done = self.position.step - epoch * self.steps_per_epoch
        local_batches = [samples[self.local_rows] for samples in batches[done:]]
        began, self._cpu = time.perf_counter(), time.process_time()
        for samples, (batch, waited) in zip(
            batches[done:],
            prefetch_batches(partial(self.pairs.batch, epoch), local_batches, self.recipe.run.readers),
            strict=True,
        ):
            self._one_step(batch, samples, log, waited, began)
            began = time.perf_counter()
            stopping = self.ranks.any(self._stopping())
            finished = self.position.step == (epoch + 1) * self.steps_per_epoch
            due = time.monotonic() - last_saved > 60 * self.recipe.run.checkpoint_minutes
            if stopping or (due and not finished and self.recipe.run.checkpoint_minutes > 0):
                self._save(log)
                last_saved = time.monotonic()
            if stopping:
                self.report.note(f"stopped at step {self.position.step}; run the same command again to resume")
                raise KeyboardInterrupt
        self._finish_epoch(log)
        self._save(log)
        if self.ranks.first:
            self.folder.show_models(self.position.models)
        return time.monotonic()

    def _batches(self, epoch: int) -> list[Samples]:
        order = self.pairs.order(epoch, self.recipe.data.captions_per_image)
        size = self.recipe.schedule.batch_size
        return [order[first : first + size] for first in range(0, self.steps_per_epoch * size, size)]

    def _loss_scale(self, step: int) -> float:
        """Return the factor of the loss: the warm-up of the released code, which begins with 0."""
        if not self.recipe.released.scaled_loss:
            return 1.0
        return warmup_factor(self.recipe.schedule, step, self.steps_per_epoch, first=0)

    def _one_step(self, batch: Batch, samples: Samples, log: MetricsLog | None, waited: float, began: float) -> None:
        position, number = self.position, self.position.step
        self.search.draw(number)
        warm_up = not self.recipe.released.scaled_loss
        factor = rate_factor(self.recipe.schedule, number, self.steps_per_epoch, warm_up=warm_up)
        set_rate(self.step.optimizer, factor)
        try:
            figures = self.step(batch, number, softened=self.guard.softened, scale=self._loss_scale(number))
        except NotFiniteError as error:
            raise VSEError(blame(error, samples, self.pairs.data, position.step, position.epoch)) from error
        if self.average is not None:
            self.average.update(self.model)
        event = self.guard.observe(figures.closest[1])
        values = {
            "step": number,
            "epoch": position.epoch,
            "lr": self.recipe.optimizer.lr * factor,
            **figures.values(),
        }
        for key, value in figures.values().items():
            position.sums[key] = position.sums.get(key, 0.0) + value
        position.step += 1
        seconds, cpu = time.perf_counter() - began, time.process_time()
        if log is not None:
            spent = {"compute": seconds - waited, "wait": waited, "cpu": cpu - self._cpu}
            log.step(values, {name: round(each, 4) for name, each in spent.items()})
        self._cpu = cpu
        if event is not None:
            self._report_event(event, figures, log)
        self.report.advance(1, headline(figures, position.epoch, self.recipe.schedule.epochs, position.best))

    def _finish_epoch(self, log: MetricsLog | None) -> None:
        """Evaluate on dev, save the models, log the epoch."""
        position = self.position
        means = {key: value / self.steps_per_epoch for key, value in position.sums.items()}
        found: dict[str, RetrievalMetrics] = {}
        score = (lambda: self._evaluate().rsum) if self.ranks.first else None
        selected = self.search.settle(position.step, score, self.ranks)
        if selected:
            self.report.note(f"poolings take the largest {', '.join(f'{each:g} %' for each in selected)} from now on")
        if self.ranks.first:
            found["last"] = self._evaluate()
            self._keep("last", found["last"])
            if self.average is not None:
                with self.average.in_place(self.model):
                    found["averaged"] = self._evaluate()
                    self._keep("averaged", found["averaged"])
        scores = self.ranks.share({name: metrics.rsum for name, metrics in found.items()})
        name = max(scores, key=lambda each: scores[each])
        better = position.best is None or scores[name] > position.best["rsum"]
        if better:
            position.best = {"rsum": scores[name], "epoch": position.epoch, "step": position.step, "weights": name}
            if self.ranks.first:
                position.best["dev"] = found[name].to_json()
                position.best |= {"videos": True} if self.dev.kind == VIDEOS else {}
                position.models["best"] = position.models[name]
        if log is not None:
            dev = {each: metrics.figures() for each, metrics in found.items()}
            log.epoch(
                {
                    "step": position.step,
                    "epoch": position.epoch,
                    "loss_kind": self.step.objective.describe(position.step - 1, softened=self.guard.softened),
                    **means,
                    "dev": dev["last"],
                    **({"dev_averaged": dev["averaged"]} if "averaged" in dev else {}),
                    "best": better,
                }
            )
        if found:
            self.report.note(epoch_line(means, found, position.epoch, self.recipe.schedule.epochs, better=better))
        position.sums = {}
        position.epoch += 1

    def _evaluate(self) -> RetrievalMetrics:
        if self._first_stage is not None:
            return self._first_stage.evaluate(self.model, self.dev, self.recipe.loss.dev_depth)
        return evaluate_split(self.model, self.dev, graphs=self._graphs)

    def _keep(self, link: str, metrics: RetrievalMetrics) -> None:
        """Save the current model with its figures on dev in its card."""
        name = f"model-{self.position.step:08d}{'-averaged' if link == 'averaged' else ''}"
        config = self.model.config
        limit = self.recipe.data.dev_captions
        dev = "whole dev split" if limit is None else f"first {limit} captions of dev"
        score = Score(
            protocol=f"{dev}, after epoch {self.position.epoch + 1}",
            data=self.dev.name,
            split=self.dev.split,
            values={key: float(value) for key, value in metrics.figures().items()},
        )
        scored: Any = config.model_copy(update={"about": config.about.model_copy(update={"scores": (score,)})})
        self.model.config = scored
        try:
            self.folder.write_model(name, partial(save_with_card, self.model, draw=False))
        finally:
            self.model.config = config
        self.position.models[link] = name

    def _save(self, log: MetricsLog | None) -> None:
        if log is None:
            return
        position = self.position
        position.metrics_bytes = log.commit()
        position.guard = self.guard.to_json()
        position.scaler = self.step.scaler.state_dict()
        tensors = {f"{MODEL}{name}": value for name, value in self.model.state_dict().items()}
        for name, value in optimizer_tensors(self.step.optimizer, self.step.parameters).items():
            tensors[f"{OPTIMIZER}{name}"] = value
        if self.average is not None:
            position.average_steps = self.average.steps
            tensors |= {f"{AVERAGE}{name}": value for name, value in self.average.tensors.items()}
        self.folder.write_checkpoint(position.step, asdict(position), tensors)

    def _report_event(self, event: str, figures: StepFigures, log: MetricsLog | None) -> None:
        position, action = self.position, self.recipe.guard.action
        side, value = figures.closest
        side = self.dev.kind.plural if side == "images" else side
        if log is not None:
            reported = {"event": event, "side": side, "spread": value}
            log.event({"step": position.step, "epoch": position.epoch, **reported})
        where = f"step {position.step} of {self.total_steps} (epoch {position.epoch + 1})"
        if event == "recovered":
            self.report.note(recovered(where, value))
            return
        message = collapsing(where, side, value, figures.loss)
        if action == "stop":
            raise VSEError(stopped_by_guard(message))
        softens = action == "soften" and self.step.objective.can_soften
        self.report.note(message + (SOFTENED if softens else ""))


def _under(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
