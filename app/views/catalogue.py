"""The detectors: what each looks at, and what it would have said with other limits."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import streamlit as st

from echotrap import registry
from echotrap.app import page
from echotrap.app.components.chart import chart
from echotrap.detector import Detector, Level, NotEvaluated, Track, episodes
from echotrap.record import Run
from echotrap.render import figures

MOST = {Level.WATCH: "info", Level.WARNING: "warning", Level.CRITICAL: "critical"}


def catalogue() -> None:
    known = registry.catalogue()
    families = list(dict.fromkeys(detector.card.family for detector in known.values()))
    left, right = st.columns([2, 5])
    with left:
        family = st.pills("Family", families, key="family")
        shown = [name for name, detector in known.items() if family in (None, detector.card.family)]
        chosen = st.radio(
            "Detector",
            shown,
            key="detector",
            captions=[page.plain(known[name].card.title) for name in shown],
            label_visibility="collapsed",
        )
    with right:
        if chosen is not None:
            _detector(known[chosen])


def _detector(detector: Detector) -> None:
    card = detector.card
    st.subheader(card.id, anchor=False)
    needs = "; ".join(" or ".join(alternatives) for alternatives in card.needs) or "nothing in particular"
    st.markdown(
        f"{page.plain(card.title)}  \n:gray[{card.family} · says at most {MOST[card.highest]} · needs {page.plain(needs)}]"
    )
    current = page.entry()
    if current is not None:
        seen = page.snapshot()
        st.markdown(f"**On {page.plain(seen.run.name)}, with your limits**")
        params = _knobs(detector)
        _verdict(detector, seen.run, params)
        changed = {
            f.name: getattr(params, f.name) for f in fields(params) if getattr(params, f.name) != getattr(detector.params, f.name)
        }
        if changed:
            st.code(
                "\n".join([f"[params.{card.id}]", *(f"{name} = {_toml(value)}" for name, value in changed.items())]),
                language="toml",
            )
    _story(card.id)


def _knobs(detector: Detector) -> Any:
    """Sliders for the parameters that have bounds; returns the parameters as they are set."""
    knobs = [item for item in fields(detector.params) if "least" in item.metadata]
    said: dict[str, Any] = {}
    columns = st.columns(3)
    for place, item in enumerate(knobs):
        default = getattr(detector.params, item.name)
        whole = isinstance(default, int)
        kind = int if whole else float
        low, high = kind(item.metadata["least"]), kind(item.metadata["most"])
        step = 1 if whole else max((high - low) / 200, 1e-6)
        with columns[place % 3]:
            said[item.name] = st.slider(
                item.name.replace("_", " "),
                low,
                high,
                kind(default),
                step,
                format=None if whole else "%.3g",
                key=f"knob-{detector.card.id}-{item.name}",
                help=f"default {default:g}; {item.metadata['source']}",
            )
    return replace(detector.params, **said)


def _verdict(detector: Detector, run: Run, params: Any) -> None:
    track = detector(run, params)
    if isinstance(track, NotEvaluated):
        st.info(f"It cannot look at this run: {page.plain(track.reason)}.")
        return
    found = [item for item in episodes(track) if item.level >= Level.WATCH]
    _words(track)
    description = figures.of_track(run, detector.card.id, track, found, selected=page.step())
    clicked = chart(description, key="track", revision=f"{run.source} {detector.card.id}")
    if clicked is not None:
        page.choose_step(clicked)
        st.rerun()


def _words(track: Track) -> None:
    found = episodes(track)
    if not found:
        st.markdown(
            ":green[●] Clear on all of this run.  :gray[before the gates that mute a detector during warm-up and the like]"
        )
        return
    colours = {Level.WATCH: "blue", Level.WARNING: "orange", Level.CRITICAL: "red"}
    for item in found[:4]:
        alarms = ", ".join(f"{level.severity} at {step:,}" for level, step in item.alarm_steps.items())
        until = f"until {item.cleared_step:,}" if item.cleared_step is not None else "still on"
        st.markdown(f":{colours[item.level]}[●] began {item.onset_step:,}, {alarms}, {until}")
    if len(found) > 4:
        st.caption(f"and {len(found) - 4} more stretches")


def _story(detector_id: str) -> None:
    """The docstring of the detector's file; its sections become headings."""
    lines = registry.story(detector_id).splitlines()
    out: list[str] = []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("---"):
            continue
        out.append(f"\n##### {line}\n" if below.startswith("---") else line)
    body = "\n".join(out)
    for start, end in ((">>> ", "\n"),):
        body = "\n".join(f"    {line}" if line.startswith((start, "... ")) else line for line in body.split(end))
    with st.expander("What it looks at, how it decides, when it is wrong", expanded=True):
        st.markdown(body.replace("$", "\\$"))


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:.6g}"


with page.guard():
    catalogue()
