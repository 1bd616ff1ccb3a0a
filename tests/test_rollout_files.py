"""Rollout dumps of every framework: groups, rewards, text, one step at a time."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from echotrap import SourceError, open_run
from echotrap.rollouts import Rollout, solved
from echotrap.sources.rollout_files import FileRollouts
from echotrap.sources.rollout_records import assign_groups, holds_rollouts, rollouts_of

HERE = Path(__file__).parent / "fixtures" / "sources"


def groups(rollouts: list[Rollout]) -> list[list[float]]:
    """Rewards by group, in order."""
    found: dict[str | None, list[float]] = {}
    for item in rollouts:
        found.setdefault(item.group, []).append(item.reward)
    return list(found.values())


# name, training steps, evaluation steps, step looked at, rewards by group, text of the first rollout
DUMPS: list[tuple[str, tuple[int, ...], tuple[int, ...], int, list[list[float]], str]] = [
    ("verl/rollouts", (1, 2), (), 1, [[1.0, 0.0], [1.0, 0.0]], "<think>12 times seven</think> 84"),
    ("verl_v1/rollouts", (3,), (), 3, [[0.0, 0.5], [1.0]], "move 0\nmove 1"),
    ("trl/completions", (10, 20), (), 20, [[1.5, 0.5], [1.5, 0.5]], "A? answer 0"),
    ("ms_swift/completions.jsonl", (10, 20), (), 10, [[1.5, 0.0], [1.5, 1.5]], "a"),
    ("tinker", (1,), (1,), 1, [[0.0, 1.0], [0.0, 1.0]], ""),
    ("prime_rl/rollouts", (41,), (), 41, [[1.1, 0.1], [0.1]], "let me see\nIt is 4"),
    ("nemo_rl/exp_001", (7,), (10,), 7, [[1.0, 0.0]], "It is 4"),
    ("skyrl/dumped_evals", (), (20,), 20, [[0.0, 1.0]], "try 0"),
    (
        "ragen",
        (),
        (0,),
        0,
        [[10.0, -0.2], [-0.2, -0.2]],
        "<think>box 0</think><answer>Up</answer>\n<think>done</think><answer>Left</answer>",
    ),
    ("areal", (15,), (15,), 15, [[0.0, 1.0], [0.0]], "text 0"),
    ("open_instruct", (3, 4), (), 3, [[0.0, 10.0]], ""),
    ("rllm", (4,), (), 4, [[0.0, 1.0]], "first\nsecond"),
    ("roll/rollout_dump_data.step_9.jsonl", (9,), (), 9, [[1.0, 0.0]], "four"),
    ("verifiers", (0,), (), 0, [[1.0, 0.0], [1.0, 0.0]], "A0"),
    ("wandb_tables/val", (), (0, 20), 20, [[1.0], [1.0]], "z"),
    ("wandb_tables/completions_21_bbbbbbbbbbbbbbbbbbbb.table.json", (20,), (), 20, [[1.5, 0.5]], "yes"),
    ("wandb_tables/rollout", (7,), (), 7, [[1.0, 0.0, 1.0], [-0.1, -0.1, -0.1]], ""),
]


@pytest.mark.parametrize(("name", "train", "held_out", "step", "rewards", "text"), DUMPS, ids=[dump[0] for dump in DUMPS])
def test_a_dump_gives_its_rollouts_by_step_and_group(
    name: str, train: tuple[int, ...], held_out: tuple[int, ...], step: int, rewards: list[list[float]], text: str
) -> None:
    store = FileRollouts(HERE / name)
    assert (store.steps(), store.eval_steps()) == (train, held_out)
    rollouts = store.at(step) if step in train else store.eval_at(step)
    found = groups(rollouts)
    assert len(found) == len(rewards)
    for rewarded, wanted in zip(found, rewards, strict=True):
        assert rewarded == pytest.approx(wanted)
    assert rollouts[0].text == text
    assert [item.index for item in rollouts] == list(range(len(rollouts)))
    assert {item.step for item in rollouts} == {step}
    assert store.at(999) == []


def test_ragens_evaluation_says_success_for_the_environment() -> None:
    assert [solved(item) for item in FileRollouts(HERE / "ragen").eval_at(0)] == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", [dump[0] for dump in DUMPS])
def test_a_dump_without_metrics_is_a_run_too(name: str) -> None:
    run = open_run(HERE / name)
    assert run.format == "rollouts" or run.metrics.shape[0] > 0
    assert run.rollouts is not None


def test_verl_groups_are_prompts_with_their_ground_truth() -> None:
    rows = [{"input": "q", "output": str(at), "gts": gts, "score": 0.0} for at, gts in enumerate("aabb")]
    found = assign_groups([one for row in rows for one in rollouts_of(row)])
    assert [item.group for item in found] == ["0", "0", "1", "1"]


def test_uids_that_name_samples_are_no_groups() -> None:
    rows = [{"input": prompt, "output": "x", "score": 0.0, "uid": f"id{at}"} for at, prompt in enumerate("aabb")]
    found = assign_groups([one for row in rows for one in rollouts_of(row)])
    assert [item.group for item in found] == ["0", "0", "1", "1"]


def test_a_prompt_that_was_drawn_twice_is_two_groups() -> None:
    rows = [{"prompt": "same", "completion": str(at), "reward": 0.0} for at in range(8)]
    found = assign_groups([one for row in rows for one in rollouts_of(row)], group_size=4)
    assert [item.group for item in found] == ["0"] * 4 + ["0.1"] * 4


def test_rewards_of_functions_are_summed_only_where_no_total_is() -> None:
    row = {"prompt": "p", "completion": "c", "fmt": 0.5, "acc": 1.0, "advantage": 0.1}
    [total] = rollouts_of(row)
    assert (total.reward, total.components) == (1.5, {"fmt": 0.5, "acc": 1.0})
    [logged] = rollouts_of({**row, "reward": 9.0})
    assert logged.reward == 9.0
    [none] = rollouts_of({"prompt": "p", "completion": "c", "fmt": None, "advantage": 0.0})
    assert math.isnan(none.reward)


def test_conversations_are_kept_as_messages() -> None:
    [one] = FileRollouts(HERE / "trl" / "completions").at(10)[:1]
    assert [(item.role, item.content) for item in one.messages] == [("user", "A?"), ("assistant", "A? answer 0")]
    assert one.prompt == "A?"
    [other] = FileRollouts(HERE / "prime_rl" / "rollouts").at(41)[:1]
    assert [item.role for item in other.messages] == ["user", "assistant", "tool", "assistant"]
    assert other.text == "let me see\nIt is 4"
    assert other.components == {"correct": 1.0, "style": 0.5}


def test_a_step_may_list_its_rollouts(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    samples = [{"prompt": "p", "response": f"r{at}", "reward": at} for at in range(3)]
    path.write_text("".join(json.dumps({"step": step, "samples": samples}) + "\n" for step in (4, 8)))
    run = open_run(path)
    assert run.rollouts is not None
    assert run.rollouts.steps() == (4, 8)
    assert [item.text for item in run.rollouts.at(8)] == ["r0", "r1", "r2"]


def test_tool_calls_are_generated_text() -> None:
    call = {"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
    [one] = rollouts_of(
        {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": [call]}]}
    )
    assert one.text == '{"name": "bash", "arguments": {"command": "ls"}}'


def test_truncation_is_told_by_the_finish_reason() -> None:
    assert [item.truncated for item in FileRollouts(HERE / "skyrl").eval_at(20)] == [False, True]
    assert [item.truncated for item in FileRollouts(HERE / "open_instruct").at(3)] == [True, False]
    assert [item.truncated for item in FileRollouts(HERE / "verl").at(1)] == [None] * 4


def test_lengths_are_read_where_text_is_not_logged() -> None:
    assert [item.tokens for item in FileRollouts(HERE / "tinker").at(1)] == [340] * 4
    assert [item.tokens for item in FileRollouts(HERE / "open_instruct").at(3)] == [3, 3]
    assert FileRollouts(HERE / "areal").at(15)[0].tokens == 712


def test_what_was_trained_on_is_not_read_twice() -> None:
    assert len(FileRollouts(HERE / "prime_rl").at(41)) == 3


def test_a_file_of_many_steps_is_read_a_step_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rollouts.jsonl"
    rows = [{"step": step, "prompt": "p", "completion": f"{step}-{at}", "reward": at} for step in (2, 1, 3) for at in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = FileRollouts(path)
    assert store.steps() == (1, 2, 3)
    read: list[object] = []
    monkeypatch.setattr(
        "echotrap.sources.rollout_files.rollouts_of", lambda record, **facts: read.append(record) or rollouts_of(record, **facts)
    )
    assert [item.text for item in store.at(1)] == ["1-0", "1-1"]
    assert len(read) == 2
    assert store.at(1)[0].origin == "rollouts.jsonl:3"


def test_dumps_that_grow_are_followed(tmp_path: Path) -> None:
    shutil.copytree(HERE / "verl" / "rollouts", tmp_path / "dump")
    path = tmp_path / "all.jsonl"
    path.write_text('{"step": 5, "prompt": "p", "completion": "c", "reward": 1.0}\n')
    store = FileRollouts(tmp_path)
    assert store.steps() == (1, 2, 5)
    before = store.fingerprint(5)
    shutil.copy(HERE / "verl" / "rollouts" / "1.jsonl", tmp_path / "dump" / "3.jsonl")
    with path.open("a") as file:
        file.write('{"step": 5, "prompt": "p", "completion": "d", "reward": 0.0}\n{"step": 6, "prompt": "p", "comple')
    store.refresh()
    assert store.steps() == (1, 2, 3, 5)
    assert [item.text for item in store.at(5)] == ["c", "d"]
    assert store.fingerprint(5) != before
    assert store.fingerprint(999) is None


def test_a_partly_written_dump_gives_its_whole_lines(tmp_path: Path) -> None:
    data = (HERE / "verl" / "rollouts" / "1.jsonl").read_bytes()
    (tmp_path / "1.jsonl").write_bytes(data)
    (tmp_path / "2.jsonl").write_bytes(data[: len(data) * 3 // 4])
    store = FileRollouts(tmp_path)
    assert len(store.at(1)) == 4
    assert 0 < len(store.at(2)) < 4


def test_pickles_are_refused_with_the_way_out() -> None:
    store = FileRollouts(HERE / "slime" / "dump")
    assert store.steps() == ()
    [note] = store.notes
    assert note.kind == "refused"
    assert "pickle" in note.message
    assert "JSON lines" in note.message
    with pytest.raises(SourceError, match="pickle"):
        open_run(HERE / "slime" / "dump")


def test_metrics_rows_are_no_rollouts() -> None:
    assert not holds_rollouts({"step": 1, "loss": 0.1, "completion": "a sample"})
    assert not holds_rollouts({"step": 1, "reward": 0.1})
    assert holds_rollouts({"prompt": "a", "completion": "b"})


def test_a_damaged_parquet_file_is_noted(tmp_path: Path) -> None:
    good = (HERE / "trl" / "completions" / "completions_00010.parquet").read_bytes()
    (tmp_path / "completions_00010.parquet").write_bytes(good)
    (tmp_path / "completions_00020.parquet").write_bytes(good[: len(good) // 2])
    store = FileRollouts(tmp_path)
    assert len(store.at(10)) == 4
    assert store.at(20) == []
    store.refresh()
    assert [note.kind for note in store.notes] == ["skipped"]


TABLE = {"columns": ["step", "input_1", "output_1", "score_1"], "data": [[n, f"q {n}", f"answer {n}", n / 2] for n in range(4)]}

RECORDS = [{"prompt": "q", "response": f"answer {n}", "reward": 1.0, "step": n} for n in range(4)]


@pytest.mark.parametrize("document", [TABLE, RECORDS])
def test_of_a_document_that_breaks_off_the_whole_records_are_read(tmp_path: Path, document: object) -> None:
    whole = json.dumps(document)
    path = tmp_path / "samples.table.json"
    path.write_text(whole[: whole.index("answer 3") + 3], encoding="utf-8")
    store = FileRollouts(path)
    assert store.steps() + store.eval_steps() == (0, 1, 2)  # verl's tables hold validation rollouts
    assert [item.text for item in store.at(2) + store.eval_at(2)] == ["answer 2"]
    assert any("breaks off" in note.message for note in open_run(tmp_path).notes)
    path.write_text(whole, encoding="utf-8")
    store.refresh()
    assert store.steps() + store.eval_steps() == (0, 1, 2, 3)
    assert store.notes == []


@pytest.mark.parametrize("whole_folder", [True, False])
def test_rollouts_that_cannot_be_read_are_an_error_that_says_why(tmp_path: Path, whole_folder: bool) -> None:
    path = tmp_path / "samples.table.json"
    path.write_text(json.dumps(TABLE)[:72], encoding="utf-8")  # not one whole row
    with pytest.raises(SourceError, match="is no JSON") as failure:
        open_run(tmp_path if whole_folder else path)
    assert failure.value.where == str(path)
