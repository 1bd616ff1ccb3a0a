"""Runs over one another: where they part, and in what they were set up differently."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from echotrap import comparison
from echotrap.app import page, runs, texts
from echotrap.app.components import rollout as reader
from echotrap.app.components.chart import chart
from echotrap.comparison import AXES, Axis, Parting
from echotrap.fields import FIELDS
from echotrap.live import Look
from echotrap.record import Run
from echotrap.render import charts


def compare() -> None:
    chosen = _choice()
    if len(chosen) < 2:
        st.info("Choose at least two runs. The first one is what the others are compared with.")
        return
    logs = [seen.run for seen in chosen]
    names = [name for name in charts.overlay_names(logs) if name in comparison.common(logs)]
    if not names:
        st.info("These runs have no signal in common.")
        return
    axis = _axis(chosen)
    first, *others = logs
    found = {other.name: comparison.partings(first, other, names, axis) for other in others}
    _summary(chosen, found, axis)
    shown = _signals(names)
    clicked = chart(
        charts.overlay(logs, shown, axis, marks=[(name, items[0].x) for name, items in found.items() if items]),
        key="compare",
        revision=f"{[run.source for run in logs]} {axis}",
    )
    if clicked is not None and axis == "step":
        page.choose_step(clicked)
        st.rerun()
    _partings(found, axis)
    _settings(chosen)
    _rollouts([seen.run for seen in chosen])


def _signals(names: list[str]) -> list[str]:
    with st.popover("Signals", icon=":material/tune:"):
        return st.multiselect(
            "Shown",
            names,
            names[:7],
            format_func=lambda name: FIELDS[name].title if name in FIELDS else name,
            key=f"overlaid-{len(names)}",
        )


def _choice() -> list[Look]:
    known = {item.key: item for item in page.entries()}
    current = page.entry()
    default = [current.key] if current else []
    default += [key for key in known if key not in default][: 2 - len(default)]
    keys = st.multiselect("Runs", list(known), default, format_func=lambda key: known[key].name, key="compared", max_selections=8)
    chosen = []
    for key in keys:
        scene = runs.watched(known[key].location).look()
        if scene.look is None:
            st.error(page.plain(scene.trouble) or f"There is no step in {page.plain(known[key].name)} yet.")
        else:
            chosen.append(replace(scene.look, run=replace(scene.look.run, name=known[key].key)))
    return chosen


def _axis(chosen: list[Look]) -> Axis:
    possible: list[Axis] = [axis for axis, key in AXES.items() if key is None or all(seen.run.has(key) for seen in chosen)]
    if len(possible) == 1:
        return possible[0]
    return st.segmented_control("Align by", possible, default=possible[0], key="axis") or possible[0]


def _summary(chosen: list[Look], found: dict[str, list[Parting]], axis: Axis) -> None:
    for column, seen, colour in zip(st.columns(len(chosen)), chosen, charts.PALETTE, strict=False):
        verdict = seen.report.verdict
        partings = found.get(seen.run.name, [])
        words = "the run that the others are compared with"
        if seen is not chosen[0]:
            title = FIELDS[partings[0].signal].title if partings and partings[0].signal in FIELDS else ""
            words = f"parts at {axis} {partings[0].x:,.0f} ({title})" if partings else "stays within the noise of the first"
        with column:
            page.card(seen.run.name, page.label(verdict.label, verdict.stage), verdict.severity, words, colour)


def _partings(found: dict[str, list[Parting]], axis: Axis) -> None:
    rows = [
        {
            "run": name,
            "signal": FIELDS[item.signal].title if item.signal in FIELDS else item.signal,
            axis: item.x,
            "first run": item.a,
            "this run": item.b,
            "noise widths apart": f"{item.sigmas:.1f}" if item.sigmas < 1000 else "no noise",
        }
        for name, items in found.items()
        for item in items
    ]
    if rows:
        st.markdown(
            "**Where they part**  :gray[the first place at which a signal leaves the first run's noise band and stays outside]"
        )
        columns = dict.fromkeys(("first run", "this run"), st.column_config.NumberColumn(format="%.4g"))
        columns[axis] = st.column_config.NumberColumn(format="localized")
        st.dataframe(rows, hide_index=True, column_config=columns)


def _settings(chosen: list[Look]) -> None:
    table = comparison.differences([seen.run for seen in chosen])
    st.markdown("**Settings that differ**")
    if not table:
        st.caption("None that two logs or more tell of.")
        return
    names = [seen.run.name for seen in chosen]
    st.dataframe(
        [
            {"setting": key} | {name: "" if value is None else str(value) for name, value in zip(names, values, strict=True)}
            for key, values in table.items()
        ],
        hide_index=True,
    )


def _rollouts(logs: list[Run]) -> None:
    """The same prompt, or the same place in the dump, at one step of each run."""
    kept = [(run, run.rollouts) for run in logs if run.rollouts is not None and texts.steps_of(run.rollouts)][:3]
    if len(kept) < 2:
        return
    st.markdown("**The same prompt in each run**")
    steps = sorted({step for _, store in kept for step in texts.steps_of(store)})
    wanted = page.step() or steps[-1]
    default = min(steps, key=lambda step: abs(step - wanted))
    step = st.select_slider("Step", steps, default, key=f"compared-step-{default}") if len(steps) > 1 else steps[0]
    scored = [texts.at(run, store, min(texts.steps_of(store), key=lambda other: abs(other - step))) for run, store in kept]
    prompts = list(dict.fromkeys(item.prompt for item in scored[0].rollouts if item.prompt))
    shared = [text for text in prompts if all(any(item.prompt == text for item in other.rollouts) for other in scored)]
    prompt = st.selectbox("Prompt", shared or ["the first of each dump"], key="compared-prompt")
    for column, (run, _), seen in zip(st.columns(len(kept)), kept, scored, strict=True):
        place = next((k for k, item in enumerate(seen.rollouts) if item.prompt == prompt), 0)
        with column:
            st.caption(f"{page.plain(run.name)}, step {seen.step:,}")
            if seen.rollouts:
                reader.show(seen.blocks(place), raw=seen.raw(place), key=f"compared-{run.source}", height=320)


with page.guard():
    compare()
