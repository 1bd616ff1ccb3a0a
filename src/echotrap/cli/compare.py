"""``echotrap compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from echotrap.cli import _console, _options
from echotrap.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from echotrap.comparison import Axis, Parting
    from echotrap.record import Run
    from echotrap.report import Report


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="A B [C...]", help="Runs; the first is what the others are compared with.")
    ],
    by: Annotated[
        Literal["step", "tokens", "wall time"], typer.Option(help="What to lay the runs over one another by.")
    ] = "step",
    format: Annotated[Literal["text", "json"], typer.Option("--format", "-f", help="What to print.")] = "text",
    config: _options.ConfigOption = None,
) -> None:
    """Show where runs part: the first step at which one leaves the other's noise band, signal by signal; and their settings."""
    if len(runs) < 2:
        raise ConfigError("comparing takes two runs or more", cure="echotrap compare A B")
    from echotrap import comparison, pipeline

    settings = _options.settings(config)
    with _console.working("reading"):
        opened = [pipeline.load(location, settings) for location in runs]
        reports = [pipeline.judge(run, settings) for run in opened]
    clock = comparison.AXES[by]
    without = [run.name for run in opened if clock is not None and not run.has(clock)]
    if without:
        raise ConfigError(f"{', '.join(without)} logs no {by}", where="--by", cure="--by step")
    names = comparison.common(opened)
    found = [comparison.partings(opened[0], other, names, by) for other in opened[1:]]
    settings_apart = comparison.differences(opened)
    if format == "json":
        _console.write(_json(opened, reports, found, settings_apart, by))
        return
    _console.show(_verdicts(reports))
    for other, partings in zip(opened[1:], found, strict=True):
        _console.show("", _partings(opened[0], other, partings, by))
    if settings_apart:
        _console.show("", _settings(opened, settings_apart))


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _verdicts(reports: list[Report]) -> Table:
    table = _table("run", "verdict", "severity", "began", "first alarm", "steps")
    for report in reports:
        verdict = report.verdict
        began, alarm = ("-" if step is None else str(step) for step in (verdict.onset_step, verdict.alarm_step))
        table.add_row(report.run.name, verdict.label, verdict.severity, began, alarm, str(report.run.steps))
    return table


def _partings(first: Run, other: Run, partings: list[Parting], by: Axis) -> Table | str:
    from rich.text import Text

    from echotrap.fields import FIELDS

    if not partings:
        return f"{other.name} stays inside the noise of {first.name} in every signal that both log"
    table = _table(f"{other.name} leaves {first.name}", by, first.name, other.name, "noise widths")
    for item in partings:
        title = FIELDS[item.signal].title if item.signal in FIELDS else item.signal
        table.add_row(Text(title), f"{item.x:g}", f"{item.a:.4g}", f"{item.b:.4g}", f"{item.sigmas:.1f}")
    return table


def _settings(runs: list[Run], apart: dict[str, tuple[object, ...]]) -> Table:
    from rich.text import Text

    table = _table("setting", *(run.name for run in runs))
    for key, values in apart.items():
        table.add_row(Text(key), *(Text("not logged" if value is None else str(value)) for value in values))
    return table


def _json(
    runs: list[Run], reports: list[Report], found: list[list[Parting]], apart: dict[str, tuple[object, ...]], by: Axis
) -> str:
    import orjson

    data = {
        "by": by,
        "runs": [{"name": r.run.name, "source": r.run.source, "verdict": r.verdict.model_dump()} for r in reports],
        "partings": {other.name: [item._asdict() for item in items] for other, items in zip(runs[1:], found, strict=True)},
        "settings": {key: list(values) for key, values in apart.items()},
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2, default=str).decode() + "\n"
