"""The command line: one module a command, found by listing this package.

A module ``name.py`` holds a function ``name`` (its docstring is the help), or a Typer ``APP`` where it has commands of its own.
Modules that begin with an underscore are helpers. What is heavy is imported inside the functions: ``--help`` stays fast.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pkgutil
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer

from echotrap._version import __version__
from echotrap.cli import _console
from echotrap.errors import EchotrapError

__all__ = ["build", "main", "reference"]

FAILED, INTERRUPTED = 2, 130


def build() -> typer.Typer:
    """The application with every command of this package."""
    app = typer.Typer(
        name="echotrap",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "APP"):
            app.add_typer(module.APP, name=info.name)
        else:
            app.command(info.name)(getattr(module, info.name))
    return app


def reference() -> str:
    """The help of every command, as a page (``docs/cli.md``)."""
    lines = ["# The command line", "", "Written by `pytest tests/test_docs.py --update-golden` from the program itself."]
    app = build()
    for path in _paths(typer.main.get_command(app)):
        lines += ["", f"## {' '.join(path)}", "", "```text", _help(app, path[1:]), "```"]
    return "\n".join(lines) + "\n"


def _paths(command: Any, path: tuple[str, ...] = ("echotrap",)) -> list[tuple[str, ...]]:
    inner = getattr(command, "commands", {})
    return [path, *(found for name in inner for found in _paths(inner[name], (*path, name)))]


def _help(app: typer.Typer, path: tuple[str, ...]) -> str:
    """What ``--help`` prints, 80 columns wide and without colour."""
    out = io.StringIO()
    plain = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in plain}
    os.environ.update(plain)
    try:
        with contextlib.redirect_stdout(out):
            app([*path, "--help"], prog_name="echotrap", standalone_mode=False)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def _version(wanted: bool) -> None:
    if wanted:
        _console.write(f"echotrap {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--traceback", help="Show where an unexpected error came from.")] = False,
) -> None:
    """Tell from the log whether an agent-RL run is falling into an Echo Trap, since when, and what to do."""
    if debug:
        os.environ["ECHOTRAP_DEBUG"] = "1"  # workers inherit it


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; 1 is kept for findings, so whatever goes wrong is 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    code = FAILED
    try:
        code = _run(arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        _console.flush()
    raise SystemExit(code)


def _run(arguments: list[str]) -> int:
    as_json = _console.wants_json(arguments)
    try:
        result = build()(arguments, prog_name="echotrap", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except EchotrapError as error:
        _console.fail(error.kind, error.message, where=error.where, cure=error.cure, as_json=as_json)
    except SystemExit as exit_:
        if not isinstance(exit_.__context__, BrokenPipeError):  # Typer turns a broken pipe into 1
            return int(exit_.code or 0) if isinstance(exit_.code, int | None) else FAILED
        return 0
    except Exception as error:
        if callable(getattr(error, "format_message", None)):  # Typer's usage errors; their class moved between versions
            command = getattr(getattr(error, "ctx", None), "command_path", "echotrap")
            _console.fail("usage", error.format_message().rstrip("."), cure=f"{command} --help", as_json=as_json)  # type: ignore[attr-defined]
        else:
            if os.environ.get("ECHOTRAP_DEBUG"):
                traceback.print_exc()
            _console.fail("internal", f"{type(error).__name__}: {error}", cure=_console.HINT, as_json=as_json)
    else:
        return result if isinstance(result, int) else 0
    return FAILED
