"""A browser, a collection and its service, for the tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext
from tests.service.page.colour_model import write_colour_model
from tests.service.page.library import Library, make_library
from tests.service.page.support import Served, make_folder, serving, vse
from tests.service.page.visits import Visit, chromium, new_context, visit


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for this folder: while Playwright runs, nothing else can run an event loop in this thread."""
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


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser context with a desktop screen and a warm cache."""
    with new_context(browser) as made:
        yield made


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A library whose results have a relevance, served on a machine with a file manager. One of its files is gone."""
    with make_library(tmp_path_factory.mktemp("library")) as made:
        yield made


Opener = Callable[..., Visit]


@pytest.fixture
def visiting(browser: Browser, context: BrowserContext, served: Served) -> Iterator[Opener]:
    """Opens the page; with options, in a new context with these."""
    with opening(browser, context, served.address) as opened:
        yield opened


@pytest.fixture
def page(visiting: Opener) -> Visit:
    """The page on a desktop screen."""
    return visiting()


@pytest.fixture
def entering(browser: Browser, context: BrowserContext, library: Library) -> Iterator[Opener]:
    """Opens the page of the library."""
    with opening(browser, context, library.served.address) as opened:
        yield opened


@pytest.fixture
def desk(entering: Opener) -> Visit:
    """The page of the library on a desktop screen, once it knows its collection."""
    return entering()


@contextmanager
def opening(browser: Browser, context: BrowserContext, address: str) -> Iterator[Opener]:
    """A function that opens the page. In the end its console must be empty, and it contacted no other host."""
    made: list[Visit] = []

    def opened(path: str = "", **options: Any) -> Visit:
        of = new_context(browser, **options) if options else context
        made.append(visit(of, address, path))
        made[-1].described()
        return made[-1]

    yield opened
    for each in made:
        each.page.close()
        if each.page.context is not context:
            each.page.context.close()
        assert each.messages == []
        assert each.foreign == []
