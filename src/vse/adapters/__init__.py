"""Use vse from other libraries: sentence-transformers, timm, transformers, LangChain, LlamaIndex, MTEB, MCP.

>>> from vse.adapters import langchain_retriever
>>> langchain_retriever("Photos.vse", k=8).invoke("two dogs in snow")  # doctest: +SKIP

Names are imported on first access, and each needs the library that it is for.
"""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.adapters.evaluation import CLIPBenchmarkModel, mteb_encoder, retrieval_batches
    from vse.adapters.retrievers import (
        create_server,
        langchain_embeddings,
        langchain_retriever,
        llama_index_retriever,
    )
    from vse.adapters.sentence_transformers import GPOPooling, VSEEncoder
    from vse.adapters.torch_models import FeatureExtraction, MapPooling, set_global_pool

__all__ = [
    "CLIPBenchmarkModel",
    "FeatureExtraction",
    "GPOPooling",
    "MapPooling",
    "VSEEncoder",
    "create_server",
    "langchain_embeddings",
    "langchain_retriever",
    "llama_index_retriever",
    "mteb_encoder",
    "retrieval_batches",
    "set_global_pool",
]

__getattr__ = lazy_names(
    __name__,
    {
        "evaluation": ("CLIPBenchmarkModel", "mteb_encoder", "retrieval_batches"),
        "retrievers": ("create_server", "langchain_embeddings", "langchain_retriever", "llama_index_retriever"),
        "sentence_transformers": ("GPOPooling", "VSEEncoder"),
        "torch_models": ("FeatureExtraction", "MapPooling", "set_global_pool"),
    },
)
