"""The figure of a report as inline SVG: signals stacked on one step axis. Widths are relative, so that text keeps its size."""

from __future__ import annotations

import math
from html import escape

from echotrap.detector import Level, Track, episodes
from echotrap.render import words
from echotrap.report import RANK, Incident, Report, Signal

__all__ = ["figure", "track_figure"]

WIDTH, HEIGHT = 1000, 100  # of the drawing inside a panel; it is stretched to the page
MOST_LANES = 20
TRACK_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#57606a}.line,.limit{fill:none;stroke:#0969da;stroke-width:2;"
    "vector-effect:non-scaling-stroke}.limit{stroke:#8c959f;stroke-width:1;stroke-dasharray:4 3}"
    "rect{opacity:.25}.info{fill:#54aeff}.warning{fill:#e69500}.critical{fill:#d1242f}"
)


def figure(report: Report) -> str:
    """Signals, incidents and the axis; empty where there is nothing to draw on."""
    axis = _Axis.of(report)
    if axis is None or not (report.signals or report.incidents):
        return ""
    signature = [part.signal for part in report.coverage.signature]
    ordered = sorted(report.signals, key=lambda item: signature.index(item.name) if item.name in signature else len(signature))
    panels = "".join(_panel(signal, report, axis) for signal in ordered)
    return f'<div class="figure">{panels}{_lanes(report, axis)}{_ruler(report, axis)}</div>'


def track_figure(track: Track, title: str) -> str:
    """What one detector saw, as a picture of its own: its score, the limit, the levels, onset and first alarm."""
    steps = [int(step) for step in track.steps]
    finite = [float(value) for value in track.score if math.isfinite(value)]
    limits = [float(value) for value in track.limit if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite + limits), max(finite + limits)
    logged = low > 0 and high / low > 100
    axis = _Axis(steps[0], steps[-1])
    shades = ""
    for level, first, last in _stretches(track):
        width = max(float(axis.x(last)) - float(axis.x(first)), 4.0)  # one step is to be seen too
        shades += f'<rect class="{Level(level).severity}" x="{axis.x(first)}" width="{width:.5g}" y="0" height="{HEIGHT}"/>'
    curves = ""
    for name, values in (("limit", track.limit), ("line", track.score)):
        signal = Signal(name=name, title=name, unit="", steps=tuple(steps), values=tuple(map(float, values)))
        curves += _path(signal, axis, low, high, logged, name)
    found = episodes(track)
    told = f"began {found[0].onset_step}, first alarm {min(found[0].alarm_steps.values())}" if found else "no alarm"
    label = escape(f"{title}: {told}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -30 720 230" role="img" aria-label="{label}">'
        f'<style>{TRACK_STYLE}</style><text x="0" y="-12">{label}</text>'
        f'<text x="0" y="190">step {steps[0]}</text><text x="700" y="190" text-anchor="end">step {steps[-1]}</text>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" x="0" y="0" width="700" height="170">'
        f"{shades}{curves}</svg></svg>\n"
    )


def _stretches(track: Track) -> list[tuple[int, int, int]]:
    """Level, first and last step of each stretch of one level above clear."""
    found: list[tuple[int, int, int]] = []
    last = 0
    for step, level in zip(track.steps.tolist(), track.level.tolist(), strict=True):
        if level > 0 and level == last:
            found[-1] = (level, found[-1][1], step)
        elif level > 0:
            found.append((level, step, step))
        last = level
    return found


class _Axis:
    """Steps to positions."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.span = first, max(last - first, 1)

    @classmethod
    def of(cls, report: Report) -> _Axis | None:
        run = report.run
        return None if run.first_step is None or run.last_step is None else cls(run.first_step, run.last_step)

    def share(self, step: int) -> float:
        return min(max((step - self.first) / self.span, 0.0), 1.0)

    def x(self, step: int) -> str:
        return f"{WIDTH * self.share(step):.6g}"


def _panel(signal: Signal, report: Report, axis: _Axis) -> str:
    finite = [value for value in signal.values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    logged = signal.log_axis and min(finite) > 0
    low, high = min(finite), max(finite)
    drawn = "".join((_band(signal, low, high, logged), _shade(report, axis), _path(signal, axis, low, high, logged)))
    first, last = words.short(finite[0], signal.unit), words.number(finite[-1], signal.unit)
    extremes = f"lowest {words.short(low, signal.unit)}, highest {words.short(high, signal.unit)}"
    alt = f"{signal.title} from {first} to {last}, {extremes}"
    scale = ", log axis" if logged else ""
    return (
        f'<div class="panel"><p><b>{escape(signal.title)}</b> {first} → {escape(last)} <small>{extremes}{scale}</small></p>'
        f'<svg role="img" aria-label="{escape(alt)}" width="100%" height="72">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" width="100%" height="100%">{drawn}</svg></svg></div>'
    )


def _y(value: float, low: float, high: float, logged: bool) -> float:
    if logged:
        value, low, high = math.log10(max(value, 1e-300)), math.log10(low), math.log10(high)
    share = (value - low) / (high - low) if high > low else 0.5
    return HEIGHT * (0.95 - 0.9 * min(max(share, 0.0), 1.0))


def _path(signal: Signal, axis: _Axis, low: float, high: float, logged: bool, name: str = "line") -> str:
    parts, pen_down = [], False
    for step, value in zip(signal.steps, signal.values, strict=True):
        if value is None or not math.isfinite(value):
            pen_down = False
            continue
        parts.append(f"{'L' if pen_down else 'M'}{axis.x(step)} {_y(value, low, high, logged):.4g}{'' if pen_down else 'h0'}")
        pen_down = True
    return f'<path class="{name}" d="{"".join(parts)}"/>'


def _band(signal: Signal, low: float, high: float, logged: bool) -> str:
    drawn = ""
    if signal.band is not None and not logged:
        top, bottom = _y(signal.band[1], low, high, logged), _y(signal.band[0], low, high, logged)
        drawn += f'<rect class="band" x="0" width="{WIDTH}" y="{top:.4g}" height="{max(bottom - top, 0.5):.4g}"/>'
    if signal.baseline is not None and (signal.baseline > 0 or not logged):
        y = f"{_y(signal.baseline, low, high, logged):.4g}"
        drawn += f'<path class="baseline" d="M0 {y}H{WIDTH}"/>'
    return drawn


def _shade(report: Report, axis: _Axis) -> str:
    """The incident as a shaded stretch, its first alarm and the events as lines."""
    verdict, drawn = report.verdict, ""
    if verdict.onset_step is not None:
        end = WIDTH if verdict.recovered_step is None else float(axis.x(verdict.recovered_step))
        start = float(axis.x(verdict.onset_step))
        drawn += f'<rect class="shade" x="{start:.6g}" width="{max(end - start, 2):.6g}" y="0" height="{HEIGHT}"/>'
    if verdict.alarm_step is not None:
        drawn += f'<path class="alarm" d="M{axis.x(verdict.alarm_step)} 0V{HEIGHT}"/>'
    for event in report.events:
        drawn += f'<path class="event" d="M{axis.x(event.step)} 0V{HEIGHT}"/>'
    return drawn


def _lanes(report: Report, axis: _Axis) -> str:
    """One lane a detector, its name above it, with a bar for each of its incidents."""
    lanes: dict[str, list[Incident]] = {}
    for item in sorted(report.incidents, key=lambda item: item.onset_step):
        lanes.setdefault(item.detector, []).append(item)
    drawn = [_lane(detector, items, axis) for detector, items in list(lanes.items())[:MOST_LANES]]
    left = len(lanes) - MOST_LANES
    return "".join(drawn) + (f"<p><small>and {left} more detectors</small></p>" if left > 0 else "")


def _lane(detector: str, items: list[Incident], axis: _Axis) -> str:
    worst = max(items, key=lambda item: RANK[item.severity]).severity
    times = f", {len(items)} times" if len(items) > 1 else ""
    over = f"to {items[-1].cleared_step}" if items[-1].cleared_step is not None else "and lasting"
    label = f"{detector}, {worst}{times}: {items[0].onset_step} {over}"
    start = 100 * axis.share(items[0].onset_step)
    at, anchor = (f"{start:.4g}%", "start") if start < 15 else ("100%", "end")
    bars = ""
    for item in items:
        begin = 100 * axis.share(item.onset_step)
        end = 100 * axis.share(item.cleared_step) if item.cleared_step is not None else 100
        bars += f'<rect class="{item.severity}" x="{begin:.4g}%" width="{max(end - begin, 0.3):.4g}%" y="16" height="6"/>'
    return (
        f'<svg class="lane" role="img" aria-label="{escape(label)}" width="100%" height="26">'
        f'<text x="{at}" y="12" text-anchor="{anchor}">{escape(label)}</text>{bars}</svg>'
    )


def _ruler(report: Report, axis: _Axis) -> str:
    """Step numbers, and what happened at the marked ones."""
    verdict = report.verdict
    ends = ((axis.first, "0%", "start"), (axis.first + axis.span, "100%", "end"))
    ticks = "".join(f'<text x="{at}" y="14" text-anchor="{anchor}">step {step}</text>' for step, at, anchor in ends)
    told = []
    if verdict.onset_step is not None:
        told.append(f'<span class="key shade"></span> since onset, step {verdict.onset_step}')
    if verdict.alarm_step is not None:
        told.append(f'<span class="key alarm"></span> first alarm, step {verdict.alarm_step}')
    told += [
        f'<span class="key event"></span> {escape(words.plain(item.label))}, step {item.step}' for item in report.events[:12]
    ]
    if any(signal.band for signal in report.signals):
        told.append('<span class="key band"></span> normal at the start')
    return f'<svg class="ruler" aria-hidden="true" width="100%" height="18">{ticks}</svg><p class="legend">{" · ".join(told)}</p>'
