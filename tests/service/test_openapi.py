"""The OpenAPI document is accurate: what it allows works, what it forbids is rejected."""

from __future__ import annotations

from unittest import SkipTest

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.service.support import API, application

EXAMPLES = 8
FURTHER_RULES = ("search", "search_with_pictures", "captions", "browse", "search_by_vector", "embed", "embed_images")
"""Parameters of these have to go together, or with what the collection holds, which no schema says: 422."""
OPERATIONS = {
    "search": ("get", f"{API}/search"),
    "search_with_pictures": ("post", f"{API}/search"),
    "captions": ("get", f"{API}/captions"),
    "browse": ("get", f"{API}/items"),
    "item": ("get", f"{API}/items/{{item_id}}"),
    "thumbnail": ("get", f"{API}/items/{{item_id}}/thumbnail"),
    "preview": ("get", f"{API}/items/{{item_id}}/preview"),
    "media": ("get", f"{API}/items/{{item_id}}/media"),
    "original": ("get", f"{API}/items/{{item_id}}/original"),
    "reveal": ("post", f"{API}/items/{{item_id}}/reveal"),
    "export": ("post", f"{API}/export"),
    "evidence": ("get", f"{API}/items/{{item_id}}/evidence"),
    "collection": ("get", f"{API}/collection"),
    "model_curves": ("get", f"{API}/model/curves"),
    "search_by_vector": ("post", f"{API}/search/vector"),
    "embed": ("post", f"{API}/embed"),
    "embed_images": ("post", f"{API}/embed/images"),
    "collections": ("get", f"{API}/collections"),
    "open_session": ("post", f"{API}/session"),
    "healthz": ("get", "/healthz"),
    "metrics": ("get", "/metrics"),
}
OF_THE_SERVICE = ("collections", "open_session", "healthz", "metrics")
"""All others exist for each collection by its name, too."""
NAMED = {
    f"{name}_of_collection": (method, path.replace(API, f"{API}/collections/{{collection}}"))
    for name, (method, path) in OPERATIONS.items()
    if name not in OF_THE_SERVICE
}


def test_operation_ids_are_stable(client):
    """Generated clients use these names, under versioned URLs: neither changes within /api/v1."""
    paths = client.get("/openapi.json").json()["paths"]
    found = {operation["operationId"]: (method, path) for path in paths for method, operation in paths[path].items()}
    assert found == {**OPERATIONS, **NAMED}


def test_all_schema_references_resolve(client):
    """Generators reject a document with dangling references."""
    document = client.get("/openapi.json")
    schemas = document.json()["components"]["schemas"]
    references = {part.split('"')[0] for part in document.text.split("#/components/schemas/")[1:]}
    assert "Problem" in references
    assert references <= schemas.keys()


@pytest.fixture(scope="module")
def schema(home):
    """The document of an application that accepts schemathesis's host name."""
    with application(home.index, names=("testserver",)) as client:

        async def living(scope, receive, send):
            """Ignore lifespan events: schemathesis sends them with every request."""
            if scope["type"] != "lifespan":
                await client.app(scope, receive, send)

        yield schemathesis.openapi.from_asgi("/openapi.json", living)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
@pytest.mark.parametrize("name", [*OPERATIONS, "collection_of_collection", "item_of_collection"])
def test_responses_match_the_openapi_document(schema, name, mode):
    """No 500; only documented statuses, content types and shapes; what the document forbids is rejected."""
    method, path = {**OPERATIONS, **NAMED}[name]

    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def received(case: Case) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance] if name in FURTHER_RULES else [])

    try:
        received()
    except (Unsatisfiable, SkipTest):
        assert mode is GenerationMode.NEGATIVE  # a request without parameters cannot be invalid
