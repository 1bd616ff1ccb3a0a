"""All runs, with their verdicts; and a log of your own to look at."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from echotrap.app import page, runs
from echotrap.app.runs import Entry
from echotrap.errors import EchotrapError
from echotrap.report import RANK

BATCH = 24


def table() -> None:
    known = page.entries()
    if not known:
        st.info("No runs yet. Start with `echotrap dashboard PATH`, or upload a log below.")
        return
    limit = st.session_state.setdefault("judged", BATCH)
    rows = [_row(item) for item in _progress(known[:limit])]
    rows.sort(key=lambda row: -row["rank"])
    state = st.dataframe(
        [{name: value for name, value in row.items() if name not in ("rank", "key")} for row in rows],
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key="runs-table",
        column_config={
            "verdict": st.column_config.TextColumn(width=230),
            "reward": st.column_config.LineChartColumn("reward", width=160),
            "steps": st.column_config.NumberColumn(format="localized", width=80),
            "began": st.column_config.NumberColumn(format="localized", width=80),
            "alarm": st.column_config.NumberColumn(format="localized", width=80),
        },
    )
    st.caption("Choose a row to open the run.")
    if len(known) > limit:
        if st.button(f"Judge the next {min(BATCH, len(known) - limit)} of {len(known)} runs"):
            st.session_state["judged"] = limit + BATCH
            st.rerun()
    if state.selection.rows:
        st.session_state.update(run=rows[state.selection.rows[0]]["key"], step=None)
        st.session_state.pop("follow", None)
        st.switch_page("views/overview.py")


def _progress(known: tuple[Entry, ...]) -> list[Entry]:
    """The runs, read one after the other with a bar where that takes a while."""
    bar = st.progress(0.0, "Reading the runs …") if len(known) > 3 else None
    for place, item in enumerate(known, start=1):
        _row(item)
        if bar is not None:
            bar.progress(place / len(known), f"Reading the runs … {place} of {len(known)}")
    if bar is not None:
        bar.empty()
    return list(known)


def _row(item: Entry) -> dict[str, object]:
    try:
        seen = runs.watched(item.location).look(max_age_s=60)
    except EchotrapError as error:
        return {"rank": 9, "key": item.key, "run": item.name, "verdict": f"✕ {error.message}"}
    report = seen.report
    verdict = report.verdict
    mark = {"ok": "🟢", "info": "🔵", "insufficient": "⚪", "warning": "🟠", "critical": "🔴"}[verdict.severity]
    reward = next((signal for signal in report.signals if signal.name in ("reward_mean", "success_rate", "eval_score")), None)
    values = [value for value in reward.values if value is not None] if reward else []
    return {
        "rank": RANK[verdict.severity],
        "key": item.key,
        "run": item.name,
        "verdict": f"{mark} {page.label(verdict.label, verdict.stage)}",
        "began": verdict.onset_step,
        "alarm": verdict.alarm_step,
        "steps": report.run.steps,
        "signals": f"{report.coverage.present} of {report.coverage.of}",
        "framework": report.run.framework or report.run.format,
        "reward": values[:: max(len(values) // 80, 1)],
        "in short": verdict.headline,
    }


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
        st.session_state.update(run=item.key, step=None)
        st.session_state.pop("follow", None)
        st.switch_page("views/overview.py")


with page.guard():
    table()
with page.guard():
    upload()
