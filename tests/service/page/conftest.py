"""A browser, a collection and its service, for the tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext
from tests.service.page.colour_model import write_colour_model
from tests.service.page.support import Served, make_folder, serving, vse
from tests.service.page.visits import Visit, chromium, new_context, visit


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One per module: while Playwright runs, nothing else can run an event loop in this thread."""
    with chromium() as made:
        yield made


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection that no test changes."""
    folder = tmp_path_factory.mktemp("page")
    photos, model = make_folder(folder / "photos"), write_colour_model(folder / "colours")
    vse("index", photos, "--into", folder / "scenes.vse", "--model", model)
    return folder / "scenes.vse"


@pytest.fixture(scope="session")
def served(index: Path) -> Iterator[Served]:
    with serving(index) as made:
        yield made


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser context with a desktop screen and a warm cache."""
    with new_context(browser) as made:
        yield made


@pytest.fixture
def visiting(browser: Browser, context: BrowserContext, served: Served) -> Iterator[Callable[..., Visit]]:
    """Opens the page, and checks in the end that its console is empty and that it contacted no other host.

    With options, the page gets a new context with these.
    """
    made: list[Visit] = []

    def opened(path: str = "", **options: Any) -> Visit:
        of = new_context(browser, **options) if options else context
        made.append(visit(of, served.address, path))
        return made[-1]

    yield opened
    for each in made:
        each.page.close()
        if each.page.context is not context:
            each.page.context.close()
        assert each.messages == []
        assert each.foreign == []


@pytest.fixture
def page(visiting: Callable[..., Visit]) -> Visit:
    """The page on a desktop screen."""
    return visiting()
