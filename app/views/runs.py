"""All runs, with their verdicts; and a log of your own to look at."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import streamlit as st

from echotrap.app import page, runs
from echotrap.app.runs import Entry
from echotrap.render.charts import COLOURS
from echotrap.report import RANK

BATCH = 24
OUTCOMES = ("reward_mean", "success_rate", "eval_score")


def table() -> None:
    known = page.entries()
    if not known:
        st.info("No runs yet. Start with `echotrap dashboard PATH`, or upload a log below.")
        return
    limit = st.session_state.setdefault("judged", BATCH)
    rows = sorted(_judged(known[:limit]), key=lambda row: -row.rank)
    frame = pd.DataFrame([row.cells for row in rows])
    colours = [f"color: {COLOURS.get(row.severity, COLOURS['critical'])}; font-weight: 600" for row in rows]
    state = st.dataframe(
        frame.style.apply(lambda _: colours, subset=["verdict"]),
        hide_index=True,
        height=min(38 + 35 * len(rows), 800),
        on_select="rerun",
        selection_mode="single-row",
        key="runs-table",
        column_config={
            "verdict": st.column_config.TextColumn(width=210),
            "reward": st.column_config.LineChartColumn("reward", width=160),
            "steps": st.column_config.TextColumn(alignment="right", width=80),
            "began": st.column_config.TextColumn(alignment="right", width=80),
            "alarm": st.column_config.TextColumn(alignment="right", width=80),
        },
    )
    st.caption("Choose a row to open the run.")
    if len(known) > limit and st.button(f"Judge the next {min(BATCH, len(known) - limit)} of {len(known)} runs"):
        st.session_state["judged"] = limit + BATCH
        st.rerun()
    if state.selection.rows:
        page.open_run(rows[state.selection.rows[0]].key)
        st.switch_page("views/overview.py")


class Row(NamedTuple):
    """One line of the table, with what it is sorted and coloured by."""

    rank: int
    key: str
    severity: str
    cells: Mapping[str, object]


def _judged(known: tuple[Entry, ...]) -> list[Row]:
    """The runs, read one after the other, with a bar where that takes a while."""
    bar = st.progress(0.0, "Reading the runs …") if len(known) > 3 else None
    rows = []
    for place, item in enumerate(known, start=1):
        rows.append(_row(item))
        if bar is not None:
            bar.progress(place / len(known), f"Reading the runs … {place} of {len(known)}")
    if bar is not None:
        bar.empty()
    return rows


def _row(item: Entry) -> Row:
    scene = runs.watched(item.location).look(max_age_s=60)
    if scene.look is None:
        return Row(9, item.key, "insufficient", {"run": item.name, "verdict": "cannot be read", "in short": scene.trouble})
    report = scene.look.report
    verdict = report.verdict
    reward = next((signal for signal in report.signals if signal.name in OUTCOMES), None)
    values = [value for value in reward.values if value is not None] if reward else []
    cells = {
        "run": item.name,
        "verdict": page.label(verdict.label, verdict.stage),
        "began": _number(verdict.onset_step),
        "alarm": _number(verdict.alarm_step),
        "steps": _number(report.run.steps),
        "signals": f"{report.coverage.present} of {report.coverage.of}",
        "framework": report.run.framework or report.run.format,
        "reward": values[:: max(len(values) // 80, 1)],
        "in short": verdict.headline,
    }
    return Row(RANK[verdict.severity], item.key, verdict.severity, cells)


def _number(step: int | None) -> str:
    return "" if step is None else f"{step:,}"


def upload() -> None:
    with st.expander("Look at a log of your own", icon=":material/upload_file:", expanded=not page.entries()):
        given = st.file_uploader(
            "A metrics log: JSONL, JSON, CSV, console text, .wandb or a TensorBoard event file; .gz and .zst too",
            max_upload_size=runs.MAX_UPLOAD_MB,
        )
        st.caption("It is read here, kept in a temporary folder, and leaves this machine no more than any other file.")
        if given is None or given.file_id in st.session_state.setdefault("taken", set()):
            return
        st.session_state["taken"].add(given.file_id)
        folder = Path(tempfile.mkdtemp(prefix="echotrap-"))
        place = folder / (Path(given.name).name.lstrip(".") or "upload")
        place.write_bytes(given.getbuffer())
        item = Entry(f"upload-{len(st.session_state['taken'])}-{place.stem}", place.name, str(place))
        st.session_state["uploads"] = (*st.session_state.get("uploads", ()), item)
        page.open_run(item.key)
        st.switch_page("views/overview.py")


with page.guard():
    table()
with page.guard():
    upload()
