"""A long-running service does not grow."""

from __future__ import annotations

import pytest
from tests.service.support import API, id_of

WARM, MEASURED = 400, 1000
ROOM = 40_000_000


@pytest.mark.slow
def test_memory_stays_flat_over_many_requests(served, home):
    """1,000 requests of all kinds, valid and invalid, each query new: memory and open files hardly grow."""
    client = served.client
    items = [id_of(client, name) for name in ("a.png", "b.jpg", "clip.mp4")]
    image = (home.photos / "sea" / "d.png").read_bytes()

    def ask(number: int) -> int:
        kind, item = number % 8, items[number // 8 % len(items)]
        words = f"a dog {'in the snow ' * (number % 7)}{number}"
        if kind == 0:
            return client.post(f"{API}/search", files=[("image", ("a.png", image))], data={"q": words}).status_code
        if kind == 1:
            return client.post(f"{API}/search", files=[("image", ("a.png", b"not an image"))]).status_code
        path = {
            2: f"{API}/search?q={words}&k=50&group=true",
            3: f"{API}/items/{item}/thumbnail?size={(160, 320, 640)[number % 3]}",
            4: f"{API}/items/{item}/media",
            5: f"{API}/items?offset={number % 10}",
            6: f"{API}/search?q=snow&folder=nowhere{number}",
            7: f"{API}/captions?q={words}",
        }[kind]
        return client.get(path).status_code

    warm = [ask(number) for number in range(WARM)]
    assert set(warm) == {200, 404, 422}
    memory, descriptors = served.memory(), served.descriptors()
    for number in range(WARM, WARM + MEASURED):
        ask(number)
    assert served.memory() - memory < ROOM
    assert served.descriptors() <= descriptors + 4
