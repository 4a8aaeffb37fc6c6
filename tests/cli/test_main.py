"""The command as a whole: fast start, one line per error, exit codes, results on stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vse
from vse.cli.main import main

HEAVY = {"torch", "numpy", "numba", "matplotlib", "pydantic", "fastapi", "onnxruntime", "PIL", "transformers"}

# The command in a process of its own, with a demo that does and prints what a test needs.
FAKE_DEMO = """
import sys, time, types
class Result:
    def to_json(self): return {{"lines": ["line"] * {lines}}}
def run(out, progress, **options):
    {body}
    return Result()
sys.modules["vse.demo"] = types.SimpleNamespace(run=run)
sys.modules["fake"] = types.SimpleNamespace(render=lambda result, console: console.print("line\\n" * {lines}))
from vse.cli.main import main
from vse.cli.render import RICH
RICH["Result"] = "fake:render"
sys.exit(main({arguments}))
"""


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a subprocess."""
    command = [sys.executable, "-m", "vse", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False, timeout=60)


def assert_one_line(stderr: str) -> None:
    assert stderr.startswith("vse: error: ")
    assert stderr.endswith("\n")
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--help"], [], ["experiment", "--help"], ["demo", "--help"]])
def test_help_goes_to_stdout_and_succeeds(arguments):
    """Help, also that of a bare ``vse``, is on stdout with exit code 0."""
    done = run(*arguments)
    assert done.returncode == 0
    assert "Usage: vse" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [[], ["data"], ["collection"]])
def test_help_shows_whole_summaries(arguments):
    """At 80 columns no summary of a command is truncated."""
    command = [sys.executable, "-m", "vse", *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    commands = done.stdout.partition("Commands:")[2]
    assert len(commands.splitlines()) > 3
    assert "..." not in commands


def test_version_option():
    """``--version`` prints the version of the package."""
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"vse {vse.__version__}\n", "")


def test_installed_command_equals_module():
    """The script ``vse`` next to the interpreter answers like ``python -m vse``."""
    script = Path(sys.executable).with_name("vse")
    if not script.exists():
        pytest.skip("the package is not installed into this environment")
    assert subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout == (
        run("--version").stdout
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["experiment", "--help"], ["demo", "--help"], ["nonsense"]]
)
def test_help_imports_nothing_heavy(arguments):
    """Help, version and a mistyped command load none of the large libraries."""
    code = (
        "import sys; from vse.cli.main import main; main(sys.argv[1:]);"
        "print('MODULES', *(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split("MODULES", 1)[1].split())
    assert "typer" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["experimnt"], "unknown command 'experimnt': expected one of 'demo', "),
        (["experimnt"], "(did you mean 'experiment'?)"),
        (["data"], "no data command given: expected 'check', 'scenes' or 'vocabulary'"),
        (["data", "chek"], "chek"),
        (["export", "model", "out", "--precision", "fp8"], "expected one of 'fp32', 'fp16', 'int8', 'mixed'"),
        (["--nonsense"], "--nonsense (try 'vse --help')"),
        (["experiment", "--nonsense"], "(try 'vse experiment --help')"),
        (["experiment", "--jobs"], "'--jobs' requires an argument (try 'vse experiment --help')"),
        (["experiment", "synthetic", "--jobs=-7"], "-7"),
        (["experiment", "synthetic", "--jobs", "few"], "'few'"),
        (["experiment"], "no experiment given: expected one of"),
        (["experiment", "synthetik"], "(did you mean 'synthetic'?)"),
        (["experiment", "synthetic", "--list"], "--list takes no NAME, got 'synthetic'"),
        (["experiment", "synthetic", "--seeds", "0,one"], "'one' is not a non-negative integer"),
        (["experiment", "synthetic", "--seeds", "0,,1"], "'' is not a non-negative integer"),
        (["experiment", "synthetic", "--seeds", "1,2,1"], "given twice"),
        (["demo", "extra"], "extra"),
    ],
)
def test_usage_errors_are_one_line(arguments, said, tmp_path):
    """Exit code 2; the line names the value and what was expected; no file is created."""
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert said in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["demo"], ["experiment", "synthetic"]])
@pytest.mark.parametrize("below", ["", "deeper"])
def test_out_below_a_file_is_a_usage_error(command, below, tmp_path):
    """Reported before any work."""
    file = tmp_path / "file"
    file.write_text("kept")
    done = run(*command, "--out", str(file / below))
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert str(file) in done.stderr
    assert file.read_text() == "kept"


def test_debug_prints_traceback_in_any_position():
    """The traceback precedes the error line."""
    for arguments in (
        ["--debug", "experiment", "x"],
        ["experiment", "--debug", "x"],
        ["experiment", "x", "--debug"],
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("vse: error: unknown experiment 'x'")


def test_debug_after_two_dashes_is_an_argument():
    """``--`` ends the options."""
    done = run("experiment", "--", "--debug")
    assert done.returncode == 2
    assert_one_line(done.stderr)
    assert "unknown experiment '--debug'" in done.stderr


def test_experiment_list_as_text_and_json():
    """``--list`` prints a line for each experiment, with ``--json`` one object."""
    listed = json.loads(run("experiment", "--list", "--json").stdout)
    names = [entry["name"] for entry in listed["experiments"]]
    assert "synthetic" in names
    assert all(entry["summary"] for entry in listed["experiments"])
    lines = run("experiment", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == names


@pytest.mark.skipif(os.name == "nt", reason="closing a pipe early is another story there")
@pytest.mark.parametrize("lines", [1, 100_000])
@pytest.mark.parametrize("arguments", [["demo"], ["demo", "--json"]])
def test_closed_stdout_is_not_an_error(arguments, lines):
    """``vse … | head`` ends quietly, whether the output fits into a buffer or not."""
    code = FAKE_DEMO.format(body="pass", lines=lines, arguments=arguments)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_under_stdout_is_one_line():
    """Output that cannot be written is a failure, reported once."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vse", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert_one_line(done.stderr)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_interrupt_exits_with_130():
    """Ctrl-C prints one line and no traceback."""
    body = "progress.note('ready'); time.sleep(60)"
    code = FAKE_DEMO.format(body=body, lines=1, arguments=["demo"])
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest == "vse: interrupted\n"


class TestFailures:
    """Exceptions, raised by a fake demo."""

    @staticmethod
    def fail_with(monkeypatch, error: BaseException) -> None:
        def run(out, progress, **options):
            raise error

        monkeypatch.setitem(sys.modules, "vse.demo", type("module", (), {"run": staticmethod(run)}))

    def test_vse_error_prints_its_message(self, monkeypatch, capsys):
        """A VSEError prints only its message and sets the exit code."""
        self.fail_with(monkeypatch, vse.errors.InputError("length 0 at row 3: expected at least 1"))
        assert main(["demo"]) == 1
        assert capsys.readouterr().err == "vse: error: length 0 at row 3: expected at least 1\n"

    def test_other_errors_name_their_type_and_debug(self, monkeypatch, capsys):
        """Any other exception is one line too, with exit code 1 and a hint at ``--debug``."""
        self.fail_with(monkeypatch, ZeroDivisionError("by\nzero"))
        assert main(["demo"]) == 1
        assert capsys.readouterr().err == (
            "vse: error: ZeroDivisionError: by zero (run again with --debug for the traceback)\n"
        )

    def test_debug_omits_its_own_hint(self, monkeypatch, capsys):
        """The traceback comes first, and the hint is left out."""
        self.fail_with(monkeypatch, ZeroDivisionError("by zero"))
        assert main(["demo", "--debug"]) == 1
        error = capsys.readouterr().err
        assert "Traceback" in error
        assert error.endswith("vse: error: ZeroDivisionError: by zero\n")

    @pytest.mark.parametrize("text", ["a\x1b[31mred", "bell\x07", "lone \udcff", "line\u2028break", "a\r\n\nb"])
    def test_error_line_escapes_control_characters(self, monkeypatch, capsys, text):
        """Control characters and invalid encodings, as in file names, are escaped."""
        self.fail_with(monkeypatch, vse.errors.VSEError(text))
        assert main(["demo"]) == 1
        error = capsys.readouterr().err
        assert_one_line(error)
        assert error[:-1].isprintable()

    def test_broken_pipe_elsewhere_is_an_error(self, monkeypatch, capsys):
        """Only a closed stdout is quiet: a worker process that died is an error."""
        self.fail_with(monkeypatch, BrokenPipeError("worker"))
        assert main(["demo"]) == 1
        assert "BrokenPipeError: worker" in capsys.readouterr().err
