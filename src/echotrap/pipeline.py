"""A location in, a report out: the one sequence that the command line and the dashboard share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from echotrap.config import Settings, Suppression
from echotrap.errors import SourceError
from echotrap.record import Event, Run
from echotrap.report import NoteLine, Report

__all__ = ["check", "checkpoints", "declare", "judge", "load", "mark", "read"]

CHECKPOINT = re.compile(r"(?:checkpoint|global_step|step|iter)[-_]0*(\d+)")
MOST_ENTRIES = 10_000
FEW_STEPS = 30
"""Rollouts of fewer steps are measured before another process would have started."""


def check(
    location: str,
    settings: Settings | None = None,
    *,
    format: str | None = None,
    run: str | None = None,
    workers: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Open a run, derive its rollout signals and judge it.

    Parameters
    ----------
    location : str
        A path, ``-`` or a URL.
    settings : Settings, optional
        The defaults if not given.
    format, run : str, optional
        Input format and name of the run, where the location leaves a choice.
    workers : int
        Processes that look at rollouts.
    progress : callable, optional
        Called with the steps whose rollouts were looked at, and steps in all.
    """
    settings = settings or Settings()
    return judge(load(location, settings, format=format, run=run, workers=workers, progress=progress), settings)


def load(
    location: str,
    settings: Settings,
    *,
    format: str | None = None,
    run: str | None = None,
    workers: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
) -> Run:
    """Open a run, add what the user knows about it, and derive signals from its rollouts."""
    opened = read(location, settings, format=format, run=run)
    if opened.rollouts is None:
        return opened
    from echotrap import signals

    if len(opened.rollouts.steps()) < FEW_STEPS:
        workers = 1
    return signals.derive(opened, max_rollouts_per_step=settings.max_rollouts_per_step, workers=workers, progress=progress)


def read(location: str, settings: Settings, *, format: str | None = None, run: str | None = None) -> Run:
    """Open a run with the facts and events that the user has declared; its rollouts are not looked at."""
    from echotrap.sources import open_run

    facts = settings.run.model_dump(exclude={"framework"}, exclude_none=True)
    try:
        opened = open_run(location, format=format, run=run, framework=settings.run.framework, config=facts, keys=settings.keys)
    except SourceError as error:
        if location == "-":
            error.where = "standard input"  # rather than the file that it was copied to
        raise
    saved = checkpoints(opened)
    return declare(replace(opened, config=replace(opened.config, checkpoints=saved)) if saved else opened, settings)


def checkpoints(run: Run) -> tuple[int, ...]:
    """Steps whose checkpoint folders lie beside the log, as TRL, verl and others name them."""
    log = Path(run.files[0]) if run.files else Path(run.source)
    places = [Path(run.source), *list(log.absolute().parents)[:2]]
    found = {
        int(name[1])
        for place in places
        if place.is_dir()
        for entry in itertools.islice(place.iterdir(), MOST_ENTRIES)
        if (name := CHECKPOINT.fullmatch(entry.name)) and entry.is_dir()
    }
    return tuple(sorted(found))


def declare(run: Run, settings: Settings) -> Run:
    """Add declared events to a run."""
    declared = (Event(item.step, "declared", item.label) for item in settings.events)
    return replace(run, events=tuple(sorted((*run.events, *declared)))) if settings.events else run


def judge(run: Run, settings: Settings) -> Report:
    """Diagnose a run, then mark what the user has accepted for now."""
    from echotrap.diagnosis import diagnose

    return mark(diagnose(run, settings), settings)


def mark(report: Report, settings: Settings) -> Report:
    """Mark in a report what the user has accepted for now."""
    names = (report.run.name, report.run.source)
    active = [item for item in settings.suppress if item.holds(*names)]
    findings = tuple(
        finding.model_copy(update={"waived": _reason(finding.detector, active)}) if active else finding
        for finding in report.findings
    )
    notices = tuple(NoteLine(kind="settings", message=text, count=1) for text in settings.notices)
    return report.model_copy(update={"findings": findings, "notes": (*report.notes, *notices)})


def _reason(detector: str, active: list[Suppression]) -> str | None:
    for item in active:
        if fnmatch(detector, item.detector):
            return item.reason if item.until is None else f"{item.reason} (until {item.until})"
    return None
