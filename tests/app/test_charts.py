"""What the charts hold: extremes, gaps and alarms survive; the page stays small; names stay text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echotrap import comparison
from echotrap.record import Run, Series
from echotrap.render import charts, figures
from echotrap.render.charts import Chart, Line, Panel
from echotrap.render.downsample import drawable
from echotrap.report import Incident, Report


def run_of(name: str = "run", **columns: np.ndarray) -> Run:
    length = len(next(iter(columns.values())))
    return Run(name, name, "frame", pd.DataFrame(columns, index=pd.RangeIndex(1, length + 1, name="step")))


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=50, max_size=400),
    st.integers(30, 60),
    st.data(),
)
def test_what_a_person_looks_for_survives(values: list[float], points: int, data: st.DataObject) -> None:
    series = Series(np.arange(len(values)), np.array(values))
    wanted = data.draw(st.integers(0, len(values) - 1))
    few = drawable(series, points, keep=[wanted])
    assert {0, wanted, len(values) - 1} <= set(few.steps.tolist())
    assert few.values.max() == max(values)
    assert few.values.min() == min(values)
    assert (np.diff(few.steps) > 0).all()
    assert len(few.steps) <= points + 3 if len(values) > points else len(few.steps) == len(values)


def test_a_gap_breaks_the_line_at_any_resolution() -> None:
    steps = np.concatenate((np.arange(5000), np.arange(9000, 14000)))
    few = drawable(Series(steps, np.sin(steps / 50)), 300)
    [gap] = few.steps[np.isnan(few.values)]
    assert 4999 < gap < 9000


def test_a_hundred_thousand_steps_are_less_than_a_megabyte(trap_report: Report) -> None:
    rng = np.random.default_rng(0)
    run = run_of(**{f"signal_{k}": rng.normal(size=100_000) for k in range(20)})
    figure = figures.plotly(charts.of_run(run, trap_report, map(str, run.metrics.columns)))
    assert len(figure.to_json()) < 1_000_000
    alarms = [item.alarm_step for item in trap_report.incidents]
    assert all(set(alarms) <= set(trace.x.tolist()) for trace in figure.data[:20])


def test_names_are_text() -> None:
    hostile = '<a href="https://example.com">x</a>'
    line = Line(hostile, np.arange(3.0), np.arange(3.0))
    incident = Incident(detector=hostile, severity="info", onset_step=1, alarm_step=1)
    figure = figures.plotly(Chart((Panel(hostile, hostile, (line, line)),), incidents=(incident,), legend=(line,)))
    assert "<a" not in figure.to_json().replace("\\u003c", "<").replace("&lt;a", "")


def test_a_wide_band_does_not_flatten_the_curve(trap_report: Report) -> None:
    line = Line("x", np.arange(10.0), np.linspace(1, 2, 10))
    figure = figures.plotly(Chart((Panel("x", "", (line,), band=(-1e6, 1e6)),)))
    options = figure.layout.yaxis.autorangeoptions
    assert options.clipmin > 0
    assert options.clipmax < 3


def test_the_alarm_is_shaded_and_named(trap_report: Report) -> None:
    chart = charts.of_report(trap_report, selected=300)
    assert [(shade.first, shade.last, shade.severity) for shade in chart.shades] == [
        (180, 195, "warning"),
        (195, 397, "critical"),
    ]
    assert {"began 180", "alarm 195", "resume"} == {mark.label for mark in chart.marks}
    figure = figures.plotly(chart)
    assert [shape.x0 for shape in figure.layout.shapes if shape.name == "selected"] == [300]
    assert {trace.name for trace in figure.data if trace.type == "bar"} == {"echo-trap", "length-collapse"}


def test_nothing_to_draw_is_a_figure(scant_report: Report) -> None:
    assert not charts.of_report(scant_report).panels
    figures.plotly(charts.of_report(scant_report))
    figures.plotly(charts.of_run(run_of(entropy=np.full(3, np.nan)), scant_report, ["entropy"]))


@pytest.mark.parametrize("axis", ["tokens", "wall time"])
def test_runs_part_where_a_setting_changed_on_any_axis(axis: comparison.Axis) -> None:
    rng = np.random.default_rng(1)
    base = 1 + 0.02 * rng.normal(size=200)
    clock = {"num_tokens": np.arange(200) * 1000.0, "wall_time": 5e8 + np.arange(200) * 10.0}
    calm = run_of("a", entropy=base, **clock)
    fell = run_of("b", entropy=base - 0.5 * (np.arange(200) >= 100), **clock)
    [parting] = comparison.partings(calm, fell, ["entropy"], axis)
    assert 101 <= parting.step <= 105
    assert parting.x == pytest.approx((parting.step - 1) * (1000 if axis == "tokens" else 10))
    assert comparison.partings(calm, calm, ["entropy"], axis) == []
