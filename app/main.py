"""The dashboard's router: `streamlit run app/main.py [-- RUN|FOLDER ...]`, or `echotrap dashboard`."""

from __future__ import annotations

import streamlit as st

from echotrap.app import page
from echotrap.app.components.chart import provide_plotly

PAGES = (
    st.Page("views/overview.py", title="Overview", icon=":material/monitor_heart:", default=True),
    st.Page("views/timeline.py", title="Timeline", icon=":material/show_chart:"),
    st.Page("views/rollouts.py", title="Rollouts", icon=":material/forum:"),
    st.Page("views/tools.py", title="Tools and rewards", icon=":material/build:"),
    st.Page("views/compare.py", title="Compare", icon=":material/compare_arrows:"),
    st.Page("views/catalogue.py", title="Catalogue", icon=":material/tune:"),
    st.Page("views/runs.py", title="Runs", icon=":material/table_rows:"),
)

st.set_page_config(page_title="echotrap", page_icon=page.icon("ok"), layout="wide", initial_sidebar_state="collapsed")
chosen = st.navigation(PAGES, position="top")
with page.guard():
    page.header()
    provide_plotly()
    chosen.run()
