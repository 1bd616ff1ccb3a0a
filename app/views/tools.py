"""What the policy does with its tools, and what the reward makes of it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from echotrap.app import page, texts
from echotrap.app.components.chart import chart
from echotrap.record import Run
from echotrap.render import charts
from echotrap.report import Report
from echotrap.rollouts import RolloutStore, solved
from echotrap.text.measure import groups_of
from echotrap.text.parse import parse
from echotrap.text.rewards import ERRORS, Tie, pass_at, ties_of
from echotrap.text.tools import sequences

CALLS = ("calls_per_turn", "tool_calls", "zero_call_frac", "valid_call_frac", "error_result_frac", "repeated_calls_frac")
REWARD = ("tie_frac", "reward_levels", "call_score_binary", "call_score_fine_grained")
MOST_PAIRS = 50
MOST_SEQUENCES = 12


def tools() -> None:
    seen = page.snapshot()
    run, store = seen.run, seen.run.rollouts
    steps = texts.steps_of(store)
    if store is None or not steps:
        st.info("No rollouts lie beside this log.", icon=":material/build:")
        st.caption(
            "Calls, their errors and what the reward ties are read from rollouts; the Rollouts page says where to put them."
        )
        return
    wanted = page.step()
    step = steps[-1] if wanted is None else min(steps, key=lambda item: (abs(item - wanted), item))
    _trend(run, seen.report, CALLS, "calls", step, steps, "Calls over training", "No rollout of this run calls a tool.")
    errors = {f"{name}_error_frac": name.replace("_", " ") for name in ERRORS}
    columns = [str(name) for name in run.metrics.columns if str(name).startswith("components/") and str(name).count("/") == 1]
    parts = {name: name.removeprefix("components/") for name in columns}
    left, right = st.columns(2)
    with left:
        _stacked(
            run, "What is wrong with calls", errors, "share of rollouts", "The dump holds no expected calls (`gts` or the like)."
        )
    with right:
        _stacked(run, "Reward by component", parts, "reward", "The dump holds no reward components.")
    _trend(run, seen.report, REWARD, "ties", step, steps, "What the reward tells apart", "")
    _step(run, store, step)
    _boundary(store)


def _trend(
    run: Run, report: Report, names: tuple[str, ...], key: str, step: int, steps: tuple[int, ...], title: str, none: str
) -> None:
    """Signals over training; a click chooses the step."""
    shown = [name for name in names if run.has(name)]
    if not shown:
        if none:
            st.caption(none)
        return
    st.markdown(f"**{title}**")
    clicked = chart(charts.trend(run, report, shown, selected=step, marks=steps), key=f"tools-{key}", revision=run.source)
    if clicked is not None:
        page.choose_step(min(steps, key=lambda item: abs(item - clicked)))
        st.rerun()


def _stacked(run: Run, title: str, names: dict[str, str], unit: str, none: str) -> None:
    """Signals that add up, one above the other."""
    shown = {name: words for name, words in names.items() if run.has(name)}
    st.markdown(f"**{title}**")
    if not shown:
        st.caption(none)
        return
    table = run.metrics[list(shown)].dropna(how="all").rename(columns=shown)
    st.area_chart(table, stack=True, height=260, x_label="step", y_label=unit)


def _step(run: Run, store: RolloutStore, step: int) -> None:
    """The sequences of one step, and the pairs that its reward ties."""
    scored = texts.at(run, store, step)
    if scored.table.empty:
        st.info(f"Step {step:,} has no rollouts that can be read.")
        return
    left, right = st.columns([1, 2])
    with left:
        st.markdown(f"**Step {step:,}: sequences of calls**")
        found = pd.DataFrame(sequences(scored.scores.uses)[:MOST_SEQUENCES], columns=["sequence", "rollouts"])
        st.dataframe(found, hide_index=True, key=f"sequences-{step}")
    with right:
        ties = ties_of(scored.rollouts, scored.scores.uses, scored.scores.group, most=MOST_PAIRS)
        st.markdown(f"**Step {step:,}: pairs that differ and got the same reward**")
        if not ties.differing:
            st.caption("No two rollouts of one prompt differ in calls or answer.")
            return
        told = f"{ties.tied:,} of {ties.differing:,} pairs that differ are tied."
        if ties.scored:
            told += f" A fine-grained reward would rank {ties.ranked:,} of {ties.scored:,}."
        st.caption(told)
        if ties.pairs:
            st.dataframe(
                pd.DataFrame(map(_row, ties.pairs)).dropna(axis="columns", how="all"), hide_index=True, key=f"ties-{step}"
            )


def _boundary(store: RolloutStore) -> None:
    """pass@k by turn budget at the last evaluation whose rollouts say whether they solved their task."""
    steps = store.eval_steps()
    rollouts = [item for item in store.eval_at(steps[-1]) if solved(item) is not None] if steps else []
    if len(rollouts) < 2:
        return
    turns = [sum(bool(turn.think or turn.said or turn.acts) for turn in parse(item).turns) for item in rollouts]
    found = pass_at([bool(solved(item)) for item in rollouts], turns, groups_of(rollouts)[0])
    table = pd.DataFrame(
        [(f"pass@{k}", f"T = {budget}", value) for (k, budget), value in found.items()], columns=["k", "T", "is"]
    )
    st.markdown(f"**Held-out step {steps[-1]:,}: pass@k by turn budget**")
    st.dataframe(table.pivot_table(index="k", columns="T", values="is", sort=False), key="boundary")


def _row(tie: Tie) -> dict[str, object]:
    one, other = ("better", "worse") if tie.gap is not None else ("one", "the other")
    return {
        "reward": tie.reward,
        "differ in": tie.differ_in,
        one: tie.better.does,
        other: tie.worse.does,
        f"fine-grained, {one}": tie.better.fine_grained,
        f"fine-grained, {other}": tie.worse.fine_grained,
        f"product, {one}": tie.better.multiplicative,
        f"product, {other}": tie.worse.multiplicative,
        "rollouts": f"{tie.better.index}, {tie.worse.index}",
    }


page.live(tools)
