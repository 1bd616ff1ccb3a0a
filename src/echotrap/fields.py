"""Canonical signal names: unit, range, meaning, and the keys that frameworks log them under.

A name here is the field's standard term. Which raw key becomes which signal, and which version of a framework means what by it,
is data in this file and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FIELDS", "SIGNATURE", "Field"]

Sense = Literal["level", "share", "norm", "count", "score"]


@dataclass(frozen=True, slots=True)
class Field:
    """One canonical signal.

    Attributes
    ----------
    name, title : str
        Identifier and what a chart says.
    unit : str
        ``"reward"``, ``"0..1"``, ``"nats/token"``, ``"L2"``, ``"tokens"``, ``"count"``, ``"s"``, ...
    meaning : str
        One sentence.
    low, high : float or None
        Range outside of which a value cannot be right.
    log_axis : bool
        Whether a chart wants a logarithmic axis.
    zero_is_missing : bool
        An exact 0.0 from the start means that it was not measured (entropy, KL), not that it is zero.
    """

    name: str
    title: str
    unit: str
    meaning: str
    low: float | None = None
    high: float | None = None
    log_axis: bool = False
    zero_is_missing: bool = False


def _field(name: str, title: str, unit: str, meaning: str, **facts: object) -> Field:
    if unit == "0..1":
        facts = {"low": 0.0, "high": 1.0, **facts}
    return Field(name, title, unit, meaning, **facts)  # type: ignore[arg-type]


_TABLE = (
    # reward
    _field("reward_mean", "reward", "reward", "mean reward over all rollouts of the step"),
    _field("reward_min", "lowest reward", "reward", "lowest reward of the step"),
    _field("reward_max", "highest reward", "reward", "highest reward of the step"),
    _field("reward_std", "batch reward std", "reward", "standard deviation of the reward over the whole batch", low=0.0),
    _field("group_reward_std", "in-group reward std", "reward",
           "mean over prompt groups, before filtering, of the within-group standard deviation (ddof 1)", low=0.0),
    _field("rw_ratio", "within-group share of variance", "0..1",
           "pooled within-group variance over total variance, 10-step window (R_w)"),
    _field("zero_std_frac", "zero-variance groups", "0..1", "share of prompt groups whose rollouts all got the same reward"),
    _field("zero_std_all_fail_frac", "all-wrong groups", "0..1", "share of groups that are constant at the lowest reward"),
    _field("zero_std_all_pass_frac", "all-right groups", "0..1", "share of groups that are constant at the highest reward"),
    _field("zero_std_copies_frac", "copied groups", "0..1",
           "share of groups that are constant and whose rollouts are (near) copies of one another"),
    _field("group_size", "group size", "count", "rollouts per prompt (G)", low=1.0),
    _field("group_count", "prompt groups", "count", "prompts per step (P)", low=0.0),
    _field("filter_kept_frac", "groups kept by the filter", "0..1", "share of groups kept by dynamic sampling or a filter"),
    _field("success_rate", "success rate", "0..1", "share of training rollouts that solve their task"),
    _field("eval_score", "held-out score", "score", "score on held-out prompts"),
    _field("pass_at_k", "pass@k", "0..1", "held-out pass@k"),
    # policy
    _field("entropy", "policy entropy", "nats/token", "mean entropy of the policy over generated tokens", low=0.0,
           zero_is_missing=True),
    _field("reasoning_entropy", "reasoning entropy", "nats", "entropy estimate of the reasoning (RAGEN-2)"),
    _field("retrieval_acc", "retrieval accuracy", "0..1", "share of reasonings that fit their own prompt best (RAGEN-2)"),
    _field("retrieval_chance", "retrieval chance level", "0..1", "retrieval accuracy of guessing"),
    _field("mi_zscore", "mutual information z-score", "sigma", "matched minus marginal log-prob, standardised (RAGEN-2)"),
    _field("kl_ref", "KL to the reference", "nats/token", "KL divergence to the reference policy", zero_is_missing=True),
    _field("kl_old", "KL to the old policy", "nats/token", "KL divergence between the sampling and the updated policy",
           zero_is_missing=True),
    # optimiser
    _field("grad_norm", "gradient norm", "L2", "norm of the policy gradient before clipping", low=0.0, log_axis=True),
    _field("critic_grad_norm", "critic gradient norm", "L2", "norm of the critic's gradient before clipping", low=0.0,
           log_axis=True),
    _field("loss", "loss", "-", "total loss; near 0 by design for on-policy GRPO"),
    _field("policy_loss", "policy loss", "-", "policy-gradient loss"),
    _field("value_loss", "value loss", "-", "critic loss"),
    _field("explained_variance", "explained variance", "ratio", "share of return variance that the critic explains", high=1.0),
    _field("returns_var", "variance of returns", "reward^2", "variance of the returns", low=0.0),
    _field("learning_rate", "learning rate", "-", "learning rate of the policy", low=0.0),
    _field("clip_frac", "clipped tokens", "0..1", "share of tokens whose ratio was clipped"),
    _field("is_ratio_mean", "importance ratio", "ratio", "mean importance ratio", low=0.0),
    _field("is_ratio_min", "lowest importance ratio", "ratio", "lowest importance ratio", low=0.0),
    _field("is_ratio_std", "importance ratio std", "ratio", "standard deviation of the importance ratio", low=0.0),
    _field("ess_frac", "effective sample size", "0..1", "effective sample size over sample size"),
    _field("logprob_gap", "log-prob gap", "nats", "mean absolute difference of log-probs, trainer against sampler", low=0.0),
    _field("prob_gap", "probability gap", "prob.", "mean absolute difference of probabilities, trainer against sampler", low=0.0),
    _field("prob_corr", "probability correlation", "corr.", "correlation of probabilities, trainer against sampler", high=1.0),
    _field("mismatch_kl", "mismatch KL", "nats", "KL between trainer and sampler"),
    _field("policy_lag", "policy lag", "updates", "age of the sampling policy", low=0.0),
    _field("logp_correct", "log-prob of correct rollouts", "nats/token", "mean log-prob of correct rollouts"),
    _field("logp_incorrect", "log-prob of incorrect rollouts", "nats/token", "mean log-prob of incorrect rollouts"),
    _field("advantage_max", "highest advantage", "-", "highest advantage of the step"),
    _field("advantage_min", "lowest advantage", "-", "lowest advantage of the step"),
    # length and turns
    _field("response_length", "response length", "tokens", "mean number of generated tokens", low=0.0),
    _field("response_length_max", "longest response", "tokens", "most generated tokens of the step", low=0.0),
    _field("length_limit", "length limit", "tokens", "configured limit of generated tokens", low=0.0),
    _field("thinking_length", "reasoning length", "tokens", "mean length of the reasoning", low=0.0),
    _field("prompt_length", "prompt length", "tokens", "mean prompt length", low=0.0),
    _field("observation_share", "observation share", "0..1", "share of the context that is tool or environment text"),
    _field("truncated_frac", "truncated responses", "0..1", "share of responses cut at the length limit"),
    _field("num_turns", "turns", "count", "assistant turns per rollout", low=0.0),
    _field("tool_calls", "tool calls", "count", "tool calls per rollout", low=0.0),
    _field("tool_error_frac", "tool errors", "0..1", "share of tool calls that failed"),
    _field("tool_latency", "tool latency", "s", "mean tool latency", low=0.0),
    _field("valid_action_frac", "valid actions", "0..1", "share of turns with a parseable action"),
    _field("valid_thinking_frac", "valid reasoning", "0..1", "share of turns with a non-empty reasoning block"),
    # text, from rollouts
    _field("rep_4", "repetition inside a rollout", "0..1", "mean share of repeated word 4-grams inside a rollout (rep-4)"),
    _field("char_rep", "character repetition", "0..1", "mean share of repeated character 8-grams inside a rollout"),
    _field("repetitive_frac", "repetitive rollouts", "0..1", "share of rollouts over a repetition limit"),
    _field("cross_rollout_share", "shared 4-grams", "0..1",
           "mean share of a rollout's 4-grams found in rollouts of other prompts of the step"),
    _field("cross_group_share", "shared 4-grams in the group", "0..1",
           "mean share of a rollout's 4-grams found in other rollouts of its own group"),
    _field("copies_frac", "copies in the group", "0..1", "share of rollouts that have an exact or near copy in their own group"),
    _field("opening_share", "most common opening", "0..1", "share of rollouts that begin with the most common 20-word opening"),
    _field("single_symbol_frac", "one-symbol rollouts", "0..1",
           "share of rollouts more than half of which is one repeated character or word"),
    _field("single_symbol_count", "one-symbol rollouts", "count", "number of such rollouts", low=0.0),
    _field("empty_frac", "empty rollouts", "0..1", "share of rollouts without text"),
    _field("rep_1", "repeated words", "0..1", "mean share of words that stood earlier in the rollout (rep-1)"),
    _field("rep_2", "repeated 2-grams", "0..1", "mean share of repeated word 2-grams inside a rollout (rep-2)"),
    _field("rep_3", "repeated 3-grams", "0..1", "mean share of repeated word 3-grams inside a rollout (rep-3)"),
    _field("longest_repeat", "longest repeat", "words", "mean length of the longest passage that stood earlier in the rollout",
           low=0.0),
    _field("loop_coverage", "text in loops", "0..1", "mean share of a rollout that lies in a loop of words or characters"),
    _field("loop_frac", "looping rollouts", "0..1", "share of rollouts more than half of which is one or more loops"),
    _field("repeated_turns_frac", "repeated turns", "0..1", "mean share of turns that say what an earlier turn said"),
    _field("distinct_1", "distinct words", "0..1", "distinct words over all words of the step's reasonings (distinct-1)"),
    _field("distinct_2", "distinct 2-grams", "0..1", "distinct over all word 2-grams of the step's reasonings (distinct-2)"),
    _field("distinct_4", "distinct 4-grams", "0..1", "distinct over all word 4-grams of the step's reasonings (distinct-4)"),
    _field("earlier_share", "4-grams of earlier steps", "0..1", "share of the step's 4-grams that the ten steps before had"),
    _field("compression_ratio", "compression ratio", "ratio", "mean zlib ratio over windows of 2,000 characters", low=0.0),
    _field("thinking_share", "reasoning share", "0..1", "share of the policy's words that are reasoning"),
    _field("unjustified_frac", "unjustified reasoning", "0..1",
           "share of reasonings that name nothing particular to their own prompt or state"),
    _field("gibberish_frac", "gibberish", "0..1", "share of rollouts with noise words or a mix of scripts"),
    _field("off_script_frac", "letters of other scripts", "0..1", "mean share of letters outside the run's usual script"),
    _field("within_similarity", "similarity within prompts", "0..1",
           "mean 1-3-gram Jaccard similarity of reasonings of one prompt"),
    _field("across_similarity", "similarity across prompts", "0..1",
           "mean 1-3-gram Jaccard similarity of reasonings of different prompts"),
    _field("rollout_count", "rollouts", "count", "rollouts with text at the step", low=0.0),
    # time
    _field("wall_time", "wall time", "s", "seconds since the epoch, or since the start", low=0.0),
    _field("step_time", "step time", "s", "seconds per step", low=0.0),
    _field("epoch", "epoch", "count", "passes over the data", low=0.0),
    _field("num_tokens", "tokens", "tokens", "tokens seen so far", low=0.0),
)  # fmt: skip

FIELDS: dict[str, Field] = {field.name: field for field in _TABLE}
"""All canonical signals by name."""

SIGNATURE: tuple[tuple[str, ...], ...] = (
    ("group_reward_std", "rw_ratio", "zero_std_frac"),
    ("entropy",),
    ("grad_norm",),
    ("cross_rollout_share", "rep_4", "retrieval_acc"),
    ("reward_mean", "eval_score", "success_rate"),
)
"""The Echo Trap's signature: dispersion, entropy, gradient, text, outcome; alternatives in order."""
