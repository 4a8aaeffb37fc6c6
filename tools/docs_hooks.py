"""Hooks of the documentation site (``mkdocs.yml``): docstrings become Markdown, and files outside ``docs/`` pages.

The guides link to such files, since they are also read on a code host. On the site a link to a file of
:data:`PUBLISHED` leads to its page, and of every other link the text remains.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from griffe import Extension
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",  # not copied: the site has a first page of its own
    "SECURITY.md": "security.md",
    "src/vse/models/shipped/photo/pooling.png": "images/photo-pooling.png",
}
"""Path in the repository: path in the site."""


def on_files(files: Any, config: Any) -> Any:
    """Add the published files."""
    for source, uri in PUBLISHED.items():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the site."""
    return relink(markdown, page.file.src_uri)


class MarkdownDocstrings(Extension):
    """Show docstrings as Markdown; mkdocstrings loads this extension by name."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Rewrite the docstring of the package itself, for which ``on_object`` is not called."""
        self.on_object(obj=pkg)

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Fence doctests, which Markdown takes for quotations, and turn Sphinx roles into plain code.

    >>> as_markdown(":class:`GPO` pools.")
    '`GPO` pools.'
    """
    text = re.sub(r":(?:attr|class|data|func|meth|mod|obj):`", "`", docstring)
    text = re.sub(r" +# doctest: .*$", "", text, flags=re.MULTILINE)

    def fenced(match: re.Match[str]) -> str:
        indent = match["indent"]
        return f"{indent}```pycon\n{match[0].rstrip()}\n{indent}```\n"

    return re.sub(r"^(?P<indent> *)>>> .*\n?(?:(?P=indent)\S.*\n?)*", fenced, text, flags=re.MULTILINE)


def relink(markdown: str, uri: str) -> str:
    """Rewrite the links of a page of the site that lead out of ``docs/``.

    Args:
        markdown: the text of the page.
        uri: its path in the site.

    Returns:
        The text with links that resolve within the site.
    """
    source = next(
        (path for path, published in PUBLISHED.items() if published == uri and uri != "index.md"), f"docs/{uri}"
    )

    def replaced(match: re.Match[str]) -> str:
        text, target, anchor = match["text"], match["target"], match["anchor"] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = PUBLISHED.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is None:
            return text
        return f"{match['image']}[{text}]({posixpath.relpath(inside, posixpath.dirname(uri) or '.')}{anchor})"

    link = r"(?P<image>!?)\[(?P<text>[^\]\n]*(?:\n[^\]\n]+)?)\]\((?P<target>(?![a-z]+:)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
    return re.sub(link, replaced, markdown)
