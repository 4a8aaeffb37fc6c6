"""Measure the source tree: module sizes, who imports whom, import cycles, and test names.

``python -m tests.structure`` prints the figures; ``tests/test_structure.py`` holds the tree to its limits.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src"
TESTS = REPOSITORY / "tests"


@dataclass
class Module:
    """A source module, with the modules that it imports at load time and those that it imports at all."""

    name: str
    path: Path
    lines: int
    eager: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def is_entry_point(self) -> bool:
        """Whether the module is started by name: ``__main__``, or a command that ``vse`` loads on call."""
        return self.path.name == "__main__.py" or self.path.parent.name == "cli"


def read_modules(source: Path = SOURCE) -> dict[str, Module]:
    """Return every module below ``source`` by dotted name, with its imports resolved to defining modules."""
    modules: dict[str, Module] = {}
    trees: dict[str, ast.Module] = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, len(text.splitlines()))
        trees[name] = ast.parse(text)
    for name, tree in trees.items():
        for node, eager in _imports_in(tree.body, eager=True):
            for target in _targets(node, name, modules, trees):
                if target != name:
                    modules[name].imports.add(target)
                    if eager:
                        modules[name].eager.add(target)
    return modules


def importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Return, for each module, the modules that import it or import one of its names through a package face."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for target in module.imports:
            found[target].add(module.name)
    return found


def cycles(modules: dict[str, Module]) -> list[list[str]]:
    """Return the groups of modules that import each other while they load (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in modules[name].eager:
            if target not in order:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            at = stack.index(name)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in modules:
        if name not in order:
            visit(name)
    return groups


def lonely_modules(modules: dict[str, Module], below: int) -> dict[str, str]:
    """Return modules shorter than ``below`` lines with a single importer, which they could be part of.

    A module that only the face of its package imports is public API and does not count.
    """
    lonely = {}
    for name, users in importers(modules).items():
        module = modules[name]
        if module.lines < below and len(users) == 1 and not module.is_face and not module.is_entry_point:
            user = next(iter(users))
            if user != name.rpartition(".")[0]:
                lonely[name] = user
    return lonely


def short_modules(modules: dict[str, Module], below: int) -> list[str]:
    """Return modules shorter than ``below`` lines, package faces and ``__main__`` aside."""
    return [m.name for m in modules.values() if m.lines < below and not m.is_face and m.path.name != "__main__.py"]


def loose_files(source: Path = SOURCE) -> list[str]:
    """Return the files at the top of the package."""
    return sorted(path.name for path in (source / "vse").iterdir() if path.is_file() and path.suffix != ".pyc")


def shared_test_names(tests: Path = TESTS) -> dict[str, list[str]]:
    """Return test names that occur in more than one file, with the files."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                places[node.name].add(str(path.relative_to(tests)))
    return {name: sorted(files) for name, files in sorted(places.items()) if len(files) > 1}


def _imports_in(body: list[ast.stmt], *, eager: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the import statements of a body; those inside functions and ``TYPE_CHECKING`` are not eager."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, eager
            continue
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        inner = eager and not typing_only and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in ("body", "orelse", "finalbody"):
            yield from _imports_in(getattr(node, name, []), eager=inner if name == "body" else eager and inner)
        for handler in getattr(node, "handlers", []):
            yield from _imports_in(handler.body, eager=inner)


def _targets(
    node: ast.Import | ast.ImportFrom, importer: str, modules: dict[str, Module], trees: dict[str, ast.Module]
) -> Iterator[str]:
    """Yield the modules of ours that an import statement names, and those that define the imported names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
        return
    base = node.module or ""
    if node.level:
        package = importer if modules[importer].is_face else importer.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        base = f"{package}.{base}".rstrip(".")
    if base not in modules:
        return
    for alias in node.names:
        if f"{base}.{alias.name}" in modules:
            yield f"{base}.{alias.name}"
            continue
        yield base
        if modules[base].is_face:
            yield from _defined_by(base, alias.name, modules, trees)


def _defined_by(face: str, wanted: str, modules: dict[str, Module], trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield the module from which a package face re-exports a name."""
    for node, _ in _imports_in(trees[face].body, eager=True):
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == wanted for alias in node.names):
            yield from (target for target in _targets(node, face, modules, trees) if target != face)


def report() -> Iterator[str]:
    """Yield the figures of the tree, a line each."""
    modules = read_modules()
    yield f"source files: {len(modules)}, lines: {sum(module.lines for module in modules.values()):,}"
    yield f"loose files at the top: {', '.join(loose_files())}"
    short = short_modules(modules, 60)
    yield f"modules under 60 lines: {len(short)}: {', '.join(short)}"
    yield f"modules above 400 lines: {', '.join(m.name for m in modules.values() if m.lines > 400) or 'none'}"
    lonely = lonely_modules(modules, 80)
    yield f"modules under 80 lines with one importer: {len(lonely)}"
    yield from (f"  {name} ({modules[name].lines}) <- {user}" for name, user in lonely.items())
    yield f"import cycles: {cycles(modules) or 'none'}"
    shared = shared_test_names()
    yield f"test names in more than one file: {len(shared)}"
    yield from (f"  {name}: {', '.join(files)}" for name, files in shared.items())


if __name__ == "__main__":
    print("\n".join(report()))  # noqa: T201
