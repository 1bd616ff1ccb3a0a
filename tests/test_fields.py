"""Raw keys become canonical signals: every framework of the schema survey, and what people call things at home."""

from __future__ import annotations

import pytest

from echotrap.assemble.naming import aliases, framework_of, name_keys
from echotrap.fields import ALIASES, FIELDS, MARKS

# What each framework logs, as surveyed: keys that tell the framework, then key -> signal.
MATRIX: dict[str, tuple[str, dict[str, str]]] = {
    "verl": (
        "critic/score/mean actor/pg_loss",
        {
            "critic/score/mean": "reward_mean", "critic/score/min": "reward_min", "critic/score/max": "reward_max",
            "actor/entropy": "entropy", "actor/grad_norm": "grad_norm", "critic/grad_norm": "critic_grad_norm",
            "actor/kl_loss": "kl_ref", "actor/ppo_kl": "kl_old", "actor/pg_clipfrac": "clip_frac",
            "actor/pg_loss": "policy_loss", "critic/vf_loss": "value_loss", "critic/vf_explained_var": "explained_variance",
            "rollout_corr/rollout_is_mean": "is_ratio_mean", "training/rollout_probs_diff_mean": "prob_gap",
            "training/rollout_actor_probs_pearson_corr": "prob_corr", "rollout_corr/kl": "mismatch_kl",
            "response_length/mean": "response_length", "response_length/max": "response_length_max",
            "response_length/clip_ratio": "truncated_frac", "tool_call_counts/mean": "tool_calls",
            "critic/advantages/max": "advantage_max", "critic/advantages/min": "advantage_min",
            "critic/advantages/mean": "advantage_mean", "actor/lr": "learning_rate", "timing_s/step": "step_time",
            "val-core/gsm8k/acc/mean@1": "eval_score", "training/off_policy/trajectory_staleness/mean": "policy_lag",
        },
    ),
    "RAGEN": (
        "collapse_first_turn_sample/mi_estimate critic/score/mean",
        {
            "rollout/in_group_reward_std": "group_reward_std", "rollout/in_group_reward_mean": "reward_mean",
            "rollout/filter_kept_ratio": "filter_kept_frac", "train/response_length": "response_length",
            "train/CoordSokoban/success": "success_rate", "train/CoordSokoban/num_actions": "num_turns",
            "train/CoordSokoban/action_is_valid": "valid_action_frac", "collapse/valid_thinking_rate": "valid_thinking_frac",
            "collapse_first_turn_sample/retrieval_accuracy": "retrieval_acc",
            "collapse_trajectory_sample/mi_zscore": "mi_zscore", "val-env/CoordSokoban/success": "eval_score",
            "actor/entropy": "entropy", "val-env/CoordSokoban/pass@8": "pass_at_k",
            "collapse_first_turn_sample/retrieval_chance_level": "retrieval_chance",
            "collapse_first_turn_sample/reasoning_entropy_est": "reasoning_entropy", "timing_s/total": "step_time",
        },
    ),
    "VAGEN": (
        "custom_metrics/train/reward_variance",
        {"critic/score/mean": "reward_mean", "val-aux/sokoban/traj_success/mean@1": "eval_score", "actor/entropy": "entropy"},
    ),
    "verl-agent": (
        "episode/valid_action_ratio critic/score/mean",
        {
            "episode/reward/mean": "reward_mean", "episode/success_rate": "success_rate", "episode/length/mean": "num_turns",
            "episode/tool_call_count/mean": "tool_calls", "episode/valid_action_ratio": "valid_action_frac",
            "actor/entropy_loss": "entropy", "val/success_rate": "eval_score",
        },
    ),
    "Search-R1": (
        "env/number_of_actions/mean critic/score/mean",
        {
            "env/number_of_actions/mean": "num_turns", "env/ratio_of_valid_action": "valid_action_frac",
            "env/number_of_valid_search": "tool_calls", "actor/ppo_kl": "kl_old", "response_length/clip_ratio": "truncated_frac",
            "actor/entropy_loss": "entropy", "critic/kl": "kl_ref", "val/test_score/nq": "eval_score",
        },
    ),
    "ToolRL": ("critic/format_score/mean", {"val/test_score/rlla": "eval_score", "critic/score/mean": "reward_mean"}),
    "agent-lightning": (
        "training/n_zero_adv_groups",
        {"training/reward": "reward_mean", "val/reward": "eval_score", "response_length/training/avg_by_turn": "response_length"},
    ),
    "rLLM": (
        "batch/default/fractions/effective",
        {"reward/default/mean": "reward_mean", "reward/default/std": "reward_std", "val/gsm8k/pass@1": "eval_score",
         "episode/num_turns": "num_turns", "batch/default/group_reward_std/p50": "group_reward_std",
         "advantage/default/mean": "advantage_mean", "advantage/default/max": "advantage_max", "val/gsm8k/pass@4": "pass_at_k"},
    ),
    "ROLL": (
        "critic/score/mean tokens/response_length/mean",
        {"critic/score/mean": "reward_mean", "critic/entropy/mean": "entropy", "critic/kl": "kl_ref",
         "actor/approxkl": "kl_old", "actor/ppo_ratio_clipfrac": "clip_frac", "actor/ratio_mean": "is_ratio_mean",
         "actor_train/grad_norm": "grad_norm", "tokens/response_length/mean": "response_length",
         "critic/correct/mean": "success_rate"},
    ),
    "TRL": (
        "reward completions/mean_length entropy",
        {
            "reward": "reward_mean", "frac_reward_zero_std": "zero_std_frac", "entropy": "entropy", "grad_norm": "grad_norm",
            "kl": "kl_ref", "clip_ratio/region_mean": "clip_frac", "loss": "loss", "policy_loss": "policy_loss",
            "sampling/importance_sampling_ratio/mean": "is_ratio_mean", "sampling/importance_sampling_ratio/min": "is_ratio_min",
            "sampling/sampling_logp_difference/mean": "logprob_gap", "completions/mean_length": "response_length",
            "completions/max_length": "response_length_max", "completions/clipped_ratio": "truncated_frac",
            "tools/call_frequency": "tool_calls", "tools/failure_frequency": "tool_error_frac",
            "learning_rate": "learning_rate", "eval_reward": "eval_score", "step_time": "step_time",
        },
    ),
    "TRL-PPO": (
        "objective/rlhf_reward",
        {"objective/scores": "reward_mean", "policy/entropy_avg": "entropy", "objective/kl": "kl_ref",
         "policy/approxkl_avg": "kl_old", "policy/clipfrac_avg": "clip_frac", "loss/policy_avg": "policy_loss",
         "loss/value_avg": "value_loss", "val/ratio": "is_ratio_mean", "lr": "learning_rate"},
    ),
    "OpenRLHF": (
        "train/rollout/reward_mean",
        {
            "train/rollout/reward_mean": "reward_mean", "train/rollout/reward_std": "reward_std",
            "train/group_reward_std": "group_reward_std", "train/dynamic_filtering_pass_rate": "filter_kept_frac",
            "train/entropy_loss": "entropy", "train/actor_grad_norm": "grad_norm", "train/kl": "kl_ref",
            "train/ppo_kl": "kl_old", "train/ppo_clip_ratio": "clip_frac", "train/policy_loss": "policy_loss",
            "train/critic_loss": "value_loss", "train/vllm_kl": "mismatch_kl",
            "train/rollout/response_length_mean": "response_length", "train/rollout/truncated_rate": "truncated_frac",
            "train/actor_lr": "learning_rate", "eval/eval_math_pass1": "eval_score", "train/timing/step_total": "step_time",
        },
    ),
    "SkyRL": (
        "policy/policy_entropy",
        {
            "reward/avg_raw_reward": "reward_mean", "policy/policy_entropy": "entropy", "policy/grad_norm": "grad_norm",
            "policy/policy_kl": "kl_ref", "policy/loss_metrics/clip_ratio": "clip_frac", "policy/policy_loss": "policy_loss",
            "policy/final_loss": "loss", "critic/critic_loss": "value_loss",
            "policy/loss_metrics/is_ratio_mean": "is_ratio_mean", "policy/loss_metrics/is_ratio_std": "is_ratio_std",
            "policy/loss_metrics/is_ratio_min": "is_ratio_min",
            "policy/rollout_train_logprobs_abs_diff_mean": "logprob_gap", "generate/avg_num_tokens": "response_length",
            "generate/max_num_tokens": "response_length_max", "loss/avg_raw_advantages": "advantage_mean",
            "policy/policy_lr": "learning_rate", "eval/all/avg_score": "eval_score", "eval/all/pass_at_4": "pass_at_k",
            "timing/step": "step_time",
            "async/staleness_mean": "policy_lag",
        },
    ),
    "slime": (
        "rollout/raw_reward train/pg_clipfrac",
        {
            "rollout/raw_reward": "reward_mean", "train/entropy_loss": "entropy", "train/grad_norm": "grad_norm",
            "train/kl_loss": "kl_ref", "train/ppo_kl": "kl_old", "train/pg_clipfrac": "clip_frac", "train/pg_loss": "policy_loss",
            "train/loss": "loss", "train/ois": "is_ratio_mean", "train/train_rollout_logprob_abs_diff": "logprob_gap",
            "rollout/response_len/mean": "response_length", "rollout/response_len/max": "response_length_max",
            "rollout/truncated_ratio": "truncated_frac", "rollout/advantages": "advantage_mean",
            "train/lr-pg_0": "learning_rate", "eval/aime": "eval_score", "perf/step_time": "step_time",
            "multi_turn/multi_turn_metric/round_number_mean": "num_turns", "train/critic-value_loss": "value_loss",
        },
    ),
    "AReaL": (
        "ppo_actor/update/entropy/avg",
        {
            "ppo_actor/task_reward/avg": "reward_mean", "ppo_actor/update/entropy/avg": "entropy",
            "ppo_actor/update/grad_norm": "grad_norm", "ppo_actor/update/approx_kl/avg": "kl_old",
            "ppo_actor/update/clip_ratio/avg": "clip_frac", "ppo_actor/update/actor_loss/avg": "policy_loss",
            "ppo_actor/update/importance_weight/avg": "is_ratio_mean",
            "ppo_actor/update/importance_weight/min": "is_ratio_min",
            "ppo_actor/update/behave_approx_kl/avg": "mismatch_kl", "ppo_actor/seq_len/avg": "response_length",
            "ppo_actor/no_eos_ratios/avg": "truncated_frac", "ppo_actor/advantages/avg": "advantage_mean",
            "ppo_actor/update/lr": "learning_rate", "eval-rollout/reward": "eval_score", "timeperf/train_step": "step_time",
            "ppo_critic/update/loss/avg": "value_loss", "ppo_critic/update/grad_norm": "critic_grad_norm",
            "ppo_actor/prompt_len/avg": "prompt_length", "ppo_actor/task_reward/max": "reward_max",
        },
    ),
    "NeMo-RL": (
        "train/token_mult_prob_error",
        {
            "train/reward": "reward_mean", "train/approx_entropy": "entropy", "train/grad_norm": "grad_norm",
            "train/kl_penalty": "kl_ref", "train/loss": "loss", "train/probs_ratio": "is_ratio_mean",
            "train/probs_ratio_min": "is_ratio_min", "train/gen_kl_error": "mismatch_kl",
            "train/mean_gen_tokens_per_sample": "response_length", "train/truncation_rate": "truncated_frac",
            "train/avg_turns_per_sample": "num_turns", "train/advantages/mean": "advantage_mean", "train/lr": "learning_rate",
            "train/max_gen_tokens_per_sample": "response_length_max", "validation/pass_at_4": "pass_at_k",
            "validation/accuracy": "eval_score", "timing/train/total_step_time": "step_time",
        },
    ),
    "prime-rl": (
        "mismatch_kl/all/mean optim/lr",
        {
            "train/agg/effective/agent/reward/mean": "reward_mean", "entropy/all/mean": "entropy",
            "optim/grad_norm": "grad_norm", "is_masked/all/mean": "clip_frac", "loss/mean": "loss",
            "importance_ratio/all/mean": "is_ratio_mean", "mismatch_kl/all/mean": "mismatch_kl", "ref_kl/all/mean": "kl_ref",
            "train/agg/effective/agent/num_output_tokens/mean": "response_length",
            "train/agg/effective/agent/is_truncated/mean": "truncated_frac",
            "train/agg/effective/agent/num_turns/mean": "num_turns", "off_policy/mean": "policy_lag",
            "optim/lr": "learning_rate", "eval/gsm8k/effective/agent/avg@4": "eval_score", "time/step": "step_time",
        },
    ),
    "Tinker": (
        "env/all/by_group/frac_mixed",
        {
            "env/all/reward/total": "reward_mean", "env/all/by_group/frac_all_good": "zero_std_all_pass_frac",
            "env/all/by_group/frac_all_bad": "zero_std_all_fail_frac", "optim/entropy": "entropy", "kl_policy_base": "kl_ref",
            "kl_pre_post_v1": "kl_old", "optim/kl_sample_train_v1": "mismatch_kl",
            "env/all/ac_tokens_per_turn": "response_length", "env/all/turns_per_episode": "num_turns",
            "optim/lr": "learning_rate", "test/env/all/reward/total": "eval_score", "time/total": "step_time",
        },
    ),
    "open-instruct": (
        "val/total_reward_groups objective/verifiable_reward",
        {
            "objective/verifiable_reward": "reward_mean", "real_batch_size_ratio": "filter_kept_frac",
            "policy/entropy_avg": "entropy", "optim/grad_norm": "grad_norm", "objective/kl2_avg": "kl_ref",
            "policy/clipfrac_avg": "clip_frac", "loss/policy_avg": "policy_loss", "loss/total_avg": "loss",
            "val/ratio": "is_ratio_mean", "debug/vllm_vs_local_logprob_diff_mean": "logprob_gap",
            "val/sequence_lengths": "response_length", "val/sequence_lengths_max": "response_length_max",
            "val/advantages_mean": "advantage_mean", "lr": "learning_rate", "eval/scores": "eval_score",
            "eval/pass_at_8": "pass_at_k", "debug/vllm_local_reverse_kl": "mismatch_kl",
            "time/total": "step_time", "objective/verifiable_correct_rate": "success_rate",
        },
    ),
    "ms-swift": (
        "global_step/max_steps reward",
        {"reward": "reward_mean", "reward_std": "group_reward_std", "entropy/mean": "entropy", "kl": "kl_ref",
         "num_turns": "num_turns", "rollout_correction/kl": "mismatch_kl", "frac_reward_zero_std": "zero_std_frac"},
    ),
    "AsyncGRPO": (
        "reward ratio weight_sync_time_s",
        {"reward": "reward_mean", "reward_std": "group_reward_std", "kl": "kl_old", "ratio": "is_ratio_mean"},
    ),
    "Unsloth": (
        "completion_length completions/mean_length reward",
        {"completions/mean_length": "response_length", "kl": "kl_ref", "reward": "reward_mean"},
    ),
}  # fmt: skip

CELLS = [(framework, key, name) for framework, (_, cells) in MATRIX.items() for key, name in cells.items()]


@pytest.mark.parametrize("framework", MATRIX)
def test_a_framework_is_told_by_its_keys(framework: str) -> None:
    marks, cells = MATRIX[framework]
    assert framework_of({*marks.split(), *cells}) == framework


@pytest.mark.parametrize(("framework", "key", "name"), CELLS)
def test_every_cell_of_the_matrix_is_mapped(framework: str, key: str, name: str) -> None:
    marks, cells = MATRIX[framework]
    keys = [*cells, *(mark for mark in marks.split() if mark not in cells)]
    assert key in name_keys(keys).signals[name]


@pytest.mark.parametrize(
    ("keys", "signals"),
    [
        ("entropy/mean mismatch_kl/mean reward/mean is_truncated/mean num_turns/mean seq_len/mean batch/off_policy_level/mean",
         "entropy mismatch_kl reward_mean truncated_frac num_turns response_length policy_lag"),
        ("entropy/mean mismatch_kl/mean reward/all/mean reward/all/min is_truncated/all/mean decode_len/all/max",
         "entropy mismatch_kl reward_mean reward_min truncated_frac response_length_max"),
        ("entropy/all/mean mismatch_kl/all/mean train/agg/effective/reward/mean train/agg/effective/reward/max "
         "train/agg/effective/num_output_tokens/mean train/agg/effective/is_truncated/mean train/agg/effective/num_turns/mean",
         "entropy mismatch_kl reward_mean reward_max response_length truncated_frac num_turns"),
    ],
    ids=["0.3", "0.5", "0.7"],
)  # fmt: skip
def test_prime_rl_has_named_its_keys_three_times(keys: str, signals: str) -> None:
    naming = name_keys([*keys.split(), "optim/lr"])
    assert naming.framework == "prime-rl"
    assert {name: found[0] for name, found in naming.signals.items()} == {
        **dict(zip(signals.split(), keys.split(), strict=True)), "learning_rate": "optim/lr",
    }  # fmt: skip


@pytest.mark.parametrize("key", ["train/reward", "reward", "metrics/reward", "train.reward"])
def test_what_a_sink_puts_before_a_key_is_seen_through(key: str) -> None:
    assert name_keys([key, "grad_norm"]).signals["reward_mean"] == (key,)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("mean_reward", "reward_mean"), ("avg_reward", "reward_mean"), ("reward/mean", "reward_mean"),
        ("train/episode_reward", "reward_mean"), ("std_reward", "reward_std"), ("in_group_reward_std", "group_reward_std"),
        ("group_reward_std", "group_reward_std"), ("policy/entropy", "entropy"), ("mean_entropy", "entropy"),
        ("gradient_norm", "grad_norm"), ("approx_kl", "kl_old"), ("kl", "kl_ref"), ("frac_zero_std", "zero_std_frac"),
        ("avg_gen_tokens", "response_length"), ("mean_completion_length", "response_length"), ("val_success", "eval_score"),
        ("eval_accuracy", "eval_score"), ("success_rate", "success_rate"), ("lr", "learning_rate"),
        ("meanReward", "reward_mean"), ("Mean Reward", "reward_mean"), ("KL", "kl_ref"), ("Policy Entropy", "entropy"),
        ("grpo/grad_norm", "grad_norm"), ("actor/approx_kl", "kl_old"), ("mean_episode_return", "reward_mean"),
        ("rollout/num_turns", "num_turns"), ("avg_response_len", "response_length"), ("avgReturn", "reward_mean"),
        ("total_norm", "grad_norm"), ("grad/norm", "grad_norm"), ("ep_return", "reward_mean"),
        ("train_acc", "success_rate"), ("kl/mean", "kl_ref"), ("reward/std", "reward_std"), ("avg_score", "reward_mean"),
    ],
)  # fmt: skip
def test_home_made_names_are_understood(key: str, name: str) -> None:
    assert name_keys([key]).signals == {name: (key,)}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("rewards/std", "reward_std"), ("rewards/mean", "reward_mean"), ("returns/mean", "reward_mean"), ("ent", "entropy"),
        ("H(pi)", "entropy"), ("policy_ent", "entropy"), ("gnorm", "grad_norm"), ("win_rate", "success_rate"),
        ("resp_len", "response_length"), ("len/mean", "response_length"), ("avg_len", "response_length"),
        ("tokens/mean", "response_length"), ("tok_per_resp", "response_length"), ("trunc", "truncated_frac"),
    ],
)  # fmt: skip
def test_likely_readings_are_called_assumed(key: str, name: str) -> None:
    naming = name_keys([key])
    assert naming.signals == {name: (key,)}
    assert naming.provenance == {name: "assumed"}
    assert any(repr(key) in note.message for note in naming.notes)
    assert name_keys([key], framework="verl").unknown == (key,)  # whose names are known


def test_the_user_s_word_wins() -> None:
    keys = ["avgReturn", "reward", "reward_std", "completions/mean_length", "entropy"]
    naming = name_keys(keys, given={"avgReturn": "reward_mean", "reward_std": "group_reward_std", "gone": "entropy"})
    assert naming.framework == "TRL"
    assert naming.signals["reward_mean"] == ("avgReturn",)
    assert naming.signals["group_reward_std"] == ("reward_std",)
    assert naming.unknown == ("reward",)
    assert not naming.provenance
    assert ["'gone'" in note.message for note in naming.notes] == [True]


@pytest.mark.parametrize(
    "key",
    ["reward_model/latency", "entropy_coef", "kl_coef", "rewards/format/mean", "shoe_size", "tokens", "max_len", "len_penalty",
     "target_kl", "ent_coef", "advantages/mean", "rewards/max", "trunc_len"],
)  # fmt: skip
def test_what_only_resembles_a_signal_keeps_its_own_name(key: str) -> None:
    naming = name_keys([key])
    assert naming.unknown == (key,)
    assert not naming.signals


def test_two_entropies_are_never_one_series() -> None:
    naming = name_keys(["actor/entropy_loss", "actor/entropy", "critic/score/mean", "actor/pg_loss"])
    assert naming.signals["entropy"] == ("actor/entropy",)
    assert "actor/entropy_loss" in naming.unknown


def test_ragen_response_length_is_the_assistant_s() -> None:
    naming = name_keys(["rollout/in_group_reward_std", "response_length/mean", "train/response_length"])
    assert naming.signals["response_length"] == ("train/response_length",)
    naming = name_keys(["rollout/in_group_reward_std", "response_length/mean"])
    assert "response_length" not in naming.signals


def test_ragen_generic_spread_is_the_reward_s_only_when_the_filter_is() -> None:
    assert name_keys(["rollout/in_group_std", "actor/entropy"]).signals["group_reward_std"] == ("rollout/in_group_std",)
    other = name_keys(["rollout/in_group_std", "rollout/in_group_entropy_std", "actor/entropy"])
    assert "group_reward_std" not in other.signals


@pytest.mark.parametrize(
    ("keys", "version", "name", "assumed"),
    [
        ("reward reward_std completion_length learning_rate epoch", None, "group_reward_std", True),
        ("reward reward_std completion_length rewards/format", None, "group_reward_std", True),
        ("reward reward_std completion_length", None, "reward_std", True),  # one key of TRL's proves nothing
        ("reward reward_std", None, "reward_std", True),
        ("reward reward_std completions/mean_length", None, "group_reward_std", True),
        ("reward reward_std completions/mean_length entropy", None, "reward_std", True),
        ("reward reward_std completions/mean_length entropy policy_loss", None, "reward_std", True),
        ("reward reward_std completions/mean_length entropy", "0.26.2", "group_reward_std", False),
        ("reward reward_std completions/mean_length entropy", "0.27.0", "reward_std", False),
        ("reward reward_std completions/mean_length entropy", "1.9", "reward_std", False),
    ],
)
def test_trl_reward_std_is_read_by_version(keys: str, version: str | None, name: str, assumed: bool) -> None:
    naming = name_keys(keys.split(), version=version)
    assert naming.signals[name] == ("reward_std",)
    assert [key for key in naming.signals if key.endswith("reward_std")] == [name]
    assert (naming.provenance.get(name) == "assumed") is assumed
    assert any("reward_std" in note.message for note in naming.notes)


def test_evaluation_keys_never_become_training_signals() -> None:
    naming = name_keys(["eval_reward", "eval_loss", "eval/entropy", "reward", "val/my_metric", "grad_norm"])
    assert naming.signals == {"reward_mean": ("reward",), "grad_norm": ("grad_norm",), "eval_score": ("eval_reward",)}
    assert naming.evals == {"eval_loss": "eval/loss", "eval/entropy": "eval/entropy", "val/my_metric": "eval/my_metric"}


def test_several_data_sources_are_one_held_out_score() -> None:
    keys = ["val-core/gsm8k/acc/mean@1", "val-core/math/acc/mean@1", "critic/score/mean", "actor/pg_loss"]
    assert name_keys(keys).signals["eval_score"] == tuple(keys[:2])


def test_tables_hold_only_known_names() -> None:
    assert {name for keys in ALIASES.values() for name in keys} <= FIELDS.keys()
    assert {framework for framework, _ in MARKS} <= ALIASES.keys()


def test_versions_of_an_alias_are_data() -> None:
    [entropy, *_] = aliases("TRL")["entropy"]
    assert (entropy.key, entropy.versions) == ("entropy", ">=0.20")
