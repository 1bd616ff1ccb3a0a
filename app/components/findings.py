"""What the detectors saw: one line each, and behind it the numbers, the counter-evidence and the rollouts."""

from __future__ import annotations

import streamlit as st

from echotrap.app import page
from echotrap.app.components import rollout
from echotrap.report import RANK, Evidence, Finding, Report, RolloutRef

__all__ = ["findings", "proof"]


def findings(report: Report) -> None:
    """List the findings: the one that gave the verdict its name, then worst and newest first; consequences come last."""
    for number, finding in enumerate(_ordered(report)):
        _finding(finding, f"finding-{number}-{finding.detector}")


def proof(report: Report) -> None:
    """The rollouts that prove the leading finding, beside one from before its onset."""
    shown = [finding for finding in _ordered(report) if finding.rollouts and finding.severity != "info"]
    if shown:
        st.markdown(f"**Rollouts that show it**  :gray[{page.plain(shown[0].title)}]")
        _rollouts(shown[0], "proof")


def _ordered(report: Report) -> list[Finding]:
    named = report.verdict.label
    return sorted(
        report.findings, key=lambda f: (f.detector != named, f.suppressed_by is not None, -RANK[f.severity], -f.alarm_step)
    )


def _finding(finding: Finding, key: str) -> None:
    colour = {"critical": "red", "warning": "orange", "info": "blue"}[finding.severity]
    until = f"until {finding.cleared_step:,}" if finding.cleared_step is not None else "still on"
    muted = f", follows from {finding.suppressed_by}" if finding.suppressed_by else ""
    when = page.plain(f"{finding.severity}, began {finding.onset_step:,}, alarm {finding.alarm_step:,}, {until}{muted}")
    words = page.plain(f"{finding.title}"), page.plain(finding.message)
    with st.expander(f":{colour}[●] **{words[0]}**  \n{words[1]}  :gray[{when}]"):
        if finding.evidence:
            st.dataframe([_row(item) for item in finding.evidence], hide_index=True, width="content")
        for line in finding.counter_evidence:
            st.caption(f"against: {page.plain(line)}")
        _rollouts(finding, key)
        if finding.origin:
            st.caption(f"read from {page.plain(finding.origin)}")
        if finding.references:
            st.caption(f"references: {page.plain('; '.join(finding.references))}")
        if st.button(f"Look at step {finding.alarm_step:,}", key=f"{key}-go", icon=":material/forum:"):
            page.choose_step(finding.alarm_step)
            st.switch_page("views/rollouts.py")


def _row(item: Evidence) -> dict[str, str]:
    value = item.text or ("not logged" if item.value is None else f"{item.value:,.4g}")
    return {"number": item.name.replace("_", " "), "value": f"{value} {item.unit}".strip()}


def _rollouts(finding: Finding, key: str) -> None:
    sides: dict[str, RolloutRef] = {}
    for ref in finding.rollouts:
        sides.setdefault(ref.when, ref)
    if not sides:
        return
    for column, (when, ref) in zip(st.columns(2), sorted(sides.items(), reverse=True), strict=False):
        with column:
            reward = "" if ref.reward is None else f" · reward {ref.reward:g}"
            st.caption(f"{when} · step {ref.step:,} · rollout {ref.index}{reward}")
            spans = [rollout.Span(span.start, span.end) for span in ref.spans]
            rollout.show([rollout.block("", ref.text, spans)], key=f"{key}-{when}", height=260)
