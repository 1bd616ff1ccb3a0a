"""Is it all right, what happened and when, what now."""

from __future__ import annotations

import streamlit as st

from echotrap.app import page
from echotrap.app.components.banner import banner, settings
from echotrap.app.components.chart import chart
from echotrap.app.components.findings import findings, proof
from echotrap.app.components.step_bar import step_bar
from echotrap.render import charts, words


def overview() -> None:
    seen = page.snapshot()
    report = seen.report
    if words.settings(report):
        left, right = st.columns([3, 2])
        with left:
            banner(report)
        with right:
            settings(report)
    else:
        banner(report)
    for failure in report.failed:
        st.warning(
            f"{page.plain(failure.detector)} failed and said nothing: {page.plain(failure.error)}", icon=":material/bug_report:"
        )
    description = charts.of_report(report, selected=page.step())
    if description.panels:
        clicked = chart(description, key="signature", revision=report.run.source)
        if clicked is not None:
            page.choose_step(clicked)
            st.rerun()
        step_bar(seen)
    else:
        st.info("No signal that echotrap knows was found in this log.")


def details() -> None:
    report = page.snapshot().report
    proof(report)
    if report.findings:
        st.subheader("What was seen")
        findings(report)
    with st.expander(f"What could not be judged ({len(report.not_evaluated)}) and how the log was read ({len(report.notes)})"):
        if report.not_evaluated:
            st.dataframe([item.model_dump() for item in report.not_evaluated], hide_index=True)
        if report.notes:
            st.dataframe([item.model_dump() for item in report.notes], hide_index=True)


page.live(overview)
page.live(details)
