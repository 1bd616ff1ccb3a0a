"""Charts: first a description that anybody can draw, then its Plotly figure.

A :class:`Chart` is a stack of panels over one shared axis, with shaded spans, dotted events and a row of incidents at the foot.
:func:`of_report` and :func:`of_run` describe, :func:`plotly` draws. Colours work on light and dark paper; everything else (ink,
grid, font) is left to whoever shows the figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from echotrap.comparison import Axis, aligned
from echotrap.detector import Episode, Track
from echotrap.downsample import drawable
from echotrap.fields import FIELDS, SIGNATURE
from echotrap.record import Run, Series
from echotrap.report import Incident, Report, Signal

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from echotrap.text.templates import Clusters

__all__ = [
    "COLOURS",
    "PALETTE",
    "Chart",
    "Line",
    "Mark",
    "Panel",
    "Shade",
    "of_report",
    "of_run",
    "plotly",
    "shades",
    "signature_names",
    "trend",
]

Floats = NDArray[np.float64]

PALETTE = ("#4c8dff", "#e8743b", "#1fa8a0", "#a06be8", "#d94f8a", "#6b9e2f", "#c49a1a", "#7a8699")
COLOURS = {"ok": "#2f9e63", "info": "#6f8fb5", "insufficient": "#8a94a6", "warning": "#e39a1f", "critical": "#e5484d"}
MUTED = "#8a94a6"


@dataclass(frozen=True)
class Line:
    """One curve; NaN breaks it."""

    name: str
    x: Floats
    y: Floats
    colour: str = PALETTE[0]
    dash: Literal["solid", "dot", "dash"] = "solid"
    points: bool = False
    dots: bool = False
    stacked: bool = False


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
    legend: tuple[Line, ...] = field(default=())


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


def overlay_names(runs: Sequence[Run]) -> list[str]:
    """Signals worth comparing, the signature first, among those that the first run has."""
    signature = [name for part in SIGNATURE for name in part]
    return [*signature, *(str(name) for name in runs[0].metrics.columns if str(name) in FIELDS and name not in signature)]


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
            lines.append(Line(run.name, at, few.values, PALETTE[place % len(PALETTE)], points=len(x) < 60))
        positive = all(np.nanmedian(line.y) > 0 for line in lines if len(line.y))
        title, unit = (about.title, about.unit) if about else (name, "")
        panels.append(Panel(title, unit, tuple(lines), bool(about and about.log_axis and positive)))
    colours = {run.name: PALETTE[place % len(PALETTE)] for place, run in enumerate(runs)}
    where = tuple(Mark(x, f"{name} parts", colour=colours.get(name)) for name, x in marks)
    titles = {"step": "step", "tokens": "tokens seen", "wall time": "seconds since the start"}
    return Chart(tuple(panels), marks=where, x_title=titles[axis], legend=panels[0].lines if panels else ())


def of_track(run: Run, detector: str, track: Track, found: Iterable[Episode], *, selected: int | None = None) -> Chart:
    """What one detector judged against its limit, with the stretches in which it would have spoken."""
    last = int(track.steps[-1]) if len(track.steps) else 0
    score = drawable(Series(track.steps, track.score))
    limit = drawable(Series(track.steps, track.limit))
    lines = (_line("judged", score), Line("limit", limit.steps.astype(np.float64), limit.values, COLOURS["critical"], "dash"))
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
        Line(f"{place + 1}: {', '.join(terms[:3])}", x, told.shares[:, place], PALETTE[place % len(PALETTE)], stacked=True)
        for place, terms in enumerate(told.terms)
    )
    return Chart((Panel("", "", lines),), panel_height=200, legend=lines[::-1])


def _leading(report: Report) -> list[Signal]:
    """At most seven signals: of each part of the signature its best ones, then whatever else the report draws."""
    known = {signal.name: signal for signal in report.signals}
    parts = [[known.pop(name) for name in part if name in known] for part in SIGNATURE]
    best = [signal for part, most in zip(parts, (2, 1, 1, 2, 1), strict=True) for signal in part[:most]]
    spare = [signal for part, most in zip(parts, (2, 1, 1, 2, 1), strict=True) for signal in part[most:]]
    return [*best, *[*spare, *known.values()][: max(5 - len(best), 0)]]


def trend(run: Run, report: Report, names: Iterable[str], *, selected: int, marks: Iterable[int]) -> Chart:
    """A few low panels with a tick wherever rollouts were kept."""
    whole = of_run(run, report, names, selected=selected)
    kept = np.array(sorted(marks), np.float64)
    panels = tuple(
        replace(panel, lines=(*panel.lines, Line("rollouts", kept, run.at(name, kept.astype(np.int64)), MUTED, dots=True)))
        for name, panel in zip(names, whole.panels, strict=True)
    )
    return replace(whole, panels=panels, incidents=(), panel_height=64)


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
    return Line(name, series.steps.astype(np.float64), series.values, points=len(series.steps) < 60)


# ---------------------------------------------------------------------------------------------------------------- drawing

TOP, FOOT, GAP, ROW = 34, 44, 26, 17


def plotly(chart: Chart) -> go.Figure:
    """Draw a chart: one x axis for all panels, so that zooming one zooms all."""
    import plotly.graph_objects as go

    rows = _incident_rows(chart.incidents)
    foot = ROW * len(rows) + 8 if rows else 0
    inner = sum((chart.panel_height + GAP) for _ in chart.panels) - GAP + ((foot + GAP + 6) if rows else 0)
    inner = max(inner, 60)
    traces: list[go.Scatter | go.Bar] = []
    layout: dict[str, object] = {
        "height": TOP + inner + FOOT,
        "margin": {"l": 54, "r": 16, "t": TOP, "b": FOOT},
        "showlegend": bool(chart.legend),
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "hoverdistance": -1,
        "dragmode": "zoom",
        "barmode": "overlay",
        "xaxis": {
            "title": {"text": chart.x_title, "standoff": 8},
            "anchor": "free",
            "position": 0,
            "showspikes": True,
            "spikemode": "across",
            "spikethickness": 1,
            "spikedash": "solid",
            "zeroline": False,
            "tickformat": ",~r" if chart.x_title == "step" else "",
            "autorangeoptions": _clipped(_x_range(chart)),  # a fixed range would undo a person's zoom when the data change
        },
    }
    annotations: list[dict[str, object]] = []
    shapes = [*_vertical(chart)]
    top = float(inner)
    for number, panel in enumerate(chart.panels, start=1):
        axis = "y" if number == 1 else f"y{number}"
        domain = [max((top - chart.panel_height) / inner, 0.0), top / inner]
        layout[f"yaxis{'' if number == 1 else number}"] = _y_axis(panel, domain)
        annotations.append(_title(panel, domain[1], legend=bool(chart.legend)))
        shapes += _baseline(panel, axis)
        traces += [_trace(line, axis, panel) for line in panel.lines]
        top -= chart.panel_height + GAP
    if rows:
        number = len(chart.panels) + 1
        layout[f"yaxis{number}"] = {
            "domain": [0.0, foot / inner],
            "range": [len(rows) - 0.4, -0.6],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "showticklabels": False,
        }
        annotations.append(_title(Panel("incidents"), foot / inner))
        annotations += [
            {"text": escape(name), "x": 0, "xref": "paper", "xanchor": "left", "y": at, "yref": f"y{number}", "showarrow": False,
             "font": {"size": 10.5}, "xshift": 3, "name": "on-paper"}
            for at, name in enumerate(rows)
        ]  # fmt: skip
        traces += [_bar(item, rows.index(item.detector), f"y{number}", chart) for item in chart.incidents]
    annotations += _labels(chart.marks)
    traces += [
        go.Scatter(x=[None], y=[None], name=escape(item.name), mode="lines", line={"color": item.colour, "width": 3})
        for item in chart.legend
    ]
    figure = go.Figure(traces)
    figure.update_layout(**layout, shapes=shapes, annotations=annotations, template="none")
    return figure


def _x_range(chart: Chart) -> list[float] | None:
    ends = [line.x[[0, -1]] for panel in chart.panels for line in panel.lines if len(line.x)]
    if not ends:
        return None
    first, last = min(end[0] for end in ends), max(*(end[1] for end in ends), chart.last or -np.inf)
    room = 0.008 * (last - first) or 0.5
    return [float(first - room), float(last + room)]


def _y_axis(panel: Panel, domain: list[float]) -> dict[str, object]:
    axis: dict[str, object] = {
        "domain": domain,
        "anchor": "free",
        "position": 0,
        "nticks": 4,
        "zeroline": False,
        "tickfont": {"size": 10.5},
        "type": "log" if panel.log_axis else "linear",
        "fixedrange": False,
    }
    if panel.log_axis:
        axis |= {"tickformat": "~g", "minor": {"showgrid": False}}
    axis["autorangeoptions"] = _clipped(_y_range(panel))
    return axis


def _clipped(ends: list[float] | None) -> dict[str, float]:
    return {} if ends is None else {"clipmin": ends[0], "clipmax": ends[1]}


def _y_range(panel: Panel) -> list[float] | None:
    """What the curves need; a wide band must not flatten them."""
    values = np.concatenate([line.y[np.isfinite(line.y)] for line in panel.lines] or [np.empty(0)])
    if not len(values) or any(line.stacked for line in panel.lines):
        return None
    if panel.log_axis:
        values = np.log10(values[values > 0]) if (values > 0).any() else np.zeros(1)
    low, high = float(values.min()), float(values.max())
    room = 0.07 * (high - low) or 0.5 * abs(high) or 0.5
    ends = [low - room, high + room]
    return [10.0**end for end in ends] if panel.log_axis else ends


def _title(panel: Panel, top: float, *, legend: bool = False) -> dict[str, object]:
    unit = f'  <span style="color:{MUTED}">{escape(panel.unit)}</span>' if panel.unit not in ("", "-", "count") else ""
    names = ""
    named = [line for line in panel.lines if not line.dots]
    if len(named) > 1 and not legend:
        names = "   " + "  ".join(f'<span style="color:{line.colour}">{escape(line.name)}</span>' for line in named)
    log = f'  <span style="color:{MUTED}">log</span>' if panel.log_axis else ""
    return {
        "text": f"<b>{escape(panel.title)}</b>{unit}{log}{names}",
        "x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper", "yanchor": "bottom", "yshift": 1,
        "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def _trace(line: Line, axis: str, panel: Panel) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(
        x=_compact(line.x),
        y=line.y.astype(np.float32),
        yaxis=axis,
        name=escape(line.name),
        mode="markers" if line.dots else "lines+markers" if line.points else "lines",
        line={"color": line.colour, "width": 1.6, "dash": line.dash},
        marker={"size": 5},
        showlegend=False,
        hovertemplate="%{y:.4~g}",
        hoverinfo="skip" if line.dots else None,
        stackgroup=panel.title if line.stacked else None,
        connectgaps=False,
    )


def _bar(item: Incident, row: int, axis: str, chart: Chart) -> go.Bar:
    import plotly.graph_objects as go

    last = max(chart.last or 0, item.alarm_step)
    end = item.cleared_step if item.cleared_step is not None else last
    width = max(end - item.onset_step, (last or 1) * 0.004)
    until = f"cleared {item.cleared_step:,}" if item.cleared_step is not None else "still on"
    return go.Bar(
        base=[item.onset_step], x=[width], y=[row], orientation="h", yaxis=axis, width=0.72, showlegend=False,
        customdata=[item.alarm_step], name=item.detector,
        marker={"color": COLOURS[item.severity], "line": {"width": 0}}, opacity=0.45 if item.severity == "info" else 0.65,
        hovertemplate=f"{item.severity}: began {item.onset_step:,}, alarm {item.alarm_step:,}, {until}<extra></extra>",
    )  # fmt: skip


def _incident_rows(incidents: Sequence[Incident]) -> list[str]:
    return list(dict.fromkeys(item.detector for item in sorted(incidents, key=lambda item: item.onset_step)))


def _vertical(chart: Chart) -> list[dict[str, object]]:
    span = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
    rule = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    out: list[dict[str, object]] = [
        {**span, "x0": shade.first, "x1": shade.last, "fillcolor": COLOURS[shade.severity],
         "opacity": 0.16 if shade.severity == "critical" else 0.13}
        for shade in chart.shades
    ]  # fmt: skip
    out += [
        {
            **rule,
            "x0": mark.x,
            "x1": mark.x,
            "line": {"color": mark.ink, "width": 1.2, "dash": "dot"},
        }
        for mark in chart.marks
    ]
    if chart.selected is not None:
        out.append(
            {**rule, "x0": chart.selected, "x1": chart.selected, "name": "selected", "line": {"color": PALETTE[0], "width": 2}}
        )
    return out


def _baseline(panel: Panel, axis: str) -> list[dict[str, object]]:
    whole = {"xref": "paper", "x0": 0, "x1": 1, "yref": axis, "layer": "below"}
    out: list[dict[str, object]] = []
    if panel.band is not None and not (panel.log_axis and panel.band[0] <= 0):
        low, high = panel.band
        out.append({**whole, "type": "rect", "y0": low, "y1": high, "fillcolor": MUTED, "opacity": 0.2, "line": {"width": 0}})
    if panel.baseline is not None and not (panel.log_axis and panel.baseline <= 0):
        line = {"color": MUTED, "width": 1, "dash": "dot"}
        out.append({**whole, "type": "line", "y0": panel.baseline, "y1": panel.baseline, "line": line})
    return out


def _labels(marks: Sequence[Mark]) -> list[dict[str, object]]:
    return [
        {"text": escape(mark.label), "x": mark.x, "xref": "x", "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 16,
         "showarrow": False, "font": {"size": 11, "color": mark.ink},
         "xanchor": "right" if mark.label.startswith("began") else "left"}
        for mark in marks
    ]  # fmt: skip


def _compact(x: Floats) -> NDArray[np.int32] | Floats:
    """Steps as 32-bit integers where that loses nothing: half the bytes on the wire."""
    whole = x.astype(np.int32, copy=False) if len(x) and np.isfinite(x).all() and np.abs(x).max() < 2**31 else None
    return whole if whole is not None and np.array_equal(whole, x) else x
