"""``echotrap check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from echotrap.cli import _console, _jobs, _options
from echotrap.errors import ConfigError

if TYPE_CHECKING:
    from echotrap.config import Settings
    from echotrap.policy import Ruling
    from echotrap.render import Format
    from echotrap.report import Report, RunError, RunFacts

FREELY_MIXED = {"text", "github"}  # GitHub reads annotations out of any output


def check(
    runs: _options.RunsArgument,
    fail_on: Annotated[
        _options.FailOn | None,
        typer.Option(help="Lowest severity that gives exit code 1. [default: critical]", show_default=False),
    ] = None,
    format: Annotated[
        list[_options.OutputFormat] | None,
        typer.Option("--format", "-f", help="What to print. [default: text]", show_default=False),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="[FORMAT=]FILE",
            help="Write a file too, in the format that is named, that its ending stands for, or that --format gives.",
        ),
    ] = None,
    only: _options.OnlyOption = None,
    skip: _options.SkipOption = None,
    require: Annotated[
        list[str] | None, typer.Option("--require", metavar="ID,..", help="Exit 2 if one of these could not look.")
    ] = None,
    param: _options.ParamOption = None,
    key: _options.KeyOption = None,
    config: _options.ConfigOption = None,
    sensitivity: _options.SensitivityOption = None,
    event: _options.EventOption = None,
    since: Annotated[
        int | None, typer.Option(metavar="STEP", help="Findings that were over before this step do not fail.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="RUN", help="Fail only on what is worse than in this run.")] = None,
    allow_insufficient: Annotated[
        bool | None, typer.Option("--allow-insufficient", help="Exit 0 rather than 3 where nothing could be judged.")
    ] = None,
    run: _options.RunNameOption = None,
    input_format: _options.InputFormatOption = None,
    detectors: _options.DetectorsOption = None,
    max_rollouts_per_step: _options.RolloutsOption = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", min=0, help="Runs checked at the same time.")] = None,
    verbose: _options.Verbose = False,
) -> None:
    """Judge runs and say so by exit code.

    0: looked, nothing at or above --fail-on. 1: a finding at or above it. 2: could not do the job. 3: nothing could be judged.
    """
    plan = _planned(format or [], output or [])
    settings = _options.settings(
        config,
        only=only,
        skip=skip,
        require=require,
        param=param,
        key=key,
        event=event,
        detectors=detectors,
        fail_on=fail_on,
        sensitivity=sensitivity,
        since=since,
        allow_insufficient=allow_insufficient,
        max_rollouts_per_step=max_rollouts_per_step,
        jobs=jobs,
    )
    from echotrap import policy
    from echotrap.render import View, render
    from echotrap.report import Report, RunError

    for notice in settings.notices:
        _console.talk(f"note: {notice}")
    locations = _jobs.expand(runs)
    reference = _reference(baseline, settings, input_format) if baseline else None
    with _console.working("checking", shown=len(locations) == 1):
        results = _jobs.check_all(locations, settings, input_format, run, _jobs.progress(len(locations)))
    rulings = [policy.rule(result, settings, reference) for result in results]
    view = _console.view(fail_on=settings.fail_on, verbose=verbose)
    for target in plan.files:
        _console.save(target.file, render(results, target.format, View(settings.fail_on)))
    readable = any(not isinstance(result, RunError) for result in results)
    for name in plan.printed:
        if name != "text" or readable:  # what could not be read is talk, not a result
            _console.write(render(results, name, view))
    for result, ruling in zip(results, rulings, strict=True):
        if run is None and isinstance(result, Report) and result.run.other_runs:
            _console.talk(f"note: {_unread(result.run)}")
        _explain(result, ruling)
    raise typer.Exit(policy.overall(ruling.code for ruling in rulings))


class Target(NamedTuple):
    """A file to write."""

    format: Format
    file: Path


class Plan(NamedTuple):
    """What goes to standard output and what into files."""

    printed: tuple[Format, ...]
    files: tuple[Target, ...]


def _planned(wanted: list[_options.OutputFormat], outputs: list[str]) -> Plan:
    """Match formats and files; a format that was asked for and went into a file is not printed as well."""
    formats: list[Format] = [name.value for name in wanted]
    files = tuple(_target(text, formats) for text in outputs)
    for target in files:
        _console.require_folder(target.file)  # before the work, not after it
    written = {target.format for target in files}
    printed = tuple(dict.fromkeys(name for name in formats if name not in written)) if formats else ("text",)
    if len(printed) > 1 and set(printed) - FREELY_MIXED:
        raise ConfigError(f"{' and '.join(printed)} cannot share standard output", where="--format", cure="add -o FORMAT=FILE")
    return Plan(printed, files)


def _target(text: str, formats: list[Format]) -> Target:
    from echotrap.render import FORMATS

    name, equals, path = text.partition("=")
    if equals and name in FORMATS:
        return Target(name, Path(path))
    endings = {ending: known for known, ending in FORMATS.items()}
    by_ending = endings.get(Path(text).suffix.lower())
    if by_ending is None or (by_ending in FREELY_MIXED and len(formats) == 1):  # .txt and .log say little
        if len(formats) != 1:
            raise ConfigError(f"which format is {text!r} to have", where="--output", cure=f"write FORMAT={text}")
        return Target(formats[0], Path(text))
    return Target(by_ending, Path(text))


def _reference(location: str, settings: Settings, input_format: str | None) -> Report:
    from echotrap.pipeline import check as check_run

    return check_run(location, settings, format=input_format, workers=settings.jobs or _jobs.cores())


def _unread(run: RunFacts) -> str:
    """What else lies there: a gate that looked at one of several runs must say so."""
    count = len(run.other_runs)
    named = ", ".join(run.other_runs[:2]) + (", ..." if count > 2 else "")
    many = f"{count} other log{'s' if count > 1 else ''}"
    return f"{run.source} also holds {many} that {'were' if count > 1 else 'was'} not judged: {named} (--run NAME takes one)"


def _explain(result: Report | RunError, ruling: Ruling) -> None:
    """Say on standard error why the exit code is what it is."""
    from echotrap.render.words import error_line
    from echotrap.report import RunError

    if isinstance(result, RunError):
        _console.talk(f"error: {error_line(result)}")
    elif ruling.reasons:
        first, *others = ruling.reasons
        more = f" and {len(others)} more" if others else ""
        _console.talk(f"exit {ruling.code:d}: {result.run.name}: {first}{more}")
