"""Every signal of the run over one step axis."""

from __future__ import annotations

import streamlit as st

from echotrap.app import page
from echotrap.app.components.chart import chart
from echotrap.app.components.step_bar import step_bar
from echotrap.fields import FIELDS
from echotrap.render import charts

GROUPS = {
    "Signature": (),
    "Reward": ("reward_mean", "reward_std", "group_reward_std", "rw_ratio", "zero_std_frac", "zero_std_all_fail_frac",
               "zero_std_all_pass_frac", "zero_std_copies_frac", "success_rate", "eval_score"),
    "Policy": ("entropy", "kl_ref", "kl_old", "clip_frac", "is_ratio_mean", "ess_frac", "policy_loss"),
    "Optimiser": ("grad_norm", "critic_grad_norm", "loss", "value_loss", "explained_variance", "learning_rate"),
    "Length": ("response_length", "response_length_max", "thinking_length", "truncated_frac", "num_turns", "tool_calls",
               "valid_action_frac"),
    "Text": ("rep_4", "char_rep", "repetitive_frac", "cross_rollout_share", "cross_group_share", "copies_frac",
             "opening_share", "single_symbol_frac", "silent_frac", "retrieval_acc"),
}  # fmt: skip


def choice() -> list[str]:
    run = page.snapshot().run
    available = [str(name) for name in run.metrics.columns if run.has(str(name))]
    signature = charts.signature_names(run)
    groups = [name for name, names in GROUPS.items() if name == "Signature" or any(n in available for n in names)] + ["All"]
    left, right = st.columns([5, 6], vertical_alignment="bottom")
    with left:
        group = st.segmented_control("Signals", groups, default="Signature", key="group") or "Signature"
    if group == "Signature":
        suggested = signature
    elif group == "All":
        suggested = available
    else:
        suggested = [name for name in GROUPS[group] if name in available]
    with right:
        return st.multiselect(
            "Shown",
            available,
            suggested[:24],
            format_func=lambda name: FIELDS[name].title if name in FIELDS else name,
            key=f"shown-{group}-{run.source}",
            label_visibility="collapsed",
            placeholder="Choose signals",
        )


names = choice()


def timeline() -> None:
    seen = page.snapshot()
    if not names:
        st.info("Choose at least one signal.")
        return
    points = max(400, min(1500, 30_000 // len(names)))
    description = charts.of_run(seen.run, seen.report, names, selected=page.step(), points=points)
    clicked = chart(description, key="timeline", revision=f"{seen.run.source} {names}")
    if clicked is not None:
        page.choose_step(clicked)
        st.rerun()
    step_bar(seen)


page.live(timeline)
