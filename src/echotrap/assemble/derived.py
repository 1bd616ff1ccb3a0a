"""Signals that follow from other logged keys, one rule each. Missing stays missing: a rule gives NaN where an input is.

Signals from rollouts are another matter; they are computed where the text is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["RULES", "Rule", "View"]

Floats = NDArray[np.float64]


class View(Protocol):
    """What a rule may look at: one run's columns by step."""

    framework: str | None

    def key(self, pattern: str) -> Floats | None:
        """A raw key by its documented name; the mean where a pattern finds several."""

    def total(self, pattern: str) -> Floats | None:
        """The sum over all keys that match, a missing one counting as nothing."""

    def signal(self, name: str) -> Floats | None:
        """A canonical signal, logged or derived before."""

    def fact(self, name: str) -> float | None:
        """A fact of :class:`echotrap.record.RunConfig`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How a signal follows from others.

    Attributes
    ----------
    name : str
        Canonical name.
    how : str
        The formula, for the notes.
    compute : callable
        ``View -> array``, or ``None`` where its inputs are not logged.
    replaces : bool
        It corrects a logged signal rather than supplying one that is missing.
    """

    name: str
    how: str
    compute: Callable[[View], Floats | None]
    replaces: bool = False


def _ratio(above: Floats | None, below: Floats | float | None) -> Floats | None:
    if above is None or below is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.asarray(above / below, np.float64)
    return np.where(np.isfinite(share), share, np.nan)


def _sum(*parts: Floats | None) -> Floats | None:
    known = [part for part in parts if part is not None]
    return np.sum(known, axis=0) if len(known) == len(parts) else None


def _one_minus(share: Floats | None) -> Floats | None:
    return None if share is None else 1.0 - share


def _percent(share: Floats | None) -> Floats | None:
    return None if share is None else share / 100.0


def _first(*choices: Floats | None) -> Floats | None:
    return next((choice for choice in choices if choice is not None), None)


def _prime_solved(view: View, which: str) -> Floats | None:
    return _first(
        view.key(f"train/agg/all/{{agent}}/solved_{which}"),
        view.key(f"train/agg/all/solved_{which}"),
        view.key(f"solve_{which}/all"),
        view.key(f"batch/solve_{which}") if view.framework == "prime-rl" else None,
    )


def _groups(view: View) -> Floats | float | None:
    """Prompt groups of the step, before any filter: as logged, from what the filter kept, or as configured."""
    kept = _ratio(view.key("rollout/filter_kept_count"), view.key("rollout/filter_kept_ratio"))
    return kept if kept is not None else view.fact("prompts_per_step")


def _constant(view: View) -> Floats | None:
    """All rewards of the batch are the same, so every group's are. One such step proves little; three in a row count."""
    low, high = view.key("critic/score/min"), view.key("critic/score/max")
    if low is None or high is None:
        return None
    same = (low == high).astype(int)
    run = np.convolve(same, np.ones(3, int))[: len(same)] == 3
    return np.where(run, 1.0, np.nan) if run.any() else None


def _vagen_std(view: View) -> Floats | None:
    variance, size = view.key("custom_metrics/train/reward_variance"), view.fact("group_size")
    if variance is None:
        return None
    return np.sqrt(variance * (size / (size - 1.0) if size and size > 1 else 1.0))


def _turns(view: View) -> Floats | None:
    messages = _first(view.key("num_turns/mean"), view.key("training/num_turns/mean"))
    return None if messages is None or view.framework in ("prime-rl", "NeMo-RL") else messages / 2.0


def _verl_truncated(view: View) -> Floats | None:
    """The v1 trainer pads to the longest response of the batch, so at least one response always looks truncated."""
    share, longest, limit = view.key("response_length/clip_ratio"), view.key("response_length/max"), view.fact("length_limit")
    v1 = view.key("training/off_policy/trajectory_staleness/mean") is not None
    if share is None or longest is None or not v1 or not limit:
        return None
    return np.where(longest < limit, 0.0, share)


def _nemo_grad_norm(view: View) -> Floats | None:
    updates = view.fact("updates_per_step")
    norm = view.key("train/grad_norm") if view.framework == "NeMo-RL" else None
    return None if norm is None or not updates else norm / updates


def _areal_kl(view: View) -> Floats | None:
    """AReaL logs the KL as what it takes off the reward: times a coefficient that only the configuration knows."""
    coefficient = view.fact("actor.kl_ctl") or view.fact("kl_ctl")
    return _ratio(view.key("ppo_actor/kl_rewards/avg"), -coefficient) if coefficient else None


def _areal_response(view: View) -> Floats | None:
    whole, prompt = view.key("ppo_actor/seq_len/avg"), view.key("ppo_actor/prompt_len/avg")
    return None if whole is None or prompt is None else whole - prompt


def _root(variance: Floats | None) -> Floats | None:
    return None if variance is None else np.sqrt(np.maximum(variance, 0.0))


RULES: tuple[Rule, ...] = (
    # share of groups without reward variance, from what each framework counts
    Rule("zero_std_all_fail_frac", "solved_none", lambda v: _prime_solved(v, "none")),
    Rule("zero_std_all_pass_frac", "solved_all", lambda v: _prime_solved(v, "all")),
    Rule("zero_std_all_fail_frac", "baseline_reward/pct_0 / 100", lambda v: _percent(v.key("train/baseline_reward/pct_0"))),
    Rule("zero_std_all_pass_frac", "baseline_reward/pct_1 / 100", lambda v: _percent(v.key("train/baseline_reward/pct_1"))),
    Rule("zero_std_all_fail_frac", "all_incorrect_groups_ratio", lambda v: v.key("group/all_incorrect_groups_ratio")),
    Rule("zero_std_all_pass_frac", "all_correct_groups_ratio", lambda v: v.key("group/all_correct_groups_ratio")),
    Rule("zero_std_all_fail_frac", "fractions/too_hard", lambda v: v.key("batch/{role}/fractions/too_hard")),
    Rule("zero_std_all_pass_frac", "fractions/too_easy", lambda v: v.key("batch/{role}/fractions/too_easy")),
    Rule(
        "zero_std_all_fail_frac",
        "filtered_prompts_zero / total_prompts",
        lambda v: _ratio(v.key("batch/filtered_prompts_zero"), v.key("batch/total_prompts")),
    ),
    Rule(
        "zero_std_all_pass_frac",
        "filtered_prompts_solved / total_prompts",
        lambda v: _ratio(v.key("batch/filtered_prompts_solved"), v.key("batch/total_prompts")),
    ),
    Rule("zero_std_frac", "1 - by_group/frac_mixed", lambda v: _one_minus(v.key("env/all/by_group/frac_mixed"))),
    Rule("zero_std_frac", "1 - fractions/effective", lambda v: _one_minus(v.key("batch/{role}/fractions/effective"))),
    Rule(
        "zero_std_frac",
        "solve_none + solve_all over all groups",
        lambda v: _ratio(
            _sum(v.key("batch/solve_none"), v.key("batch/solve_all")),
            _sum(v.key("batch/solve_none"), v.key("batch/solve_all"), v.key("batch/solve_partial")),
        ),
    ),
    Rule(
        "zero_std_frac",
        "n_zero_adv_groups / n_groups",
        lambda v: _ratio(v.key("training/n_zero_adv_groups"), v.key("training/n_groups")),
    ),
    Rule("zero_std_frac", "filter_zero_count / groups", lambda v: _ratio(v.key("rollout/filter_zero_count"), _groups(v))),
    Rule("zero_std_frac", "sum of zero_std/count_* / groups", lambda v: _ratio(v.total("rollout/zero_std/count_*"), _groups(v))),
    Rule(
        "zero_std_frac",
        "num_zero_variance_filtered / groups",
        lambda v: _ratio(v.key("reward/num_zero_variance_filtered"), _groups(v)),
    ),
    Rule(
        "zero_std_frac",
        "filtered_prompts / total_prompts",
        lambda v: _ratio(v.key("batch/filtered_prompts"), v.key("batch/total_prompts")),
    ),
    Rule(
        "zero_std_frac",
        "evicted_samples / (group_size * groups)",
        lambda v: _ratio(
            v.key("training/filter_groups/evicted_samples"),
            (v.fact("group_size") or np.nan) * (v.fact("prompts_per_step") or np.nan),
        )
        if v.fact("group_size") and v.fact("prompts_per_step")
        else None,
    ),
    Rule(
        "zero_std_frac",
        "all-wrong + all-right groups",
        lambda v: _sum(v.signal("zero_std_all_fail_frac"), v.signal("zero_std_all_pass_frac")),
    ),
    Rule("zero_std_frac", "1 where the batch's highest reward is its lowest, three steps in a row", _constant),
    # spread
    Rule("group_reward_std", "sqrt(reward_variance * G / (G - 1))", _vagen_std),
    Rule("is_ratio_std", "sqrt(val/ratio_var)", lambda v: _root(v.key("val/ratio_var"))),
    # truncation
    Rule("truncated_frac", "truncated_count / rollout_count",
         lambda v: _ratio(v.key("truncated_count"), v.signal("rollout_count"))),
    Rule("truncated_frac", "1 - val/stop_rate", lambda v: _one_minus(v.key("val/stop_rate"))),
    Rule("truncated_frac", "n_truncated_sample / n_rollouts",
         lambda v: _ratio(v.key("training/n_truncated_sample"), v.key("training/n_rollouts"))),
    Rule("truncated_frac", "0 where the longest response is below the limit (v1 trainer)", _verl_truncated, replaces=True),
    Rule("response_length", "seq_len - prompt_len", _areal_response, replaces=True),
    # turns and updates
    Rule("num_turns", "messages / 2 (verl counts chat messages)", _turns),
    Rule("num_turns", "n_turns / n_rollouts", lambda v: _ratio(v.key("training/n_turns"), v.key("training/n_rollouts"))),
    Rule("kl_ref", "kl_rewards / -kl_ctl", _areal_kl),
    Rule("grad_norm", "sum over updates / updates per step", _nemo_grad_norm, replaces=True),
)  # fmt: skip
"""In order; the first rule that can be computed gives the signal."""
