"""What a chart shows, said in a way that anybody can draw.

A :class:`Chart` is a stack of panels over one shared axis, with shaded stretches, dotted events and a row of incidents at the
foot. Colours work on light and dark paper; ink, grid and font are left to whoever draws (:mod:`echotrap.render.figures`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from echotrap.comparison import Axis, aligned
from echotrap.detector import Episode, Track
from echotrap.fields import FIELDS, SIGNATURE
from echotrap.record import Run, Series
from echotrap.render.downsample import drawable
from echotrap.report import Incident, Report, Signal

if TYPE_CHECKING:
    from echotrap.text.templates import Clusters

__all__ = [
    "COLOURS", "MUTED", "PALETTE", "Chart", "Line", "Mark", "Panel", "Shade", "of_report", "of_run", "of_track", "overlay",
    "overlay_names", "shades", "signature_names", "stories", "trend",
]  # fmt: skip

Floats = NDArray[np.float64]

PALETTE = ("#4c8dff", "#e8743b", "#1fa8a0", "#a06be8", "#d94f8a", "#6b9e2f", "#c49a1a", "#7a8699")
COLOURS = {"ok": "#2f9e63", "info": "#6f8fb5", "insufficient": "#8a94a6", "warning": "#e39a1f", "critical": "#e5484d"}
MUTED = "#8a94a6"
FEW_POINTS = 60
MOST_PER_PART = (2, 1, 1, 2, 1)
"""Panels per part of the signature: dispersion, entropy, gradient, text, outcome."""


@dataclass(frozen=True)
class Line:
    """One curve; NaN breaks it. Few points are drawn as such, a mark is one without a curve, areas are stacked."""

    name: str
    x: Floats
    y: Floats
    colour: str = PALETTE[0]
    style: Literal["line", "dashes", "points", "marks", "area"] = "line"


@dataclass(frozen=True)
class Panel:
    """One row: curves that share a unit.

    Attributes
    ----------
    band : (low, high) or None
        What was normal at the start; drawn grey.
    baseline : float or None
        Its centre.
    """

    title: str
    unit: str = ""
    lines: tuple[Line, ...] = ()
    log_axis: bool = False
    band: tuple[float, float] | None = None
    baseline: float | None = None


@dataclass(frozen=True)
class Shade:
    """A stretch of steps in the colour of a severity."""

    first: float
    last: float
    severity: str


@dataclass(frozen=True)
class Mark:
    """A dotted line with a few words on top."""

    x: float
    label: str
    severity: str | None = None
    colour: str | None = None

    @property
    def ink(self) -> str:
        """Its own colour, that of its severity, or grey."""
        return self.colour or COLOURS.get(self.severity or "", MUTED)


@dataclass(frozen=True)
class Chart:
    """A stack of panels over one axis."""

    panels: tuple[Panel, ...]
    shades: tuple[Shade, ...] = ()
    marks: tuple[Mark, ...] = ()
    incidents: tuple[Incident, ...] = ()
    selected: float | None = None
    x_title: str = "step"
    last: float | None = None
    panel_height: int = 92
    legend: tuple[Line, ...] = ()


def of_report(report: Report, *, selected: int | None = None) -> Chart:
    """The signature of a run: the signals of its report, its incidents and events."""
    panels = []
    for signal in _leading(report):
        values = np.array([np.nan if v is None else v for v in signal.values], np.float64)
        line = Line(signal.title, np.array(signal.steps, np.float64), values)
        panels.append(Panel(signal.title, signal.unit, (line,), signal.log_axis, signal.band, signal.baseline))
    return Chart(tuple(panels), shades(report), _marks(report), report.incidents, selected, last=report.run.last_step)


def of_run(run: Run, report: Report, names: Iterable[str], *, selected: int | None = None, points: int = 1500) -> Chart:
    """Any signals of a run, at full resolution as far as a screen can show it."""
    known = {signal.name: signal for signal in report.signals}
    keep = [step for item in report.incidents for step in (item.onset_step, item.alarm_step)]
    keep += [] if selected is None else [selected]
    panels = []
    for name in names:
        series = run.series(name)
        about, drawn = FIELDS.get(name), known.get(name)
        log_axis = bool(about and about.log_axis and len(series.values) and np.median(series.values) > 0)
        panels.append(
            Panel(
                about.title if about else name,
                about.unit if about else "",
                (_line(about.title if about else name, drawable(series, points, keep)),),
                log_axis,
                drawn.band if drawn else None,
                drawn.baseline if drawn else None,
            )
        )
    return Chart(tuple(panels), shades(report), _marks(report), report.incidents, selected, last=report.run.last_step)


def trend(run: Run, report: Report, names: Iterable[str], *, selected: int, marks: Iterable[int]) -> Chart:
    """A few low panels with a tick wherever rollouts were kept."""
    whole = of_run(run, report, names, selected=selected)
    kept = np.array(sorted(marks), np.float64)
    panels = tuple(
        replace(panel, lines=(*panel.lines, Line("rollouts", kept, run.at(name, kept.astype(np.int64)), MUTED, "marks")))
        for name, panel in zip(names, whole.panels, strict=True)
    )
    return replace(whole, panels=panels, incidents=(), panel_height=64)


def overlay(runs: Sequence[Run], names: Iterable[str], axis: Axis, *, marks: Iterable[tuple[str, float]] = ()) -> Chart:
    """The same signals of several runs over one another; ``marks`` name the places where runs part from the first."""
    panels = []
    for name in names:
        about = FIELDS.get(name)
        lines = []
        for place, run in enumerate(runs):
            x, series = aligned(run, name, axis)
            few = drawable(Series(np.arange(len(x)), series.values), max(300, 4000 // len(runs)))
            at = x[np.minimum(few.steps, len(x) - 1)] if len(x) else x
            lines.append(Line(run.name, at, few.values, PALETTE[place % len(PALETTE)], _style(len(x))))
        positive = all(np.nanmedian(line.y) > 0 for line in lines if len(line.y))
        title, unit = (about.title, about.unit) if about else (name, "")
        panels.append(Panel(title, unit, tuple(lines), bool(about and about.log_axis and positive)))
    colours = {run.name: PALETTE[place % len(PALETTE)] for place, run in enumerate(runs)}
    where = tuple(Mark(x, f"{name} parts", colour=colours.get(name)) for name, x in marks)
    titles = {"step": "step", "tokens": "tokens seen", "wall time": "seconds since the start"}
    return Chart(tuple(panels), marks=where, x_title=titles[axis], legend=panels[0].lines if panels else ())


def overlay_names(runs: Sequence[Run]) -> list[str]:
    """Signals worth comparing, the signature first, among those that the first run has."""
    signature = [name for part in SIGNATURE for name in part]
    return [*signature, *(str(name) for name in runs[0].metrics.columns if str(name) in FIELDS and name not in signature)]


def of_track(run: Run, detector: str, track: Track, found: Iterable[Episode], *, selected: int | None = None) -> Chart:
    """What one detector judged against its limit, with the stretches in which it would have spoken."""
    last = int(track.steps[-1]) if len(track.steps) else 0
    score = drawable(Series(track.steps, track.score))
    limit = drawable(Series(track.steps, track.limit))
    lines = (_line("judged", score), Line("limit", limit.steps.astype(np.float64), limit.values, COLOURS["critical"], "dashes"))
    spans = []
    for item in found:
        end = item.cleared_step if item.cleared_step is not None else last
        alarms = sorted(item.alarm_steps.items())
        stops = [*(step for _, step in alarms[1:]), end]
        spans += [Shade(step, stop, level.severity) for (level, step), stop in zip(alarms, stops, strict=True) if stop > step]
    panels = [Panel(detector, "", lines)]
    signal = track.evidence.get("signal")
    if isinstance(signal, str) and run.has(signal) and signal in FIELDS:
        field = FIELDS[signal]
        panels.append(Panel(field.title, field.unit, (_line(field.title, drawable(run.series(signal))),), field.log_axis))
    return Chart(tuple(panels), tuple(spans), selected=selected, last=last, panel_height=120)


def stories(told: Clusters) -> Chart:
    """Shares of the stories that a policy tells, stacked over the run."""
    x = told.steps.astype(np.float64)
    lines = tuple(
        Line(f"{place + 1}: {', '.join(terms[:3])}", x, told.shares[:, place], PALETTE[place % len(PALETTE)], "area")
        for place, terms in enumerate(told.terms)
    )
    return Chart((Panel("", "", lines),), panel_height=200, legend=lines[::-1])


def signature_names(run: Run) -> list[str]:
    """The signals of the Echo Trap's signature that a run has, the first of each part, then the outcome's alternatives."""
    return [next(name for name in part if run.has(name)) for part in SIGNATURE if any(run.has(name) for name in part)]


def shades(report: Report) -> tuple[Shade, ...]:
    """Stretches in which something was wrong: watches pale, alarms in the colour of their severity."""
    last = report.run.last_step or 0
    verdict = report.verdict
    out = []
    if verdict.onset_step is not None and verdict.severity in ("warning", "critical"):
        end = verdict.recovered_step or last
        alarm = verdict.alarm_step if verdict.alarm_step is not None else end
        out += [Shade(verdict.onset_step, alarm, "warning"), Shade(alarm, end, verdict.severity)]
    else:
        serious = [item for item in report.incidents if item.severity != "info"]
        out += [Shade(item.alarm_step, item.cleared_step or last, item.severity) for item in serious]
    return tuple(shade for shade in out if shade.last > shade.first)


def _leading(report: Report) -> list[Signal]:
    """At most seven signals: of each part of the signature its best ones, then whatever else the report draws.

    What a standing warning was judged by goes before what is usually best.
    """
    known = {signal.name: signal for signal in report.signals}
    told = _judged_by(report)
    parts = [[known.pop(name) for name in sorted(part, key=lambda name: name not in told) if name in known] for part in SIGNATURE]
    best = [signal for part, most in zip(parts, MOST_PER_PART, strict=True) for signal in part[:most]]
    spare = [signal for part, most in zip(parts, MOST_PER_PART, strict=True) for signal in part[most:]]
    return [*best, *[*spare, *known.values()][: max(5 - len(best), 0)]]


def _judged_by(report: Report) -> set[str]:
    """Signals that the detectors of the standing warnings need."""
    from echotrap.registry import catalogue

    known = catalogue()
    standing = (f.detector for f in report.findings if f.severity != "info" and f.cleared_step is None)
    return {name for detector in standing if detector in known for need in known[detector].card.needs for name in need}


def _marks(report: Report) -> tuple[Mark, ...]:
    marks = [Mark(event.step, event.label) for event in report.events]
    verdict = report.verdict
    if verdict.severity in ("warning", "critical"):
        if verdict.onset_step is not None and verdict.onset_step != verdict.alarm_step:
            marks.append(Mark(verdict.onset_step, f"began {verdict.onset_step:,}", "warning"))
        if verdict.alarm_step is not None:
            marks.append(Mark(verdict.alarm_step, f"alarm {verdict.alarm_step:,}", verdict.severity))
    return tuple(marks)


def _line(name: str, series: Series) -> Line:
    return Line(name, series.steps.astype(np.float64), series.values, style=_style(len(series.steps)))


def _style(points: int) -> Literal["line", "points"]:
    return "points" if points < FEW_POINTS else "line"
