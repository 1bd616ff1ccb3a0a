"""Tables of rollouts as frameworks log them to W&B and Trackio: which of them are read, and what their rows are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from echotrap.errors import SourceError
from echotrap.sources.tables import LoggedTable, TableStore, wandb_table


class Logged:
    """Loggings of tables under one key, with a record of what was loaded."""

    def __init__(self, key: str, *tables: dict[str, Any], incremental: bool = False) -> None:
        self.loaded: list[int] = []
        self.tables = [
            LoggedTable(key, number, f"{key}:{number}", lambda number=number: self._load(number), incremental)  # type: ignore[misc]
            for number in range(len(tables))
        ]
        self._content = tables

    def _load(self, number: int) -> dict[str, Any]:
        self.loaded.append(number)
        return self._content[number]

    def store(self, config: dict[str, Any] | None = None, rewards: set[str] | None = None) -> TableStore:
        store = TableStore(lambda: self.tables, config or {}, rewards or set())
        store.refresh()
        return store


def table(columns: str, *rows: list[Any]) -> dict[str, Any]:
    return {"columns": columns.split(), "data": list(rows)}


def test_trl_logs_the_rows_of_one_step_and_the_last_one_twice() -> None:
    columns = "step prompt completion accuracy format advantage"
    tables = [table(columns, [step, "p", f"a{step}", 1.0, 0.5, 0.7], [step, "p", "b", 0.0, None, -0.7]) for step in (10, 20, 20)]
    logged = Logged("completions", *tables)
    store = logged.store({"reward_weights": [1.0, 2.0]}, {"accuracy", "format"})
    assert store.steps() == (10, 20)
    first, second = store.at(10)
    assert (first.text, first.reward, first.components, first.advantage) == ("a10", 2.0, {"accuracy": 1.0, "format": 0.5}, 0.7)
    assert (second.reward, second.group, second.index) == (0.0, first.group, 1)
    assert len(store.at(20)) == 2


def test_a_step_whose_reward_functions_gave_nothing_has_no_reward() -> None:
    store = Logged("completions", table("step prompt completion acc advantage", [1, "p", "a", None, 0.0])).store({}, {"acc"})
    assert math.isnan(store.at(1)[0].reward)


def test_verl_repeats_all_earlier_rows_so_only_the_newest_is_read() -> None:
    columns = "step input_1 output_1 score_1 input_2 output_2 score_2"
    rows = [[step, "user\nA?", f"x{step}", 0.0, "user\nB?", f"y{step}", 1.0] for step in (0, 20, 40)]
    logged = Logged("val/generations", *(table(columns, *rows[: count + 1]) for count in range(3)))
    store = logged.store()
    assert store.steps() == ()
    assert store.eval_steps() == (0, 20, 40)
    assert [(rollout.text, rollout.reward) for rollout in store.eval_at(20)] == [("x20", 0.0), ("y20", 1.0)]
    assert set(logged.loaded) == {2}


@pytest.mark.parametrize(
    ("key", "content", "step", "expected"),
    [
        ("train/generated_samples", table("global_step text reward", [1, "one", 0.0], [2, "two", 1.0]), 2, ("two", 1.0)),
        ("trajectories/train", table("step idx reward num_turns trajectory", [7, 0, 0.5, 2, "turns"]), 7, ("turns", 0.5)),
        ("samples", table("step task example_id messages input_ids reward", [
            3, "t", 12, '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "said"}]', "[1]", 1.0]), 3,
         ("said", 1.0)),
    ],
)  # fmt: skip
def test_openrlhf_skyrl_and_prime_rl(key: str, content: dict[str, Any], step: int, expected: tuple[str, float]) -> None:
    (rollout,) = Logged(key, content).store().at(step)
    assert (rollout.text, rollout.reward) == expected


def test_skyrl_evaluations_are_no_training_rollouts() -> None:
    store = Logged("trajectories/eval", table("step idx reward num_turns trajectory", [7, 0, 0.5, 2, "turns"])).store()
    assert store.steps() == ()
    assert store.eval_steps() == (7,)


def test_increments_add_up() -> None:
    columns = "step example_id messages reward"
    logged = Logged("samples", table(columns, [1, "e", "a", 0.0]), table(columns, [1, "e", "b", 1.0], [2, "e", "c", 1.0]),
                    incremental=True)  # fmt: skip
    store = logged.store()
    assert [rollout.text for rollout in store.at(1)] == ["a", "b"]
    assert [rollout.text for rollout in store.at(2)] == ["c"]


def test_ragens_rewards_without_text() -> None:
    store = Logged("rollout/reward_table", table("group_0 group_1", [1.0, -0.1], [0.0, -0.1])).store()
    assert [(rollout.group, rollout.reward) for rollout in store.at(0)] == [("0", 1.0), ("1", -0.1), ("0", 0.0), ("1", -0.1)]


def test_a_table_that_comes_later_is_found(tmp_path: Path) -> None:
    logged = Logged("completions", table("step prompt completion", [1, "p", "a"]), table("step prompt completion", [2, "p", "b"]))
    later = logged.tables.pop()
    store = logged.store()
    assert store.steps() == (1,)
    logged.tables.append(later)
    store.refresh()
    assert store.steps() == (1, 2)


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    def gone() -> dict[str, Any]:
        raise SourceError("no such file")

    store = TableStore(lambda: [LoggedTable("completions", 1, "x", gone)], {}, set())
    store.refresh()
    assert store.steps() == ()
    assert [(note.kind, note.count) for note in store.notes] == [("skipped", 1)]
    path = tmp_path / "a.table.json"
    path.write_text('{"columns": ["a"], "data": [[NaN]]}')
    assert math.isnan(wandb_table(path)["data"][0][0])
    for content in ("[]", "{", json.dumps({"columns": 1, "data": []})):
        path.write_text(content)
        with pytest.raises(SourceError):
            wandb_table(path)
