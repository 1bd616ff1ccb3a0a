"""The verdict in one look: what, since when, why, what speaks against it, what could not be seen."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import zip_longest

import streamlit as st

from echotrap.app import page
from echotrap.render import words
from echotrap.report import Report

__all__ = ["banner", "settings"]


def banner(report: Report) -> None:
    """Show the verdict of a report; every word of it is escaped."""
    verdict, coverage = report.verdict, report.coverage
    facts = [
        _fact("began", verdict.onset_step),
        _fact("first alarm", verdict.alarm_step),
        _fact("recovered", verdict.recovered_step),
        _fact("last good", report.last_good_step),
        _fact("now", report.run.last_step),
        f"<span>confidence <b>{verdict.confidence}</b></span>" if verdict.severity in ("warning", "critical") else "",
    ]
    parts = "".join(
        f'<span class="et-part {part.provenance}" title="{escape(part.signal or "not in the log")}">{part.part}</span>'
        for part in coverage.signature
    )
    levers = words.remedies(report, most=4)
    rows = [
        ("why", _list(verdict.why)),
        ("against", _list(verdict.against)),
        ("do now", _list((lever.action for lever in levers), (lever.cost for lever in levers))),
        ("signals", f'<span class="et-parts"><b>{coverage.present} of {coverage.of}</b> {parts}</span>'),
    ]
    grid = "".join(f"<span>{name}</span><span>{content}</span>" for name, content in rows if content)
    st.html(
        f'<div class="et-banner et-{verdict.severity}" data-testid="verdict"><div class="et-top">'
        f'<span class="et-label">{escape(page.label(verdict.label, verdict.stage))}</span>'
        f'<span class="et-facts">{"".join(facts)}</span></div>'
        f'<div class="et-line">{escape(verdict.headline)}</div><div class="et-grid">{grid}</div></div>'
    )


def settings(report: Report) -> None:
    """The configuration keys of the framework in use that carry the remedies, ready to copy."""
    lines = words.settings(report)
    if lines:
        st.markdown(f"**Settings for {page.plain(report.run.framework or 'your trainer')}**")
        st.code("\n".join(lines), language=None, wrap_lines=True)


def _fact(name: str, step: int | None) -> str:
    return "" if step is None else f"<span>{name} <b>{step:,}</b></span>"


def _list(lines: Iterable[str], asides: Iterable[str] = ()) -> str:
    pairs = zip_longest(lines, asides, fillvalue="")
    items = "".join(f'<li>{escape(line)} <span class="et-muted">{escape(aside)}</span></li>' for line, aside in pairs)
    return f"<ul>{items}</ul>" if items else ""
