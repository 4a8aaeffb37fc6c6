"""Public cross-encoders with tiny random weights: our scores against calling transformers directly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models.published import transformers, word_piece_tokenizer
from tests.support_hub import fake_hub
from tests.support_models import picture

import vse
from vse.errors import InputError
from vse.index.rerank import load_reranker
from vse.models.inspection import inspect_folder
from vse.models.protocols import CandidateScorer, PairScorer

TEXTS = ["a dog runs in the snow", "two cats"]
SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = 30522
REGIONS = 5


def config_of(kind: str) -> Any:
    library = transformers()
    if kind == "vilt":
        return library.ViltConfig(**SMALL, vocab_size=WORDS, image_size=32, patch_size=16, max_position_embeddings=20)
    if kind == "blip":
        text = {**SMALL, "vocab_size": WORDS, "encoder_hidden_size": 16, "max_position_embeddings": 20}
        vision = {**SMALL, "image_size": 32, "patch_size": 16}
        return library.BlipConfig(text_config=text, vision_config=vision, projection_dim=8, image_text_hidden_size=8)
    if kind == "bridgetower":
        wide = {**SMALL, "hidden_size": 64}  # a head has 64 values
        text = {**wide, "vocab_size": WORDS, "max_position_embeddings": 24}
        vision = {"hidden_size": 64, "num_hidden_layers": 1, "image_size": 32, "patch_size": 16}
        return library.BridgeTowerConfig(**wide, text_config=text, vision_config=vision)
    if kind == "visual_bert":
        return library.VisualBertConfig(**SMALL, vocab_size=WORDS, visual_embedding_dim=10, max_position_embeddings=20)
    layers = {"l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 6}
    return library.LxmertConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_qa_labels=3, **layers
    )


NETWORKS = {
    "vilt": "ViltForImageAndTextRetrieval",
    "blip": "BlipForImageTextRetrieval",
    "bridgetower": "BridgeTowerForImageAndTextRetrieval",
    "lxmert": "LxmertForPreTraining",
    "visual_bert": "VisualBertForPreTraining",
}
PROCESSORS = {
    "vilt": {"size": {"shortest_edge": 32}, "size_divisor": 16},
    "blip": {"size": {"height": 32, "width": 32}},
    "bridgetower": {"size": {"shortest_edge": 32}, "size_divisor": 16, "crop_size": {"shortest_edge": 32}},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """One model of each kind, saved by transformers."""
    library, base = transformers(), tmp_path_factory.mktemp("public")
    found = {}
    for kind, name in NETWORKS.items():
        torch.manual_seed(3)
        model = getattr(library, name)(config_of(kind)).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # most begin near zero, and all scores would be alike
                parameter.add_(0.3 * torch.randn_like(parameter))
        model.save_pretrained(base / kind)
        word_piece_tokenizer().save_pretrained(base / kind)
        if kind in PROCESSORS:
            (base / kind / "preprocessor_config.json").write_text(json.dumps(PROCESSORS[kind]))
        found[kind] = base / kind
    return found


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for number, (height, width) in enumerate([(40, 60), (50, 50), (40, 60)]):
        array = np.asarray(Image.fromarray(picture(number)).resize((width, height)))
        Image.fromarray(array).save(folder / f"{number}.png")
        paths.append(folder / f"{number}.png")
    return paths


def direct(kind: str, folder: Path, items: list[Any]) -> np.ndarray:
    """The scores by the library's own model and processor, one pair at a time."""
    library = transformers()
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    model = getattr(library, NETWORKS[kind]).from_pretrained(folder).eval()
    scores = np.empty((len(items), len(TEXTS)))
    for row, item in enumerate(items):
        if kind == "lxmert":
            regions = torch.from_numpy(item)[None]
            seen = {"visual_feats": regions[..., :-4], "visual_pos": regions[..., -4:]}
        elif kind == "visual_bert":
            ones = torch.ones(1, REGIONS, dtype=torch.long)
            seen = {"visual_embeds": torch.from_numpy(item)[None], "visual_attention_mask": ones}
            seen["visual_token_type_ids"] = ones
        else:
            name = {"vilt": "Vilt", "blip": "Blip", "bridgetower": "BridgeTower"}[kind]
            processor = getattr(library, f"{name}ImageProcessorPil").from_pretrained(folder)
            seen = dict(processor(images=Image.open(item).convert("RGB"), return_tensors="pt"))
        for column, text in enumerate(TEXTS):
            words = tokenizer(text, return_tensors="pt")
            given = {"input_ids": words["input_ids"], "attention_mask": words["attention_mask"], **seen}
            with torch.no_grad():
                found = model(**given)
            if kind == "vilt":
                scores[row, column] = float(found.logits[0, 0])
            elif kind == "visual_bert":  # class 0 is "follows"
                scores[row, column] = float(found.seq_relationship_logits[0] @ torch.tensor([1.0, -1.0]))
            else:
                logits = {"blip": "itm_score", "bridgetower": "logits", "lxmert": "cross_relationship_score"}[kind]
                pair = getattr(found, logits)[0]
                scores[row, column] = float(pair[1] - pair[0])
    return scores


@pytest.mark.parametrize("kind", NETWORKS)
def test_public_cross_encoder_scores_as_transformers_does(kind, folders, pictures):
    """Pixels, tokens and heads are the library's: batches of several pairs equal single calls to 1e-4."""
    model = vse.load(str(folders[kind]))
    assert isinstance(model, PairScorer)
    assert isinstance(model, CandidateScorer)
    items: list[Any] = [str(path) for path in pictures]
    if kind not in PROCESSORS:
        items = list(np.random.default_rng(0).random((3, REGIONS, 10)).astype(np.float32))
    found = model.score_pairs(items, TEXTS)
    wanted = direct(kind, folders[kind], items)
    assert np.ptp(wanted) > 1e-3
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    rows, columns = np.array([2, 0, 1]), np.array([1, 1, 0])
    np.testing.assert_allclose(model.score_candidates(items, TEXTS, rows, columns), found[rows, columns], atol=1e-5)
    assert model.capabilities.images == (kind in PROCESSORS)
    assert model.reads_boxes == (kind == "lxmert")
    assert len(model.fingerprint()) == 16
    if kind in PROCESSORS:
        content = [Path(path).read_bytes() for path in items]
        reranker = load_reranker(str(folders[kind]))
        np.testing.assert_allclose(reranker.score(content, TEXTS[0]), found[:, 0], atol=1e-5)


def test_reranker_of_the_hub_is_loaded_at_a_revision(folders, tmp_path, monkeypatch):
    """Behind ``@``, with slashes or ``%2F``; a folder of that name comes first."""
    online = fake_hub(monkeypatch, folders["blip"], tmp_path / "cache")
    for source in ("owner/model@refs/pr/3", "hub:owner/model@refs%2Fpr%2F3"):
        online.asked.clear()
        assert load_reranker(source).model.fingerprint() == vse.load(folders["blip"]).fingerprint()
        assert {options["revision"] for *_, options in online.asked} == {"refs/pr/3"}
    with pytest.raises(InputError, match=r"'owner/model@': no revision behind '@'"):
        load_reranker("owner/model@")
    online.asked.clear()
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folders["blip"], "owner/model@mine")
    assert load_reranker("owner/model@mine").name == "owner/model@mine"
    assert online.asked == []


def test_public_cross_encoders_that_cannot_score_are_refused(folders, tmp_path, pictures):
    """Another head, pickled weights, absurd sizes, regions for a search: each one line."""

    def changed(name: str, **values: Any) -> str:
        place = tmp_path / name
        place.mkdir()
        for path in folders["vilt"].iterdir():
            (place / path.name).write_bytes(path.read_bytes())
        config = json.loads((place / "config.json").read_text()) | values
        (place / "config.json").write_text(json.dumps(config))
        return str(place)

    with pytest.raises(
        InputError, match=r"names ViltForQuestionAnswering, which has no head .*; expected ViltForImage"
    ):
        vse.load(changed("question", architectures=["ViltForQuestionAnswering"]))
    with pytest.raises(InputError, match=r"names ViltForImage.*; expected VisualBertForPreTraining"):
        vse.load(changed("visual", model_type="visual_bert"))
    with pytest.raises(InputError, match="num_hidden_layers"):
        vse.load(changed("deep", num_hidden_layers=10_000))
    pickled = changed("pickled")
    Path(pickled, "model.safetensors").rename(Path(pickled, "pytorch_model.bin"))
    with pytest.raises(InputError, match="its weights are pickled"):
        vse.load(pickled)
    large = changed("large")
    Path(large, "preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": 10**6}}))
    with pytest.raises(InputError, match="'size' has a side of 1000000, expected 1 to 2048"):
        vse.load(large)
    with pytest.raises(InputError, match="cannot read image files: re-rank a search with a model that reads pixels"):
        load_reranker(str(folders["lxmert"]))
    with pytest.raises(InputError, match=r"image 0 is 'a.jpg'; .* takes sets of features with boxes \(N, 10\)"):
        vse.load(str(folders["lxmert"])).score_pairs(["a.jpg"], TEXTS)
    with pytest.raises(InputError, match=r"image 0 is an array \(5, 9\); .* takes sets of features \(N, 10\)"):
        vse.load(str(folders["visual_bert"])).score_pairs([np.zeros((5, 9), np.float32)], TEXTS)
    with pytest.raises(InputError, match=r"a public cross-encoder \(vilt\)"):
        inspect_folder(folders["vilt"])
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    with pytest.raises(InputError, match=r"bad\.png"):
        vse.load(str(folders["vilt"])).score_pairs([str(pictures[0]), str(bad)], TEXTS)
