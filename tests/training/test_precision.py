"""Fewer bits, parts of a batch, compiled networks: what may differ, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support_models import BERT, write_wordpieces
from tests.training.support import tiny_values, write_pairs
from tests.training.support_steps import first_gradients, trainer_of

from vse.encoders.transformer_text import create_transformer
from vse.errors import InputError
from vse.training import Recipe, train
from vse.training.log import read_metrics

SCHEDULE = {"epochs": 6, "batch_size": 16, "decay_epochs": 1}
ONE_THREAD: dict[str, Any] = {"threads": 1, "readers": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("precision") / "data", 48, 40)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> str:
    """A tiny pretrained transformer with dropout."""
    pytest.importorskip("transformers")
    folder = write_wordpieces(tmp_path_factory.mktemp("precision") / "bert")
    torch.manual_seed(0)
    create_transformer({**BERT, "hidden_dropout_prob": 0.4}).save_pretrained(folder)
    return str(folder)


def double(data: Path, micro_batches: int, **changes: Any) -> dict[str, Any]:
    run: dict[str, Any] = ONE_THREAD | {"precision": "fp64", "micro_batches": micro_batches}
    return tiny_values(data, schedule=SCHEDULE, optimizer={"lr": 0.01, "clip": 0.0}, run=run, **changes)


def assert_close(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Every parameter to 1e-9 of its largest gradient."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.dtype == torch.float64
        scale = gradient.abs().max() + 1e-12
        torch.testing.assert_close(found[name] / scale, gradient / scale, rtol=0, atol=1e-9, msg=name)


class TestMicroBatches:
    """A batch in parts has the negatives, hence the gradients, of the whole."""

    @pytest.mark.parametrize("parts", [2, 4, 8, 16])
    @pytest.mark.parametrize("objective", ["contrastive", "triplet", "annealed"])
    def test_gradients_are_those_of_the_whole_batch(self, parts, objective, data, tmp_path):
        """In double precision, also with parts of a single pair."""
        loss = {"objective": objective, "warmup_epochs": 0}
        whole = first_gradients(double(data, 1, loss=loss), tmp_path)
        assert_close(first_gradients(double(data, parts, loss=loss), tmp_path), whole)

    def test_with_dropout_both_passes_draw_the_same(self, data, bert, tmp_path):
        """The gradient is that of the loss of the very vectors of the first pass.

        Parts draw other masks than the whole would, so the reference is computed here: the vectors of both parts with
        their gradients kept, the loss of all of them, one backward pass.
        """
        values = double(data, 2)
        values["model"]["text"] = {"kind": "transformer", "pretrained": bert, "pooling": "avg"}
        found = first_gradients(values, tmp_path)
        trainer = trainer_of(values, tmp_path)
        step, batch = trainer.step, trainer.pairs.batch(0, trainer.pairs.order(0)[:16])
        inputs = step._inputs(batch)
        halves = [
            {name: None if value is None else value[rows] for name, value in inputs.items()}
            for rows in (slice(0, 8), slice(8, 16))
        ]
        encoded = [step._encode(half, 0, number) for number, half in enumerate(halves)]
        image, text = (torch.cat([part for (part,) in side]) for side in zip(*encoded, strict=True))
        step.objective(image @ text.T, torch.from_numpy(batch.image_ids), 0).backward()
        expected = {name: parameter.grad for name, parameter in step.parameters.items()}
        assert_close(found, expected)
        again = [step._encode(half, 1, number)[1][0] for number, half in enumerate(halves)]
        assert not torch.allclose(torch.cat(again), text)  # another step drops others

    def test_a_run_in_parts_is_a_run(self, data, tmp_path):
        """In double precision a whole run in parts has the losses of the run without."""
        runs = []
        for parts in (1, 4):
            values = double(data, parts) | {"schedule": SCHEDULE | {"epochs": 2}}
            train(Recipe.model_validate(values), tmp_path / str(parts))
            runs.append([line["loss"] for line in read_metrics(tmp_path / str(parts)) if line["kind"] == "step"])
        np.testing.assert_allclose(runs[1], runs[0], rtol=1e-7)

    def test_statistics_over_the_batch_are_refused(self, data, tmp_path):
        """Batch norm would see other statistics in parts; the message names the layer and both ways out."""
        values = double(data, 2)
        values["model"]["image"]["head"] = "residual-mlp"
        with pytest.raises(InputError, match=r"^run.micro_batches: image_encoder\.\S+ takes statistics") as caught:
            train(Recipe.model_validate(values), tmp_path / "run")
        assert "model.image.head" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    def test_unequal_parts_are_refused(self, data):
        """The recipe says both numbers."""
        with pytest.raises(ValueError, match="batch_size 16 cannot be split into 3 equal"):
            Recipe.model_validate(double(data, 3))


class Run:
    """Losses and the best figures on dev of a run."""

    def __init__(self, data: Path, folder: Path, epochs: int = 6, **run: Any) -> None:
        values = tiny_values(data, schedule=SCHEDULE | {"epochs": epochs}, optimizer={"lr": 0.02}, run=ONE_THREAD | run)
        self.best = train(Recipe.model_validate(values), folder).best
        self.losses = np.array([line["loss"] for line in read_metrics(folder) if line["kind"] == "step"])


@pytest.fixture(scope="module")
def single(data, tmp_path_factory) -> Run:
    return Run(data, tmp_path_factory.mktemp("precision") / "single")


class TestPrecision:
    """The same run with other numbers of bits."""

    def test_double_precision_is_close(self, single, data, tmp_path):
        """The first losses to a millionth; then both go their way, within a percent."""
        run = Run(data, tmp_path / "run", precision="fp64")
        np.testing.assert_allclose(run.losses[:5], single.losses[:5], rtol=1e-5)
        np.testing.assert_allclose(run.losses.mean(), single.losses.mean(), rtol=0.01)

    def test_bf16_trains_like_fp32(self, single, data, tmp_path):
        """The first loss to a percent, the mean of the run to a tenth, and dev is ranked about as well."""
        run = Run(data, tmp_path / "run", precision="bf16")
        assert run.losses[0] != single.losses[0]
        np.testing.assert_allclose(run.losses[0], single.losses[0], rtol=0.01)
        np.testing.assert_allclose(run.losses[-9:].mean(), single.losses[-9:].mean(), rtol=0.1)
        assert run.best["rsum"] > 0.85 * single.best["rsum"]

    def test_weights_are_kept_in_single_precision(self, data, tmp_path):
        """bf16 is for computing: what is saved is float32."""
        from safetensors.torch import load_file

        values = tiny_values(data, schedule=SCHEDULE | {"epochs": 2}, run=ONE_THREAD | {"precision": "bf16"})
        train(Recipe.model_validate(values), tmp_path / "run")
        (state,) = (tmp_path / "run").glob("checkpoint-*/state.safetensors")
        floating = [tensor for tensor in load_file(state).values() if tensor.is_floating_point()]
        assert {tensor.dtype for tensor in floating} == {torch.float32}

    @pytest.mark.slow
    def test_compiled_networks_have_the_losses_of_eager_ones(self, single, data, tmp_path):
        """To a thousandth over the first epoch, and the model that is saved ranks dev."""
        run = Run(data, tmp_path / "run", epochs=2, compile=True)
        np.testing.assert_allclose(run.losses[:9], single.losses[:9], rtol=1e-3)
        assert run.best["rsum"] > 100
