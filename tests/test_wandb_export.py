"""CSV files that W&B's pages export: the history of a run, charts, the table of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from echotrap.errors import SourceError
from echotrap.sources.base import Head, Options, Reader, Row
from echotrap.sources.wandb_export import FORMAT

HISTORY = """\
,train/global_step,train/reward,train/entropy,_step,_runtime,_timestamp,completions
0,1,0.25,NaN,0,1.5,1796066370.5,
1,2,0.5,0.75,2,2.5,1796066371.5,"{""_type"": ""table-file""}"
"""
CHART = """\
"Step","grpo - a - reward","grpo - a - reward__MIN","grpo - a - reward__MAX","b - reward","b - reward__MIN","b - reward__MAX"
"1","0.25","0.25","0.25","","",""
"2","0.5","0.5","0.5","0.1","0.1","0.1"
"4","Infinity","0.5","0.5","0.2","0.2","0.2"
"""
RUNS = """\
"Name","State","Notes","User","Tags","Created","Runtime","lr","train/reward"
"grpo","finished","-","me","","2026-11-30T19:00:00.000Z","812","0.001","0.5"
"""


def read(path: Path, text: str | None = None, run: str | None = None) -> tuple[Reader, list[Row]]:
    if text is not None:
        path.write_text(text)
    reader = FORMAT.open(str(path), Options(run=run))
    return reader, list(reader.poll())


def test_the_history_of_a_run(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "history.csv", HISTORY)
    first, second = (row.values for row in rows)
    assert (first["train/global_step"], first["train/reward"], first["train/entropy"], first["_step"]) == (1, 0.25, "NaN", 0)
    assert second["train/entropy"] == 0.75
    assert "completions" not in first  # not logged is not there
    assert [row.line for row in rows] == [2, 3]
    assert list(reader.poll()) == []
    assert len(read(tmp_path / "history.csv", "\ufeff" + HISTORY)[1]) == 2


def test_a_chart_gives_the_run_with_most_points(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "chart.csv", CHART)
    assert [row.values for row in rows] == [
        {"_step": 1, "reward": 0.25},
        {"_step": 2, "reward": 0.5},
        {"_step": 4, "reward": "Infinity"},
    ]
    assert (reader.name, reader.other_runs) == ("grpo - a", ("b",))
    reader, rows = read(tmp_path / "chart.csv", run="b")
    assert [row.values["reward"] for row in rows] == [0.1, 0.2]


def test_another_axis_keeps_its_name(tmp_path: Path) -> None:
    _, rows = read(tmp_path / "chart.csv", '"train/global_step","a - reward"\n"10","0.5"\n')
    assert rows[0].values == {"train/global_step": 10, "reward": 0.5}


def test_a_folder_of_charts_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "reward.csv").write_text(CHART)
    (tmp_path / "entropy.csv").write_text(CHART.replace("reward", "entropy"))
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    reader, rows = read(tmp_path)
    assert {key for row in rows for key in row.values} == {"_step", "reward", "entropy"}
    assert len(reader.files) == 2


def test_the_table_of_runs_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="one line a run and no steps"):
        read(tmp_path / "runs.csv", RUNS)


def test_lines_of_another_shape_are_counted(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "history.csv", HISTORY + "2,3\n" + "3,4,0.5,0.5,6,3.5,1796066373.5,\n")
    assert [row.values["train/global_step"] for row in rows] == [1, 2, 4]
    assert [note.count for note in reader.notes] == [1]


@pytest.mark.parametrize(("text", "mine"), [(HISTORY, True), (CHART, True), (RUNS, True), ("step,reward\n1,2\n", False)])
def test_it_is_recognised_by_its_header(tmp_path: Path, text: str, mine: bool) -> None:
    assert (FORMAT.sniff(Head(tmp_path / "x", text.encode())) > 0.5) is mine
