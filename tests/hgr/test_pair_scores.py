"""What people give to a model of videos, typed sentences and arrays of any length, and what it makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support_models import draw_nothing

import vse
from vse.convert.onnx_export import export_onnx
from vse.data.roles import parse_roles
from vse.data.vocabulary import VideoVocabulary
from vse.errors import InputError
from vse.hgr import GraphBatch, HGRConfig, HGRModel, RoleGraph, SentenceGraphs
from vse.hgr.scores import plain_level_scores
from vse.index.query import Query, encode_query
from vse.models.config import FramesConfig, ModelConfig, WordsConfig
from vse.models.vse_model import VSEModel

SIZE, WIDTH = 8, 6
CAPTIONS = ["a man is singing", "a man s dog runs in a park", "two dogs run and a cat sleeps"]
TOKENIZER = VideoVocabulary.build(CAPTIONS).tokenizer()


@pytest.fixture(scope="module")
def hgr() -> HGRModel:
    torch.manual_seed(0)
    size = TOKENIZER.vocab_size
    return HGRModel(HGRConfig(feature_size=WIDTH, vocabulary_size=size, word_size=5, embed_size=SIZE), TOKENIZER)


@pytest.fixture(scope="module")
def towers() -> VSEModel:
    torch.manual_seed(0)
    text = WordsConfig(vocabulary_size=TOKENIZER.vocab_size, word_size=5)
    config = ModelConfig(embed_size=SIZE, image=FramesConfig(feature_size=WIDTH), text=text)
    return VSEModel.build(config, TOKENIZER)


def videos(*sizes: int) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal((size, WIDTH)).astype(np.float32) for size in sizes]


def naive_score(model: HGRModel, frames: np.ndarray, sentence: str) -> float:
    """One pair by the definition, nothing padded."""
    graph = RoleGraph.from_official(parse_roles(sentence).graph(), len(sentence.split()))
    arrays = {name: torch.from_numpy(array) for name, array in GraphBatch.of([graph]).arrays().items()}
    tokens = torch.from_numpy(TOKENIZER.encode([sentence]).tokens)
    with torch.no_grad():
        model.eval()
        read = model.embed_sentences(tokens, None, **arrays)
        return plain_level_scores(model.embed_videos(torch.from_numpy(frames)[None]), read).mean.item()


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("A man is singing.", "a man is singing"),
        ("A man's dog runs, in a park!", "a man s dog runs in a park"),
        ("two\x1cdogs   RUN\nand a cat sleeps", "two dogs run and a cat sleeps"),
    ],
)
def test_typed_sentences_are_read_as_captions_are_written(hgr, towers, typed, plain):
    """Capitals, punctuation and odd white space change nothing, exactly, for pairs and for vectors."""
    shown = videos(3, 5)
    expected = hgr.score_pairs(shown, [plain])
    assert expected.ravel().tolist() == pytest.approx([naive_score(hgr, each, plain) for each in shown], abs=1e-5)
    np.testing.assert_array_equal(hgr.score_pairs(shown, [typed]), expected)
    np.testing.assert_array_equal(towers.encode_texts([typed]), towers.encode_texts([plain]))


def test_a_query_is_read_as_its_vector_is_made(towers):
    """What a search says about unknown words is said about the sentence as the model reads it."""
    found = encode_query(Query(texts=("Singing!",)), towers)
    assert found.unknown == ()
    np.testing.assert_allclose(found.vector, towers.encode_texts(["singing"])[0], atol=1e-6)


def test_sentences_with_graphs_are_taken_as_they_stand(hgr):
    """Graphs point to words by their places: a sentence that was split otherwise would have others there."""
    sentence = "A man's dog runs ."
    graphs = SentenceGraphs.of([sentence])
    found = hgr.score_pairs(videos(3), [sentence], graphs=graphs)
    assert found.item() == pytest.approx(naive_score(hgr, videos(3)[0], sentence), abs=1e-5)
    assert found.item() != pytest.approx(hgr.score_pairs(videos(3), [sentence]).item(), abs=1e-5)


def test_a_sentence_of_unknown_words(hgr, towers):
    """An error for both kinds of models, in the same words, unless it is allowed."""
    sentences, said = ["a cat", "zebras!"], []
    for call in (lambda: hgr.score_pairs(videos(2), sentences), lambda: towers.encode_texts(sentences)):
        with pytest.raises(InputError, match="text 1, 'zebras!': the model knows none of its words") as caught:
            call()
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert np.isfinite(hgr.score_pairs(videos(2), sentences, unknown="allow")).all()
    with pytest.raises(InputError, match="unknown value for 'unknown'"):
        hgr.score_pairs(videos(2), ["a cat"], unknown="ignore")


@pytest.mark.parametrize("count", [1, 20, 21, 50])
def test_twenty_frames_are_used(hgr, towers, count):
    """Evenly spaced, as when data are read; fewer are used as they are."""
    shown = videos(4, count)
    used = [shown[1][round(i * (count - 1) / 19)] for i in range(20)] if count > 20 else shown[1]
    short = [shown[0], np.stack(used)]
    found = hgr.score_pairs(shown, CAPTIONS)
    np.testing.assert_array_equal(found, hgr.score_pairs(short, CAPTIONS))
    assert found[1, 0] == pytest.approx(naive_score(hgr, short[1], CAPTIONS[0]), abs=1e-5)
    for encode in (towers.encode_videos, towers.encode_images):
        np.testing.assert_array_equal(encode(shown), encode(short))
    np.testing.assert_allclose(hgr.score_pairs(shown[1], CAPTIONS), found[1:], atol=1e-6)  # a single array


@pytest.mark.slow
def test_an_export_reads_as_its_model_does(towers, tmp_path, monkeypatch):
    """Typed sentences and long videos, without torch."""
    draw_nothing(monkeypatch)
    export_onnx(towers, tmp_path / "export")
    exported = vse.load(tmp_path / "export")
    shown, typed = videos(3, 50), ["A man is singing.", "Two dogs run"]
    np.testing.assert_allclose(exported.encode_videos(shown), towers.encode_videos(shown), atol=1e-4)
    np.testing.assert_allclose(exported.encode_texts(typed), towers.encode_texts(typed), atol=1e-4)


NAN = np.full((2, WIDTH), np.nan, np.float32)


@pytest.mark.parametrize(
    ("shown", "sentences", "said"),
    [
        ([], ["a cat"], "videos is empty: expected at least one array of frames"),
        (videos(2), "a cat", "sentences is 'a cat', expected a list of texts"),
        (videos(2), 3, "sentences is 3, expected a list of texts"),
        (videos(2), ["a cat", ""], "text 1 is empty"),
        (videos(2), ["a cat", 3], "text 1 is int"),
        (["clip.mp4"], ["a cat"], "video 0 is 'clip.mp4': expected an array of frames"),
        ([*videos(2), np.zeros((2, 5))], ["a cat"], r"video 1 is an array \(2, 5\): expected an array of frames"),
        ([np.zeros((0, WIDTH))], ["a cat"], r"video 0 is an array \(0, 6\)"),
        ([*videos(2), NAN], ["a cat"], "video 1 holds NaN"),
    ],
)
def test_pair_scores_name_invalid_inputs(hgr, shown, sentences, said):
    """One line that names the value and what was expected."""
    with pytest.raises(InputError, match=said) as caught:
        hgr.score_pairs(shown, sentences)
    assert len(str(caught.value).splitlines()) == 1


def test_graphs_that_do_not_fit(hgr):
    """A sentence without a graph, and one whose graph is over other words, are named before anything is computed."""
    graphs = SentenceGraphs.of(["a cat sleeps"])
    with pytest.raises(InputError, match="no role graph of 'a dog runs'"):
        hgr.score_pairs([], ["a cat sleeps", "a dog runs"], graphs=graphs)
    short = SentenceGraphs.of(["a cat sleeps"], limit=2)
    with pytest.raises(InputError, match="'a cat sleeps': its role graph is over 2 words and the model reads 3"):
        hgr.score_pairs([], ["a cat sleeps"], graphs=short)


def test_graphs_follow_the_tokenizers_limit(hgr):
    """More words than thirty, where the model reads them: the last ones are in the graph and change the score."""
    tokenizer = VideoVocabulary.build(CAPTIONS).tokenizer(40)
    long = HGRModel(hgr.config, tokenizer)
    long.load_state_dict(hgr.state_dict())
    sentences = [("a " * 33 + end).strip() for end in ("dog runs", "cat sleeps")]
    graph = SentenceGraphs.of(sentences, limit=40)[sentences[0]]
    assert graph.n_words == 35
    assert max(place for phrase in (*graph.verbs, *graph.nouns) for place in phrase.words) == 34
    first, second = long.score_pairs(videos(3), sentences)[0]
    assert first != second
    first, second = hgr.score_pairs(videos(3), sentences)[0]
    assert first == second
