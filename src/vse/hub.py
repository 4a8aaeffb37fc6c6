"""Models on the Hugging Face hub. Everything else works offline; these two functions are the network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vse.errors import InputError, VSEError, first_line, require

if TYPE_CHECKING:
    from vse.model import VSEModel

# Only what a model folder holds is fetched: never code, never pickles.
FILES = ["*.json", "*.safetensors", "*.onnx", "*.onnx.data", "*.txt", "*.md", "*.png"]


def download(name: str) -> Path:
    """The folder of the hub model ``owner/model``, from the local cache if it is there and the hub is not."""
    hub = require("huggingface_hub", "train", f"loading {name!r} from the hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=FILES))
    except Exception as error:  # the hub's client raises errors of several libraries
        try:
            return Path(hub.snapshot_download(name, allow_patterns=FILES, local_files_only=True))
        except Exception:  # noqa: BLE001 (the first error is the one that explains)
            reason = first_line(error)
        raise InputError(f"{name!r} is neither a local folder nor a model that the hub gave: {reason}") from error


def push(model: VSEModel, name: str, *, private: bool, token: str | None) -> str:
    """Create the repository if needed, upload the model's folder, return its address."""
    hub = require("huggingface_hub", "train", "uploading to the hub")
    api = hub.HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        try:
            address = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a vse model")
        except Exception as error:
            reason = first_line(error)
            raise VSEError(f"could not upload to {name!r}: {reason}") from error
    return str(address)
