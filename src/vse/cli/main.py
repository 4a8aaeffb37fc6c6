"""The command ``vse``: finds the subcommand, and turns exceptions into one line on stderr and an exit code.

Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer

from vse._util.plugins import Registry
from vse._version import __version__
from vse.errors import PluginError, UsageError, VSEError, name_extra, unknown_choice


def keep_plain(command: Any) -> None:
    """Make the parameters of a typer command and its subcommands pass on values that need no conversion.

    typer converts every value with pydantic; skipping that saves its import for most commands.
    """
    for each in getattr(command, "commands", {}).values():
        keep_plain(each)
    listed = command.get_params

    def get_params(context: typer.Context) -> list[Any]:
        parameters = listed(context)  # includes the one for --help, which is created here
        for parameter in parameters:
            converter = getattr(parameter, "get_runtime_param", None)
            if converter is not None and not isinstance(converter, _LazyConverter):
                parameter.get_runtime_param = _LazyConverter(converter)
        return parameters

    command.get_params = get_params


class _LazyConverter:
    """A converter that creates typer's own only for a value that needs it."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self) -> _LazyConverter:
        return self

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        return value if _is_plain(value, param.type_descriptor, several) else self._make().coerce(value, param, ctx)


def _is_plain(value: Any, kind: Any, several: bool) -> bool:
    """Whether ``value`` already has the declared type, and nothing else about it has to be checked."""
    if kind.parameter_info.parser is not None or kind.is_choice or kind.is_path or kind.is_file:
        return False
    if several:
        return kind.annotation == list[str] and all(type(each) is str for each in value)
    return kind.annotation in (str, int, float, bool) and type(value) is kind.annotation


def print_error(text: str) -> None:
    """Write ``text`` to stderr as exactly one line, without control characters."""
    line = " ".join(part.strip() for part in text.splitlines() if part.strip())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _detach(sys.stderr)


def reader_closed(stream: TextIO) -> bool:
    """Return whether the reader of a pipe has closed it.

    A second write would not show it: after a failed one the buffer may be empty.
    """
    if sys.platform == "win32":
        return True
    from select import POLLERR, POLLHUP, POLLOUT, poll

    poller = poll()
    try:
        poller.register(stream.fileno(), POLLOUT)
    except OSError:  # a stream without a file behind it
        return False
    return any(event & (POLLERR | POLLHUP) for _, event in poller.poll(0))


def detach_if_unwritable(stream: TextIO) -> None:
    """Stop writing to ``stream`` if it is a closed pipe or on a full disk."""
    try:
        stream.flush()
    except OSError:
        _detach(stream)


def _detach(stream: TextIO) -> None:
    """Redirect ``stream`` to the null device, so that the interpreter's last flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


FAILED = 1
INTERRUPTED = 130

COMMANDS = {
    "demo": "demo:demo",
    "data": "data:data_app",
    "features": "features:features",
    "train": "train:train",
    "convert": "convert:convert",
    "eval": "eval:evaluate",
    "calibrate": "calibrate:calibrate",
    "inspect": "inspect:inspect",
    "export": "export:export",
    "models": "models:models",
    "pull": "models:pull",
    "push": "models:push",
    "embed": "embed:embed",
    "index": "index:index",
    "search": "search:search",
    "serve": "serve:serve",
    "mcp": "mcp:mcp",
    "collection": "collection:collection_app",
    "experiment": "experiment:experiment",
    "doctor": "doctor:doctor",
}
"""Command name → ``module:function`` in this package, in the order of ``vse --help``."""
PLUGINS: Registry[Any] = Registry("vse.commands", COMMANDS)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"vse {__version__}")
        raise typer.Exit


def _show_help(context: typer.Context, wanted: bool) -> None:
    if wanted:
        print(context.get_help())
        raise typer.Exit


# typer's own --help has no default, and converting the missing value would load pydantic on every call.
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
    # Declared for its help text: main() removes it from the arguments, whatever its position.
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works in any position.")
    ] = False,
    show_help: Annotated[
        bool, typer.Option("--help", help="Show this message and exit.", is_eager=True, callback=_show_help)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        _show_help(context, wanted=True)


def make_app(names: Iterable[str] = COMMANDS, *, completion: bool = False) -> typer.Typer:
    """Build the command with the given subcommands. Only their modules are imported: all of them cost half a search.

    ``completion`` adds the options that install shell completion.
    """
    app = typer.Typer(
        name="vse",
        help="Train, evaluate and search with visual semantic embeddings.",
        epilog="'vse COMMAND --help' describes a command.",
        add_completion=completion,
        # Plain help: rendering it with rich would take longer than the rest of "vse --help".
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True, add_help_option=False)(_root)
    for name in names:
        command = _command(name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _command(name: str) -> Any:
    """Return the function or typer app of a command, of ours or of a plugin."""
    if name not in COMMANDS:
        command = PLUGINS[name]
        if not callable(command) and not isinstance(command, typer.Typer):
            kind = type(command).__name__
            raise PluginError(f"{PLUGINS.origin(name)}: expected a function or a typer.Typer, got {kind}")
        return command
    module, attribute = COMMANDS[name].split(":")
    return getattr(import_module(f"vse.cli.{module}"), attribute)


def main(argv: list[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's own) and return its exit code."""
    arguments, debug = _take_debug(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # reports a closed pipe here, not while the interpreter shuts down
        return code
    except (KeyboardInterrupt, typer.Abort):
        print_error("vse: interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 (every failure becomes one line)
        quiet = isinstance(error, BrokenPipeError) and reader_closed(sys.stdout)
        if isinstance(error, OSError):
            detach_if_unwritable(sys.stdout)
        if quiet:
            return FAILED  # the reader closed the pipe, as "head" does: not an error
        if debug:
            import traceback

            with suppress(OSError):
                traceback.print_exception(error)
        print_error(f"vse: error: {_explain(error, debug=debug)}")
        return error.exit_code if isinstance(error, VSEError) else FAILED


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Remove ``--debug`` from the arguments; whatever follows ``--`` is not an option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != "--debug"]
    return kept + arguments[end:], len(kept) < end


def _dispatch(arguments: list[str]) -> int:
    named = arguments[:1] if arguments and not arguments[0].startswith("-") else []
    for name in named:
        if name not in PLUGINS:
            raise UsageError(unknown_choice("command", name, PLUGINS))
    completing = os.environ.get(COMPLETE)
    if completing:
        return _complete(completing)
    command = typer.main.get_command(make_app(named or COMMANDS, completion=not named))
    keep_plain(command)
    try:
        with command.make_context("vse", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.TyperException as error:
        raise UsageError(_usage_message(error, arguments)) from error
    return 0


COMPLETE = "_VSE_COMPLETE"
"""The variable by which a shell asks for completions, instead of running a command."""


def _complete(instruction: str) -> int:
    """Print what the shell may complete; ``instruction`` is ``complete_SHELL`` or ``source_SHELL``."""
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]  # not in its __all__

    completion_init()
    return shell_complete(typer.main.get_command(make_app()), {}, "vse", COMPLETE, instruction)


def _usage_message(error: typer.TyperException, arguments: list[str]) -> str:
    """The parser's message, with the value it rejected and where to read more."""
    message = error.format_message().rstrip(".")
    # pydantic converts values, and only its error holds the value.
    rejected: list[Any] = getattr(error.__cause__, "errors", list)()
    if rejected:
        message += f", got {rejected[0]['input']!r}"
    context = getattr(error, "ctx", None)
    if context is not None:
        path = context.command_path
    else:  # some parser errors do not name their command
        command = next((argument for argument in arguments if argument in COMMANDS), None)
        path = f"vse {command}" if command else "vse"
    return f"{message} (try '{path} --help')"


def _explain(error: Exception, *, debug: bool) -> str:
    """The message of an error, with its type if it is not one of ours."""
    if isinstance(error, ModuleNotFoundError):
        error = name_extra(error, "this command")
    if isinstance(error, VSEError):
        return str(error)
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return message if debug else f"{message} (run again with --debug for the traceback)"
