"""``python -m vse`` and the script ``vse``."""

import sys


def main() -> int:
    """Run the command; without the libraries of the command line, say in one line what to install."""
    from vse.errors import MissingDependencyError, require

    try:
        require("typer", "search", "the command vse")
    except MissingDependencyError as error:
        print(f"vse: error: {error}", file=sys.stderr)  # noqa: T201 (vse.cli cannot be imported)
        return error.exit_code
    from vse.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
