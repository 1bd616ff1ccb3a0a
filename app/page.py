"""What every page shares: the run that is looked at, the chosen step, the header, and words that are safe to show."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

import streamlit as st

from echotrap.app import runs
from echotrap.app.runs import Entry
from echotrap.errors import EchotrapError
from echotrap.live import Look, Scene
from echotrap.render.charts import COLOURS
from echotrap.render.words import duration
from echotrap.report import STAGES, Report

__all__ = ["choose_step", "entries", "entry", "following", "header", "live", "open_run", "plain", "snapshot", "step"]

REFRESH_S = 2.0
PATIENCE_S = 5.0
WRITING_S = 120.0
"""A log whose newest step is younger than this is taken to be still written."""
STATIC = Path(__file__).parent / "static"


def entries() -> tuple[Entry, ...]:
    """The runs named on the command line, or the bundled samples, and what was uploaded."""
    named = tuple(sys.argv[1:]) or runs.samples()
    uploaded: tuple[Entry, ...] = tuple(st.session_state.get("uploads", ()))
    return (*runs.library(named), *uploaded)


def entry() -> Entry | None:
    """The run that is looked at: the one in the link, else the first."""
    known = {item.key: item for item in entries()}
    wanted = str(st.session_state.get("run") or st.query_params.get("run"))
    return known.get(wanted) or next(iter(known.values()), None)


def open_run(key: str) -> None:
    """Look at another run."""
    st.session_state.update(run=key, step=None)
    for name in ("follow", "rollout"):
        st.session_state.pop(name, None)
    share()


def snapshot() -> Look:
    """The run that is looked at, as it stands now; stops the page with a helpful line where there is none."""
    current = entry()
    if current is None:
        st.info("There is no run to show yet. Start with `echotrap dashboard PATH`, or upload a log on the **Runs** page.")
        st.stop()
    scene: Scene = runs.watched(current.location).look()
    if scene.look is None:
        st.error(plain(scene.trouble) or "There is no step in this log yet.", icon=":material/error:")
        st.fragment(_wait, run_every=PATIENCE_S)()
        st.stop()
    return scene.look


def _wait() -> None:
    """A log that is not there yet may come."""
    current = entry()
    if current is not None and runs.watched(current.location).look().look is not None:
        st.rerun()
    st.caption("This page looks again by itself.")


def readable() -> bool:
    """Whether there is a run that can be read."""
    current = entry()
    return current is not None and runs.watched(current.location).look().look is not None


def complain(error: EchotrapError) -> None:
    """One line that says what is wrong, where, and what to do about it."""
    where = f"**{plain(error.where)}**: " if error.where else ""
    st.error(f"{where}{plain(error.message)}", icon=":material/error:")
    if error.cure:
        st.caption(f"What helps: {plain(error.cure)}")


def step() -> int | None:
    """The chosen step."""
    if "step" not in st.session_state:
        text = st.query_params.get("step", "")
        st.session_state["step"] = int(text) if re.fullmatch(r"-?\d{1,12}", text) else None
    chosen: int | None = st.session_state["step"]
    return chosen


def choose_step(value: int | None) -> None:
    """Choose a step and put it in the link."""
    st.session_state["step"] = value
    share()


def share() -> None:
    """Keep run and step in the address, so that it can be sent to somebody."""
    current, chosen = entry(), step()
    if current is not None:
        st.query_params["run"] = current.key
    if chosen is not None:
        st.query_params["step"] = str(chosen)
    elif "step" in st.query_params:
        del st.query_params["step"]


def following() -> bool:
    """Whether the page follows a run that is still written."""
    return bool(st.session_state.get("follow", False))


@contextmanager
def guard() -> Iterator[None]:
    """Whatever goes wrong becomes words on the page, never a traceback."""
    try:
        yield
    except EchotrapError as error:
        complain(error)
    except Exception as error:
        logging.getLogger("echotrap").exception("a part of the page could not be drawn")
        st.error(f"This could not be drawn: {plain(type(error).__name__)}.", icon=":material/error:")
        st.caption("The terminal that runs the dashboard holds the details. Other pages and other runs still work.")


def live(body: Callable[[], None]) -> None:
    """Draw a part of the page, again and again while the run is followed."""

    def guarded() -> None:
        with guard():
            body()

    st.fragment(guarded, run_every=REFRESH_S if following() else None)()


def icon(severity: str) -> str:
    """The tab's icon, a dot in the colour of a severity; drawn here, because emoji are fetched from elsewhere."""
    dot = f'<circle cx="16" cy="16" r="11" fill="{COLOURS[severity]}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="32" height="32">{dot}</svg>'


def header() -> None:
    """Name, facts, verdict in one word, choice of run, live switch."""
    st.html(STATIC / "app.css")
    known = entries()
    left, middle, right = st.columns([6, 3, 1.3], vertical_alignment="center")
    current = entry()
    if current is None:
        with left:
            st.html('<div class="et-head"><b>echotrap</b></div>')
        return
    with middle:
        keys = [item.key for item in known]
        names = {item.key: item.name for item in known}
        chosen = st.selectbox(
            "Run", keys, keys.index(current.key), format_func=lambda key: names[key], label_visibility="collapsed"
        )
        if chosen != current.key:
            open_run(chosen)
            st.rerun()
    scene = runs.watched(current.location).look()
    if scene.look is None:  # the page says what is wrong, where it needs the run
        with left:
            st.html(f'<div class="et-head"><span class="et-dot et-insufficient"></span><b>{escape(current.name)}</b></div>')
        return
    with right:
        st.session_state.setdefault("follow", _writing(scene))
        st.toggle("Live", key="follow", help="Follow a run that is still written")
    with left:
        live(_status)
    share()


def _status() -> None:
    current, seen = entry(), snapshot()
    assert current is not None
    run, verdict = seen.report.run, seen.report.verdict
    st.set_page_config(page_title=title(seen.report), page_icon=icon(verdict.severity))
    framework = " ".join(filter(None, (run.framework, run.framework_version))) or run.format
    facts = [framework, f"{run.steps:,} steps", _pulse(runs.watched(current.location).look())]
    st.html(
        f'<div class="et-head"><span class="et-dot et-{verdict.severity}"></span><b>{escape(run.name)}</b>'
        f'<span class="et-pill et-{verdict.severity}">{escape(label(verdict.label, verdict.stage))}</span>'
        f'<span class="et-muted">{escape(" · ".join(facts))}</span></div>'
    )


def _writing(scene: Scene) -> bool:
    """Whether the log seems to be still written."""
    return scene.status == "live" and scene.age_s is not None and scene.age_s < WRITING_S


def _pulse(scene: Scene) -> str:
    """How the run is doing as a process: age of its newest step, and whether it still writes."""
    age = duration(scene.age_s or 0.0)
    rate = f", {scene.steps_per_minute:.3g} steps a minute" if scene.steps_per_minute else ""
    if scene.status == "live":
        return f"live, last step {age} ago{rate}" if _writing(scene) else f"quiet for {age}"
    return {
        "finished": "finished",
        "stalled": f"stalled: no new step for {age}",
        "away": f"does not answer: {scene.trouble}",
        "waiting": "waiting for the first step",
    }[scene.status]


def card(name: str, said: str, severity: str, words: str, colour: str) -> None:
    """A run in a few words, under a line in its colour."""
    st.html(
        f'<div class="et-card" style="border-top-color:{colour}"><b>{escape(name)}</b> '
        f'<span class="et-pill et-{severity}">{escape(said)}</span><br><span class="et-muted">{escape(words)}</span></div>'
    )


def label(name: str, stage: int | None) -> str:
    """A verdict as people say it."""
    words = name.replace("-", " ")
    return f"{words}, {STAGES[stage]}" if name == "echo-trap" and stage else words


def plain(text: object) -> str:
    """Words from a log, shown as they are: nothing in them is Markdown, HTML or a link."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])", r"\\\1", str(text)).replace("\n", " ")


def title(report: Report) -> str:
    """What the browser's tab says."""
    mark = {"critical": "● ", "warning": "▲ "}.get(report.verdict.severity, "")
    return f"{mark}{label(report.verdict.label, report.verdict.stage)} · {report.run.name}"
