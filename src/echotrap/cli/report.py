"""``echotrap report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echotrap.cli import _console, _jobs, _options

if TYPE_CHECKING:
    from echotrap.render import Format


def report(
    run: _options.RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; - prints it.")] = Path("report.html"),
    format: Annotated[
        _options.OutputFormat | None,
        typer.Option("--format", "-f", help="[default: what the file's ending stands for, else html]", show_default=False),
    ] = None,
    only: _options.OnlyOption = None,
    skip: _options.SkipOption = None,
    param: _options.ParamOption = None,
    key: _options.KeyOption = None,
    config: _options.ConfigOption = None,
    sensitivity: _options.SensitivityOption = None,
    event: _options.EventOption = None,
    run_name: _options.RunNameOption = None,
    input_format: _options.InputFormatOption = None,
    detectors: _options.DetectorsOption = None,
    max_rollouts_per_step: _options.RolloutsOption = None,
) -> None:
    """Write what happened to a run as a page of its own, to read and pass on without anything else."""
    settings = _options.settings(
        config,
        only=only,
        skip=skip,
        param=param,
        key=key,
        event=event,
        detectors=detectors,
        sensitivity=sensitivity,
        max_rollouts_per_step=max_rollouts_per_step,
    )
    from echotrap.pipeline import check
    from echotrap.render import FORMATS, View, render

    by_ending = {ending: name for name, ending in FORMATS.items()}
    chosen: Format = format.value if format else by_ending.get(output.suffix.lower(), "html")
    with _console.working("checking"):
        found = check(run, settings, format=input_format, run=run_name, workers=settings.jobs or _jobs.cores())
    _console.save(output, render([found], chosen, View(settings.fail_on, verbose=True)))
