"""What each framework logs, from its keys to the canonical signals: values, units, and the survey's matrix cell by cell."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from echotrap import open_run
from echotrap.assemble.naming import name_keys
from echotrap.fields import FIELDS

HERE = Path(__file__).parent / "fixtures" / "sources" / "metrics"
SURVEY = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / ".." / "shared")) / "reference" / "log_schemas.md"

Values = tuple[float | None, ...]  # at each of the three steps; None where the framework logs nothing

PRIME: dict[str, Values] = {
    "reward_mean": (0.3, 0.4, 0.5), "entropy": (0.6, 0.5, 0.4), "mismatch_kl": (0.001, 0.002, 0.003),
    "grad_norm": (0.2, 0.3, 0.4), "loss": (0.01, 0.02, 0.03), "zero_std_all_fail_frac": (0.25, 0.25, 0.5),
    "zero_std_all_pass_frac": (0.125, 0.25, 0.25), "zero_std_frac": (0.375, 0.5, 0.75),
    "truncated_frac": (0.1, 0.2, 0.3), "num_turns": (1, 1.5, 2), "policy_lag": (1, 1.5, 2),
    "wall_time": (1790000012, 1790000022, 1790000032),
}  # fmt: skip
SKYRL: dict[str, Values] = {
    "reward_mean": (0.3, 0.4, 0.5), "entropy": (0.6, 0.5, 0.4), "grad_norm": (0.2, 0.3, 0.4), "clip_frac": (0.01, 0.02, 0.03),
    "kl_ref": (0.01, 0.02, 0.03), "response_length": (500, 510, 520), "response_length_max": (1024,) * 3,
    "eval_score": (0.4,) * 3, "pass_at_k": (0.7,) * 3, "step_time": (50,) * 3,
}  # fmt: skip

# file, framework, configuration, signals; where a framework counts groups, truncations or turns, the signal is the share
LOGS: list[tuple[str, str, dict[str, Any], dict[str, Values]]] = [
    ("ragen.jsonl", "RAGEN", {}, {
        "group_reward_std": (0.4, 0.35, 0.3), "reward_mean": (0.22, 0.27, 0.32), "filter_kept_frac": (0.5, 0.5, 0.25),
        "zero_std_frac": (0.25, 0.375, 0.5), "success_rate": (0.2, 0.25, 0.3), "response_length": (61, 58, 55),
        "num_turns": (3, 3.5, 4), "valid_action_frac": (0.9, 0.92, 0.94), "valid_thinking_frac": (None, None, 0.97),
        "retrieval_acc": (None, None, 0.6), "retrieval_chance": (None, None, 0.125), "mi_zscore": (None, None, 1.4),
        "reasoning_entropy": (None, None, 2.5), "eval_score": (None, None, 0.28), "entropy": (1.2, 1.1, 1),
        "step_time": (40,) * 3}),
    ("vagen.jsonl", "VAGEN", {}, {
        "group_reward_std": (0.4, 0.3, 0.2), "num_turns": (3, 3.5, 4), "reward_mean": (0.2, 0.25, 0.3),
        "eval_score": (0.3,) * 3}),
    ("vagen.jsonl", "VAGEN", {"group_size": 4}, {"group_reward_std": (0.4618802, 0.3464102, 0.2309401)}),
    ("verl_agent.jsonl", "verl-agent", {}, {
        "reward_mean": (2, 3, 4), "reward_max": (10,) * 3, "reward_min": (0,) * 3, "success_rate": (0.2, 0.3, 0.4),
        "num_turns": (20, 18, 16), "tool_calls": (1.5, 1.6, 1.7), "valid_action_frac": (0.8, 0.85, 0.9),
        "entropy": (0.9, 0.8, 0.7), "eval_score": (0.35,) * 3}),
    ("agent_lightning.jsonl", "agent-lightning", {}, {
        "reward_mean": (0.42, 0.52, 0.62), "zero_std_frac": (0.25, 0.5, 0.75), "truncated_frac": (0.0625, 0.125, 0.25),
        "num_turns": (2, 2.5, 3), "response_length": (120, 110, 100), "eval_score": (0.55,) * 3, "entropy": (0.5, 0.4, 0.3)}),
    ("search_r1.log", "Search-R1", {}, {
        "reward_mean": (0.3, 0.35, 0.4), "entropy": (0.9, 0.8, 0.7), "kl_ref": (0.001, 0.002, 0.003), "num_turns": (2, 2.1, 2.2),
        "tool_calls": (1, 1.1, 1.2), "valid_action_frac": (0.95, 0.96, 0.97), "truncated_frac": (0.05, 0.04, 0.03),
        "eval_score": (None, None, 0.3)}),
    ("toolrl.log", "ToolRL", {}, {
        "reward_mean": (1, 1.5, 2), "reward_max": (4,) * 3, "reward_min": (-3,) * 3, "entropy": (0.5, 0.4, 0.3),
        "response_length": (200, 180, 160), "truncated_frac": (0.02, 0.01, 0), "eval_score": (None, None, 1.8)}),
    ("rllm.jsonl", "rLLM", {}, {
        "reward_mean": (0.3, 0.35, 0.4), "reward_std": (0.45, 0.46, 0.47), "group_reward_std": (0.4, 0.3, 0.2),
        "zero_std_frac": (0.25, 0.5, 0.75), "zero_std_all_fail_frac": (0.125, 0.25, 0.375), "num_turns": (2, 2.5, 3),
        "response_length": (300, 290, 280), "eval_score": (0.5,) * 3, "pass_at_k": (0.75,) * 3}),
    ("rllm_workflow.jsonl", "rLLM", {}, {"reward_mean": (0.3, 0.35, 0.4), "zero_std_frac": (0.375, 0.625, 0.875)}),
    ("roll.jsonl", "ROLL", {}, {
        "reward_mean": (0.3, 0.4, 0.5), "success_rate": (0.3, 0.4, 0.5), "entropy": (0.6, 0.5, 0.4), "kl_ref": (0.01, 0.02, 0.03),
        "kl_old": (0.001, 0.002, 0.003), "clip_frac": (0.01, 0.02, 0.03), "grad_norm": (0.2, 0.3, 0.4),
        "zero_std_frac": (0.375, 0.5, 0.625), "response_length": (300, 310, 320), "eval_score": (0.45,) * 3}),
    ("openrlhf.jsonl", "OpenRLHF", {}, {
        "reward_mean": (0.3, 0.35, 0.4), "reward_std": (0.45, 0.46, 0.47), "group_reward_std": (0.3, 0.2, 0.1),
        "filter_kept_frac": (0.625, 0.5, 0.25), "entropy": (0.7, 0.6, 0.5), "grad_norm": (0.4, 0.5, 0.6),
        "kl_ref": (0.01, 0.02, 0.03), "kl_old": (0.001, 0.002, 0.003), "response_length": (700, 710, 720),
        "truncated_frac": (0.1, 0.2, 0.3), "mismatch_kl": (0.002,) * 3, "eval_score": (0.4,) * 3, "step_time": (60,) * 3}),
    ("areal.jsonl", "AReaL", {"raw": {"actor.kl_ctl": 0.1}}, {
        "reward_mean": (0.3, 0.4, 0.5), "entropy": (0.5, 0.4, 0.3), "grad_norm": (0.1, 0.2, 0.3), "kl_ref": (0.01, 0.02, 0.03),
        "kl_old": (0.001, 0.002, 0.003), "clip_frac": (0.01, 0.02, 0.03), "response_length": (700, 705, 710),
        "truncated_frac": (0.05, 0.1, 0.15), "is_ratio_min": (0.5, 0.4, 0.3), "mismatch_kl": (0.002, 0.003, 0.004),
        "eval_score": (0.45,) * 3, "step_time": (20,) * 3}),
    ("skyrl.jsonl", "SkyRL", {}, {
        **SKYRL, "is_ratio_std": (0.1, 0.2, 0.3), "logprob_gap": (0.01, 0.02, 0.03), "policy_lag": (0, 1, 2)}),
    ("skyrl_02.jsonl", "SkyRL", {}, SKYRL),
    ("nemo_rl.jsonl", "NeMo-RL", {}, {
        "reward_mean": (0.3, 0.4, 0.5), "zero_std_all_fail_frac": (0.25, 0.375, 0.5), "zero_std_frac": (0.375, 0.5, 0.75),
        "entropy": (0.6, 0.5, 0.4), "kl_ref": (0.01, 0.02, 0.03), "grad_norm": (0.2, 0.3, 0.4), "num_turns": (2, 2.5, 3)}),
    ("nemo_rl.jsonl", "NeMo-RL", {"raw": {"updates_per_step": 2}}, {"grad_norm": (0.1, 0.15, 0.2)}),
    ("open_instruct.jsonl", "open-instruct", {}, {
        "reward_mean": (3, 4, 5), "success_rate": (0.3, 0.4, 0.5), "filter_kept_frac": (0.75, 0.5, 0.25),
        "zero_std_frac": (0.25, 0.5, 0.75), "zero_std_all_fail_frac": (0.1875, 0.25, 0.25),
        "zero_std_all_pass_frac": (0.0625, 0.125, 0.375), "is_ratio_std": (0.1, 0.2, 0.3), "truncated_frac": (0.1, 0.2, 0.3),
        "entropy": (0.6, 0.5, 0.4), "kl_ref": (0.01, 0.02, 0.03), "response_length": (900, 910, 920), "step_time": (80,) * 3}),
    ("prime_rl_03.jsonl", "prime-rl", {}, {**PRIME, "response_length": (700, 710, 720)}),
    ("prime_rl_05.jsonl", "prime-rl", {}, {**PRIME, "response_length": (500, 510, 520), "reward_max": (1,) * 3}),
    ("prime_rl_07.jsonl", "prime-rl", {}, {**PRIME, "response_length": (500, 510, 520), "reward_min": (0,) * 3}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework", "config", "signals"), LOGS, ids=[f"{log[0]}{log[2] or ''}" for log in LOGS])
def test_a_log_of_the_framework_gives_its_signals(
    name: str, framework: str, config: dict[str, Any], signals: Mapping[str, Values]
) -> None:
    run = open_run(HERE / name, config=config)
    assert run.framework == framework
    assert run.steps.tolist() == ([0, 1, 2] if framework == "AReaL" else [1, 2, 3])
    for signal, values in signals.items():
        wanted = {step: value for step, value in zip(run.steps.tolist(), values, strict=True) if value is not None}
        assert run.metrics[signal].dropna().to_dict() == pytest.approx(wanted), signal


def test_every_fixture_is_tested() -> None:
    assert {path.name for path in HERE.iterdir()} == {log[0] for log in LOGS}


@pytest.mark.parametrize(("name", "signal"), [
    ("ragen.jsonl", "truncated_frac"), ("ragen.jsonl", "response_length_max"), ("areal.jsonl", "kl_ref"),
    ("areal.jsonl", "response_length_max"), ("openrlhf.jsonl", "zero_std_frac"), ("verl_agent.jsonl", "zero_std_frac"),
])  # fmt: skip
def test_what_a_framework_does_not_say_stays_missing(name: str, signal: str) -> None:
    assert signal not in open_run(HERE / name).metrics


# -- the survey's matrix -----------------------------------------------------------------------------------------------

COLUMNS = ("verl", "TRL", "OpenRLHF", "SkyRL", "slime", "AReaL", "NeMo-RL", "prime-rl", "Tinker", "open-instruct")
OF_OTHERS = re.compile(r"RAGEN|agent-lightning|Search-R1|verl-agent|AsyncGRPO|(?<=\()PPO")
SAMPLES = {"r": "0.0", "fn": "format", "agent": "agent", "src": "gsm8k", "var": "acc", "ds": "math", "env": "gsm8k"}
ANY = (
    "mean",
    "avg",
    "all/mean",
    "grad_norm",
    "loss/avg",
    "value_loss",
    "rollout_is_mean",
    "step",
    "train_step",
    "total",
    "length",
)
ALSO = {  # what a row holds besides the signals that head it
    "grad_norm": "critic_grad_norm", "policy_loss": "loss", "value_loss": "critic_grad_norm", "num_turns": "tool_error_frac",
    "reward_std": "group_reward_std", "group_reward_std": "reward_std", "response_length": "response_length_max",
    "zero_std_frac": "filter_kept_frac zero_std_all_fail_frac zero_std_all_pass_frac", "wall_time": "step_time",
    "advantage": "advantage_mean advantage_max advantage_min", "is_ratio_mean": "ess_frac mismatch_kl",
    "kl_ref": "mismatch_kl",
}  # fmt: skip
WHOLE = {"completion_length", "clip_ratio", "cispo_clip_ratio", "real_batch_size_ratio", "step"}  # not what follows a prefix
UNMAPPED = {
    ("clip_frac", "NeMo-RL"): "a clamped ratio is no share of tokens",
    ("num_turns", "OpenRLHF"): "the names are the user's",
    ("num_turns", "SkyRL"): "tokens per turn, and names of the environment",
}


def _keys(cell: str) -> Iterator[tuple[str, str | None]]:
    """The keys of a cell, spelled out, each with the framework that the text before it names."""
    last, owner, at = "", None, 0
    for match in re.finditer(r"`([^`]+)`", cell):
        between = cell[at : match.start()]
        at = match.end()
        owner = found[0] if (found := OF_OTHERS.findall(between)) else None if ";" in between else owner
        key = match[1].replace("…/all/", "train/agg/all/").replace("…/", "train/agg/effective/agent/")
        if key.startswith("_"):
            key = last[: last.rindex("_")] + key
        elif "/" in last and "/" not in key and key not in WHOLE:
            key = f"{last[: last.rindex('/')]}/{key}"
        last = key
        for spelled in _spelled(key):
            yield spelled, "TRL-PPO" if owner == "PPO" else owner


def _spelled(key: str) -> Iterator[str]:
    for name, sample in SAMPLES.items():
        key = key.replace(f"{{{name}}}", sample)
    if match := re.search(r"\{([^{}]*,[^{}]*)\}", key):
        for part in match[1].split(","):
            yield from _spelled(key[: match.start()] + part + key[match.end() :])
    elif match := re.search(r"(\d)\.\.(\d)", key):
        yield from (key[: match.start()] + str(n) + key[match.end() :] for n in range(int(match[1]), int(match[2]) + 1))
    elif "/v2" in key:
        yield key.removesuffix("/v2")
    elif "*" in key:
        yield from (key.replace("*", part) for part in ("", "_zero", *ANY))
    elif key.endswith(("@N", "@k")):
        yield key[:-1] + "4"
    else:
        yield key


def _cells() -> Iterator[tuple[str, str, str]]:
    if not SURVEY.is_file():
        return
    section = SURVEY.read_text(encoding="utf-8").split("\n## 2. ")[1].split("\n### 2.1 ")[0]
    rows = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in section.splitlines() if line.startswith("|")]
    for head, *cells in rows[2:]:
        for column, cell in zip(COLUMNS, cells, strict=True):
            if "`" in cell:
                yield " ".join(re.findall(r"`(\w+)`", head)), column, cell.strip()


CELLS = list(_cells())


@pytest.mark.skipif(not CELLS, reason="the survey of log schemas is not at hand")
def test_the_survey_is_read_in_full() -> None:
    assert len({signal for signal, _, _ in CELLS}) == 21
    assert len(CELLS) > 150


@pytest.mark.parametrize(("names", "column", "cell"), CELLS, ids=[f"{cell[0].split()[0]}-{cell[1]}" for cell in CELLS])
def test_every_cell_of_the_survey_is_mapped(tmp_path: Path, names: str, column: str, cell: str) -> None:
    head = names.split()[0]
    of: dict[str, list[str]] = {}
    for key, owner in _keys(cell):
        of.setdefault(owner or column, []).append(key)
    allowed = {*names.split(), *(word for name in names.split() for word in ALSO.get(name, "").split())}
    facts = {"group_size": 8, "prompts_per_step": 16, "raw": {"actor.kl_ctl": 0.1}}
    for framework, keys in of.items():
        for key in keys:
            assert name_keys([key], framework).signals.keys() <= allowed, key
        values = {key: 0.25 for key in keys if "global_step" not in key}
        axis = [key for key in keys if head == "step"] or ["step"]
        rows = [{**values, **dict.fromkeys(axis, at)} for at in (10, 20, 30)]
        if head == "step":
            rows = [{"_step": at, **row, "optim/grad_norm": 0.5} for at, row in enumerate(rows)]
        path = tmp_path / f"{framework}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        run = open_run(path, framework=framework, config=facts)
        assert run.steps.tolist() == [10, 20, 30]
        if head == "step":
            continue
        found = {name for name in run.metrics.columns if name in FIELDS}
        if (head, framework) in UNMAPPED:
            assert not found
        else:
            assert found, keys
        assert found <= allowed, {name: run.keys.get(name) for name in found - allowed}
