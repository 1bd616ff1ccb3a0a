"""``echotrap fields``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echotrap.cli import _console, _options

if TYPE_CHECKING:
    from rich.table import Table

    from echotrap.record import Run


def fields(
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Show how this log's keys were understood.")] = None,
    config: _options.ConfigOption = None,
    key: _options.KeyOption = None,
    run_name: _options.RunNameOption = None,
    input_format: _options.InputFormatOption = None,
) -> None:
    """List the signals that are known, or what the keys of a log were read as."""
    if run is None:
        _console.show(_known())
        return
    from rich.text import Text

    from echotrap.pipeline import load

    settings = _options.settings(config, key=key)
    with _console.working("reading"):
        opened = load(run, settings, format=input_format, run=run_name)
    framework = " ".join(filter(None, (opened.framework, opened.framework_version))) or "framework unknown"
    head = f"{opened.name}: {opened.format}, {framework}, {len(opened.steps)} steps"
    _console.show(Text(head, style="bold"), _understood(opened))


def _known() -> Table:
    from rich.table import Table

    from echotrap.assemble.derived import RULES
    from echotrap.assemble.naming import logged_as
    from echotrap.fields import FIELDS

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("signal", no_wrap=True, style="bold")
    table.add_column("unit", no_wrap=True)
    table.add_column("meaning, and the keys that hold it", overflow="fold")
    for field in FIELDS.values():
        table.add_row(field.name, field.unit, field.meaning)
        for framework, found in logged_as(field.name).items():
            table.add_row("", "", f"{framework or 'own loops'}: {', '.join(map(str, found))}", style="not bold dim")
        for rule in RULES:
            if rule.name == field.name:
                table.add_row("", "", f"derived: {rule.how}", style="not bold dim")
    return table


def _understood(run: Run) -> Table:
    from rich.table import Table

    from echotrap.fields import FIELDS
    from echotrap.render.words import number, plain

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("signal", no_wrap=True)
    table.add_column("read from", overflow="fold")
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("first", justify="right", no_wrap=True)
    table.add_column("last", justify="right", no_wrap=True)
    names = sorted(map(str, run.metrics.columns), key=lambda name: (name not in FIELDS, name))
    for name in names:
        values = run.series(name).values
        known = name in FIELDS
        origin = plain(run.keys.get(name, "")) or run.provenance.get(name, "") if known else "unknown key, kept"
        if run.provenance.get(name) == "assumed":
            origin += " (assumed)"
        ends = (number(float(values[0])), number(float(values[-1]))) if len(values) else ("", "")
        table.add_row(plain(name), origin, str(len(values)), *ends, style=None if known else "dim")
    return table
