"""Results go to standard output, talk goes to standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from echotrap.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from echotrap.config import FailOn
    from echotrap.render import View

__all__ = ["HINT", "fail", "flush", "save", "show", "talk", "view", "wants_json", "working", "write"]

HINT = "an error in echotrap; echotrap --traceback COMMAND shows where"


def write(text: str) -> None:
    """Print a result. A reader that has seen enough is no error: the rest goes nowhere and the exit code stays."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        write(text.encode(encoding, "replace").decode(encoding))


def show(*parts: RenderableType) -> None:
    """Print what Rich can lay out."""
    from echotrap.render.terminal import to_text

    write(to_text(view(), *parts))


def view(*, fail_on: FailOn = "critical", verbose: bool = False) -> View:
    """How results look on this standard output."""
    from echotrap.render import View

    return View(fail_on, width(), color(), unicode(), verbose)


def save(file: Path, text: str) -> None:
    """Write a result into a file; ``-`` is standard output.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    if str(file) == "-":
        write(text)
        return
    require_folder(file)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(file)) from None
    talk(f"wrote {file}")


def require_folder(file: Path) -> None:
    """Refuse a file in a folder that does not exist: more often a slip than a wish.

    Raises
    ------
    ConfigError
        There is no such folder.
    """
    if not file.parent.is_dir():
        raise ConfigError(f"cannot be written: the folder {file.parent} does not exist", where=str(file))


def flush() -> None:
    """Write what is buffered, so that the interpreter does not complain about a closed pipe when it ends."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _silence()


def _silence() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def talk(text: str) -> None:
    """Say one line to the person, never to the next program; names out of a log cannot steer the terminal."""
    with contextlib.suppress(BrokenPipeError):
        print("".join(c if c.isprintable() else "?" for c in text), file=sys.stderr, flush=True)


def fail(kind: str, message: str, *, where: str | None = None, cure: str | None = None, as_json: bool = False) -> None:
    """Report an error that ends the command: one line, or JSON where JSON was asked for."""
    line = " ".join(message.split())
    if as_json:
        error = {"source": where or "", "kind": kind, "message": line, "where": where, "cure": cure}
        write(json.dumps({"schema_version": _schema_version(), "runs": [], "errors": [error]}, indent=2) + "\n")
    else:
        place = f"{where}: " if where else ""
        talk(f"error: {place}{line}" + (f" ({cure})" if cure else ""))


def wants_json(arguments: list[str]) -> bool:
    """Whether the arguments ask for JSON on standard output, also where they are wrong otherwise."""
    joined = " ".join(arguments).replace("--format=", "-f").replace("--format ", "-f").replace("-f ", "-f")
    return not {"-fjson", "--json"}.isdisjoint(joined.split())


def color(stream: TextIO | None = None) -> bool:
    """Whether a stream takes colour: a terminal, unless NO_COLOR says otherwise; FORCE_COLOR overrules both."""
    stream = stream or sys.stdout
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Columns of the terminal, at most 100; 80 where there is none."""
    import shutil

    columns = shutil.get_terminal_size(fallback=(80, 24)).columns
    return min(columns, 100) if sys.stdout.isatty() else columns


def unicode() -> bool:
    """Whether standard output can show block characters."""
    try:
        "▁█·".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextlib.contextmanager
def working(what: str, *, shown: bool = True) -> Iterator[None]:
    """Show that something is going on, on a terminal only."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _schema_version() -> str:
    from echotrap.report import SCHEMA_VERSION

    return SCHEMA_VERSION
