"""The source tree keeps its shape: few files, none tiny or huge, no import cycles, unique test names."""

import pytest
from tests.structure import cycles, lonely_modules, loose_files, read_modules, shared_test_names, short_modules

TOP = ["__init__.py", "__main__.py", "_version.py", "errors.py", "losses.py", "progress.py", "py.typed"]


@pytest.fixture(scope="module")
def modules():
    return read_modules()


def test_source_tree_has_at_most_380_files(modules):
    """A module answers a reader's question; more files would mean more names to hold."""
    assert len(modules) <= 380


def test_package_top_holds_only_shared_modules():
    """Everything else lives in a package."""
    assert loose_files() == TOP


def test_no_module_exceeds_400_lines(modules):
    """Longer modules are split."""
    assert {module.name: module.lines for module in modules.values() if module.lines > 400} == {}


def test_few_modules_are_shorter_than_60_lines(modules):
    """Short modules are the exception."""
    assert len(short_modules(modules, below=60)) <= 30


def test_short_modules_have_several_importers(modules):
    """A module under 80 lines with a single importer belongs in that importer."""
    assert lonely_modules(modules, below=80) == {}


def test_modules_do_not_import_each_other_in_a_cycle(modules):
    """No group of modules needs itself while it loads."""
    assert cycles(modules) == []


def test_test_names_are_unique_across_files():
    """``pytest -k`` and a CI log lead to one place."""
    assert shared_test_names() == {}
