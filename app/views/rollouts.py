"""What the policy wrote: the trend, the rollouts of one step, one of them by turns, and the same prompt earlier."""

from __future__ import annotations

import streamlit as st

from echotrap.app import page, texts
from echotrap.app.components import rollout as reader
from echotrap.app.components.chart import chart
from echotrap.app.texts import Scored
from echotrap.record import Run
from echotrap.render import charts
from echotrap.report import Report
from echotrap.rollouts import RolloutStore

TREND = ("reward_mean", "rep_4", "cross_rollout_share", "retrieval_acc", "copies_frac", "response_length")
SORTS = {"repetition": "repetition", "shared with others": "shared", "reward": "reward", "length": "words", "as logged": None}
PANELS = 4


def rollouts() -> None:
    seen = page.snapshot()
    store = seen.run.rollouts
    steps = texts.steps_of(store)
    if store is None or not steps:
        st.info("No rollouts lie beside this log.", icon=":material/forum:")
        st.caption(
            "Put them where echotrap finds them: verl `trainer.rollout_data_dir`, TRL `log_completions=True`, or a JSONL file "
            "with `step`, `prompt`, `completion` and `reward` in the run's folder."
        )
        return
    chosen = _step(seen.run, seen.report, steps)
    scored = texts.at(seen.run, store, chosen)
    if scored.table.empty:
        st.info(f"Step {chosen:,} has no rollouts that can be read.")
        return
    for line in scored.remarks:
        st.caption(f":material/info: {page.plain(line)}")
    index = _table(scored, chosen)
    if index is not None:
        _side_by_side(seen.run, store, scored, index, seen.report.verdict.onset_step)
    _stories(seen.run, store, steps)


def _step(run: Run, report: Report, steps: tuple[int, ...]) -> int:
    """The trend and the choice of a step that has rollouts."""
    wanted = page.step()
    if wanted is None:
        wanted = report.verdict.alarm_step if report.verdict.alarm_step is not None else steps[-1]
    chosen = min(steps, key=lambda item: (abs(item - wanted), item))
    names = [name for name in TREND if run.has(name)][:PANELS]
    if names:
        clicked = chart(charts.trend(run, report, names, selected=chosen, marks=steps), key="rollout-trend", revision=run.source)
        if clicked is not None:
            page.choose_step(min(steps, key=lambda item: abs(item - clicked)))
            st.rerun()
    at = steps.index(chosen)
    back, slider, forth = st.columns([1, 12, 1], vertical_alignment="bottom")
    with back:
        if st.button(
            "", icon=":material/chevron_left:", disabled=at == 0, key="step-back", help="The step before", width="stretch"
        ):
            page.choose_step(steps[at - 1])
            st.rerun()
    with forth:
        last = at == len(steps) - 1
        if st.button("", icon=":material/chevron_right:", disabled=last, key="step-forth", help="The next step", width="stretch"):
            page.choose_step(steps[at + 1])
            st.rerun()
    with slider:
        if len(steps) > 1:
            moved = st.select_slider("Step", steps, chosen, key=f"slider-{run.source}-{chosen}", label_visibility="collapsed")
            if moved != chosen:
                page.choose_step(moved)
                st.rerun()
    return chosen


def _table(scored: Scored, step: int) -> int | None:
    """The rollouts of the step; returns the position of the chosen one."""
    table = scored.table
    st.markdown(f"**Step {step:,}**  :gray[{len(table)} rollouts]")
    sort, passed, group = st.columns([2, 2, 2], vertical_alignment="bottom")
    with sort:
        order = st.selectbox("Sort by", list(SORTS), key="rollout-sort")
    with passed:
        outcome = st.segmented_control("Outcome", ["all", "passed", "failed"], default="all", key="rollout-outcome") or "all"
    with group:
        groups = list(dict.fromkeys(table["group"]))
        only = st.selectbox("Prompt group", ["all", *groups], key="rollout-group") if len(groups) > 1 else "all"
    if outcome != "all":
        table = table[table["passed"] == (outcome == "passed")]
    if only != "all":
        table = table[table["group"] == only]
    column = SORTS[order or "as logged"]
    if column is not None:
        table = table.sort_values(column, ascending=False, kind="stable", na_position="last")
    if table.empty:
        st.info("No rollout of this step fits the filter.")
        return None
    state = st.dataframe(
        table.drop(columns=["passed"]).dropna(axis="columns", how="all"),
        hide_index=True,
        height=min(38 + 35 * len(table), 300),
        on_select="rerun",
        selection_mode="single-row",
        key=f"rollouts-{step}-{order}-{outcome}-{only}",
        column_config={
            "rollout": st.column_config.NumberColumn("#", width=50),
            "group": st.column_config.TextColumn("group", width=80),
            "reward": st.column_config.NumberColumn("reward", format="%.3g", width=80),
            "repetition": st.column_config.ProgressColumn("repetition", min_value=0, max_value=1, format="percent", width=120),
            "shared": st.column_config.ProgressColumn("shared 4-grams", min_value=0, max_value=1, format="percent", width=120),
            "words": st.column_config.NumberColumn("words", width=70),
            "tags": st.column_config.ListColumn("tags", width=120),
            "begins": st.column_config.TextColumn("begins with", width=700),
        },
    )
    order_of = table["rollout"].tolist()
    picked = state.selection.rows
    if picked and picked[0] < len(order_of):
        st.session_state["rollout"] = order_of[picked[0]]
    if st.session_state.get("rollout") not in order_of:
        st.session_state["rollout"] = order_of[0]
    current = order_of.index(st.session_state["rollout"])
    st.session_state["neighbours"] = (order_of[max(current - 1, 0)], order_of[min(current + 1, len(order_of) - 1)])
    return int(st.session_state["rollout"])


def _side_by_side(run: Run, store: RolloutStore, scored: Scored, index: int, onset: int | None) -> None:
    """The chosen rollout, beside one of the same prompt from an earlier step (or of its own group)."""
    left, right = st.columns(2)
    with left:
        title, raw = st.columns([5, 1], vertical_alignment="bottom")
        with title:
            st.markdown(f"**Step {scored.step:,}, rollout {index}**  :gray[{page.plain(_facts(scored, index))}]")
        with raw:
            as_logged = st.toggle("raw", key="raw", help="The record as it was logged")
        moved = reader.show(scored.blocks(index, raw=as_logged), raw=scored.raw(index), key="rollout-left", keys=True)
        if moved:
            st.session_state["rollout"] = st.session_state["neighbours"][moved > 0]
            st.rerun()
    with right:
        others = texts.companions(store, scored, index, onset)
        if not others:
            st.caption("There is no rollout of an earlier step, or of the same group, to read beside it.")
            return
        labels = [f"{item.why}: step {item.step:,}, rollout {item.place}" for item in others]
        chosen = st.selectbox(
            "Beside it",
            range(len(labels)),
            format_func=labels.__getitem__,
            label_visibility="collapsed",
            key=f"beside-{run.source}-{scored.step}-{index}",
        )
        item = others[chosen or 0]
        other = texts.at(run, store, item.step)
        place = min(item.place, len(other.rollouts) - 1)
        reader.show(other.blocks(place, raw=as_logged), raw=other.raw(place), key="rollout-right")
        st.caption(page.plain(_facts(other, place)))
    st.html(
        '<div class="et-muted">Marked: <mark class="et-repeat">repeated inside the rollout</mark>, '
        '<span class="et-shared">shared with rollouts of other prompts of the step</span>. '
        "The arrow keys step through the table.</div>"
    )


def _stories(run: Run, store: RolloutStore, steps: tuple[int, ...]) -> None:
    """What the policy says over the run, as a handful of stories."""
    if len(steps) < 4 or not st.toggle("The stories that the policy tells over the run", key="stories"):
        return
    told = texts.stories(run, store)
    if told is None:
        st.caption("Too few reasonings to group.")
        return
    chart(charts.stories(told), key="story-chart", revision=run.source)
    for column, place in zip(st.columns(3), range(3), strict=True):
        if place < len(told.samples):
            with column:
                st.caption(f"story {place + 1}: {page.plain(', '.join(told.terms[place][:4]))}")
                reader.show([reader.block("", told.samples[place])], key=f"story-{place}", height=180)


def _facts(scored: Scored, index: int) -> str:
    row = scored.row(index)
    facts = [f"group {row['group']}"] if row["group"] else []
    if row["reward"] == row["reward"]:
        facts.append(f"reward {row['reward']:.3g}")
    facts.append(f"{row['words']} words")
    if row["repetition"] == row["repetition"]:
        facts.append(f"repetition {row['repetition']:.0%}")
    return " · ".join(facts)


with page.guard():
    rollouts()
