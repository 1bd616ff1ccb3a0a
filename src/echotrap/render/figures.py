"""Plotly figures of charts: one x axis for all panels, so that zooming one zooms all.

Everything a log may have named is escaped, because Plotly reads its texts as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from echotrap.render.charts import COLOURS, MUTED, PALETTE, Chart, Floats, Line, Mark, Panel
from echotrap.report import Incident

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["plotly"]

Layout = dict[str, Any]

TOP, FOOT, GAP, ROW = 34, 44, 26, 17
"""Pixels above the panels, below them, between them, and per row of incidents."""
MODES = {"line": "lines", "dashes": "lines", "points": "lines+markers", "marks": "markers", "area": "lines"}


def plotly(chart: Chart) -> go.Figure:
    """Draw a chart."""
    import plotly.graph_objects as go

    rows = list(dict.fromkeys(item.detector for item in sorted(chart.incidents, key=lambda item: item.onset_step)))
    foot = ROW * len(rows) + 8 if rows else 0
    inner = max(len(chart.panels) * (chart.panel_height + GAP) - GAP + (foot + GAP + 6 if rows else 0), 60)
    layout = _layout(chart, TOP + inner + FOOT)
    traces: list[go.Scatter | go.Bar] = []
    annotations, shapes = _labels(chart.marks), _vertical(chart)
    top = float(inner)
    for number, panel in enumerate(chart.panels, start=1):
        axis = "y" if number == 1 else f"y{number}"
        layout[f"yaxis{axis[1:]}"] = _y_axis(panel, [max((top - chart.panel_height) / inner, 0.0), top / inner])
        annotations.append(_title(panel, top / inner, legend=bool(chart.legend)))
        shapes += _baseline(panel, axis)
        traces += [_trace(line, axis) for line in panel.lines]
        top -= chart.panel_height + GAP
    if rows:
        axis = f"y{len(chart.panels) + 1}" if chart.panels else "y"
        layout[f"yaxis{axis[1:]}"] = {
            "domain": [0.0, foot / inner], "range": [len(rows) - 0.4, -0.6],
            "fixedrange": True, "showgrid": False, "zeroline": False, "showticklabels": False,
        }  # fmt: skip
        annotations.append(_title(Panel("incidents"), foot / inner))
        annotations += [_name(name, place, axis) for place, name in enumerate(rows)]
        traces += [_bar(item, rows.index(item.detector), axis, chart) for item in chart.incidents]
    traces += [
        go.Scatter(x=[None], y=[None], name=escape(item.name), mode="lines", line={"color": item.colour, "width": 3})
        for item in chart.legend
    ]
    figure = go.Figure(traces)
    figure.update_layout(**layout, shapes=shapes, annotations=annotations, template="none")
    return figure


def _layout(chart: Chart, height: float) -> Layout:
    return {
        "height": height,
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


def _x_range(chart: Chart) -> list[float] | None:
    ends = [line.x[[0, -1]] for panel in chart.panels for line in panel.lines if len(line.x)]
    if not ends:
        return None
    first, last = min(end[0] for end in ends), max(*(end[1] for end in ends), chart.last or -np.inf)
    room = 0.008 * (last - first) or 0.5
    return [float(first - room), float(last + room)]


def _y_axis(panel: Panel, domain: list[float]) -> Layout:
    axis: Layout = {
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
    if not len(values) or any(line.style == "area" for line in panel.lines):
        return None
    if panel.log_axis:
        values = np.log10(values[values > 0]) if (values > 0).any() else np.zeros(1)
    low, high = float(values.min()), float(values.max())
    room = 0.07 * (high - low) or 0.5 * abs(high) or 0.5
    ends = [low - room, high + room]
    return [10.0**end for end in ends] if panel.log_axis else ends


def _title(panel: Panel, top: float, *, legend: bool = False) -> Layout:
    unit = f'  <span style="color:{MUTED}">{escape(panel.unit)}</span>' if panel.unit not in ("", "-", "count") else ""
    names = ""
    named = [line for line in panel.lines if line.style != "marks"]
    if len(named) > 1 and not legend:
        names = "   " + "  ".join(f'<span style="color:{line.colour}">{escape(line.name)}</span>' for line in named)
    log = f'  <span style="color:{MUTED}">log</span>' if panel.log_axis else ""
    return {
        "text": f"<b>{escape(panel.title)}</b>{unit}{log}{names}",
        "x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper", "yanchor": "bottom", "yshift": 1,
        "showarrow": False, "font": {"size": 12},
    }  # fmt: skip


def _trace(line: Line, axis: str) -> go.Scatter:
    import plotly.graph_objects as go

    return go.Scatter(
        x=_compact(line.x),
        y=line.y.astype(np.float32),
        yaxis=axis,
        name=escape(line.name),
        mode=MODES[line.style],
        line={"color": line.colour, "width": 1.6, "dash": "dash" if line.style == "dashes" else "solid"},
        marker={"size": 5},
        showlegend=False,
        hovertemplate="%{y:.4~g}",
        hoverinfo="skip" if line.style == "marks" else None,
        stackgroup="area" if line.style == "area" else None,
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
        customdata=[item.alarm_step], name=escape(item.detector),
        marker={"color": COLOURS[item.severity], "line": {"width": 0}}, opacity=0.45 if item.severity == "info" else 0.65,
        hovertemplate=f"{item.severity}: began {item.onset_step:,}, alarm {item.alarm_step:,}, {until}<extra></extra>",
    )  # fmt: skip


def _name(name: str, row: int, axis: str) -> Layout:
    return {
        "text": escape(name), "x": 0, "xref": "paper", "xanchor": "left", "xshift": 3, "y": row, "yref": axis,
        "showarrow": False, "font": {"size": 10.5}, "name": "on-paper",
    }  # fmt: skip


def _vertical(chart: Chart) -> list[Layout]:
    span = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}}
    rule = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    out: list[Layout] = [
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


def _baseline(panel: Panel, axis: str) -> list[Layout]:
    whole = {"xref": "paper", "x0": 0, "x1": 1, "yref": axis, "layer": "below"}
    out: list[Layout] = []
    if panel.band is not None and not (panel.log_axis and panel.band[0] <= 0):
        low, high = panel.band
        out.append({**whole, "type": "rect", "y0": low, "y1": high, "fillcolor": MUTED, "opacity": 0.2, "line": {"width": 0}})
    if panel.baseline is not None and not (panel.log_axis and panel.baseline <= 0):
        line = {"color": MUTED, "width": 1, "dash": "dot"}
        out.append({**whole, "type": "line", "y0": panel.baseline, "y1": panel.baseline, "line": line})
    return out


def _labels(marks: Sequence[Mark]) -> list[Layout]:
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
