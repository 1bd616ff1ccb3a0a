"""Rows become a run: steps, splits, resumes, restarts, micro-batches, what is missing and what is not finite."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from echotrap import ConfigError, open_run
from echotrap.assemble import RunBuilder
from echotrap.diagnosis import diagnose
from echotrap.record import Run
from echotrap.sources import open_reader
from echotrap.sources.base import Reader, Row

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows as JSON lines."""

    def write(*rows: dict[str, Any], name: str = "run.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def notes(run: Run) -> dict[str, int]:
    return {note.kind: note.count for note in run.notes}


class Rows(Reader):
    """A reader over rows in memory."""

    def __init__(self, *rows: Row) -> None:
        super().__init__("rows")
        self.rows = list(rows)

    def poll(self) -> Iterator[Row]:
        rows, self.rows = self.rows, []
        yield from rows


def test_rows_become_a_frame_by_step(write: Write) -> None:
    run = open_run(str(write({"step": 1, "reward": 0.1, "note": "a"}, {"step": 2, "reward": 0.3, "note": "b"})))
    assert run.metrics.index.tolist() == [1, 2]
    assert run.metrics.index.name == "step"
    assert run.metrics.columns.tolist() == ["reward_mean"]
    assert run.metrics["reward_mean"].tolist() == [0.1, 0.3]
    assert run.keys["reward_mean"] == "reward"
    assert run.provenance["reward_mean"] == "logged"
    assert run.origin(2) == (str(run.source), 2)


def test_unknown_keys_keep_their_own_name(write: Write) -> None:
    run = open_run(str(write({"step": 1, "reward": 0.1, "shoe_size": 44})))
    assert run.metrics.loc[1, "shoe_size"] == 44
    assert notes(run)["unknown"] == 1


def test_nested_rows_are_flattened_and_lists_ignored(write: Write) -> None:
    run = open_run(str(write({"step": 3, "reward": {"mean": 0.5, "all": [1, 0]}, "actor": {"entropy": 0.7}})))
    assert run.metrics.loc[3].to_dict() == {"reward_mean": 0.5, "entropy": 0.7}


def test_verl_envelope_gives_the_step(write: Write) -> None:
    rows = [{"step": 0, "data": {"val-core/gsm8k/acc/mean@1": 0.4}}]
    rows += [{"step": step, "data": {"critic/score/mean": step / 10, "training/global_step": step}} for step in (1, 2)]
    run = open_run(str(write(*rows)))
    assert run.steps.tolist() == [0, 1, 2]
    assert run.series("eval_score").steps.tolist() == [0]
    assert run.series("reward_mean").steps.tolist() == [1, 2]


# -- the step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 251])
def test_steps_start_where_they_start(write: Write, first: int) -> None:
    run = open_run(str(write(*({"step": first + at, "reward": 1.0} for at in range(3)))))
    assert run.steps.tolist() == [first, first + 1, first + 2]
    assert not run.events


def test_the_training_step_wins_over_a_counter_of_log_calls() -> None:
    rows = [Row({"train/global_step": step, "train/reward": 0.1 * step}, step=8 * step + 3) for step in (5, 10, 15)]
    run = RunBuilder(Rows(*rows)).refresh()
    assert run.steps.tolist() == [5, 10, 15]


def test_log_calls_without_a_training_step_belong_to_the_one_before() -> None:
    rows = [Row({"train/global_step": 5, "train/reward": 0.1}, step=8), Row({"profiling/generate": 3.0}, step=9)]
    run = RunBuilder(Rows(*rows)).refresh()
    assert run.steps.tolist() == [5]
    assert run.metrics.loc[5, "profiling/generate"] == 3.0
    assert notes(run)["assumed"] == 1


def test_rows_without_any_step_are_counted(write: Write) -> None:
    run = open_run(str(write({"loss": 0.1, "epoch": 0.25}, {"loss": 0.2, "epoch": 0.5}, {"loss": 0.3, "epoch": 0.75})))
    assert run.steps.tolist() == [1, 2, 3]
    assert notes(run)["assumed"] == 3


def test_an_epoch_that_counts_rows_is_the_step(write: Write) -> None:
    run = open_run(str(write(*({"epoch": epoch, "mean_reward": 0.1} for epoch in (3, 4, 5)))))
    assert run.steps.tolist() == [3, 4, 5]


def test_ms_swift_spells_the_step_as_a_fraction(write: Write) -> None:
    run = open_run(
        str(write({"reward": 0.5, "global_step/max_steps": "10/500"}, {"reward": 0.6, "global_step/max_steps": "20/500"}))
    )
    assert run.steps.tolist() == [10, 20]
    assert run.config.max_steps == 500
    assert run.framework == "ms-swift"


def test_slime_updates_are_folded_onto_rollout_steps(write: Write) -> None:
    rows: list[dict[str, Any]] = []
    for rollout in range(3):
        rows.append({"rollout/step": rollout, "rollout/raw_reward": 0.1 * rollout, "rollout/response_len/mean": 90.0})
        rows += [{"train/step": 2 * rollout + at, "train/grad_norm": 1.0 + at, "train/pg_clipfrac": 0.1} for at in (0, 1)]
    run = open_run(str(write(*rows)))
    assert run.framework == "slime"
    assert run.steps.tolist() == [0, 1, 2]
    assert run.metrics["grad_norm"].tolist() == [1.5, 1.5, 1.5]


# -- rows that belong together -------------------------------------------------------------------------------


def test_partial_rows_of_two_writers_are_merged(write: Write) -> None:
    rows = [
        {"step": 1, "optim/grad_norm": 0.5, "optim/lr": 1e-6, "time": 10.0},
        {"step": 2, "optim/grad_norm": 0.6, "optim/lr": 1e-6, "time": 12.0},
        {"step": 1, "train/agg/effective/agent/reward/mean": 0.2, "time": 12.5},
        {"step": 2, "train/agg/effective/agent/reward/mean": 0.3, "time": 14.0},
    ]
    run = open_run(str(write(*rows)))
    assert run.steps.tolist() == [1, 2]
    assert run.metrics["grad_norm"].tolist() == [0.5, 0.6]
    assert run.metrics["reward_mean"].tolist() == [0.2, 0.3]
    assert not run.events
    assert notes(run)["merged"] == 2


def test_micro_batches_are_averaged(write: Write) -> None:
    run = open_run(str(write(*({"step": step, "reward": value} for step in (0, 1) for value in (0.0, 1.0, 0.5, 0.5)))))
    assert run.metrics["reward_mean"].tolist() == [0.5, 0.5]
    assert notes(run)["averaged"] == 2
    assert not run.events


def test_sparse_keys_stay_sparse(write: Write) -> None:
    rows = [{"step": step, "entropy": 0.4, **({"reward": 0.1} if step % 2 else {})} for step in range(1, 21)]
    run = open_run(str(write(*rows)))
    assert run.series("reward_mean").steps.tolist() == list(range(1, 21, 2))
    assert not run.nonfinite


def test_train_and_eval_rows_never_mix(write: Write) -> None:
    rows = [
        {"step": 10, "reward": 0.1, "entropy": 0.5},
        {"step": 10, "eval_reward": 0.9, "eval_entropy": 0.2, "eval_runtime": 3.0},
        {"step": 20, "reward": 0.2, "entropy": 0.4},
    ]
    run = open_run(str(write(*rows)))
    assert run.series("reward_mean").values.tolist() == [0.1, 0.2]
    assert run.series("eval_score").values.tolist() == [0.9]
    assert run.series("eval/entropy").values.tolist() == [0.2]


def test_a_container_may_say_that_a_row_is_evaluation() -> None:
    run = RunBuilder(Rows(Row({"reward": 0.1}, 1), Row({"reward": 0.8}, 1, split="eval"))).refresh()
    assert run.metrics.loc[1, "reward_mean"] == 0.1
    assert run.metrics.loc[1, "eval_score"] == 0.8


@pytest.mark.parametrize(("key", "word"), [("split", "eval"), ("phase", "validation"), ("type", "test"), ("mode", "val")])
def test_a_row_may_say_itself_that_it_is_evaluation(write: Write, key: str, word: str) -> None:
    rows = [{key: kind, "step": step, "reward": 0.1 if kind == "train" else 0.8} for step in (1, 2) for kind in ("train", word)]
    run = open_run(str(write(*rows)))
    assert run.metrics["reward_mean"].tolist() == [0.1, 0.1]
    assert run.metrics["eval_score"].tolist() == [0.8, 0.8]


@pytest.mark.parametrize("key", ["Step", "iteration", "current_steps", "Iteration", "optimizer_step"])
def test_the_step_has_many_names(write: Write, key: str) -> None:
    run = open_run(str(write(*({key: 10 * at, "reward": 0.1} for at in (1, 2, 3)))))
    assert run.steps.tolist() == [10, 20, 30]
    assert run.metrics.columns.tolist() == ["reward_mean"]


def test_a_share_in_percent_is_a_share(write: Write) -> None:
    run = open_run(str(write(*({"step": step, "success_rate": 20.0 + step, "correct": 12} for step in (1, 2)))))
    assert run.metrics["success_rate"].tolist() == [0.21, 0.22]
    run = open_run(str(write(*({"step": step, "correct": 12} for step in (1, 2)))))
    assert run.metrics.columns.tolist() == ["correct"]
    assert any("exceeds 1" in note.message for note in run.notes)


def test_the_summary_row_is_dropped(write: Write) -> None:
    rows = [{"step": 1, "loss": 0.1, "reward": 1.0}, {"step": 1, "train_runtime": 9.0, "train_loss": 0.1, "reward": 0.7}]
    run = open_run(str(write(*rows)))
    assert run.metrics.loc[1, "reward_mean"] == 1.0
    assert notes(run)["dropped"] == 1


# -- resumes and restarts ------------------------------------------------------------------------------------


def test_a_resume_supersedes_what_it_redoes(write: Write) -> None:
    rows = [{"step": step, "reward": 0.0} for step in range(1, 11)] + [{"step": step, "reward": 1.0} for step in range(6, 13)]
    run = open_run(str(write(*rows)))
    assert run.steps.tolist() == list(range(1, 13))
    assert run.metrics["reward_mean"].tolist() == [0.0] * 5 + [1.0] * 7
    [event] = run.events
    assert (event.step, event.kind) == (6, "resume")
    assert notes(run)["dropped"] == 5
    assert [(item.first_step, item.last_step, item.reason) for item in run.segments] == [(1, 5, "start"), (6, 12, "resume")]
    assert run.origin(6) == (run.source, 11)


def test_a_resume_at_the_first_logged_step_is_no_restart(write: Write) -> None:
    rows = [{"step": step, "reward": 0.0} for step in range(251, 280)] + [
        {"step": step, "reward": 1.0} for step in range(251, 301)
    ]
    run = open_run(str(write(*rows)))
    assert run.steps.tolist() == list(range(251, 301))
    assert [event.kind for event in run.events] == ["resume"]


def test_a_restart_from_zero_destroys_nothing(write: Write) -> None:
    rows = [{"step": step, "reward": 0.0} for step in range(10)] + [{"step": step, "reward": 1.0} for step in range(5)]
    run = open_run(str(write(*rows)))
    assert run.steps.tolist() == list(range(15))
    assert run.metrics["reward_mean"].tolist() == [0.0] * 10 + [1.0] * 5
    [event] = run.events
    assert (event.step, event.kind) == (10, "restart")
    assert run.arm_steps == (10,)
    assert notes(run)["restart"] == 5


def test_sparse_logs_restart_too(write: Write) -> None:
    rows = [{"step": step, "reward": 0.0} for step in (10, 20, 30)] + [{"step": step, "reward": 1.0} for step in (10, 20)]
    run = open_run(str(write(*rows)))
    assert run.steps.tolist() == [10, 20, 30, 40, 50]
    assert [event.kind for event in run.events] == ["restart"]


def test_rows_out_of_order_are_sorted(write: Write) -> None:
    run = open_run(str(write(*({"step": step, "reward": float(step)} for step in range(99, -1, -1)))))
    assert run.steps.tolist() == list(range(100))
    assert run.metrics["reward_mean"].tolist() == [float(step) for step in range(100)]
    assert notes(run)["sorted"] == 99


# -- what is not finite --------------------------------------------------------------------------------------


def test_five_spellings_of_nan(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    dense = "".join(f'{{"step": {step}, "reward": 0.5, "grad_norm": 1.0, "learning_rate": 1e-6}}\n' for step in range(1, 7))
    path.write_text(
        dense
        + '{"step": 7, "reward": 0.5, "grad_norm": NaN, "learning_rate": 1e-6}\n'
        + '{"step": 8, "reward": 0.5, "grad_norm": -Infinity, "learning_rate": 1e-6}\n'
        + '{"step": 9, "reward": 0.5, "grad_norm": "nan", "learning_rate": 1e-6}\n'
        + '{"step": 10, "reward": 0.5, "grad_norm": null, "learning_rate": 1e-6}\n'
    )
    run = open_run(str(path))
    assert [tuple(item) for item in run.nonfinite] == [
        (7, "grad_norm", "nan", True),
        (8, "grad_norm", "-inf", True),
        (9, "grad_norm", "string", True),
        (10, "grad_norm", "null", False),
    ]
    assert run.metrics["grad_norm"].isna().tolist() == [False] * 6 + [True] * 4


def test_a_dense_metric_that_goes_missing_is_suspected(write: Write) -> None:
    rows = [{"step": step, "optim/lr": 1e-6, **({"optim/grad_norm": 1.0} if step <= 8 else {})} for step in range(1, 13)]
    run = open_run(str(write(*rows)))
    assert [(item.step, item.spelling, item.certain) for item in run.nonfinite] == [
        (10, "missing", False), (11, "missing", False), (12, "missing", False),
    ]  # fmt: skip


def test_periodic_absence_is_no_event(write: Write) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(1, 41):
        row = {"actor/grad_norm": 1.0, "actor/pg_loss": 0.1, "critic/score/mean": 0.5, "critic/vf_loss": 0.2}
        rows.append({"step": step, **{key: value for key, value in row.items() if step % 10 or "critic" not in key}})
    assert not open_run(str(write(*rows))).nonfinite


def test_a_step_without_any_update_is_no_event(write: Write) -> None:
    rows = [
        {
            "step": step,
            "rollout/in_group_reward_std": 0.2,
            **({} if step in (9, 10) else {"actor/grad_norm": 1.0, "actor/lr": 1.0}),
        }
        for step in range(1, 16)
    ]
    assert not open_run(str(write(*rows))).nonfinite


def test_all_update_metrics_gone_while_the_reward_goes_on(write: Write) -> None:
    row = {"reward": 0.5, "loss": 0.01, "grad_norm": 1.0}
    for gone in ({"loss": None, "grad_norm": None}, {}):
        rows = [{"step": step, **(row if step <= 60 else {"reward": 0.5, **gone})} for step in range(1, 101)]
        run = open_run(str(write(*rows)))
        spelling, first = ("null", 61) if gone else ("missing", 62)
        for name in ("loss", "grad_norm"):
            steps = [item.step for item in run.nonfinite if item[1:] == (name, spelling, False)]
            assert steps == list(range(first, 101))
        assert any(f"loss is {spelling} from step {first} on" in note.message for note in run.notes)
        report = diagnose(run)
        assert next(item.severity for item in report.findings if item.detector == "non-finite") == "critical"


@pytest.mark.parametrize("gone", [{"loss": None, "grad_norm": None}, {}], ids=["null", "missing"])
def test_a_row_of_another_kind_now_and_then_is_no_event(write: Write, gone: dict[str, None]) -> None:
    row = {"reward": 0.5, "loss": 0.01, "grad_norm": 1.0}
    rows = [{"step": step, **(row if step % 10 else {"reward": 0.5, **gone})} for step in range(1, 101)]
    assert not open_run(str(write(*rows))).nonfinite


def test_an_optimiser_that_lags_the_rollouts_is_no_event(write: Write) -> None:
    rows = [{"step": step, "reward": 0.5} for step in range(1, 41)]
    updates = [{"step": step, "loss": 0.01, "grad_norm": 1.0} for step in range(1, 31)]
    assert not open_run(str(write(*(row for pair in zip(rows, updates, strict=False) for row in pair), *rows[30:]))).nonfinite


def test_nan_padding_of_evaluation_rows_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    row = '{"step": %d, "reward": %s, "grad_norm": %s, "eval_reward": %s}\n'
    path.write_text(
        "".join(row % ((step, "NaN", "NaN", 0.4) if step % 5 == 0 else (step, 0.5, 1.0, "NaN")) for step in range(1, 31))
    )
    run = open_run(str(path))
    assert not run.nonfinite
    assert len(run.series("eval_score").steps) == 6


def test_exact_zero_from_the_start_is_not_measured(write: Write) -> None:
    rows = [{"step": step, "entropy": 0.0, "kl": max(0.0, step - 3.0), "reward": 0.0, "grad_norm": 0.0} for step in range(1, 7)]
    run = open_run(str(write(*rows)))
    assert not run.has("entropy")
    assert run.series("kl_ref").steps.tolist() == [4, 5, 6]
    assert run.series("reward_mean").values.tolist() == [0.0] * 6
    assert run.series("grad_norm").values.tolist() == [0.0] * 6
    assert sum(note.count for note in run.notes if note.kind == "unmeasured") == 9


def test_spread_while_every_group_has_none_is_the_batch_s(write: Write) -> None:
    row = {"reward": 0.5, "reward_std": 0.4, "completions/mean_length": 9.0, "learning_rate": 1e-6, "frac_reward_zero_std": 0.5}
    run = open_run(str(write(*({"step": step, **row} for step in (1, 2)))))
    assert run.provenance["group_reward_std"] == "assumed"
    run = open_run(str(write({"step": 1, **row}, {"step": 2, **row, "frac_reward_zero_std": 1.0})))
    assert run.metrics["reward_std"].tolist() == [0.4, 0.4]
    assert run.provenance["reward_std"] == "logged"
    assert not run.has("group_reward_std")
    assert notes(run)["settled"] == 1


def test_numbers_written_as_strings_are_numbers(write: Write) -> None:
    run = open_run(str(write({"step": "1", "reward": "0.25"}, {"step": "2", "reward": "0.5"})))
    assert run.steps.tolist() == [1, 2]
    assert run.metrics["reward_mean"].tolist() == [0.25, 0.5]
    assert notes(run)["converted"] == 4


# -- signals that follow from others -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "config", "name", "value"),
    [
        ({"env/all/by_group/frac_mixed": 0.3}, {}, "zero_std_frac", 0.7),
        ({"train/agg/all/agent/solved_none": 0.2, "train/agg/all/agent/solved_all": 0.1, "optim/lr": 1, "mismatch_kl/a": 0},
         {}, "zero_std_frac", 0.3),
        ({"batch/solve_none": 0.2, "batch/solve_all": 0.5, "optim/lr": 1, "mismatch_kl/mean": 0.1},
         {}, "zero_std_all_pass_frac", 0.5),
        ({"train/baseline_reward/pct_0": 25.0, "train/baseline_reward/pct_1": 50.0, "train/token_mult_prob_error": 1.0},
         {}, "zero_std_frac", 0.75),
        ({"training/n_zero_adv_groups": 3, "training/n_groups": 12}, {}, "zero_std_frac", 0.25),
        ({"rollout/in_group_reward_std": 0.1, "rollout/filter_zero_count": 2, "rollout/filter_kept_count": 4,
          "rollout/filter_kept_ratio": 0.5}, {}, "zero_std_frac", 0.25),
        ({"rollout/zero_std/count_0.0": 4, "rollout/zero_std/count_1.0": 4, "rollout/raw_reward": 0.5, "train/pg_clipfrac": 0},
         {"prompts_per_step": 32}, "zero_std_frac", 0.25),
        ({"reward/num_zero_variance_filtered": 8, "policy/policy_entropy": 1.0}, {"prompts_per_step": 32}, "zero_std_frac", 0.25),
        ({"batch/filtered_prompts": 8, "batch/total_prompts": 32}, {}, "zero_std_frac", 0.25),
        ({"group/all_correct_groups_ratio": 0.25, "group/all_incorrect_groups_ratio": 0.5}, {}, "zero_std_frac", 0.75),
        ({"batch/default/fractions/effective": 0.6}, {}, "zero_std_frac", 0.4),
        ({"batch/solve_none": 2, "batch/solve_all": 1, "batch/solve_partial": 5, "critic/score/mean": 0.5},
         {}, "zero_std_frac", 0.375),
        ({"custom_metrics/train/reward_variance": 0.09}, {"group_size": 10}, "group_reward_std", math.sqrt(0.1)),
        ({"truncated_count": 5, "rollout_count": 20}, {}, "truncated_frac", 0.25),
        ({"val/stop_rate": 0.9, "objective/verifiable_reward": 1.0}, {}, "truncated_frac", 0.1),
        ({"val/ratio_var": 0.04, "objective/verifiable_reward": 1.0}, {}, "is_ratio_std", 0.2),
        ({"critic/score/mean": 0.5, "actor/pg_loss": 0.1, "num_turns/mean": 6.0}, {}, "num_turns", 3.0),
    ],
)  # fmt: skip
def test_what_follows_from_other_keys(
    write: Write, row: dict[str, float], config: dict[str, int], name: str, value: float
) -> None:
    run = open_run(str(write(*({"step": step, **row} for step in (1, 2)))), config=config)
    assert run.metrics[name].tolist() == pytest.approx([value, value])
    assert run.provenance[name] == "derived"
    assert name not in run.keys or run.keys[name] in row


def test_verl_batch_of_one_reward_has_no_variance_in_any_group(write: Write) -> None:
    rows = [
        {
            "step": step,
            "critic/score/mean": 0.0,
            "critic/score/max": float(step < 5),
            "critic/score/min": 0.0,
            "actor/pg_loss": 0.1,
        }
        for step in range(1, 11)
    ]
    run = open_run(str(write(*rows)))
    assert run.series("zero_std_frac").steps.tolist() == [7, 8, 9, 10]
    assert run.series("zero_std_frac").values.tolist() == [1.0] * 4


def test_a_logged_signal_is_not_derived_again(write: Write) -> None:
    run = open_run(str(write({"step": 1, "truncated_frac": 0.5, "truncated_count": 5, "rollout_count": 20})))
    assert run.metrics.loc[1, "truncated_frac"] == 0.5


# -- facts ---------------------------------------------------------------------------------------------------


def test_facts_of_the_user_win(write: Write) -> None:
    run = open_run(str(write({"reward": 0.5, "global_step/max_steps": "1/500"})), config={"max_steps": 99, "group_size": 8})
    assert (run.config.max_steps, run.config.group_size) == (99, 8)


def test_an_unknown_fact_is_named(write: Write) -> None:
    with pytest.raises(ConfigError, match="no fact about a run is called 'colour'"):
        open_run(str(write({"step": 1, "reward": 0.5})), config={"colour": 1})


# -- growth --------------------------------------------------------------------------------------------------


def test_a_followed_run_equals_one_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows = [{"step": step, "reward": math.sin(step), **({"entropy": 1.0 / step} if step % 3 else {})} for step in range(1, 60)]
    rows += [{"step": step, "reward": 0.5, "kl": 0.1 * step} for step in range(40, 80)]
    lines = [json.dumps(row) + "\n" for row in rows]
    path.write_text("".join(lines[:10]))
    builder = RunBuilder(open_reader(str(path)))
    for start, end in ((0, 10), (10, 11), (11, 58), (58, 70), (70, len(lines))):
        if start:
            with path.open("a") as file:
                file.write("".join(lines[start:end]))
        followed = builder.refresh()
    at_once = open_run(str(path))
    assert followed.metrics.equals(at_once.metrics)
    assert followed.events == at_once.events
    assert followed.notes == at_once.notes
    assert np.array_equal(followed.origin_lines, at_once.origin_lines)  # type: ignore[arg-type]


def test_only_new_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "reward": 0.1}\n')
    reader = open_reader(str(path))
    assert len(list(reader.poll())) == 1
    with path.open("a") as file:
        file.write('{"step": 2, "reward": 0.2}\n{"step": 3, "rew')
    assert [row.values["step"] for row in reader.poll()] == [2]
    with path.open("a") as file:
        file.write('ard": 0.3}\n')
    assert [row.values["step"] for row in reader.poll()] == [3]
    assert list(reader.poll()) == []


def test_a_log_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f'{{"step": {step}, "reward": 0.5}}\n' for step in range(1, 11)))
    builder = RunBuilder(open_reader(str(path)))
    assert len(builder.refresh().steps) == 10
    path.write_text('{"step": 1, "reward": 0.9}\n')
    run = builder.refresh()
    assert run.metrics["reward_mean"].to_dict() == {1: 0.9}


def test_a_prefix_of_the_log_gives_a_prefix_of_the_frame(tmp_path: Path) -> None:
    rows = [
        {"step": step, "reward": math.sin(step), "kl": 0.0 if step < 8 else 0.1, "entropy": 2.0 - step / 50, "grad_norm": 1.0}
        for step in range(1, 41)
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(lines))
    whole = open_run(str(path))
    for count in (3, 7, 8, 20, 39):
        path.write_text("".join(lines[:count]))
        part = open_run(str(path))
        assert part.metrics.equals(whole.metrics.iloc[:count])


def test_a_table_of_many_keys_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echotrap.assemble.table.MIN_KEYS", 16)
    monkeypatch.setattr("echotrap.assemble.table.MAX_CELLS", 16 * 4096)
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f'{{"step": {step}, "reward": 0.5, "key{step}": 1}}\n' for step in range(1, 101)))
    run = open_run(str(path))
    assert run.metrics["reward_mean"].notna().sum() == 100
    assert run.metrics.shape[1] <= 16
    assert notes(run)["dropped"] > 0


def test_steps_at_which_only_clocks_were_logged_are_no_steps(write: Write) -> None:
    run = open_run(
        str(
            write(
                {"train/global_step": 0, "profiling/Time taken: generate": 0.4, "_timestamp": 1.0},
                {"train/global_step": 1, "train/reward": 0.5},
                {"train/global_step": 1, "profiling/Time taken: generate": 0.3},
            )
        )
    )
    assert run.steps.tolist() == [1]
    assert notes(run)["dropped"] == 1
