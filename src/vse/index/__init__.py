"""Collections of images and videos: index folders, search them by meaning, keep them up to date. No torch.

>>> from vse.index import Filter, open_collection, search
>>> collection = open_collection("photos.vse")  # doctest: +SKIP
>>> found = search(collection, "two dogs in snow", where=Filter(kind="image"))  # doctest: +SKIP
>>> [(result.path, result.confidence) for result in found.results]  # doctest: +SKIP

Names are imported lazily, so a search does not load the indexing code.
"""

from typing import TYPE_CHECKING

from vse._util.lazy import lazy_names

if TYPE_CHECKING:
    from vse.index.calibration import CalibrationReport, calibrate
    from vse.index.caption_search import CaptionResult, CaptionResults, search_captions, search_captions_encoded
    from vse.index.duplicates import Duplicates, near_duplicates
    from vse.index.evidence import BoxEvidence, box_map, cell_evidence, frame_evidence, heat_map, image_evidence
    from vse.index.explanation import Explained, Explanation, explain
    from vse.index.filters import Box, Filter, box_around, read_filter
    from vse.index.item_search import search, search_encoded
    from vse.index.open import (
        Overview,
        collection_coefficients,
        collection_exists,
        collection_relevance,
        create_collection,
        load_collection_model,
        open_collection,
        overview_of,
    )
    from vse.index.pipeline.folder import IndexReport, index_folder, index_folders
    from vse.index.query import Query, QueryVector, encode_query, vector_query
    from vse.index.relevance_fit import RelevanceReport, fit_relevance
    from vse.index.results import Result, SearchResults
    from vse.index.scan.walk import ScanLimits
    from vse.index.transfer import EmbeddingExport, EmbeddingImport, export_embeddings, import_embeddings, stream_items
    from vse.index.typed import Typed, parse_typed
    from vse.index.types import Collection, CollectionInfo, Entry, Facets, Hits, Item, MediaFile, Moment
    from vse.index.upgrade.run import UpgradeReport, discard_upgrade, upgrade_collection
    from vse.index.watching import watch
    from vse.inputs.files import Problem

__all__ = [
    "Box",
    "BoxEvidence",
    "CalibrationReport",
    "CaptionResult",
    "CaptionResults",
    "Collection",
    "CollectionInfo",
    "Duplicates",
    "EmbeddingExport",
    "EmbeddingImport",
    "Entry",
    "Explained",
    "Explanation",
    "Facets",
    "Filter",
    "Hits",
    "IndexReport",
    "Item",
    "MediaFile",
    "Moment",
    "Overview",
    "Problem",
    "Query",
    "QueryVector",
    "RelevanceReport",
    "Result",
    "ScanLimits",
    "SearchResults",
    "Typed",
    "UpgradeReport",
    "box_around",
    "box_map",
    "calibrate",
    "cell_evidence",
    "collection_coefficients",
    "collection_exists",
    "collection_relevance",
    "create_collection",
    "discard_upgrade",
    "encode_query",
    "explain",
    "export_embeddings",
    "fit_relevance",
    "frame_evidence",
    "heat_map",
    "image_evidence",
    "import_embeddings",
    "index_folder",
    "index_folders",
    "load_collection_model",
    "near_duplicates",
    "open_collection",
    "overview_of",
    "parse_typed",
    "read_filter",
    "search",
    "search_captions",
    "search_captions_encoded",
    "search_encoded",
    "stream_items",
    "upgrade_collection",
    "vector_query",
    "watch",
]

__getattr__ = lazy_names(
    __name__,
    {
        "calibration": ("CalibrationReport", "calibrate"),
        "caption_search": ("CaptionResult", "CaptionResults", "search_captions", "search_captions_encoded"),
        "duplicates": ("Duplicates", "near_duplicates"),
        "evidence": ("BoxEvidence", "box_map", "cell_evidence", "frame_evidence", "heat_map", "image_evidence"),
        "explanation": ("Explained", "Explanation", "explain"),
        "filters": ("Box", "Filter", "box_around", "read_filter"),
        "item_search": ("search", "search_encoded"),
        "open": (
            "Overview",
            "collection_coefficients",
            "collection_exists",
            "collection_relevance",
            "create_collection",
            "load_collection_model",
            "open_collection",
            "overview_of",
        ),
        "pipeline.folder": ("IndexReport", "index_folder", "index_folders"),
        "query": ("Query", "QueryVector", "encode_query", "vector_query"),
        "relevance_fit": ("RelevanceReport", "fit_relevance"),
        "results": ("Result", "SearchResults"),
        "scan.walk": ("Problem", "ScanLimits"),
        "transfer": ("EmbeddingExport", "EmbeddingImport", "export_embeddings", "import_embeddings", "stream_items"),
        "types": ("Collection", "CollectionInfo", "Entry", "Facets", "Hits", "Item", "MediaFile", "Moment"),
        "typed": ("Typed", "parse_typed"),
        "upgrade.run": ("UpgradeReport", "discard_upgrade", "upgrade_collection"),
        "watching": ("watch",),
    },
)
