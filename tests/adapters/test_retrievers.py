"""A collection behind LangChain, LlamaIndex and MCP, and a model inside CLIP_benchmark."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.conftest import library
from tests.service.page.colour_model import COLOURS, write_colour_model
from tests.support_models import CAPTIONS, build, grid_config, picture

import vse
from vse.adapters import retrievers
from vse.errors import InputError


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A tiny model that reads images."""
    return build(image=grid_config()).save(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture(scope="module")
def collection(model_folder, tmp_path_factory):
    """Four images, indexed."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(4):
        Image.fromarray(picture(number)).save(folder / f"{number}.png")
    vse.index_folders(folder, folder.parent / "photos.vse", model=model_folder)
    opened = vse.open_collection(folder.parent / "photos.vse")
    yield opened
    opened.close()


def paths(collection, k):
    return [result.path for result in vse.search(collection, "a dog", k).results]


def test_langchain_retriever_returns_what_a_search_finds(collection):
    """In the same order, with the JSON of results as metadata; a collection may be named by its path."""
    library("langchain_core", "adapters")
    by_path = retrievers.langchain_retriever(Path(collection.info().where), k=3).invoke("a dog")
    assert [document.metadata["path"] for document in by_path] == paths(collection, 3)
    found = retrievers.langchain_retriever(collection, k=3).invoke("a dog")
    assert [document.metadata["path"] for document in found] == paths(collection, 3)
    assert found[0].page_content.startswith("image: ")


def test_llama_index_retriever_returns_what_a_search_finds(collection):
    """With the cosine as the score of a node."""
    library("llama_index.core", "adapters")
    found = retrievers.llama_index_retriever(collection, k=2).retrieve("a dog")
    assert [node.metadata["path"] for node in found] == paths(collection, 2)
    assert found[0].score == pytest.approx(vse.search(collection, "a dog", 1).results[0].score)


def test_langchain_embeddings_are_those_of_the_text_tower(model_folder):
    """For documents and for queries alike."""
    library("langchain_core", "adapters")
    embeddings = retrievers.langchain_embeddings(model_folder)  # a path, as a name would
    expected = vse.load(model_folder).encode_texts(["a dog"])[0]
    np.testing.assert_allclose(embeddings.embed_query("a dog"), expected, atol=1e-6)
    np.testing.assert_allclose(embeddings.embed_documents(["a dog", "snow"])[0], expected, atol=1e-5)


def test_mcp_process_serves_what_a_search_shows(tmp_path):
    """A client talks to ``vse mcp``: results as in ``vse search``, without what does not match; errors of the tool."""
    library("mcp", "mcp")
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    photos, place = tmp_path / "photos", tmp_path / "photos.vse"
    photos.mkdir()
    for name in ("red", "green"):
        Image.new("RGB", (96, 96), COLOURS[name]).save(photos / f"{name}.png")
    vse.index_folders(photos, place, model=write_colour_model(tmp_path / "colours", graded=True))
    command = [sys.executable, "-m", "vse", "mcp", str(place)]
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))

    async def ask():
        async with Client(server) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            queries = (("a red circle", 9), ("a blue circle", 9), ("a red circle", 500))
            calls = [await client.call_tool("search", {"query": query, "limit": limit}) for query, limit in queries]
            return tools, calls, await client.call_tool("about", {})

    tools, (red, blue, wrong), about = asyncio.run(ask())
    assert tools == {"search", "about"}
    (result,) = json.loads(red.content[0].text)["results"]
    assert (result["path"], result["grade"]) == (str(photos / "red.png"), "strong")
    nothing = json.loads(blue.content[0].text)
    assert (nothing["results"], nothing["empty_reason"]["condition"]) == ([], "relevance")
    assert wrong.is_error
    assert "expected 1 to 50" in wrong.content[0].text
    assert json.loads(about.content[0].text)["files"] == 2


@pytest.mark.parametrize("query", ["", "  ", "x" * 2001])
def test_mcp_query_of_bad_length_is_refused(collection, query):
    """Before anything is encoded."""
    with pytest.raises(InputError, match="expected 1 to 2000"):
        retrievers.search_collection(collection, query)


def test_clip_benchmark_recalls_equal_vse_evaluate(model_folder, tmp_path):
    """The library's own retrieval metric, over our wrapper, gives the recalls of vse.evaluate."""
    metric = library("clip_benchmark.metrics.zeroshot_retrieval", "mteb")
    from vse.adapters.evaluation import CLIPBenchmarkModel, retrieval_batches
    from vse.data import open_data

    words, generator = sorted({*" ".join(CAPTIONS).split()}), np.random.default_rng(0)  # no two captions are alike
    rows = ["path,caption,split"]
    for number in range(12):
        Image.fromarray(picture(number)).save(tmp_path / f"{number}.png")
        rows += [f"{number}.png,{' '.join(generator.permutation(words)[:6])},test" for _ in range(2)]
    (tmp_path / "captions.csv").write_text("\n".join(rows) + "\n")
    wrapped = CLIPBenchmarkModel(model_folder)
    batches = retrieval_batches(open_data(tmp_path / "captions.csv", "test"), wrapped.transform, batch_size=5)
    found = metric.evaluate(wrapped, list(batches), wrapped.tokenizer, "cpu", amp=False, recall_k_list=[1, 5, 10])
    report = vse.evaluate(model_folder, tmp_path / "captions.csv", split="test").to_json()
    figures = next(each for each in _dicts(report) if "i2t" in each and "t2i" in each)
    i2t, t2i = ([figures[side][f"r{k}"] for k in (1, 5, 10)] for side in ("i2t", "t2i"))
    np.testing.assert_allclose([100 * found[f"text_retrieval_recall@{k}"] for k in (1, 5, 10)], i2t, atol=0.01)
    np.testing.assert_allclose([100 * found[f"image_retrieval_recall@{k}"] for k in (1, 5, 10)], t2i, atol=0.01)


def _dicts(value):
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _dicts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _dicts(each)


class OnGPU(torch.Tensor):
    """Like a tensor on a GPU: no array without a copy on the CPU."""

    def numpy(self):
        raise TypeError("copy it to the CPU first")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_clip_benchmark_model_takes_tensors_of_a_gpu(model_folder):
    """The library moves what transform and tokenizer return to its device."""
    from vse.adapters.evaluation import CLIPBenchmarkModel

    wrapped, image = CLIPBenchmarkModel(model_folder), Image.fromarray(picture())
    pixels, tokens = wrapped.transform(image)[None], wrapped.tokenizer(["a dog", "a dog runs in the snow"])
    for encode, given in ((wrapped.encode_image, pixels), (wrapped.encode_text, tokens)):
        torch.testing.assert_close(encode(given.as_subclass(OnGPU)), encode(given))


def test_mteb_batches_are_embedded_as_the_model_does(model_folder):
    """Texts, images, and the normalised mean of both."""
    from vse.adapters.evaluation import embed_batch

    model = vse.load(model_folder)
    image = Image.fromarray(picture()).convert("L")
    texts = embed_batch(model, {"text": ["a dog", ""]})[:1]
    np.testing.assert_allclose(texts, model.encode_texts(["a dog"]), atol=1e-6)
    images = embed_batch(model, {"image": [image]})
    both = embed_batch(model, {"text": ["a dog"], "image": [image]})
    mean = torch.nn.functional.normalize(torch.from_numpy(texts + images), dim=1)
    np.testing.assert_allclose(both, mean, atol=1e-5)
    with pytest.raises(InputError, match="expected 'image' or 'text'"):
        embed_batch(model, {"audio": []})
