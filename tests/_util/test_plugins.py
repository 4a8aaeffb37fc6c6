"""Plugins: built-in names win, clashes are warned about, and a broken plugin is one line with its distribution."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from vse._util.plugins import GROUPS, Registry, forget_plugins, list_plugins
from vse.cli.main import main
from vse.encoders import create_backbone
from vse.encoders.text import PluginTextEncoder
from vse.errors import InputError, PluginError, PluginWarning
from vse.pooling import AvgPool, create_pooling
from vse.training.model_recipe import PluginTextRecipe
from vse.training.recipe import LossRecipe


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that registers entry points, group → name → object, under the name of a distribution."""

    def add(distribution: str, groups: dict[str, dict[str, str]], code: str = "") -> None:
        record = tmp_path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"[{group}]\n" + "".join(f"{a} = {b}\n" for a, b in each.items()) for group, each in groups.items()]
        (record / "entry_points.txt").write_text("\n".join(lines))
        if code:
            (tmp_path / f"{distribution.replace('-', '_')}.py").write_text(code)
        forget_plugins()

    monkeypatch.syspath_prepend(tmp_path)
    yield add
    forget_plugins()
    for name in ("good_one", "other_one", "bad_one"):
        sys.modules.pop(name, None)


def test_builtin_names_never_read_entry_points(monkeypatch):
    """A name of ours is found without looking at other distributions."""
    monkeypatch.setattr("vse._util.plugins._entry_points", lambda group: pytest.fail("entry points were read"))
    registry = Registry("vse.poolings", {"avg": 1})
    assert "avg" in registry
    assert registry["avg"] == 1
    create_pooling("avg")
    LossRecipe(objective="contrastive")


def test_builtin_name_hides_plugin_with_warning(install):
    """The built-in pooling is returned, and listing says which distribution is ignored."""
    install("good-one", {"vse.poolings": {"avg": "good_one:x"}})
    assert type(create_pooling("avg")).__name__ == "AvgPool"
    with pytest.warns(PluginWarning, match=r"plugin 'avg' of vse.poolings from good-one 1.0 is ignored: .* built in"):
        assert list(Registry("vse.poolings", {"avg": 1})) == ["avg"]


def test_first_of_two_plugins_with_one_name_wins(install):
    """The order is that of the names of the distributions; the other one is named in a warning."""
    install("other-one", {"vse.models": {"mine": "other_one:x"}}, "x = 2")
    install("good-one", {"vse.models": {"mine": "good_one:x"}}, "x = 1")
    with pytest.warns(PluginWarning, match=r"from other-one 1.0 is ignored: good-one 1.0 has registered that name"):
        assert Registry("vse.models")["mine"] == 1
    assert [each for each in list_plugins() if each[1] == "mine"] == [("vse.models", "mine", "good-one 1.0")]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('needs another\\nversion')", "cannot be imported (RuntimeError: needs another)"),
        ("", "cannot be imported (AttributeError"),
        ("def x(): raise OSError('no disk')", "failed: OSError: no disk"),
        ("def x(): return 3", "expected a vse.pooling.Pooling, got int"),
    ],
)
def test_broken_plugin_is_one_line_that_names_it(install, code, said):
    """Whatever goes wrong in a plugin, the message is one line with its name and distribution."""
    install("bad-one", {"vse.poolings": {"odd": "bad_one:x"}}, code or "y = 1")
    with pytest.raises(PluginError) as caught:
        create_pooling("odd")
    assert said in str(caught.value)
    assert "plugin 'odd' of vse.poolings from bad-one 1.0" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plugin_objects_of_the_wrong_kind_are_named(install, capsys, tmp_path):
    """A command that is no function, a layout that is no Layout, a backbone, an encoder, and the states of one."""
    install(
        "bad-one",
        {
            "vse.commands": {"odd": "bad_one:x"},
            "vse.layouts": {"odd": "bad_one:x"},
            "vse.backbones": {"odd": "bad_one:make"},
            "vse.encoders": {"odd": "bad_one:make", "narrow": "bad_one:Narrow"},
        },
        "import torch\nx = 3\ndef make(**options): return x\n"
        "class Narrow(torch.nn.Module):\n"
        "    def __init__(self, vocabulary_size, size): super().__init__()\n"
        "    def forward(self, tokens, lengths): return torch.zeros(*tokens.shape, 2)\n",
    )
    assert main(["odd"]) == 1
    assert "from bad-one 1.0: expected a function or a typer.Typer, got int" in capsys.readouterr().err
    assert main(["data", "check", str(tmp_path), "--layout", "odd"]) == 1
    assert "expected a vse.data.Layout, got int" in capsys.readouterr().err
    with pytest.raises(PluginError, match=r"expected a vse.encoders.Backbone, got int"):
        create_backbone("odd")
    with pytest.raises(PluginError, match=r"expected a torch module, got int"):
        PluginTextEncoder("odd", 9, 4, AvgPool(), {})
    with pytest.raises(PluginError, match=r"expected states of shape \(1, 3, 4\), got \(1, 3, 2\)"):
        PluginTextEncoder("narrow", 9, 4, AvgPool(), {})(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(InputError, match=r"unknown text encoder 'od'.*did you mean 'odd'.*group vse.encoders"):
        PluginTextRecipe(encoder="od")


def test_unknown_loss_lists_plugins(install):
    """The names of plugins are among those that an error lists; options belong to plugins alone."""
    install("good-one", {"vse.losses": {"mine": "good_one:x"}}, "def x(scores, ids): return scores.sum()")
    with pytest.raises(InputError, match=r"unknown objective 'mien'.*'matching', 'mine' \(did you mean 'mine'\?\)"):
        LossRecipe(objective="mien")
    with pytest.raises(InputError, match="options are those of a plugin"):
        LossRecipe(options={"scale": 1})


def test_help_reads_no_entry_points():
    """``vse --help`` imports neither importlib.metadata nor a plugin; every group is documented."""
    code = "import sys; from vse.cli.main import main; main(['--help']); print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == "False"
    assert set(GROUPS) >= {"vse.poolings", "vse.losses", "vse.backbones", "vse.layouts", "vse.backends", "vse.commands"}
