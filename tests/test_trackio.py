"""Trackio: a database and a parquet export made by the real writer (tests/fixtures/make_stores.py)."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from echotrap.errors import SourceError
from echotrap.sources import open_run
from echotrap.sources.base import Head, Options, Reader, Row
from echotrap.sources.sqlite import MAGIC
from echotrap.sources.trackio import FORMAT

STORES = Path(__file__).parent / "fixtures" / "stores"
BOTH = pytest.mark.parametrize("store", ["trackio.db", "trackio.parquet"])


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """A copy of the database that somebody else writes to, with a write-ahead log as Trackio has it."""
    path = tmp_path / "echo.db"
    shutil.copy(STORES / "trackio.db", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        yield path, writer


def log(writer: sqlite3.Connection, step: int, values: object) -> None:
    (run,) = writer.execute("SELECT run_id FROM metrics WHERE run_name = 'grpo-a'").fetchone()
    blob = values if isinstance(values, bytes) else json.dumps(values).encode()
    writer.execute(
        "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', 'grpo-a', ?, ?)", (run, step, blob)
    )


def read(path: Path, run: str | None = None) -> tuple[Reader, list[Row]]:
    reader = FORMAT.open(str(path), Options(run=run))
    return reader, list(reader.poll())


@BOTH
def test_rows_as_they_were_logged(store: str) -> None:
    reader, rows = read(STORES / store, "grpo-a")
    assert [row.values["train/reward"] for row in rows] == [0.1, 0.2, 0.3]
    assert [row.values["_step"] for row in rows] == [0, 2, 4]
    assert [row.step for row in rows] == [None] * 3
    assert rows[1].values["train/entropy"] == "NaN" or math.isnan(rows[1].values["train/entropy"])
    assert float(rows[2].values["train/grad_norm"]) == math.inf
    assert reader.config == {"beta": 0.04, "grpo/num_generations": 2}
    assert (reader.name, reader.other_runs) == ("grpo-a", ("grpo-b",))


@BOTH
def test_completions_lie_in_the_rows(store: str) -> None:
    reader, _ = read(STORES / store, "grpo-a")
    assert reader.rollouts is not None
    assert reader.rollouts.steps() == (1, 2, 3)
    first, second = reader.rollouts.at(2)
    assert (first.text, first.prompt, first.reward, first.advantage) == ("a2", "p", 1.0, 0.5)
    assert first.group == second.group
    assert first.extra["seed"] == 7


@BOTH
def test_the_run_that_was_begun_last_is_read(store: str) -> None:
    reader, rows = read(STORES / store)
    assert (reader.name, len(rows), reader.other_runs) == ("grpo-b", 2, ("grpo-a",))
    with pytest.raises(SourceError, match="there are: grpo-b, grpo-a"):
        read(STORES / store, "ppo")


@BOTH
def test_the_whole_way(store: str) -> None:
    run = open_run(STORES / store, run="grpo-a")
    assert run.format == "trackio"
    assert run.series("reward_mean").steps.tolist() == [1, 2, 3]
    assert {(item.step, item.field) for item in run.nonfinite} >= {(2, "entropy"), (3, "grad_norm")}


def test_a_live_database_is_followed(live: tuple[Path, sqlite3.Connection]) -> None:
    path, writer = live
    reader, _ = read(path, "grpo-a")
    assert list(reader.poll()) == []
    log(writer, 6, {"train/reward": 0.4, "train/global_step": 4})
    log(writer, 7, {})
    log(writer, 8, b"\xff{")
    assert [row.values for row in reader.poll()] == [{"train/reward": 0.4, "train/global_step": 4, "_step": 6}]
    assert [note.count for note in reader.notes] == [1]
    writer.execute("DELETE FROM metrics WHERE id > 4")
    assert len(list(reader.poll())) == 2
    assert reader.rewound


def test_traces_become_rollouts_of_the_training_step(live: tuple[Path, sqlite3.Connection]) -> None:
    path, writer = live
    (run,) = writer.execute("SELECT run_id FROM metrics WHERE run_name = 'grpo-a'").fetchone()
    said = json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": "said"}])
    for index in range(2):
        about = json.dumps({"group_id": "g", "reward": float(index), "advantage": 0.5})
        writer.execute(
            "INSERT INTO traces (id, run_id, timestamp, run_name, step, key, trace_index, messages, metadata, search_text)"
            " VALUES (?, ?, '', 'grpo-a', 4, 'rollouts', ?, ?, ?, '')",
            (f"t{index}", run, index, said, about),
        )
    reader, _ = read(path, "grpo-a")
    assert reader.rollouts is not None
    traces = [rollout for rollout in reader.rollouts.at(3) if rollout.group == "g"]
    assert [(rollout.text, rollout.prompt, rollout.reward) for rollout in traces] == [("said", "q", 0.0), ("said", "q", 1.0)]


def test_an_export_of_several_runs_is_no_dump_of_rollouts() -> None:
    run = open_run(STORES, run="trackio.parquet")
    assert run.format == "trackio"
    assert run.rollouts is not None
    assert run.rollouts.steps() == (1, 2)  # those of the run that was read


def test_an_older_database_without_run_ids(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)")
        writer.execute("INSERT INTO metrics VALUES (1, '', 'r', 0, '{\"reward\": 0.5}')")
        writer.commit()
    assert read(path)[1][0].values == {"reward": 0.5, "_step": 0}


def test_it_is_recognised_by_its_tables(tmp_path: Path) -> None:
    for store in ("trackio.db", "trackio.parquet"):
        path = STORES / store
        assert FORMAT.sniff(Head(path, path.read_bytes()[:65536])) > 0.9
    other = STORES / "mlflow.db"
    assert FORMAT.sniff(Head(other, other.read_bytes()[:65536])) == 0
    broken = tmp_path / "broken.db"
    broken.write_bytes(MAGIC + bytes(100))
    assert FORMAT.sniff(Head(broken, broken.read_bytes())) == 0
    with pytest.raises(SourceError):
        read(broken)
