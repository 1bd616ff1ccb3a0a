"""The chosen step: its numbers, where it was read, and the way to its rollouts."""

from __future__ import annotations

import streamlit as st

from echotrap.app import page
from echotrap.fields import FIELDS
from echotrap.live import Look
from echotrap.render import charts

__all__ = ["step_bar"]


def step_bar(seen: Look) -> None:
    """Show what was logged at the chosen step."""
    chosen = page.step()
    if chosen is None:
        st.caption("Click a step in the figure to see what was logged there; drag to zoom, double-click to zoom out.")
        return
    run = seen.run
    names = [name for name in charts.signature_names(run) if name in run.metrics.columns]
    at = run.metrics[run.metrics.index == chosen]
    cells = [f"**step {chosen:,}**"]
    for name in names:
        value = at[name].iloc[0] if len(at) else float("nan")
        shown = "not logged" if value != value else f"{value:.4g}"
        cells.append(f":gray[{FIELDS[name].title}] **{shown}**")
    left, right, close = st.columns([8, 2, 0.8], vertical_alignment="center")
    with left:
        origin = run.origin(chosen)
        st.markdown(" &nbsp; ".join(cells) + (f" &nbsp; :gray[{page.plain(f'{origin.file}:{origin.line}')}]" if origin else ""))
    with right:
        if run.rollouts is not None and st.button("Rollouts of this step", icon=":material/forum:", width="stretch"):
            st.switch_page("views/rollouts.py")
    with close:
        if st.button("", icon=":material/close:", help="Choose no step", key="no-step"):
            page.choose_step(None)
            st.rerun()
