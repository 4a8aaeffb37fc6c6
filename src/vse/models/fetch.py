"""Fetch models from the Hugging Face hub: judged before their weights are downloaded, never code, never pickles."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from vse.errors import InputError, first_line, require
from vse.models.foreign import JSON_FILES, recognise
from vse.models.sources import HUB

FILES = ["*.json", "*.safetensors", "*.onnx", "*.onnx.data", "*.txt", "*.md", "*.png"]
"""Files of a model of ours."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def hub_name(source: str) -> str | None:
    """Return the repository that a source may mean; None if it cannot be one."""
    name = source.removeprefix(HUB)
    return name if NAME.fullmatch(name) and Path(name).suffix not in {".pth", ".pt", ".tar"} else None


def split_revision(source: str) -> tuple[str, str | None]:
    """Return a hub id and the revision that follows it behind ``@``; what is no such id stays whole.

    >>> split_revision("owner/model@refs/pr/3"), split_revision("owner/model"), split_revision("./runs@2")
    (('owner/model', 'refs/pr/3'), ('owner/model', None), ('./runs@2', None))
    """
    name, at, revision = source.partition("@")
    if not at or hub_name(name) is None:
        return source, None
    if not revision:
        raise InputError(f"{source!r}: no revision behind '@'; expected OWNER/MODEL@REVISION")
    return name, unquote(revision)


def download(name: str, revision: str | None = None, *, precision: str | None = None, token: str | None = None) -> Path:
    """Download a model, with the local cache as fallback.

    The configuration is fetched and judged first; of a model that cannot be used nothing else is downloaded.

    Args:
        name: ``owner/model``.
        revision: Commit, tag or branch; the main branch by default.
        precision: Of ONNX files, where the repository has several.
        token: Access token of a private repository.

    Returns:
        The folder of the model.

    Raises:
        InputError: If neither the hub nor the cache has it, or it is no model that can be used.
    """
    hub = require("huggingface_hub", "hub", f"loading {name!r} from the hub")
    try:
        _check_network()
        wanted = _wanted_files(hub, name, revision, precision, token)
        return Path(hub.snapshot_download(name, revision=revision, token=token, allow_patterns=wanted))
    except InputError:
        raise
    except Exception as error:  # the hub's client raises errors of several libraries
        try:
            return Path(hub.snapshot_download(name, revision=revision, local_files_only=True))
        except Exception:  # noqa: BLE001 (the first error is the one that explains)
            reason = first_line(error)
        at = f" at revision {revision!r}" if revision else ""
        raise InputError(f"{name!r} is neither a local folder nor a model that the hub gave{at}: {reason}") from error


def cached_folder(name: str) -> Path | None:
    """Return the folder of a repository's main branch in the hub's cache; None if it was not downloaded.

    Only file names are looked at, so that search does not load the hub's library.
    """
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    repository = cache / f"models--{name.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    folder = repository / "snapshots" / commit
    return folder if folder.is_dir() else None


def _check_network() -> None:
    """Raise OSError where the hub's name does not resolve: its client would try again for half a minute."""
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}  # with one of them, names are resolved elsewhere
    if proxies.isdisjoint(name.upper() for name in os.environ):
        endpoint = require("huggingface_hub.constants", "hub", "loading a model from the hub").ENDPOINT
        socket.getaddrinfo(urlsplit(endpoint).hostname, 443)


def _wanted_files(hub: Any, name: str, revision: str | None, precision: str | None, token: str | None) -> list[str]:
    """Return what to download, judged by the names of the files and the configuration."""
    names = set(hub.HfApi(token=token).list_repo_files(name, revision=revision))
    read: dict[str, Any] = {}

    def content(file: str) -> Any:
        if file not in read:
            path = Path(hub.hf_hub_download(name, file, revision=revision, token=token))
            try:
                read[file] = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise InputError(f"{name!r}: {file} is not JSON ({first_line(error)})") from None
        return read[file]

    if "config.json" in names and "runtime" in content("config.json"):
        return FILES
    found = recognise(names, content, name, precision=precision)
    if found is None:
        listed = ", ".join(JSON_FILES)
        raise InputError(f"{name!r}: the hub has it, but it is no image–text model: none of {listed} describes one")
    missing = [file for file in found.needed if file not in names]
    if missing:
        raise InputError(f"{name!r}: the repository has no {missing[0]}")
    return [*found.needed, *(file for file in found.wanted if file in names), "README.md"]
