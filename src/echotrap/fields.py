"""Canonical signal names: unit, range, meaning, and the keys that frameworks log them under.

A name here is the field's standard term. Which raw key becomes which signal, and which version of a framework means what by it,
is data in this file and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "ALIASES", "CONFIG_KEYS", "EVAL_PREFIX", "EVAL_WORD", "FIELDS", "FILLER", "GUESSES", "MARKS", "MISLEADING", "NOT_EVAL",
    "PARENTS", "PERCENT", "SIGNATURE", "SPLIT_KEYS", "STEP_KEYS", "SUMMARY_KEYS", "TOKENS", "UPDATE_FIELDS", "WEAK_STEP_KEYS",
    "Field",
]  # fmt: skip


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
    _field("group_variance_dispersion", "spread of the groups' variances", "ratio",
           "standard deviation over mean of the within-group reward variances: a filter has much to choose where it is high",
           low=0.0),
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
    _field("advantage_mean", "mean advantage", "-", "mean advantage of the step"),
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
    # tools, from rollouts
    _field("zero_call_frac", "rollouts without a call", "0..1", "share of rollouts that call no tool"),
    _field("valid_call_frac", "valid calls", "0..1", "share of calls that can be parsed"),
    _field("calls_per_turn", "calls per turn", "count", "tool calls per assistant turn", low=0.0),
    _field("first_call_turn", "turn of the first call", "count", "turn in which a rollout that calls a tool does so first",
           low=1.0),
    _field("result_share", "share of tool results", "0..1", "share of the characters after the prompt that tools wrote"),
    _field("tool_count", "tools in use", "count", "distinct tools that are called in the step", low=0.0),
    _field("top_tool_share", "most used tool", "0..1", "share of the calls that go to the most used tool"),
    _field("tool_mix_entropy", "tool mix entropy", "nats", "entropy of the tool names over the calls of the step", low=0.0),
    _field("tool_transition_entropy", "tool transition entropy", "nats", "entropy of the pairs of consecutive tools", low=0.0),
    _field("call_sequences_frac", "distinct call sequences", "0..1",
           "distinct sequences of tool names over rollouts with a call"),
    _field("repeated_calls_frac", "repeated calls", "0..1",
           "mean share of calls or actions that an earlier one of the rollout equals, result included"),
    _field("call_loops_frac", "call loops", "0..1",
           "share of rollouts with the same call and result three times in a row"),
    _field("void_turns_frac", "void turns", "0..1",
           "share of rollouts with a turn that holds neither a complete call nor an answer"),
    _field("fabricated_frac", "made-up results", "0..1", "share of rollouts in which the policy wrote a tool result itself"),
    _field("error_result_frac", "error results", "0..1", "share of tool results that are an error"),
    _field("corrected_frac", "corrected calls", "0..1", "share of errors after which another call works"),
    _field("evidence_frac", "answers with evidence", "0..1",
           "share of answers, not known to be wrong, whose own words stand in tool results"),
    _field("success_with_calls", "success with calls", "0..1", "success rate of rollouts that call a tool"),
    _field("success_without_calls", "success without calls", "0..1", "success rate of rollouts that call none"),
    _field("queries_per_question", "queries per question", "count", "search queries per rollout", low=0.0),
    _field("near_duplicate_queries_frac", "near-duplicate queries", "0..1",
           "share of queries that nearly repeat an earlier one of the rollout"),
    _field("malformed_error_frac", "malformed calls", "0..1", "share of rollouts with known expected calls and an unparsed one"),
    _field("name_error_frac", "wrong tools", "0..1", "share of those with a tool that is wrong, missing or too many"),
    _field("parameter_name_error_frac", "wrong parameter names", "0..1", "share of those with the right tools, wrong names"),
    _field("parameter_value_error_frac", "wrong parameter values", "0..1", "share of those with only a value wrong"),
    _field("order_error_frac", "wrong order", "0..1", "share of those with the right calls in another order"),
    _field("call_score_binary", "call score, binary", "0..1", "mean exact match with the expected calls"),
    _field("call_score_fine_grained", "call score, fine-grained", "0..1", "mean of name, parameter names and values (ToolRL)"),
    _field("call_score_multiplicative", "call score, multiplicative", "0..1", "product of the three (ToolRLA)"),
    # what the reward tells apart
    _field("tie_frac", "tied pairs", "0..1", "share of a group's pairs that differ in calls or answer and get equal reward"),
    _field("ranked_ties_frac", "ties that can be ranked", "0..1", "share of the tied pairs that a fine-grained reward ranks"),
    _field("reward_levels", "reward levels", "count", "distinct rewards of the step", low=0.0),
    _field("unequal_copies_frac", "copies paid unequally", "0..1",
           "share of exact copies inside a group whose rewards differ"),
    _field("component_corr_min", "least aligned component", "corr.",
           "lowest correlation of a reward component with the outcome, within groups", low=-1.0, high=1.0),
    _field("component_share_max", "largest other component", "0..1",
           "largest share of the within-group reward variance that a component other than the outcome has"),
    _field("component_rollouts", "graded components", "count", "rollouts behind the components' correlation", low=0.0),
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
           "share of rollouts that are one punctuation mark or token in angle brackets over and over (token 0)"),
    _field("single_symbol_count", "one-symbol rollouts", "count", "number of such rollouts", low=0.0),
    _field("empty_frac", "failed rollouts", "0..1", "share of rollouts that the trainer logged as empty or broken off"),
    _field("silent_frac", "silent rollouts", "0..1", "share of rollouts in which the policy wrote nothing"),
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
    ("group_reward_std", "rw_ratio", "zero_std_frac", "reward_std"),
    ("entropy",),
    ("grad_norm",),
    ("cross_rollout_share", "rep_4", "retrieval_acc"),
    ("reward_mean", "eval_score", "success_rate"),
)
"""The Echo Trap's signature: dispersion, entropy, gradient, text, outcome; alternatives in order."""


# ---------------------------------------------------------------------------------------------------------------------------
# Keys. ``{x}`` stands for one or more path segments (one at the end), ``*`` for anything; ``[..]`` says in which versions of the
# framework. Order is preference: the first key that holds data is read, and a signal is never pieced together from two keys.

ALIASES: dict[str, dict[str, str]] = {
    "verl": {
        "reward_mean": "critic/score/mean critic/rewards/mean",
        "reward_min": "critic/score/min critic/rewards/min",
        "reward_max": "critic/score/max critic/rewards/max",
        "filter_kept_frac": "training/filter_groups/kept_ratio",
        "entropy": "actor/entropy[>=0.4.1] actor/entropy_loss[<=0.4.0,>=0.7.1]",
        "grad_norm": "actor/grad_norm",
        "critic_grad_norm": "critic/grad_norm",
        "kl_ref": "actor/kl_loss actor/reward_kl_penalty[>=0.4] critic/kl[<0.4]",
        "kl_old": "actor/ppo_kl",
        "clip_frac": "actor/pg_clipfrac actor/pg_clipfrac_lower",
        "policy_loss": "actor/pg_loss",
        "loss": "actor/loss actor/total_loss",
        "value_loss": "critic/vf_loss",
        "explained_variance": "critic/vf_explained_var",
        "is_ratio_mean": "rollout_corr/rollout_is_mean[>=0.6.1] mismatch/rollout_is_mean",
        "is_ratio_min": "rollout_corr/rollout_is_min mismatch/rollout_is_min",
        "is_ratio_std": "rollout_corr/rollout_is_std mismatch/rollout_is_std",
        "ess_frac": "rollout_corr/rollout_is_eff_sample_size mismatch/rollout_is_eff_sample_size",
        "prob_gap": "training/rollout_probs_diff_mean",
        "prob_corr": "training/rollout_actor_probs_pearson_corr",
        "mismatch_kl": "rollout_corr/kl[>=0.6.1] rollout_corr/k3_kl mismatch/kl mismatch/mismatch_kl",
        "logprob_gap": "rollout_corr/log_ppl_abs_diff rollout_corr/log_ppl_diff",
        "policy_lag": "training/off_policy/trajectory_staleness/mean[>=0.9]",
        "advantage_mean": "critic/advantages/mean",
        "advantage_max": "critic/advantages/max",
        "advantage_min": "critic/advantages/min",
        "response_length": "response_length/mean",
        "response_length_max": "response_length/max",
        "prompt_length": "prompt_length/mean",
        "truncated_frac": "response_length/clip_ratio",
        "tool_calls": "tool_call_counts/mean[>=0.6]",
        "learning_rate": "actor/lr",
        "eval_score": "val-core/{src}/acc/mean@{n}[>=0.4] val-core/{src}/reward/mean@{n} val-core/{src}/mean@{n} "
        "val/test_score/{src}[<0.4] val/test_score val-aux/{src}/acc/mean@{n} val-aux/{src}/reward/mean@{n}",
        "pass_at_k": "val-core/{src}/acc/best@{n}/mean val-core/{src}/reward/best@{n}/mean",
        "step_time": "timing_s/step perf/time_per_step",
        "epoch": "training/epoch",
    },
    "RAGEN": {
        "group_reward_std": "rollout/in_group_reward_std rollout/in_group_std[v0423]",
        "reward_mean": "rollout/in_group_reward_mean rollout/in_group_mean",
        "filter_kept_frac": "rollout/filter_kept_ratio",
        "success_rate": "train/{env}/success",
        "response_length": "train/response_length",
        "num_turns": "train/{env}/num_actions",
        "valid_action_frac": "train/{env}/action_is_valid",
        "valid_thinking_frac": "collapse/valid_thinking_rate collapse/first_turn_valid_rate",
        "retrieval_acc": "collapse_first_turn_sample/retrieval_accuracy collapse_trajectory_sample/retrieval_accuracy "
        "collapse/retrieval_accuracy",
        "retrieval_chance": "collapse_first_turn_sample/retrieval_chance_level "
        "collapse_trajectory_sample/retrieval_chance_level collapse/retrieval_chance_level",
        "mi_zscore": "collapse_trajectory_sample/mi_zscore collapse_first_turn_sample/mi_zscore collapse/mi_zscore",
        "reasoning_entropy": "collapse_first_turn_sample/reasoning_entropy_est "
        "collapse_trajectory_sample/reasoning_entropy_est collapse/reasoning_entropy_est",
        "eval_score": "val-env/{env}/success",
        "pass_at_k": "val-env/{env}/pass@{k}",
        "step_time": "timing_s/total timing_s/train_total",
    },
    "VAGEN": {
        "reward_mean": "custom_metrics/train/reward_mean",
        "success_rate": "custom_metrics/train/success_rate",
        "eval_score": "val-aux/{env}/traj_success/mean@{n}",
    },
    "verl-agent": {
        "reward_mean": "episode/reward/mean",
        "reward_min": "episode/reward/min",
        "reward_max": "episode/reward/max",
        "success_rate": "episode/success_rate",
        "num_turns": "episode/length/mean",
        "tool_calls": "episode/tool_call_count/mean",
        "valid_action_frac": "episode/valid_action_ratio",
        "eval_score": "val/success_rate val/{src}/test_score",
    },
    "Search-R1": {
        "num_turns": "env/number_of_actions/mean",
        "tool_calls": "env/number_of_valid_search",
        "valid_action_frac": "env/ratio_of_valid_action",
    },
    "ToolRL": {"eval_score": "val/test_score/{src}"},
    "agent-lightning": {
        "reward_mean": "training/reward",
        "eval_score": "val/reward",
        "response_length": "response_length/training/avg_by_turn",
        "response_length_max": "response_length/training/max_by_turn",
    },
    "rLLM": {
        "reward_mean": "reward/default/mean reward/{role}/mean",
        "reward_std": "reward/default/std reward/{role}/std",
        "reward_max": "reward/default/max reward/{role}/max",
        "reward_min": "reward/default/min reward/{role}/min",
        "group_reward_std": "batch/{role}/group_reward_std/p50",
        "advantage_mean": "advantage/default/mean advantage/{role}/mean",
        "advantage_max": "advantage/default/max advantage/{role}/max",
        "advantage_min": "advantage/default/min advantage/{role}/min",
        "num_turns": "episode/num_turns batch/steps_per_traj/mean",
        "response_length": "episode/response_tokens batch/step_response_length/mean",
        "success_rate": "episode/correct",
        "eval_score": "val/{src}/pass@1",
        "pass_at_k": "val/{src}/pass@{n}",
    },
    "ROLL": {
        "reward_mean": "critic/score/mean rollout/score/mean critic/rewards/mean",
        "success_rate": "critic/correct/mean env/{tag}/success",
        "entropy": "critic/entropy/mean actor/entropy/mean",
        "kl_ref": "critic/kl actor/kl_loss",
        "kl_old": "actor/approxkl actor/policykl",
        "clip_frac": "actor/ppo_ratio_clipfrac",
        "is_ratio_mean": "actor/ratio_mean",
        "is_ratio_min": "actor/ratio_min",
        "grad_norm": "actor_train/grad_norm",
        "loss": "actor/total_loss",
        "logprob_gap": "actor/train_infer_diff_mean actor/train_infer_{kind}",
        "response_length": "tokens/response_length/mean rollout/response_length/mean",
        "response_length_max": "tokens/response_length/max",
        "prompt_length": "tokens/prompt_length/mean",
        "num_turns": "env/{tag}/num_actions",
        "eval_score": "val_correct/all/mean val_correct/{tag}/mean val/score/mean val/env/{tag}/success",
        "step_time": "time/step time/step_total",
    },
    "TRL": {
        "reward_mean": "reward",
        "reward_std": "reward_std[>=0.27]",
        "group_reward_std": "reward_std[<=0.26]",
        "zero_std_frac": "frac_reward_zero_std[>=0.18] zero_std_ratio",
        "entropy": "entropy[>=0.20]",
        "grad_norm": "grad_norm",
        "kl_ref": "kl",
        "clip_frac": "clip_ratio/region_mean[>=0.17] clip_ratio/high_mean clip_ratio/low_mean cispo_clip_ratio[>=0.26] "
        "clip_ratio[0.16]",
        "loss": "loss",
        "policy_loss": "policy_loss[>=1.9]",
        "is_ratio_mean": "ratio sampling/importance_sampling_ratio/mean[>=0.23]",
        "is_ratio_min": "sampling/importance_sampling_ratio/min",
        "ess_frac": "sampling/importance_sampling_ess",
        "logprob_gap": "sampling/sampling_logp_difference/mean[>=0.23]",
        "mismatch_kl": "sampling/rollout_kl_k1/mean sampling/rollout_kl_k3/mean",
        "response_length": "completions/mean_length[>=0.17] completion_length[<=0.16]",
        "response_length_max": "completions/max_length",
        "truncated_frac": "completions/clipped_ratio",
        "tool_calls": "tools/call_frequency[>=0.26]",
        "tool_error_frac": "tools/failure_frequency[>=0.26]",
        "learning_rate": "learning_rate",
        "eval_score": "eval_reward eval/reward",
        "step_time": "step_time[>=0.26]",
        "num_tokens": "num_tokens",
        "epoch": "epoch",
    },
    "AsyncGRPO": {"group_reward_std": "reward_std", "kl_old": "kl"},
    "TRL-PPO": {
        "reward_mean": "objective/scores objective/rlhf_reward ppo/mean_scores env/reward_mean",
        "reward_std": "ppo/std_scores env/reward_std",
        "entropy": "policy/entropy_avg objective/entropy",
        "kl_ref": "objective/kl",
        "kl_old": "policy/approxkl_avg ppo/policy/approxkl",
        "clip_frac": "policy/clipfrac_avg ppo/policy/clipfrac",
        "policy_loss": "loss/policy_avg ppo/loss/policy",
        "value_loss": "loss/value_avg ppo/loss/value",
        "loss": "ppo/loss/total",
        "explained_variance": "ppo/val/var_explained",
        "is_ratio_mean": "val/ratio",
        "response_length": "tokens/responses_len_mean",
        "learning_rate": "lr ppo/learning_rate",
    },
    "OpenRLHF": {
        "reward_mean": "train/rollout/reward_mean train/reward",
        "reward_std": "train/rollout/reward_std",
        "group_reward_std": "train/group_reward_std",
        "filter_kept_frac": "train/dynamic_filtering_pass_rate",
        "entropy": "train/entropy_loss",
        "grad_norm": "train/actor_grad_norm",
        "kl_ref": "train/kl",
        "kl_old": "train/ppo_kl",
        "clip_frac": "train/ppo_clip_ratio",
        "policy_loss": "train/policy_loss",
        "value_loss": "train/critic_loss",
        "mismatch_kl": "train/vllm_kl",
        "logprob_gap": "train/logprobs_diff",
        "response_length": "train/rollout/response_length_mean train/response_length",
        "truncated_frac": "train/rollout/truncated_rate train/truncated",
        "learning_rate": "train/actor_lr",
        "eval_score": "eval/eval_{ds}_pass1",
        "step_time": "train/timing/step_total",
    },
    "SkyRL": {
        "reward_mean": "reward/avg_raw_reward loss/avg_final_rewards",
        "entropy": "policy/policy_entropy",
        "grad_norm": "policy/grad_norm policy/raw_grad_norm[<=0.2]",
        "kl_ref": "policy/policy_kl loss/avg_kl",
        "clip_frac": "policy/loss_metrics/clip_ratio policy/ppo_clip_ratio[<=0.2]",
        "policy_loss": "policy/policy_loss",
        "loss": "policy/final_loss",
        "value_loss": "critic/critic_loss",
        "is_ratio_mean": "policy/loss_metrics/is_ratio_mean",
        "is_ratio_min": "policy/loss_metrics/is_ratio_min",
        "is_ratio_std": "policy/loss_metrics/is_ratio_std",
        "logprob_gap": "policy/rollout_train_logprobs_abs_diff_mean",
        "policy_lag": "async/staleness_mean",
        "advantage_mean": "loss/avg_raw_advantages",
        "response_length": "generate/avg_num_tokens policy/response_length",
        "response_length_max": "generate/max_num_tokens",
        "learning_rate": "policy/policy_lr",
        "eval_score": "eval/all/avg_score",
        "pass_at_k": "eval/all/pass_at_{n}",
        "step_time": "timing/step",
        "epoch": "trainer/epoch",
    },
    "slime": {
        "reward_mean": "rollout/raw_reward",
        "entropy": "train/entropy_loss",
        "grad_norm": "train/grad_norm",
        "critic_grad_norm": "train/critic-grad_norm",
        "kl_ref": "train/kl_loss",
        "kl_old": "train/ppo_kl",
        "clip_frac": "train/pg_clipfrac",
        "policy_loss": "train/pg_loss",
        "loss": "train/loss",
        "value_loss": "train/critic-value_loss train/critic-loss",
        "is_ratio_mean": "train/ois train/tis",
        "logprob_gap": "train/train_rollout_logprob_abs_diff",
        "advantage_mean": "rollout/advantages",
        "response_length": "rollout/response_len/mean rollout/response_lengths",
        "response_length_max": "rollout/response_len/max",
        "truncated_frac": "rollout/truncated_ratio rollout/truncated",
        "repetitive_frac": "rollout/repetition_frac",
        "num_turns": "multi_turn/multi_turn_metric/round_number_mean",
        "learning_rate": "train/lr-pg_0",
        "eval_score": "eval/{ds}",
        "pass_at_k": "passrate/pass@{k}",
        "step_time": "perf/step_time",
    },
    "AReaL": {
        "reward_mean": "ppo_actor/task_reward/avg rollout/reward",
        "reward_min": "ppo_actor/task_reward/min",
        "reward_max": "ppo_actor/task_reward/max",
        "entropy": "ppo_actor/update/entropy/avg",
        "grad_norm": "ppo_actor/update/grad_norm",
        "critic_grad_norm": "ppo_critic/update/grad_norm",
        "kl_old": "ppo_actor/update/approx_kl/avg",
        "clip_frac": "ppo_actor/update/clip_ratio/avg ppo_actor/update/dual_clip_ratio/avg",
        "policy_loss": "ppo_actor/update/actor_loss/avg",
        "value_loss": "ppo_critic/update/loss/avg ppo_critic/update/value_loss/avg ppo_critic/update/critic_loss/avg",
        "is_ratio_mean": "ppo_actor/update/importance_weight/avg ppo_actor/update/behave_imp_weight/avg",
        "is_ratio_min": "ppo_actor/update/importance_weight/min",
        "mismatch_kl": "ppo_actor/update/behave_approx_kl/avg",
        "advantage_mean": "ppo_actor/advantages/avg",
        "advantage_max": "ppo_actor/advantages/max",
        "advantage_min": "ppo_actor/advantages/min",
        "response_length": "ppo_actor/seq_len/avg",
        "prompt_length": "ppo_actor/prompt_len/avg",
        "truncated_frac": "ppo_actor/no_eos_ratios/avg",
        "learning_rate": "ppo_actor/update/lr",
        "eval_score": "eval-rollout/reward",
        "step_time": "timeperf/step timeperf/train_step",
    },
    "NeMo-RL": {
        "reward_mean": "train/reward",
        "entropy": "train/approx_entropy",
        "grad_norm": "train/grad_norm",
        "kl_ref": "train/kl_penalty",
        "clip_frac": "train/probs_ratio_clamped_frac",
        "loss": "train/loss",
        "is_ratio_mean": "train/probs_ratio train/sampling_importance_ratio",
        "is_ratio_min": "train/probs_ratio_min",
        "mismatch_kl": "train/gen_kl_error train/policy_kl_error train/js_divergence_error",
        "advantage_mean": "train/advantages/mean",
        "advantage_max": "train/advantages/max",
        "advantage_min": "train/advantages/min",
        "response_length": "train/mean_gen_tokens_per_sample",
        "response_length_max": "train/max_gen_tokens_per_sample",
        "prompt_length": "train/mean_prompt_length",
        "truncated_frac": "train/truncation_rate",
        "num_turns": "train/avg_turns_per_sample train/turns_per_sample/mean",
        "learning_rate": "train/lr",
        "eval_score": "validation/accuracy",
        "pass_at_k": "validation/pass_k validation/pass_at_{k}",
        "step_time": "timing/train/total_step_time",
    },
    "prime-rl": {
        "reward_mean": "train/agg/effective/{agent}/reward/mean[>=0.7] train/agg/effective/reward/mean[0.7] "
        "train/agg/all/{agent}/reward/mean train/{env}/effective/{agent}/reward/mean reward/all/mean[0.5-0.6] "
        "reward/mean[0.3-0.4]",
        "reward_min": "train/agg/effective/{agent}/reward/min train/agg/effective/reward/min reward/all/min",
        "reward_max": "train/agg/effective/{agent}/reward/max train/agg/effective/reward/max reward/all/max",
        "entropy": "entropy/all/mean[>=0.6] entropy/mean[<=0.5]",
        "grad_norm": "optim/grad_norm",
        "clip_frac": "is_masked/all/mean is_masked/mean",
        "loss": "loss/mean",
        "is_ratio_mean": "importance_ratio/all/mean importance_ratio/mean",
        "is_ratio_min": "importance_ratio/all/min importance_ratio/min",
        "is_ratio_std": "importance_ratio/all/std importance_ratio/std",
        "mismatch_kl": "mismatch_kl/all/mean[>=0.6] mismatch_kl/mean[<=0.5]",
        "kl_ref": "ref_kl/all/mean ref_kl/mean",
        "policy_lag": "off_policy/mean batch/off_policy_level/mean off_policy_level/all/mean",
        "response_length": "train/agg/effective/{agent}/num_output_tokens/mean train/agg/effective/num_output_tokens/mean "
        "decode_len/all/mean seq_len/mean",
        "response_length_max": "train/agg/effective/{agent}/num_output_tokens/max train/agg/effective/num_output_tokens/max "
        "decode_len/all/max",
        "prompt_length": "train/agg/effective/{agent}/num_input_tokens/mean train/agg/effective/num_input_tokens/mean",
        "truncated_frac": "train/agg/effective/{agent}/is_truncated/mean train/agg/effective/is_truncated/mean "
        "is_truncated/all/mean is_truncated/mean",
        "num_turns": "train/agg/effective/{agent}/num_turns/mean train/agg/effective/num_turns/mean "
        "num_turns/all/mean num_turns/mean",
        "learning_rate": "optim/lr",
        "eval_score": "eval/{env}/effective/{agent}/avg@{k} eval/{env}/avg@{k}",
        "pass_at_k": "eval/{env}/effective/{agent}/pass@{k} eval/{env}/pass@{k}",
        "step_time": "time/step",
        "wall_time": "time",
    },
    "Tinker": {
        "reward_mean": "env/all/reward/total",
        "zero_std_all_fail_frac": "env/all/by_group/frac_all_bad",
        "zero_std_all_pass_frac": "env/all/by_group/frac_all_good",
        "success_rate": "env/all/correct env/all/success env/all/pass_rate",
        "entropy": "optim/entropy",
        "grad_norm": "optim/grad_norm optim/unclipped_grad_l2:mean",
        "kl_ref": "kl_policy_base",
        "kl_old": "kl_pre_post_v1 kl_pre_post_v2",
        "mismatch_kl": "optim/kl_sample_train_v1 optim/kl_sample_train_v2",
        "response_length": "env/all/ac_tokens_per_turn",
        "prompt_length": "env/all/ob_tokens_per_turn",
        "truncated_frac": "env/all/stop/length env/all/stop/truncated stop/length",
        "num_turns": "env/all/turns_per_episode",
        "valid_action_frac": "env/all/format",
        "learning_rate": "optim/lr",
        "eval_score": "test/env/all/reward/total",
        "step_time": "time/total",
    },
    "open-instruct": {
        "reward_mean": "objective/verifiable_reward scores",
        "success_rate": "objective/verifiable_correct_rate",
        "filter_kept_frac": "real_batch_size_ratio",
        "entropy": "policy/entropy_avg",
        "grad_norm": "optim/grad_norm",
        "kl_ref": "objective/kl2_avg objective/kl1_avg objective/kl0_avg objective/kl3_avg loss/kl_avg",
        "clip_frac": "policy/clipfrac_avg",
        "policy_loss": "loss/policy_avg",
        "loss": "loss/total_avg",
        "is_ratio_mean": "val/ratio",
        "logprob_gap": "debug/vllm_vs_local_logprob_diff_mean",
        "mismatch_kl": "debug/vllm_local_reverse_kl",
        "advantage_mean": "val/advantages_mean",
        "advantage_max": "val/advantages_max",
        "advantage_min": "val/advantages_min",
        "response_length": "val/sequence_lengths",
        "response_length_max": "val/sequence_lengths_max",
        "learning_rate": "lr",
        "eval_score": "eval/scores",
        "pass_at_k": "eval/pass_at_{k}",
        "step_time": "time/total",
    },
    "ms-swift": {
        "group_reward_std": "reward_std",
        "entropy": "entropy/mean",
        "num_turns": "num_turns",
        "mismatch_kl": "rollout_correction/kl",
        "is_ratio_mean": "rollout_correction/is_weight_mean",
        "ess_frac": "rollout_correction/ess",
        "step_time": "train_speed(s/it)",
    },
    "Unsloth": {"kl_ref": "kl", "response_length": "completions/mean_length completion_length"},
    "": {  # what people call things when they write the loop themselves
        "success_rate": "success_rate batch_accuracy train_accuracy accuracy success solve_rate correct_rate pass_rate acc "
        "correct reward/correct",
        "eval_score": "val_success eval_score val_score test_score eval_accuracy val_accuracy test_accuracy eval_acc val_acc "
        "test_acc eval/accuracy val/accuracy eval/success_rate val/success eval/score val/score eval_success_rate "
        "eval_reward_mean eval/mean_reward eval/reward_mean val/reward val_reward eval_mean_reward "
        "test/reward test/accuracy eval_combined "
        "heldout_score validation/reward",
        "pass_at_k": "eval/pass@k pass@k pass_at_k eval_pass_at_k",
        "zero_std_frac": "frac_zero_std frac_zero zero_std_frac zero_variance_frac frac_zero_var dead_groups_frac "
        "zero_std_ratio frac_degenerate_groups zero_advantage_frac",
        "group_reward_std": "in_group_reward_std in_group_std intra_group_std within_group_std group_std "
        "group_reward_std_mean rollout/group_reward_std",
        "truncated_frac": "truncated_frac clip_ratio_length truncation_rate truncated_ratio truncation_ratio truncated_rate "
        "frac_truncated clipped_ratio",
        "valid_action_frac": "valid_action valid_action_rate format_rate format_ok_rate valid_rate valid_action_ratio",
        "kl_old": "approx_kl approxkl ppo_kl kl_old old_approx_kl",
        "kl_ref": "kl kl_ref ref_kl kl_div kl_divergence kl_loss kl_to_ref mean_kl kl_mean kl_penalty",
        "clip_frac": "clip_frac clipfrac clip_fraction pg_clipfrac clip_ratio",
        "policy_loss": "policy_loss pg_loss loss_pg actor_loss policy_gradient_loss loss/policy",
        "value_loss": "value_loss critic_loss vf_loss loss/value",
        "loss": "loss total_loss train_loss loss/total",
        "explained_variance": "explained_variance explained_var vf_explained_var",
        "is_ratio_mean": "ratio mean_ratio ratio_mean importance_ratio",
        "num_turns": "num_turns avg_turns mean_turns turns turns_per_episode episode_length",
        "tool_calls": "tool_calls num_tool_calls avg_tool_calls mean_tool_calls",
        "tool_error_frac": "tool_error_rate tool_failure_rate tool_error_frac judge_err_rate",
        "learning_rate": "learning_rate lr",
        "response_length_max": "max_gen_tokens max_response_length max_completion_length response_length_max max_length",
        "reward_max": "max_reward reward_max",
        "reward_min": "min_reward reward_min",
        "step_time": "step_time iter_time_s time_per_step iteration_time sec_per_step",
        "wall_time": "timestamp wall_time _timestamp time",
        "num_tokens": "num_tokens total_tokens tokens_seen",
        "epoch": "epoch progress/epoch",
        "advantage_mean": "mean_advantage advantage_mean",
        "rollout_count": "rollout_count num_rollouts n_rollouts",
        "group_count": "n_groups num_groups group_count",
        "group_size": "group_size num_generations",
        "policy_lag": "staleness policy_lag off_policy_steps",
    },
}  # fmt: skip
"""Framework to canonical name to keys; ``""`` holds names of home-made loops."""

PARENTS: dict[str, tuple[str, ...]] = {
    "RAGEN": ("verl",), "VAGEN": ("verl",), "verl-agent": ("verl",), "Search-R1": ("verl",), "ToolRL": ("verl",),
    "agent-lightning": ("verl",), "rLLM": ("verl",), "ROLL": ("verl",), "ms-swift": ("TRL",), "Unsloth": ("TRL",),
    "AsyncGRPO": ("TRL",),
}  # fmt: skip
"""Whose keys a framework inherits."""

MISLEADING: dict[str, tuple[str, ...]] = {
    "verl": ("num_turns/mean", "training/num_turns/mean"),
    "RAGEN": ("response_length/mean", "response_length/max", "prompt_length/mean", "response_length/clip_ratio"),
    "slime": ("rollout/rewards",),
    "verl-agent": (
        "critic/score/mean",
        "critic/score/min",
        "critic/score/max",
        "critic/rewards/mean",
        "critic/rewards/min",
        "critic/rewards/max",
    ),
}
"""Keys that say something else in this framework than their name suggests."""

MARKS: tuple[tuple[str, str], ...] = (
    ("RAGEN", "collapse_first_turn_sample/*"), ("RAGEN", "rollout/in_group_*"), ("RAGEN", "early_stopped/*"),
    ("RAGEN", "metric/total_env"),
    ("VAGEN", "custom_metrics/train/reward_variance"), ("VAGEN", "filter/train/*"),
    ("verl-agent", "episode/valid_action_ratio"), ("verl-agent", "episode/reward/mean critic/score/mean"),
    ("Search-R1", "env/number_of_actions/mean"), ("Search-R1", "state_tokens/coverage"),
    ("ToolRL", "critic/format_score/mean"), ("ToolRL", "critic/correctness_score/mean"),
    ("agent-lightning", "training/n_zero_adv_groups"), ("agent-lightning", "training/n_rollouts_w_trace"),
    ("rLLM", "batch/solve_none critic/score/mean"), ("rLLM", "batch/{role}/fractions/effective"),
    ("ROLL", "critic/score/mean tokens/response_length/mean"), ("ROLL", "critic/score/mean system/batch_size"),
    ("verl", "critic/score/mean actor/pg_loss"), ("verl", "actor/pg_loss actor/grad_norm"),
    ("verl", "critic/score/mean response_length/mean"),
    ("OpenRLHF", "train/rollout/reward_mean"), ("OpenRLHF", "train/policy_loss train/actor_lr"),
    ("OpenRLHF", "policy_loss actor_lr"),
    ("SkyRL", "policy/policy_entropy"), ("SkyRL", "policy/loss_metrics/clip_ratio"), ("SkyRL", "reward/avg_raw_reward"),
    ("slime", "rollout/raw_reward train/pg_clipfrac"), ("slime", "rollout/raw_reward rollout/response_len/mean"),
    ("AReaL", "ppo_actor/update/*"),
    ("NeMo-RL", "train/token_mult_prob_error"),
    ("prime-rl", "mismatch_kl/* optim/lr"), ("prime-rl", "train/agg/effective/* optim/lr"),
    ("Tinker", "env/all/by_group/frac_mixed"),
    ("open-instruct", "val/total_reward_groups objective/*"), ("open-instruct", "objective/verifiable_reward"),
    ("TRL-PPO", "objective/rlhf_reward"), ("TRL-PPO", "ppo/mean_scores"), ("TRL-PPO", "env/reward_mean"),
    ("ms-swift", "global_step/max_steps"),
    ("AsyncGRPO", "reward ratio weight_sync_time_s"), ("AsyncGRPO", "reward ratio training_tok/s"),
    ("Unsloth", "completion_length completions/mean_length reward"), ("Unsloth", "sampling/rollout_kl_k1/mean"),
    ("TRL", "completions/mean_length reward"),
    ("TRL", "completion_length reward learning_rate epoch"), ("TRL", "completion_length reward rewards/*"),
    ("TRL", "frac_reward_zero_std reward learning_rate epoch"),
    ("verl", "critic/score/mean"), ("verl", "actor/grad_norm"), ("verl", "val-core/*"),
)  # fmt: skip
"""Framework and keys that, all present, tell it; the first match wins, because several are verl supersets."""

STEP_KEYS = (
    "training_step", "train/global_step", "trainer/global_step", "training/global_step", "global_step/max_steps",
    "rollout/step", "eval/step", "train/step", "step", "global_step",
)  # fmt: skip
"""Keys that hold the training step, best first. They win over the step of the container, which may count log calls."""

WEAK_STEP_KEYS = (
    "iteration", "iter", "current_step", "current_steps", "train_step", "optimizer_step", "num_updates",
    "progress/batch", "progress/step", "update", "rollout_id", "batch", "_step", "gen_step", "episode",
    "it", "itr", "iterations", "updates", "n_updates", "gradient_step", "train/iteration", "train/iter", "epoch",
)  # fmt: skip
"""Keys that serve as the step where neither a step key nor the container has one."""

EVAL_PREFIX = re.compile(
    r"^(?:eval(?:uation)?[/_.]|eval-rollout/|val(?:idation)?[/_.]|val-(?:core|aux|env)/|test[/_.]|dev[/_.]|val_correct/)"
)
"""How keys of held-out evaluation begin."""

NOT_EVAL = frozenset({"open-instruct", "TRL-PPO"})
"""Frameworks in which ``val/`` means value statistics."""

SPLIT_KEYS = ("split", "phase", "mode", "stage", "type", "event", "kind", "subset")
"""Keys whose text may say that a row is an evaluation."""

EVAL_WORD = re.compile(r"(?:eval|val|valid|test|held|dev)", re.IGNORECASE)

PERCENT = re.compile(r"(?:rate|acc|frac|ratio|pct|percent|pass|share)", re.IGNORECASE)
"""A share whose key says such a word and that exceeds 1 is a percentage."""

SUMMARY_KEYS = frozenset({"train_runtime", "train_samples_per_second", "last_model_checkpoint", "best_model_checkpoint"})
"""A row that has one of these sums up the run."""

UPDATE_FIELDS = frozenset({
    "entropy", "kl_ref", "kl_old", "grad_norm", "critic_grad_norm", "loss", "policy_loss", "value_loss", "clip_frac",
    "is_ratio_mean", "is_ratio_min", "is_ratio_std",
})  # fmt: skip
"""What an optimiser step yields; a dense one that goes missing while others go on is suspected of not being finite."""

TOKENS: tuple[tuple[str, str], ...] = (
    ("reward_mean", "reward"), ("reward_mean", "return"), ("reward_mean", "score"), ("reward_mean", "episode reward"),
    ("reward_mean", "episode return"), ("reward_mean", "ep reward"), ("reward_mean", "ep return"), ("reward_mean", "ep rew"),
    ("reward_mean", "raw reward"), ("reward_mean", "total reward"), ("reward_mean", "task reward"),
    ("reward_std", "reward std"), ("reward_std", "std score"),
    ("group_reward_std", "group reward std"), ("group_reward_std", "in group reward std"),
    ("group_reward_std", "within group reward std"), ("group_reward_std", "intra group reward std"),
    ("zero_std_frac", "frac reward zero std"), ("zero_std_frac", "zero std frac"), ("zero_std_frac", "zero variance frac"),
    ("success_rate", "success rate"), ("success_rate", "accuracy"), ("success_rate", "solve rate"), ("success_rate", "pass rate"),
    ("entropy", "entropy"), ("entropy", "token entropy"), ("entropy", "entropy loss"),
    ("kl_old", "approx kl"), ("kl_old", "kl old"), ("kl_old", "ppo kl"),
    ("kl_ref", "kl"), ("kl_ref", "kl ref"), ("kl_ref", "kl reference"), ("kl_ref", "kl div"), ("kl_ref", "kl divergence"),
    ("grad_norm", "grad norm before clip"), ("grad_norm", "unclipped grad norm"), ("grad_norm", "grad norm pre clip"),
    ("grad_norm", "grad norm"), ("grad_norm", "gradient norm"), ("grad_norm", "global grad norm"), ("grad_norm", "total norm"),
    ("grad_norm", "gradnorm"),
    ("loss", "loss"), ("loss", "total loss"), ("value_loss", "value loss"), ("value_loss", "critic loss"),
    ("learning_rate", "lr"), ("learning_rate", "learning rate"),
    ("clip_frac", "clip frac"), ("clip_frac", "clip fraction"),
    ("truncated_frac", "truncated frac"), ("truncated_frac", "truncation rate"), ("truncated_frac", "truncated ratio"),
    ("response_length", "response length"), ("response_length", "completion length"), ("response_length", "gen tokens"),
    ("response_length", "output tokens"), ("response_length", "response tokens"), ("response_length", "completion tokens"),
    ("response_length", "generated tokens"), ("response_length", "tokens generated"), ("response_length", "generation length"),
    ("response_length", "response len"), ("response_length", "completion len"), ("response_length", "gen length"),
    ("response_length", "gen len"), ("response_length", "output length"), ("response_length", "output len"),
    ("response_length", "seq length"), ("response_length", "tokens response"), ("response_length", "length"),
    ("prompt_length", "prompt length"), ("prompt_length", "prompt tokens"), ("prompt_length", "prompt len"),
    ("num_turns", "turns"), ("num_turns", "turns episode"), ("tool_calls", "tool calls"),
)  # fmt: skip
"""Words that a home-made key comes down to once filler is taken away, whatever their order and separators."""

GUESSES: tuple[tuple[str, str], ...] = (
    ("reward_mean", "rewards"), ("reward_mean", "returns"), ("reward_mean", "scores"), ("reward_mean", "rew"),
    ("reward_mean", "ret"), ("reward_mean", "rwd"),
    ("reward_std", "rewards std"), ("reward_std", "return std"), ("reward_std", "returns std"), ("reward_std", "scores std"),
    ("reward_std", "rew std"), ("reward_std", "ep rew std"), ("reward_std", "reward stddev"), ("reward_std", "reward stdev"),
    ("group_reward_std", "group rewards std"), ("group_reward_std", "group score std"), ("group_reward_std", "group rew std"),
    ("zero_std_frac", "frac zero std groups"), ("zero_std_frac", "zero std groups frac"), ("zero_std_frac", "zero var frac"),
    ("zero_std_frac", "dead groups frac"), ("zero_std_frac", "dead group frac"), ("zero_std_frac", "zero std rate"),
    ("success_rate", "win rate"), ("success_rate", "winrate"), ("success_rate", "succ rate"), ("success_rate", "solved frac"),
    ("success_rate", "correct frac"), ("success_rate", "success frac"), ("success_rate", "pct correct"),
    ("success_rate", "acc"), ("success_rate", "succ"),
    ("eval_score", "heldout acc"), ("eval_score", "heldout accuracy"), ("eval_score", "heldout reward"),
    ("eval_score", "held out acc"), ("eval_score", "held out accuracy"), ("eval_score", "held out reward"),
    ("entropy", "ent"), ("entropy", "h pi"), ("entropy", "entropies"), ("entropy", "policy ent"),
    ("kl_ref", "kld"), ("kl_ref", "ref kld"), ("kl_ref", "kl ref model"), ("kl_ref", "kl to ref"), ("kl_old", "approx kl div"),
    ("grad_norm", "gnorm"), ("grad_norm", "g norm"), ("grad_norm", "total grad norm"), ("grad_norm", "total gradient norm"),
    ("grad_norm", "grad l2"), ("grad_norm", "grad l2 norm"), ("grad_norm", "gradient l2 norm"),
    ("response_length", "resp len"), ("response_length", "resp length"), ("response_length", "len"),
    ("response_length", "lengths"), ("response_length", "tokens mean"), ("response_length", "tokens avg"),
    ("response_length", "tok resp"), ("response_length", "resp tokens"), ("response_length", "comp len"),
    ("response_length", "resp toks"), ("response_length", "new tokens mean"), ("response_length", "new tokens avg"),
    ("truncated_frac", "trunc"), ("truncated_frac", "truncated"), ("truncated_frac", "trunc frac"),
    ("truncated_frac", "trunc rate"), ("truncated_frac", "trunc ratio"),
    ("value_loss", "vf loss"), ("clip_frac", "clipfrac"), ("num_turns", "n turns"),
)  # fmt: skip
"""The same, for abbreviations that are the likely reading and no more; filler may be part of one."""

FILLER = frozenset({
    "train", "training", "mean", "avg", "average", "metrics", "metric", "the", "batch", "stats", "rollouts", "num", "optim",
    "per", "all", "trainer", "actor", "policy", "rollout", "grpo", "rl", "agent", "env",
})  # fmt: skip

CONFIG_KEYS: dict[str, str] = {
    "group_size": "num_generations n_samples_per_prompt group_size actor_rollout_ref.rollout.n rollout.n "
    "num_samples_per_prompt_rollout rollouts_per_example num_generations_per_prompt grpo.num_generations_per_prompt "
    "generator.n_samples_per_prompt num_return_sequences_in_group rollout_n es_manager.train.group_size "
    "gconfig.n_samples orchestrator.rollouts_per_example",
    "prompts_per_step": "num_prompts_per_step grpo.num_prompts_per_step data.train_batch_size groups_per_batch "
    "rollout_batch_size num_unique_prompts_rollout es_manager.train.env_groups generation_prompts",
    "max_turns": "max_turns agent_proxy.max_turn max_rollout_turns actor_rollout_ref.rollout.multi_turn.max_turns "
    "max_tool_calling_iterations actor_rollout_ref.rollout.multi_turn.max_assistant_turns max_steps_per_traj",
    "format_penalty": "format_penalty es_manager.format_penalty env.format_penalty",
    "length_limit": "max_completion_length max_new_tokens data.max_response_length response_length max_tokens "
    "rollout_max_response_len generate_max_len gconfig.max_new_tokens generator.sampling_params.max_generate_length "
    "actor_rollout_ref.rollout.response_length policy.generation.max_new_tokens",
    "max_steps": "max_steps trainer.total_training_steps total_training_steps num_rollout grpo.max_num_steps "
    "num_training_steps trainer.max_steps",
    "save_interval": "save_steps trainer.save_freq save_freq save_interval save_every ckpt_interval trainer.ckpt_interval "
    "checkpointing.save_period saver.freq_steps",
    "reward_min": "reward_min min_reward",
    "reward_max": "reward_max max_reward",
}
"""Facts of :class:`echotrap.record.RunConfig` to the configuration keys that hold them."""
