"""The key dialog, and a server that goes down and comes back."""

from __future__ import annotations

import pytest
from tests.service.page.support import KEY, free_port, serving
from tests.service.page.visits import new_context, visit


@pytest.fixture(scope="module")
def locked(index):
    with serving(index, key=KEY) as made:
        yield made


def test_key_dialog_unlocks_the_page(browser, locked):
    """A wrong key is rejected with a message; the right one continues with the query."""
    page = visit(new_context(browser), locked.address, "?q=red", wait=False)
    page.page.wait_for_selector("#key[open]")
    assert page.focused() == "key-value"
    page.page.fill("#key-value", "a-key-that-is-wrong")
    page.page.keyboard.press("Enter")
    page.page.wait_for_function("() => document.getElementById('key-problem').textContent !== ''")
    assert page.text("#key-problem") == "wrong key"
    assert page.names() == []
    page.page.keyboard.type(KEY)  # the typed text is selected, and so replaced
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".tile")
    assert page.names()[1] == "plain red.png"
    assert not page.page.locator("#key").is_visible()
    page.settle()
    assert page.page.locator(".broken").count() == 0
    page.page.reload()
    page.page.wait_for_selector(".tile")
    assert page.foreign == []
    assert all("401" in message for message in page.messages)
    page.page.context.close()


def test_dismissed_key_dialog_opens_on_the_next_search(browser, locked):
    """Closing it shows a message."""
    page = visit(new_context(browser), locked.address, wait=False)
    page.page.wait_for_selector("#key[open]")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#notice:not([hidden])")
    assert "locked" in page.text("#notice")
    page.page.fill("#words", "blue")
    page.page.wait_for_selector("#key[open]")
    page.page.fill("#key-value", KEY)
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".tile")
    assert page.names()[1] == "plain blue.png"
    page.page.wait_for_selector("#folder-open")
    page.page.context.close()


@pytest.mark.slow
def test_page_recovers_after_the_server_was_down(browser, index):
    """It says so and keeps its results; when the server is back it continues by itself, evidence included."""
    port = free_port()
    with serving(index, port=port) as first:
        page = visit(new_context(browser), first.address)
        page.search("red")
        first.stop()
        page.page.fill("#words", "blue")
        page.page.wait_for_selector("#notice:not([hidden])")
        assert "not responding" in page.text("#notice")
        assert page.names()[1] == "plain red.png"
        with serving(index, port=port):
            page.page.wait_for_function("() => document.querySelectorAll('.name')[1].textContent === 'plain blue.png'")
            assert not page.page.locator("#notice").is_visible()
            page.search("red")  # cached: the new server has never seen the query
            page.page.locator("[data-index='1']").click()
            page.page.keyboard.press("e")
            page.page.wait_for_selector("#media canvas")
        page.page.context.close()
