"""``echotrap explain``."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from echotrap.cli import _console, _options

if TYPE_CHECKING:
    from rich.table import Table

    from echotrap.detector import Detector


class Format(StrEnum):
    """What a story can be written as."""

    text = "text"
    markdown = "markdown"


def _known(incomplete: str) -> list[str]:
    from echotrap.registry import catalogue

    return [name for name in catalogue() if name.startswith(incomplete)]


def explain(
    detector: Annotated[str, typer.Argument(metavar="ID", help="Which detector.", autocompletion=_known)],
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print.")] = Format.text,
    folders: _options.DetectorsOption = None,
) -> None:
    """Tell the story of one detector, and its parameters."""
    from rich.text import Text

    from echotrap.registry import catalogue, story

    text = story(detector, folders or ())
    found = catalogue(folders or ())[detector]
    if format is Format.markdown:
        from echotrap.render.story import page

        _console.write(page(found, text))
        return
    _console.write(f"{detector} ({found.card.family}, at most {found.card.highest.severity})\n\n{text}\n")
    parameters = _parameters(found)
    if parameters.row_count:
        _console.show(Text("\nParameters\n----------"), parameters)


def _parameters(detector: Detector) -> Table:
    """Defaults, bounds and sources of the knobs."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("name", "default", "low .. high", "bounds"):
        table.add_column(name, no_wrap=True)
    table.add_column("source", overflow="fold", style="dim")
    for field in fields(detector.params):
        facts = field.metadata
        if "source" in facts:
            dial, bounds = f"{facts['low']:g} .. {facts['high']:g}", f"{facts['least']:g} to {facts['most']:g}"
            table.add_row(field.name, f"{getattr(detector.params, field.name):g}", dial, bounds, str(facts["source"]))
        else:
            table.add_row(field.name, str(getattr(detector.params, field.name)), "", "", "")
    return table
