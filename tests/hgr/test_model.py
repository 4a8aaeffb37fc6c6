"""The model as a whole: its parameters, its training, its features."""

from __future__ import annotations

import pytest
import torch
from tests.hgr.support import GRAPHS, SIZE, WIDTH, features, model, sentences

from vse.errors import InputError
from vse.hgr import HGRConfig, HGRModel, RoleGraph, SentenceFeatures, join, level_scores
from vse.losses import triplet_from_scores
from vse.pooling import GPO, MaxPool


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_sizes_of_the_released_model():
    """1024 dimensions, words of 300, queries and keys of 512; HGR∞ has two GPOs in the place of two attentions."""
    config = HGRConfig(vocabulary_size=10)
    with torch.device("meta"):
        plain, infinity = (
            HGRModel(config.model_copy(update={"video_pooling": pooling, "sentence_pooling": pooling}))
            for pooling in (config.video_pooling, HGRConfig(vocabulary_size=1, video_pooling="gpo").video_pooling)
        )
    gru = 2 * (3072 * (300 + 1024) + 2 * 3072)
    graph = 2 * (1024 * 512 + 512) + 1024**2 + 2 * 1024
    assert count(plain.video_encoder) == 3 * (2048 * 1024 + 1024) + 1025
    assert count(plain.text_encoder) == 300 * 10 + gru + 16 * 1024 + graph + 1025
    assert count(infinity) == count(plain) - 2 * 1025 + 2 * 12_704


def test_hgr_poolings_are_chosen_by_name():
    """Attention unless told otherwise, any pooling of ours with its options, each side by itself."""
    config = HGRConfig(vocabulary_size=10, embed_size=8, video_pooling="gpo", sentence_pooling="max")
    made = HGRModel(config)
    assert isinstance(made.video_encoder.pooling, GPO)
    assert isinstance(made.text_encoder.pooling, MaxPool)
    assert (
        HGRModel(HGRConfig(vocabulary_size=10, embed_size=8, video_pooling="fspool")).video_encoder.pooling is not None
    )
    with pytest.raises(InputError, match="takes no options"):
        HGRModel(HGRConfig(vocabulary_size=10, video_pooling={"name": "attention", "options": {"k": 1}}))
    with pytest.raises(InputError, match=r"unknown pooling 'gpu'.*'gpo'"):
        HGRModel(HGRConfig(vocabulary_size=10, video_pooling="gpu"))
    with pytest.raises(InputError, match=r"HGRConfig: 'dropout' is 1\.0"):
        HGRConfig(vocabulary_size=10, dropout=1.0)


@pytest.mark.parametrize("pooling", ["attention", "gpo"])
def test_a_few_steps_bring_pairs_together(pooling):
    """Trained through the loss over scores, every parameter moves and each video finds its sentence."""
    torch.manual_seed(0)
    trained = model(pooling, dropout=0.1, graph_dropout=0.1).float().train()
    frames, lengths = torch.randn(4, 5, WIDTH), torch.tensor([5, 2, 3, 4])
    inputs = sentences()
    given = {name: tensor for name, tensor in inputs.items() if name not in ("tokens", "lengths")}
    before = {name: parameter.detach().clone() for name, parameter in trained.named_parameters()}
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.01)
    for _ in range(40):
        videos, texts = trained(frames, inputs["tokens"], lengths, inputs["lengths"], **given)
        loss = triplet_from_scores(trained.scores(videos, texts), negatives="hardest", reduction="mean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    still = [name for name, value in trained.named_parameters() if torch.equal(value, before[name])]
    assert [name for name in still if not name.endswith("score.bias")] == []  # a softmax does not see its bias
    with torch.no_grad():
        scores = trained.eval().scores(trained.embed_videos(frames, lengths), trained.embed_sentences(**inputs))
    assert scores.argmax(dim=1).tolist() == scores.argmax(dim=0).tolist() == [0, 1, 2, 3]


def test_sentences_alone_score_by_the_whole():
    """Without any graph the two finer levels are 0, and the order of videos is that of the wholes."""
    made = model()
    alone = [RoleGraph(graph.n_words) for graph in GRAPHS]
    found = level_scores(made.embed_videos(torch.randn(3, 4, WIDTH)), made.embed_sentences(**sentences(alone)))
    assert not found.verb.any()
    assert not found.noun.any()
    torch.testing.assert_close(found.mean, found.sentence / 3)


def test_features_in_batches_are_features_at_once():
    """Joined batches score as one batch does, also when they are padded to different sizes."""
    made, inputs = model(), sentences()
    frames, lengths = torch.randn(4, 5, WIDTH, dtype=torch.float64), torch.tensor([2, 1, 5, 3])
    at_once = made.scores(made.embed_videos(frames, lengths), made.embed_sentences(**inputs))
    videos = [made.embed_videos(frames[:2, :2], lengths[:2]), made.embed_videos(frames[2:], lengths[2:])]
    texts = [made.embed_sentences(**{name: value[part] for name, value in inputs.items()}) for part in ([0], [1, 2, 3])]
    assert len(join(videos)) == 4
    torch.testing.assert_close(made.scores(join(videos), join(texts)), at_once, rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="no features to join"):
        join([])


def test_hgr_encodes_an_empty_batch():
    """No sentences and no videos have features of no rows."""
    inputs = {name: value[:0] for name, value in sentences().items()}
    made = model()
    found = made.embed_sentences(**inputs)
    assert isinstance(found, SentenceFeatures)
    assert (found.whole.shape, found.verbs.shape) == ((0, SIZE), (0, 4, SIZE))
    assert made.scores(features(2, 0, size=SIZE)[0], found).shape == (2, 0)
