"""Real logs of public runs, where they are at hand: each is read without any option, with the steps and signals it holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echotrap import open_run
from echotrap.fields import FIELDS

SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / ".." / "shared")) / "real_logs"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the real logs are not at hand")

# file, rows of steps, first and last step, framework, signals with the number of steps that hold them; read from the files
LOGS: list[tuple[str, int, int, int, str | None, dict[str, int]]] = [
    ("agentmem-stage2-dups/train_metrics.with_duplicates.jsonl", 150, 251, 400, None, {
        "reward_mean": 150, "valid_action_frac": 150}),
    ("agentmem-stage2-dups/train_metrics.jsonl", 150, 251, 400, None, {"reward_mean": 150}),
    ("axiomforge-grpo-30/metrics.jsonl", 31, 0, 30, None, {"reward_mean": 30, "reward_std": 30, "loss": 30, "learning_rate": 30}),
    ("axiomforge-grpo-30/metrics.csv", 30, 1, 30, None, {
        "reward_mean": 30, "reward_std": 30, "success_rate": 30, "eval_score": 6}),
    ("countdown-custom-entropy-const0/metrics.jsonl", 500, 1, 500, None, {
        "reward_mean": 500, "group_reward_std": 500, "reward_std": 500, "zero_std_frac": 500, "response_length": 500,
        "truncated_frac": 500, "success_rate": 500, "entropy": 0, "kl_old": 0}),
    ("drgrpo-aser-multirow/aser_step_stats.json", 200, 0, 199, None, {"reward_mean": 200, "policy_loss": 200}),
    ("hflog-gsm8k-rho1-strnum/gate2_rho1.00_seed42.log", 200, 1, 200, "TRL", {
        "reward_mean": 200, "group_reward_std": 200, "kl_ref": 198, "grad_norm": 200, "response_length": 200}),
    ("hotpotqa-grpo-v1-kl-blowup/grpo.log", 93, 1, 93, "TRL", {"reward_mean": 93, "kl_ref": 93, "grad_norm": 93}),
    ("leetcode-qwen4b-zero-then-one/metrics.jsonl", 16, 0, 15, None, {"reward_mean": 16, "entropy": 16}),
    ("openr1-qwen05b-healthy/trainer_state.json", 100, 10, 1000, "TRL", {
        "reward_mean": 100, "group_reward_std": 100, "zero_std_frac": 100, "kl_ref": 100, "grad_norm": 100,
        "truncated_frac": 100}),
    ("searchr1-entropy-then-reward-collapse/search-r1-grpo-qwen2.5-1.5b-verl-tool-agent.log", 335, 1, 335, "verl", {
        "reward_mean": 335, "entropy": 335, "grad_norm": 335, "response_length": 335, "kl_ref": 335, "eval_score": 3}),
    ("searchr1-entropy-then-reward-collapse/wandb_core_metrics.csv", 392, 1, 392, "verl", {
        "reward_mean": 392, "entropy": 392, "grad_norm": 392, "response_length": 392}),
    ("tfevents-wordle4070-entropy-dead", 300, 1, 300, "TRL", {"entropy": 300, "grad_norm": 300, "reward_mean": 300}),
    ("tfevents-wordle4070-nan-24", 24, 1, 24, "TRL", {"entropy": 24, "reward_mean": 24, "zero_std_frac": 24}),
    ("tfevents-wordle4070-ok-100", 100, 1, 100, "TRL", {"entropy": 100, "grad_norm": 100, "reward_mean": 100}),
    ("tinker-arith-saturated/arithmetic_metrics.jsonl", 100, 0, 99, "Tinker", {
        "reward_mean": 100, "entropy": 100, "zero_std_frac": 100, "zero_std_all_pass_frac": 100, "response_length": 100}),
    ("tinker-distill-entropy-collapse/distillation_on_metrics.jsonl", 35, 0, 34, "Tinker", {
        "entropy": 35, "response_length": 35}),
    ("tinker-rubric-7step/metrics.jsonl", 7, 0, 6, "Tinker", {"reward_mean": 7, "entropy": 7, "eval_score": 1}),
    ("trl-dllm-remask-2000/trainer_state.json", 2000, 1, 2000, "TRL", {"reward_mean": 1000, "entropy": 2000, "grad_norm": 2000}),
    ("trl-game-zerostd-rising/trainer_state.json", 50, 10, 500, "TRL", {
        "reward_mean": 50, "reward_std": 50, "zero_std_frac": 50, "entropy": 50, "grad_norm": 50}),
    ("trl-toy-grpo-v1-dead-reward/trajectory.json", 200, 1, 200, "TRL", {
        "reward_mean": 50, "reward_std": 50, "zero_std_frac": 50, "truncated_frac": 50, "entropy": 200}),
    ("trl-wordle-4090/trainer_state.json", 400, 1, 400, "TRL", {
        "reward_mean": 400, "reward_std": 400, "zero_std_frac": 400, "entropy": 400, "grad_norm": 400}),
    ("verl-opd-healthy/output.log", 180, 0, 179, "verl", {
        "reward_mean": 162, "entropy": 179, "grad_norm": 179, "response_length": 162, "eval_score": 18}),
    ("verl-opd-len1-collapse/output.log", 262, 0, 261, "verl", {
        "reward_mean": 235, "entropy": 261, "grad_norm": 261, "response_length": 235, "zero_std_frac": 175}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rows", "first", "last", "framework", "signals"), LOGS, ids=[log[0].split("/")[0] for log in LOGS]
)
def test_a_real_log_is_read(name: str, rows: int, first: int, last: int, framework: str | None, signals: dict[str, int]) -> None:
    run = open_run(SHARED / name)
    assert (len(run.steps), run.steps[0], run.steps[-1]) == (rows, first, last)
    assert run.framework == framework
    assert {signal: len(run.series(signal).steps) for signal in signals} == signals


@pytest.mark.parametrize("case", sorted(path.name for path in SHARED.glob("*/")) if SHARED.is_dir() else [])
def test_a_real_folder_is_read(case: str) -> None:
    run = open_run(SHARED / case)
    assert run.rollouts is not None or set(run.metrics.columns) & FIELDS.keys()


def test_the_resumed_log_equals_its_cleaned_copy() -> None:
    resumed = open_run(SHARED / "agentmem-stage2-dups" / "train_metrics.with_duplicates.jsonl")
    clean = open_run(SHARED / "agentmem-stage2-dups" / "train_metrics.jsonl")
    assert resumed.metrics.equals(clean.metrics)
    assert [event.kind for event in resumed.events] == ["resume"]


def test_non_finite_values_are_where_they_are() -> None:
    run = open_run(SHARED / "tfevents-wordle4070-nan-24")
    assert (10, "grad_norm", "inf", True) in [tuple(item) for item in run.nonfinite]
    quiet = ("openr1-qwen05b-healthy", "trl-wordle-4090", "verl-opd-healthy", "trl-dllm-remask-2000", "axiomforge-grpo-30")
    assert [item for case in quiet for item in open_run(SHARED / case).nonfinite] == []


def test_text_only_cases_have_rollouts_and_no_steps() -> None:
    run = open_run(SHARED / "agent-codeforces-rollouts")
    assert run.metrics.shape[0] == 0
    assert run.rollouts is not None
    rollouts = run.rollouts.at(0)
    assert len(rollouts) == 62
    assert sum(item.reward == 0 for item in rollouts) == 32  # the public reward
    assert all(item.text and item.messages for item in rollouts)
