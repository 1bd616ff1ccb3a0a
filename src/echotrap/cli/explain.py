"""``echotrap explain``."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from echotrap.cli import _console, _options

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from echotrap.detector import Detector


class Format(StrEnum):
    """What a story can be written as."""

    text = "text"
    markdown = "markdown"


def _known(incomplete: str) -> list[str]:
    from echotrap.registry import catalogue
    from echotrap.render.words import VERDICTS

    return [name for name in dict.fromkeys((*catalogue(), *VERDICTS)) if name.startswith(incomplete)]


def explain(
    detector: Annotated[str, typer.Argument(metavar="ID", help="Which detector or verdict.", autocompletion=_known)],
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print.")] = Format.text,
    folders: _options.DetectorsOption = None,
) -> None:
    """Tell the story of a detector, with its parameters, or what a verdict means."""
    from rich.text import Text

    from echotrap.registry import catalogue, story
    from echotrap.render.words import VERDICTS

    if detector not in catalogue(folders or ()) and detector in VERDICTS:
        _console.show(*_verdict(detector))
        return
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


def _verdict(label: str) -> list[RenderableType]:
    """What a verdict means, and the detectors that it rests on."""
    from rich.table import Table
    from rich.text import Text

    from echotrap.registry import catalogue
    from echotrap.render.words import VERDICTS
    from echotrap.verdicts import RULES

    meaning = {str(name): text for name, text in VERDICTS.items()}[label]
    parts: list[RenderableType] = [Text(f"{label} (a verdict)\n"), Text(meaning)]
    known = catalogue()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for rule in RULES:
        for name in rule.rests_on if rule.label == label else ():
            table.add_row(Text(name, style="bold"), known[name].card.title)
    return [*parts, Text("\nIt rests on"), table] if table.row_count else parts


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
