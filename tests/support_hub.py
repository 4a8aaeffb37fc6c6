"""A fake of the Hugging Face hub over local folders, which records what it is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

hub = pytest.importorskip("huggingface_hub")


class FakeHub:
    """One repository with the files of ``folder``, downloaded to ``cache``.

    ``asked`` holds the calls in order, as (function, what, options). With ``down``, only what is in the cache is there.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache, self.down = folder, cache, False
        self.asked: list[tuple[str, Any, dict[str, Any]]] = []

    @property
    def fetched(self) -> list[str]:
        """Names of the downloaded files."""
        return sorted(path.relative_to(self.cache).as_posix() for path in self.cache.rglob("*") if path.is_file())

    def options(self, function: str) -> list[dict[str, Any]]:
        return [options for name, _, options in self.asked if name == function]

    def list_repo_files(self, name: str, **options: Any) -> list[str]:
        self._ask("list", name, options)
        return [path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()]

    def hf_hub_download(self, name: str, file: str, **options: Any) -> str:
        self._ask("file", file, options)
        return str(self._copy(file))

    def snapshot_download(
        self, name: str, *, allow_patterns: list[str] | None = None, local_files_only: bool = False, **options: Any
    ) -> str:
        given = {**options, "allow_patterns": allow_patterns, "local_files_only": local_files_only}
        if local_files_only:
            self.asked.append(("snapshot", name, given))
            if not self.cache.is_dir():
                raise FileNotFoundError("not in the cache")
            return str(self.cache)
        self._ask("snapshot", name, given)
        names = [path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()]
        for file in hub.utils.filter_repo_objects(names, allow_patterns=allow_patterns):
            self._copy(file)
        return str(self.cache)

    def _ask(self, function: str, what: str, options: dict[str, Any]) -> None:
        self.asked.append((function, what, options))
        if self.down:
            raise ConnectionError("cannot reach the hub\nand a long story about it")

    def _copy(self, file: str) -> Path:
        (self.cache / file).parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(self.folder / file, self.cache / file))


def fake_hub(monkeypatch: pytest.MonkeyPatch, folder: Path, cache: Path) -> FakeHub:
    """Let the hub's library answer from ``folder``; uploading stays what it is."""
    fake = FakeHub(folder, cache)
    monkeypatch.setattr("vse.models.fetch._check_network", lambda: None)
    monkeypatch.setattr(
        hub.HfApi, "list_repo_files", lambda self, name, **options: fake.list_repo_files(name, **options)
    )
    monkeypatch.setattr(hub, "hf_hub_download", fake.hf_hub_download)
    monkeypatch.setattr(hub, "snapshot_download", fake.snapshot_download)
    return fake
