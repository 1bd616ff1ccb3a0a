"""MLflow: a database and a file store made by the real writer (tests/fixtures/make_stores.py)."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from echotrap.errors import SourceError
from echotrap.sources import open_run
from echotrap.sources.base import Head, Options, Reader, Row
from echotrap.sources.mlflow import FORMAT

STORES = Path(__file__).parent / "fixtures" / "stores"
BOTH = pytest.mark.parametrize("store", ["mlflow.db", "mlruns"])


def read(path: Path, run: str | None = None) -> tuple[Reader, list[Row]]:
    reader = FORMAT.open(str(path), Options(run=run))
    return reader, list(reader.poll())


@BOTH
def test_one_row_a_step_with_nan_and_infinity_as_logged(store: str) -> None:
    reader, rows = read(STORES / store, "grpo-a")
    assert [(row.step, row.values["reward"]) for row in rows] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert math.isnan(rows[1].values["entropy"])
    assert rows[2].values["grad_norm"] == math.inf
    assert rows[0].values["val-core/gsm8k/acc/mean@8"] == 0.25  # verl's name, which MLflow does not allow
    assert reader.config == {"beta": "0.04", "num_generations": "2"}
    assert (reader.name, reader.finished, reader.other_runs) == ("grpo-a", True, ("grpo-b",))
    assert reader.notes == []
    assert list(reader.poll()) == []


@BOTH
def test_the_run_that_was_begun_last_is_read(store: str) -> None:
    reader, rows = read(STORES / store)
    assert (reader.name, len(rows)) == ("grpo-b", 2)
    with pytest.raises(SourceError, match="there are: grpo-b, grpo-a"):
        read(STORES / store, "ppo")


@BOTH
def test_the_whole_way(store: str) -> None:
    run = open_run(STORES / store, run="grpo-a")
    assert run.format == "mlflow"
    assert run.series("reward_mean").values.tolist() == [0.1, 0.2, 0.3]
    assert run.config.group_size == 2
    assert {(item.step, item.field) for item in run.nonfinite} >= {(2, "entropy"), (3, "grad_norm")}


def test_a_database_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    shutil.copy(STORES / "mlflow.db", path)
    reader, _ = read(path, "grpo-a")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        (run,) = writer.execute("SELECT run_uuid FROM runs WHERE name = 'grpo-a'").fetchone()
        writer.execute("INSERT INTO metrics (key, value, timestamp, run_uuid, step) VALUES ('reward', 0.5, 0, ?, 4)", (run,))
        writer.execute("UPDATE runs SET status = 'FAILED'")
        assert [(row.step, row.values) for row in reader.poll()] == [(4, {"reward": 0.5})]
        assert [note.message for note in reader.notes] == ["MLflow says that the run is FAILED"]
        writer.execute("DELETE FROM metrics WHERE step > 1")
        assert [row.step for row in reader.poll()] == [1]
        assert reader.rewound


def test_a_file_store_is_followed_to_the_last_whole_line(tmp_path: Path) -> None:
    shutil.copytree(STORES / "mlruns", tmp_path / "mlruns")
    reader, _ = read(tmp_path / "mlruns", "grpo-a")
    (metric,) = [Path(file) for file in reader.files if file.endswith("reward")]
    with metric.open("a") as stream:
        stream.write("9999999999999 0.4 4\nbroken\n9999999999999 0.5 ")
    assert [(row.step, row.values) for row in reader.poll()] == [(4, {"reward": 0.4})]
    assert [note.count for note in reader.notes] == [1]
    with metric.open("a") as stream:
        stream.write("5\n")
    assert [(row.step, row.values) for row in reader.poll()] == [(5, {"reward": 0.5})]
    metric.write_text("9999999999999 0.1 1\n")
    assert [row.step for row in reader.poll()] == [1, 2, 3]
    assert reader.rewound


def test_a_restart_over_several_metrics_is_one_restart(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "metrics").mkdir(parents=True)
    (folder / "meta.yaml").write_text("run_name: r\nstatus: 1\n")
    times = [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3)]
    for key in ("a", "b"):
        (folder / "metrics" / key).write_text("".join(f"{time} {time} {step}\n" for time, step in times))
    reader, rows = read(folder)
    assert [(row.step, row.values["a"], row.values["b"]) for row in rows] == [(s, t, t) for t, s in times]
    assert reader.finished is False


def test_it_is_recognised_by_its_tables() -> None:
    path = STORES / "mlflow.db"
    assert FORMAT.sniff(Head(path, path.read_bytes()[:65536])) > 0.9
    other = STORES / "trackio.db"
    assert FORMAT.sniff(Head(other, other.read_bytes()[:65536])) == 0
    with pytest.raises(SourceError, match="not an MLflow database"):
        read(other)
    with pytest.raises(SourceError, match="no run was logged"):
        read(STORES.parent.parent / "support")
