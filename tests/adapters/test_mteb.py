"""A model of ours inside MTEB: the library's own evaluation of tiny retrieval tasks, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from tests.conftest import library
from tests.support_models import CAPTIONS, build, grid_config, picture

import vse
from vse.adapters import mteb_encoder
from vse.encoders.third_party import repair_torchvision

IMAGES, EACH = 12, 2


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A model, and a folder with generated images and a table of their captions by id, ``IMAGE-NUMBER``."""
    home = tmp_path_factory.mktemp("mteb")
    words, generator = sorted({*" ".join(CAPTIONS).split()}), np.random.default_rng(0)
    captions = {f"{n}-{k}": " ".join(generator.permutation(words)[:6]) for n in range(IMAGES) for k in range(EACH)}
    for number in range(IMAGES):
        Image.fromarray(picture(number)).save(home / f"{number}.png")
    lines = [f"{key.split('-')[0]}.png,{caption},test" for key, caption in captions.items()]
    (home / "captions.csv").write_text("\n".join(["path,caption,split", *lines]) + "\n")
    return build(image=grid_config()).save(home / "model"), home, captions


def tiny_task(home, captions, category):
    """Return a retrieval task of MTEB over the images and captions: ``t2i`` or ``i2t``."""
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageColumn
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    unknown = ("reference", "date", "domains", "task_subtypes", "license", "annotations_creators", "dialect")

    class Tiny(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name=f"Tiny-{category}",
            description="captions of generated images",
            dataset={"path": "none/none", "revision": "1"},
            type="Any2AnyRetrieval",
            category=category,
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
            columns = {"id": names, "image": [str(home / f"{name}.png") for name in names]}
            kinds = Features({"id": Value("string"), "image": ImageColumn(), "modality": Value("string")})
            images = Dataset.from_dict(columns | {"modality": ["image"] * IMAGES}, features=kinds)
            texts = {"id": list(captions), "text": list(captions.values()), "modality": ["text"] * len(captions)}
            pairs = [(key, key.split("-")[0]) for key in captions]
            sides = [Dataset.from_dict(texts), images]
            if category == "i2t":
                pairs, sides = [(image, text) for text, image in pairs], sides[::-1]
            right = {query: {} for query, _ in pairs}
            for query, found in pairs:
                right[query][found] = 1
            split = {"queries": sides[0], "corpus": sides[1], "relevant_docs": right, "top_ranked": None}
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return Tiny()


@pytest.mark.slow
def test_mteb_recalls_equal_vse_evaluate(material, monkeypatch):
    """Texts retrieve images and images retrieve texts with the recalls of vse.evaluate, which MTEB calls hit rates."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    repair_torchvision()
    mteb = library("mteb", "mteb")  # here: its import takes seconds, in every process that collects this module
    model, home, captions = material
    tasks = [tiny_task(home, captions, category) for category in ("t2i", "i2t")]
    found = mteb.evaluate(mteb_encoder(model), tasks, cache=None, show_progress_bar=False)
    metrics = vse.evaluate(model, home / "captions.csv", split="test").results[0].metrics
    for result, expected in zip(found.task_results, (metrics.t2i, metrics.i2t), strict=True):
        scores = [100 * result.scores["test"][0][f"hit_rate_at_{k}"] for k in (1, 5, 10)]
        np.testing.assert_allclose(scores, [expected.r1, expected.r5, expected.r10], atol=0.01)
