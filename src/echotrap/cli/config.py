"""``echotrap config``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from echotrap.cli import _console, _options

APP = typer.Typer(no_args_is_help=True, help="Check and show the settings.")

FileArgument = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Instead of the nearest echotrap.toml.")]


@APP.command("check")
def check(file: FileArgument = None) -> None:
    """Say whether the settings are right: every key, id, parameter and value."""
    from echotrap.config import find

    settings = _options.settings(file)
    place = file or find(Path.cwd())
    for notice in settings.notices:
        _console.talk(f"note: {notice}")
    _console.write(f"{place}: ok\n" if place else "no echotrap.toml here or above: the defaults hold\n")


@APP.command("show")
def show(file: FileArgument = None) -> None:
    """Print the settings as they hold now, environment included, as JSON."""
    _console.write(_options.settings(file).model_dump_json(indent=2) + "\n")


@APP.command("schema")
def schema() -> None:
    """Print the JSON Schema of echotrap.toml."""
    from echotrap.config import schema as of_file

    _console.write(json.dumps(of_file(), indent=2) + "\n")
