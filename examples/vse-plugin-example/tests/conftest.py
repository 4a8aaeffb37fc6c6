"""Register the plugin for its tests where it is not installed: its source on the path, its entry points as metadata."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from vse._util.plugins import forget_plugins

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def _registered(tmp_path_factory):
    try:
        distribution("vse-plugin-example")
    except PackageNotFoundError:
        pass
    else:
        yield
        return
    about = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path_factory.mktemp("site")
    record = site / f"vse_plugin_example-{about['version']}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {about['name']}\nVersion: {about['version']}\n")
    groups = about["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items()) for group, each in groups]
    (record / "entry_points.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(site), str(PROJECT / "src"), *sys.path])
        forget_plugins()
        yield
    forget_plugins()
    for name in [name for name in sys.modules if name.partition(".")[0] == "vse_plugin_example"]:
        del sys.modules[name]
