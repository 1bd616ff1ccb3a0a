"""A chart that keeps zoom, pan and scroll while its data change, and says which step was clicked.

`st.plotly_chart` takes a new identity with every new figure, and loses them. Plotly's own script is mounted once a page and
comes from the installed package: nothing is fetched from anywhere else.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from echotrap.render.charts import Chart
from echotrap.render.figures import plotly

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

__all__ = ["chart", "provide_plotly"]

STATIC = Path(__file__).parents[1] / "static"


@cache
def _library() -> ComponentRenderer:
    from plotly.offline import get_plotlyjs

    return st.components.v2.component("echotrap.plotly", js=get_plotlyjs() + "\nexport default () => {};", isolate_styles=False)


@cache
def _chart() -> ComponentRenderer:
    return st.components.v2.component(
        "echotrap.chart",
        html='<div class="echotrap-chart" style="width:100%"></div>',
        js=(STATIC / "chart.js").read_text("utf-8"),
        isolate_styles=False,
    )


def provide_plotly() -> None:
    """Put Plotly's script on the page; the browser gets it once a session."""
    _library()(key="plotly", height=1)


def chart(description: Chart, *, key: str, revision: str = "") -> int | None:
    """Show a chart.

    Parameters
    ----------
    description : Chart
        What to draw.
    key : str
        Its identity on the page.
    revision : str
        Zoom and pan are kept while this stays the same: the run's key and the choice of panels.

    Returns
    -------
    int or None
        The step that was clicked just now.
    """
    data: dict[str, Any] = {"figure": plotly(description).to_json(), "revision": revision}
    clicked = _chart()(key=key, data=data, on_step_change=lambda: None).step
    return None if clicked is None else round(float(clicked))
