"""Talk to the Hugging Face hub: upload models and exports, download revisions of models and single files.

The methods of :class:`~vse.models.VSEModel` have the names and arguments of ``huggingface_hub.ModelHubMixin``, but do
not inherit from it: the library is an optional dependency, and the mixin records the arguments of the constructor in a
``config.json`` of its own and generates its own card, where a model here has both already.
"""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from vse.errors import LONGEST_REASON, InputError, VSEError, first_line, require
from vse.models.curves import CARD_FILE
from vse.models.fetch import FILES, download, hub_name
from vse.models.sources import load, model_folder, recorded_runtime

if TYPE_CHECKING:
    from vse.models.storage import TorchModel

EXTRA = "hub"
MESSAGE = "Upload a vse model"
FILE_PREFIX = "hub:"
FILE_FORM = "hub:OWNER/REPOSITORY[@REVISION]/PATH"


def push(
    model: TorchModel, repo_id: str, *, private: bool | None = None, token: str | None = None, **commit: Any
) -> str:
    """Upload a torch model and its card to the hub.

    Args:
        model: The model to upload.
        repo_id: Repository, ``"owner/model"``; created if needed.
        private: Whether a new repository is private; by default what the hub's account says.
        token: Access token; by default the one of the logged-in user.
        commit: ``commit_message``, ``branch`` and ``create_pr`` of the upload.

    Returns:
        The address of the repository.

    Raises:
        VSEError: If the upload fails.
    """
    from vse.models.card import save_with_card

    with tempfile.TemporaryDirectory() as folder:
        save_with_card(model, folder)
        return push_folder(folder, repo_id, private=private, token=token, **commit)


def push_folder(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str = MESSAGE,
    branch: str | None = None,
    create_pr: bool | None = None,
) -> str:
    """Upload the folder of a model or an export as it is; files of other kinds stay behind.

    Args:
        folder: The folder of the model, with its card.
        repo_id: Repository, ``"owner/model"``; created if needed.
        private: Whether a new repository is private; by default what the hub's account says.
        token: Access token; by default the one of the logged-in user.
        commit_message: Subject of the commit.
        branch: Branch to commit to; the main one by default.
        create_pr: Whether to open a pull request instead.

    Returns:
        The address of the repository.

    Raises:
        VSEError: If the upload fails.
    """
    hub = require("huggingface_hub", EXTRA, "uploading to the hub")
    api = hub.HfApi(token=token)
    chosen = {"revision": branch, "create_pr": create_pr}
    try:
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo_id,
            folder_path=str(folder),
            commit_message=commit_message,
            allow_patterns=FILES,
            **{name: value for name, value in chosen.items() if value is not None},
        )
    except Exception as error:  # the hub's client raises errors of several libraries
        raise VSEError(f"could not upload to {repo_id!r}: {first_line(error)}") from error
    return str(address)


def push_saved(source: str | Path, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
    """Upload a saved model or an export, after checking that its files belong together.

    Args:
        source: A model folder, a bundled model or a hub id.
        repo_id: Repository, ``"owner/model"``; created if needed.
        private: Whether a new repository is private; by default what the hub's account says.
        token: Access token; by default the one of the logged-in user.

    Returns:
        The address of the repository.

    Raises:
        InputError: If files are missing, corrupt or of different models.
        VSEError: If the upload fails.
    """
    from vse.models.inspection import inspect_folder
    from vse.models.onnx import OnnxModel

    folder = model_folder(source)
    if recorded_runtime(folder) == "onnx":
        return OnnxModel.load(folder).push_to_hub(repo_id, private=private, token=token)
    if recorded_runtime(folder) is None:
        raise InputError(f"{str(source)!r}: a model of others; 'vse.load(...).save(DIR)' makes one that can be pushed")
    inspect_folder(folder)
    if (folder / CARD_FILE).is_file():
        return push_folder(folder, repo_id, private=private, token=token)
    return push(cast("TorchModel", load(folder)), repo_id, private=private, token=token)


def pretrained_folder(source: str | Path, *, revision: str | None = None, token: str | None = None) -> Path:
    """Return the folder of a model: local, bundled, or downloaded from the hub.

    Args:
        source: A local folder, a bundled model or a hub id.
        revision: Branch, tag or commit of a hub repository.
        token: Access token of a private repository.

    Raises:
        InputError: If there is no such model, or ``revision`` is given for a local folder.
    """
    if revision is None and token is None:
        return model_folder(source, pulled=False)
    if Path(source).expanduser().exists():
        if revision is not None:
            raise InputError(f"revision {revision!r}: {str(source)!r} is a local folder, which has none; leave it out")
        return model_folder(source)
    name = hub_name(str(source))
    if name is None:
        raise InputError(f"{str(source)!r}: no such folder, and not a name on the hub such as 'owner/model'")
    return download(name, revision, token=token)


def local_file(reference: str | Path) -> Path:
    """Return a file by its path or, for ``hub:OWNER/REPOSITORY[@REVISION]/PATH``, downloaded from the hub.

    Args:
        reference: The path or reference; ``%2F`` stands for a slash in a revision.

    Returns:
        The file; one from the hub stays in the hub's cache.

    Raises:
        InputError: If the reference is malformed or the file cannot be fetched.
    """
    text = str(reference)
    if not text.startswith(FILE_PREFIX):
        return Path(reference).expanduser()
    repo_id, revision, path = split_reference(text)
    hub = require("huggingface_hub", EXTRA, f"fetching {text!r}")
    try:
        return Path(hub.hf_hub_download(repo_id, path, revision=revision))
    except Exception as error:
        reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
        raise InputError(f"{text!r} could not be fetched from the hub: {reason}") from error


def split_reference(reference: str) -> tuple[str, str | None, str]:
    """Return repository, revision and path of ``hub:OWNER/REPOSITORY[@REVISION]/PATH``.

    >>> split_reference("hub:cccjc/vse-infty@main/f30k_butd_region_bert/model_best.pth")
    ('cccjc/vse-infty', 'main', 'f30k_butd_region_bert/model_best.pth')
    """
    owner, _, rest = reference.removeprefix(FILE_PREFIX).partition("/")
    named, _, path = rest.partition("/")
    repository, at, revision = named.partition("@")
    unsafe = {"", ".", ".."} & set(path.split("/"))
    if not owner or not repository or (at and not revision) or unsafe or PurePosixPath(path).is_absolute():
        raise InputError(f"{reference!r}: expected a file on the hub as {FILE_FORM}")
    return f"{owner}/{repository}", unquote(revision) if at else None, path
