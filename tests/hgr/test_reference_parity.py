"""Parity with the released implementation: its inputs, its tensors, its scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vse.hgr import ROLES, GraphBatch, HGRConfig, HGRModel, RoleGraph, VideoFeatures, level_scores
from vse.hgr.scores import plain_level_scores

safetensors = pytest.importorskip("safetensors.torch")
TOLERANCE = {"rtol": 0, "atol": 1e-5}
NAMES = {
    "video.level_embeds.": "video_encoder.levels.",
    "video.ft_attn.": "video_encoder.pooling.score.",
    "text.embedding.we.": "text_encoder.words.embed.",
    "text.rnn.": "text_encoder.words.rnn.",
    "text.ft_attn.": "text_encoder.pooling.score.",
    "text.role_embedding.": "text_encoder.roles.",
    "text.gcn.layers.0.ctx_layer.": "text_encoder.graph.context.",
    "text.gcn.layers.0.edge_attn_key.": "text_encoder.graph.key.",
    "text.gcn.layers.0.edge_attn_query.": "text_encoder.graph.query.",
    "text.gcn.layers.0.layernorm.": "text_encoder.graph.norm.",
}
"""Released names and ours."""


@pytest.fixture(scope="module")
def numbers(shared_reference):
    return safetensors.load_file(shared_reference / "hgr.safetensors")


@pytest.fixture(scope="module")
def model(numbers):
    state = {}
    for key in [key.removeprefix("state.") for key in numbers if key.startswith("state.")]:
        prefix = next(prefix for prefix in NAMES if key.startswith(prefix))
        state[NAMES[prefix] + key.removeprefix(prefix)] = numbers[f"state.{key}"]
    model = HGRModel(HGRConfig(feature_size=24, vocabulary_size=50, word_size=16, embed_size=32))
    model.load_state_dict(state, strict=True)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def videos(model, numbers):
    return model.embed_videos(numbers["frames"], numbers["frame_lengths"])


@pytest.fixture(scope="module")
def sentences(model, numbers):
    graphs = {"verb_words": "verb_masks", "noun_words": "noun_masks", "roles": "node_roles", "edges": "edges"}
    tensors = {ours: numbers[theirs] for ours, theirs in graphs.items()}
    return model.embed_sentences(numbers["tokens"], numbers["lengths"], **tensors)


def test_the_arrays_of_graphs(numbers):
    """The entries that have the released arrays, read by us, give these arrays again."""
    graphs = []
    for row, n_words in enumerate(numbers["lengths"].tolist()):
        nodes, edges = {"ROOT": {"role": "ROOT", "spans": list(range(n_words))}}, []
        masks = torch.cat((numbers["verb_masks"][row], numbers["noun_masks"][row]))
        for number in masks.any(dim=1).nonzero().flatten().tolist():
            role = ROLES[numbers["node_roles"][row, number]]
            nodes[str(number)] = {"role": role, "spans": masks[number].nonzero().flatten().tolist()}
        for verb, noun in numbers["edges"][row, 1:5, 5:].nonzero().tolist():
            edges.append([str(verb), str(4 + noun), "ARG1"])
        graphs.append(RoleGraph.from_official([nodes, edges], n_words))
    batch = GraphBatch.of(graphs)
    np.testing.assert_array_equal(batch.verb_words, numbers["verb_masks"].numpy())
    np.testing.assert_array_equal(batch.noun_words, numbers["noun_masks"].numpy())
    np.testing.assert_array_equal(batch.roles, numbers["node_roles"].numpy())
    np.testing.assert_array_equal(batch.edges, numbers["edges"].numpy())


def test_hgr_videos_match_released_outputs(videos, numbers):
    """The whole of videos of ragged length."""
    torch.testing.assert_close(videos.whole, numbers["video_sentence"], **TOLERANCE)


@pytest.mark.parametrize(("level", "name", "mask"), [("verbs", "text_verbs", "verb"), ("nouns", "text_nouns", "noun")])
def test_hgr_phrases_match_released_outputs(sentences, numbers, level, name, mask):
    """Every node that exists; what the released code computes for the others is never used."""
    present = numbers[f"{mask}_masks"].any(dim=2)
    torch.testing.assert_close(getattr(sentences, f"{mask}_mask"), present)
    torch.testing.assert_close(getattr(sentences, level)[present], numbers[name][present], **TOLERANCE)


def test_hgr_sentences_match_released_outputs(sentences, numbers):
    """The root of each graph, one of them without any node."""
    torch.testing.assert_close(sentences.whole, numbers["text_sentence"], **TOLERANCE)


@pytest.mark.parametrize("scores", [level_scores, plain_level_scores])
def test_hgr_scores_match_released_outputs(videos, sentences, numbers, scores):
    """Three levels and their mean, by both formulations, from our features."""
    found = scores(videos, sentences)
    torch.testing.assert_close(found.sentence, numbers["sentence_scores"], **TOLERANCE)
    torch.testing.assert_close(found.verb, numbers["verb_scores"], **TOLERANCE)
    torch.testing.assert_close(found.noun, numbers["noun_scores"], **TOLERANCE)
    torch.testing.assert_close(found.mean, numbers["scores"], **TOLERANCE)


def test_hgr_model_score_is_the_released_mean(model, videos, sentences, numbers):
    """What the model calls the score is the released mean, for some of the videos too."""
    torch.testing.assert_close(model.scores(videos, sentences), numbers["scores"], **TOLERANCE)
    some: VideoFeatures = videos.rows(slice(1, 4))
    torch.testing.assert_close(model.scores(some, sentences), numbers["scores"][1:4], **TOLERANCE)
