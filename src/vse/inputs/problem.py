"""What stood in the way at one place, said in one line instead of raised."""

from __future__ import annotations

from dataclasses import dataclass

from vse.errors import InputError
from vse.inputs.printable import printable


@dataclass(frozen=True)
class Problem:
    """``path`` is the place below the root, or the file as it was named; ``reason`` says what is wrong with it.

    Both can be stored and sent as UTF-8. ``str(problem)`` is one printable line, whatever the name contains.
    """

    path: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", encodable(self.path))
        object.__setattr__(self, "reason", " ".join(encodable(self.reason).split()))

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason}"


class BadMediaError(InputError):
    """A file that cannot be used: ``name`` says which, ``reason`` why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{printable(encodable(name))}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadMediaError], tuple[str, str]]:
        """Let the error come back from a worker process; the default would hand over the message alone."""
        return type(self), (self.name, self.reason)


class TooSlowError(BadMediaError):
    """A clip that took longer than it may: nothing is wrong with it, and another time it may be faster."""


def is_text(name: str) -> bool:
    """Whether a name is Unicode: one with other bytes holds lone surrogates in their place."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def encodable(name: str) -> str:
    r"""The name itself, or with an escape such as ``\udce9`` in place of each byte that is no UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def os_reason(error: OSError) -> str:
    """Why the system refused, without the path that it repeats."""
    return "no such file" if isinstance(error, FileNotFoundError) else error.strerror or type(error).__name__
