"""The detectors: what each looks at, and what it would have said with other limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import streamlit as st

from echotrap import config, registry
from echotrap.app import page
from echotrap.app.components.chart import chart
from echotrap.detector import Alert, Detector, Episode, Failed, NotEvaluated, Outcome
from echotrap.diagnosis import examine
from echotrap.live import Look
from echotrap.record import Run
from echotrap.render import charts

TEXT_COLOURS = {"info": "blue", "warning": "orange", "critical": "red"}


def catalogue() -> None:
    known = registry.catalogue()
    families = list(dict.fromkeys(detector.card.family for detector in known.values()))
    seen = {item.detector: item.severity for item in page.snapshot().report.findings} if page.readable() else {}
    left, right = st.columns([2, 5])
    with left:
        family = st.selectbox("Family", ["all families", *families], key="family", label_visibility="collapsed")
        shown = [name for name, detector in known.items() if family in ("all families", detector.card.family)]
        chosen = st.radio(
            "Detector",
            shown,
            key="detector",
            captions=[page.plain(known[name].card.title) for name in shown],
            format_func=lambda name: f":{TEXT_COLOURS[seen[name]]}[●] {name}" if name in seen else name,
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
        f"{page.plain(card.title)}  \n:gray[{card.family} · says at most {card.highest.severity} · needs {page.plain(needs)}]"
    )
    if page.readable():
        seen = page.snapshot()
        st.markdown(f"**On {page.plain(seen.run.name)}, with your limits**")
        changed = _knobs(detector)
        _verdict(detector, seen, changed)
        if changed:
            lines = [f"[params.{card.id}]", *(f"{name} = {_toml(value)}" for name, value in changed.items())]
            st.code("\n".join(lines), language="toml")
    _story(card.id)


def _knobs(detector: Detector) -> dict[str, Any]:
    """Sliders for the parameters that have bounds; returns those that are not at their default."""
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
    return {name: value for name, value in said.items() if value != getattr(detector.params, name)}


def _verdict(detector: Detector, seen: Look, changed: dict[str, Any]) -> None:
    run = seen.run
    known = seen.seen.outcomes.get(detector.card.id)
    outcome = known if known is not None and not changed else _examined(run, detector, changed)
    if isinstance(outcome, NotEvaluated):
        st.info(f"It cannot look at this run: {page.plain(outcome.reason)}.")
        return
    if isinstance(outcome, Failed):
        st.warning(f"It failed on this run: {page.plain(outcome.error)}", icon=":material/bug_report:")
        return
    found = outcome.episodes if isinstance(outcome, Alert) else ()
    _words(found)
    description = charts.of_track(run, detector.card.id, outcome.track, found, selected=page.step())
    clicked = chart(description, key="track", revision=f"{run.source} {detector.card.id}")
    if clicked is not None:
        page.choose_step(clicked)
        st.rerun()


def _examined(run: Run, detector: Detector, changed: dict[str, Any]) -> Outcome:
    """What the detector says after all gates; a composite needs what the others say."""
    name = detector.card.id
    settings = config.load()
    params = {**settings.params, name: {**settings.params.get(name, {}), **changed}}
    only = () if detector.card.family == "composite" else (name,)
    return examine(run, settings.model_copy(update={"params": params, "only": only, "skip": ()})).outcomes[name]


def _words(found: Sequence[Episode]) -> None:
    if not found:
        st.markdown(":green[●] Clear on all of this run.")
        return
    lines = []
    for item in found[:4]:
        alarms = ", ".join(f"{level.severity} at {step:,}" for level, step in item.alarm_steps.items())
        until = f"until {item.cleared_step:,}" if item.cleared_step is not None else "still on"
        lines.append(f":{TEXT_COLOURS[item.level.severity]}[●] began {item.onset_step:,}, {alarms}, {until}")
    more = f":gray[and {len(found) - 4} more stretches]" if len(found) > 4 else ""
    st.markdown("  \n".join(filter(None, [*lines, more])))


def _story(detector_id: str) -> None:
    """The docstring of the detector's file; its sections become headings, its example a block of code."""
    out: list[str] = []
    code = False
    lines = registry.story(detector_id).splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        starts = line.startswith(">>>")
        if starts and not code:
            out.append("```python")
        elif code and not line.strip():
            out.append("```")
        code = starts or (code and bool(line.strip()))
        if set(line) == {"-"}:
            continue
        out.append(f"\n##### {line}\n" if below and set(below) == {"-"} else line if code else line.replace("$", "\\$"))
    with st.expander("What it looks at, how it decides, when it is wrong", expanded=True):
        st.markdown("\n".join([*out, "```"] if code else out))


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:.6g}"


with page.guard():
    catalogue()
