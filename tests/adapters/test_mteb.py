"""A model of ours inside MTEB: the library's own evaluation of a tiny image task."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from tests.support_models import CAPTIONS, build, grid_config, picture

import vse
from vse.adapters import mteb_encoder
from vse.encoders.third_party import repair_torchvision

repair_torchvision()
mteb = pytest.importorskip("mteb")
IMAGES, EACH = 12, 2


def test_mteb_recalls_equal_vse_evaluate(tmp_path, monkeypatch):
    """Texts retrieve images with the recalls of vse.evaluate."""
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageColumn
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words, generator = sorted({*" ".join(CAPTIONS).split()}), np.random.default_rng(0)
    captions = {f"{n}-{k}": " ".join(generator.permutation(words)[:6]) for n in range(IMAGES) for k in range(EACH)}
    for number in range(IMAGES):
        Image.fromarray(picture(number)).save(tmp_path / f"{number}.png")
    lines = [f"{key.split('-')[0]}.png,{caption},test" for key, caption in captions.items()]
    (tmp_path / "captions.csv").write_text("\n".join(["path,caption,split", *lines]) + "\n")
    unknown = ("reference", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect")

    class Tiny(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Tiny",
            description="captions of generated images",
            dataset={"path": "none/none", "revision": "1"},
            type="Any2AnyRetrieval",
            category="t2i",
            modalities=["text", "image"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="recall_at_1",
            sample_creation=None,
            bibtex_citation=None,
            **dict.fromkeys(unknown),
        )

        def load_data(self, *_, **__):
            names = [str(number) for number in range(IMAGES)]
            columns = {"id": names, "image": [str(tmp_path / f"{name}.png") for name in names]}
            kinds = Features({"id": Value("string"), "image": ImageColumn(), "modality": Value("string")})
            corpus = Dataset.from_dict(columns | {"modality": ["image"] * IMAGES}, features=kinds)
            texts = {"id": list(captions), "text": list(captions.values()), "modality": ["text"] * len(captions)}
            right = {key: {key.split("-")[0]: 1} for key in captions}
            split = {"corpus": corpus, "queries": Dataset.from_dict(texts), "relevant_docs": right, "top_ranked": None}
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    folder = build(image=grid_config()).save(tmp_path / "model")
    found = mteb.evaluate(mteb_encoder(str(folder)), Tiny(), cache=None, show_progress_bar=False)
    scores = found.task_results[0].scores["test"][0]
    expected = vse.evaluate(folder, tmp_path / "captions.csv", split="test").results[0].metrics.t2i
    ours = [expected.r1, expected.r5, expected.r10]
    np.testing.assert_allclose([100 * scores[f"recall_at_{k}"] for k in (1, 5, 10)], ours, atol=0.01)
