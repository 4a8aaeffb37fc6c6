"""Two recipes are of one run if they differ only in how the machine is used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vse.inputs import imagenet
from vse.training.recipe import Recipe

PLACES = {"data.path", "data.images", "data.features", "data.vocabulary", "model.backbone_weights", "model.start"}
MACHINE = {"threads", "readers", "checkpoint_minutes", "tensorboard", "trackers", "device", "micro_batches"}
FREE = {"about"} | PLACES | {f"run.{key}" for key in MACHINE}
START = {"model": {"image": {"kind": "grid", "backbone": "caffe-resnet50"}, "text": {"kind": "bigru"}}}
OTHER = {
    "about": "another",
    "seed": 1,
    "data.path": "elsewhere",
    "data.layout": "table",
    "data.images": "pictures",
    "data.features": "store",
    "data.train": "all",
    "data.dev": "val",
    "data.vocabulary": "words.json",
    "data.min_count": 1,
    "data.max_tokens": 30,
    "data.captions_per_image": 2,
    "data.dev_captions": 5000,
    "released.scaled_loss": True,
    "released.padded_norm": True,
    "released.partial_batch": True,
    "released.special_words": True,
    "model.embed_size": 512,
    "model.image.backbone.name": "caffe-resnet101",
    "model.image.backbone.options": {"detector": True},
    "model.image.image_size": 256,
    "model.image.windows": 5,
    "model.image.preprocessing": imagenet(64).to_json(),
    "model.image.head": "residual-mlp",
    "model.image.hidden_size": 256,
    "model.image.pooling.name": "max",
    "model.image.pooling.options": {"temperature": 0.2},
    "model.text.word_size": 100,
    "model.text.pooling.name": "avg",
    "model.text.pooling.options": {"temperature": 0.3},
    "model.pretrained": True,
    "model.backbone_weights": "weights.safetensors",
    "model.start": "other-model",
    "model.system": "de",
    "loss.objective": "contrastive",
    "loss.negatives": "all",
    "loss.warmup_epochs": 0,
    "loss.margin": 0.1,
    "loss.temperature": 0.1,
    "loss.final_temperature": 0.1,
    "loss.reduction": "mean",
    "loss.same_image": "negatives",
    "loss.candidates": 5,
    "loss.dev_depth": 7,
    "loss.blend": 0.9,
    "loss.softmax_margin": 0.1,
    "loss.auxiliary": {"caption": 2.0},
    "optimizer.name": "adam",
    "optimizer.lr": 1e-3,
    "optimizer.weight_decay": 0.0,
    "optimizer.clip": 0.0,
    "optimizer.backbone_factor": 1.0,
    "optimizer.backbone_parts": ("layer4",),
    "optimizer.pooling_factor": 10.0,
    "optimizer.transformer_factor": 1.0,
    "schedule.epochs": 30,
    "schedule.batch_size": 64,
    "schedule.warmup_from": 1,
    "schedule.warmup_epochs": 0.5,
    "schedule.decay": "cosine",
    "schedule.decay_epochs": 5,
    "schedule.decay_factor": 0.5,
    "schedule.search_epochs": 2,
    "schedule.pooling_from": 3,
    "schedule.frozen_epochs": 0,
    "augmentation.image": "none",
    "augmentation.text": "released",
    "augmentation.rate": 0.1,
    "augmentation.views": False,
    "guard.action": "off",
    "guard.spread": 0.1,
    "guard.patience": 10,
    "run.precision": "bf16",
    "run.micro_batches": 2,
    "run.average": 0.99,
    "run.compile": True,
    "run.device": "cpu",
    "run.threads": 1,
    "run.readers": 1,
    "run.checkpoint_minutes": 1,
    "run.tensorboard": True,
    "run.trackers": ["wandb"],
}


def changed(*keys: str) -> Recipe:
    """A recipe in which each of ``keys`` has another value than in :data:`START`."""
    values: dict[str, Any] = json.loads(json.dumps(START))
    for key in keys:
        table = values
        *parents, last = key.split(".")
        for part in parents:
            inner = table.get(part, {})
            table[part] = {"name": inner} if isinstance(inner, str) else inner
            table = table[part]
        table[last] = OTHER[key]
    values["model"]["image"].setdefault("backbone", "caffe-resnet50")
    if "model.system" in keys:  # it is trained with this objective alone
        values["loss"] = values.get("loss", {}) | {"objective": "contrastive"}
    return Recipe.model_validate(values)


def keys_of(value: Any, prefix: str = "") -> set[str]:
    """Every key of a recipe, dotted; what is no model of its own ends a key."""
    if not hasattr(type(value), "model_fields"):
        return {prefix.removesuffix(".")}
    return {key for name in type(value).model_fields for key in keys_of(getattr(value, name), f"{prefix}{name}.")}


class TestIdentity:
    """What must be equal for a run to be continued."""

    def test_every_key_is_decided_on(self):
        """A new key must be added here, and with it the question whether it may change in the middle of a run."""
        of_others = {"loss.options", "loss.first_stage"}  # of plugins and of cross-encoders, which this recipe is not
        kinds = {"model.kind", "model.image.kind", "model.text.kind"}
        assert keys_of(changed()) - kinds - of_others == set(OTHER)

    @pytest.mark.parametrize("key", OTHER)
    def test_only_how_the_machine_is_used_may_differ(self, key):
        """Threads, readers, device, how often is saved, what is shown, and the description."""
        assert (changed(key).identity() == changed().identity()) == (key in FREE)

    @pytest.mark.parametrize(
        "model", [{"image": {"kind": "region"}}, {"text": {"kind": "transformer", "pretrained": "bert-base-uncased"}}]
    )
    def test_another_kind_of_encoder_is_another_run(self, model):
        """The kind is part of it."""
        assert Recipe.model_validate({"model": START["model"] | model}).identity() != changed().identity()

    @given(st.sets(st.sampled_from(sorted(OTHER))))
    def test_identities_are_equal_if_and_only_if_nothing_else_differs(self, keys):
        """Any number of changes together; and an identity survives being written as JSON."""
        if "run.micro_batches" in keys:  # refused together with these
            keys = keys - {"run.compile", "released.partial_batch"}
        identity = changed(*keys).identity()
        assert (identity == changed().identity()) == (keys <= FREE)
        assert identity == changed(*(keys - FREE)).identity()
        assert json.loads(json.dumps(identity)) == identity
