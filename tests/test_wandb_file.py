"""W&B on disk: the transaction log, its tables, a run that is followed, killed, damaged, resumed."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from echotrap.errors import SourceError
from echotrap.sources import open_reader
from echotrap.sources.base import Head, Options, Row
from echotrap.sources.wandb_file import BLOCK, FORMAT, MAGIC, WandbFileReader

WRITER = """
import math, sys, time
import wandb

folder, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
settings = wandb.Settings(console="off", mode="offline", silent=True, x_disable_stats=True)
config = {"beta": 0.04, "actor": {"rollout": {"n": 8}}, "reward_weights": [1.0, 0.5]}
run = wandb.init(project="p", name="grpo-live", dir=folder, config=config, settings=settings)
increments = wandb.Table(columns=["step", "example_id", "messages", "reward"], log_mode="INCREMENTAL")
for step in range(1, steps + 1):
    extra = {f"filler/metric_{i}": step / (i + 1) for i in range(40)}
    special = {2: math.nan, 3: math.inf}.get(step, 0.5)
    run.log({"train/global_step": step, "train/reward": step / 10, "train/entropy": special, "env": {"done": step},
             "train/rewards/acc/mean": 0.5, "train/rewards/form/mean": 0.5, "hist": wandb.Histogram([1, 2]), **extra})
    if step <= 3:
        rows = [[step, f"prompt {i // 2}", f"completion {i}", i % 2, None, 7, 0.25] for i in range(4)]
        columns = ["step", "prompt", "completion", "acc", "form", "seed", "advantage"]
        run.log({"completions": wandb.Table(columns=columns, data=rows)})
        said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"a{step}"}]
        increments.add_data(step, "e1", str(said).replace("'", '"'), 1.0)
        run.log({"samples": increments})
        seen = [[s, f"in {s}", f"out {s}", 0.0, f"in {s}'", f"out {s}'", 1.0] for s in range(1, step + 1)]
        wide = ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"]
        run.log({"val/generations": wandb.Table(columns=wide, data=seen)})
        matrix = [[1.0, -0.1], [0.0, -0.1], [1.0, -0.1]]
        run.log({"rollout/reward_table": wandb.Table(columns=["group_0", "group_1"], data=matrix)})
    print(step, flush=True)
    time.sleep(pause)
run.finish()
"""


@contextmanager
def writing(folder: Path, steps: int, pause: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    """Let the real SDK write a run, as a training script would."""
    environment = {**os.environ, "WANDB_DIR": str(folder), "WANDB_MODE": "offline", "HOME": str(folder)}
    command = [sys.executable, "-c", WRITER, str(folder), str(steps), str(pause)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    with writing(folder, 5) as process:
        process.communicate(timeout=60)
    return folder


def read(location: Path, run: str | None = None) -> tuple[WandbFileReader, list[Row]]:
    reader = FORMAT.open(str(location), Options(run=run))
    assert isinstance(reader, WandbFileReader)
    return reader, list(reader.poll())


def test_a_finished_run(finished: Path) -> None:
    reader, rows = read(finished)
    train = [row.values for row in rows if "train/global_step" in row.values]
    assert [values["train/reward"] for values in train] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert train[0]["env.done"] == 1
    assert math.isnan(train[1]["train/entropy"])
    assert train[2]["train/entropy"] == math.inf
    assert [row.values["_step"] for row in rows] == list(range(len(rows)))
    assert all(row.step is None for row in rows)
    assert (reader.name, reader.finished, reader.framework) == ("grpo-live", True, None)
    assert reader.config == {"beta": 0.04, "actor.rollout.n": 8, "reward_weights": [1.0, 0.5]}
    assert [(note.kind, note.count) for note in reader.notes] == [("skipped", 5)]  # the histograms
    assert reader.packages["wandb"]


def test_tables_become_rollouts(finished: Path) -> None:
    reader, _ = read(finished)
    store = reader.rollouts
    assert store is not None
    assert store.steps()[:3] == (1, 2, 3)
    assert store.eval_steps() == (1, 2, 3)
    at_two = store.at(2)
    trl = [rollout for rollout in at_two if rollout.advantage == 0.25]
    assert [(rollout.text, rollout.prompt, rollout.group) for rollout in trl] == [
        ("completion 0", "prompt 0", trl[0].group),
        ("completion 1", "prompt 0", trl[0].group),
        ("completion 2", "prompt 1", trl[2].group),
        ("completion 3", "prompt 1", trl[2].group),
    ]
    assert trl[0].group != trl[2].group
    assert [rollout.reward for rollout in trl] == [0.0, 1.0, 0.0, 1.0]  # a reward function that returned nothing adds nothing
    assert set(trl[0].components) == {"acc", "form"}
    assert trl[0].extra == {"seed": 7}
    (sample,) = [rollout for rollout in at_two if rollout.group == "e1"]
    assert (sample.text, sample.prompt, [message.role for message in sample.messages]) == ("a2", "q", ["user", "assistant"])
    assert [rollout.index for rollout in at_two] == list(range(5))
    assert [(rollout.text, rollout.reward) for rollout in store.eval_at(1)] == [("out 1", 0.0), ("out 1'", 1.0)]
    assert store.fingerprint(1) != store.fingerprint(2)


def test_a_reward_matrix_becomes_rollouts_without_text(finished: Path) -> None:
    reader, _ = read(finished)
    assert reader.rollouts is not None
    steps = [step for step in reader.rollouts.steps() if step > 3]  # such a table names no step: W&B's is taken
    assert len(steps) == 3
    matrix = reader.rollouts.at(steps[0])
    assert [(rollout.group, rollout.reward) for rollout in matrix][:2] == [("0", 1.0), ("1", -0.1)]
    assert len(matrix) == 6


def test_every_way_to_name_a_run(finished: Path) -> None:
    (log,) = finished.rglob("*.wandb")
    counts = {len(read(place)[1]) for place in (log, log.parent, log.parent.parent, finished)}
    assert len(counts) == 1
    with pytest.raises(SourceError, match="fits no single run"):
        read(finished, run="nobody")


def test_the_folder_of_a_run_is_called_as_the_run(finished: Path) -> None:
    reader = open_reader(str(finished))
    assert len(list(reader.poll())) > 5
    assert reader.name == "grpo-live"


def test_a_live_run_is_followed_and_nothing_is_read_twice(tmp_path: Path) -> None:
    with writing(tmp_path, 150, 0.01) as process:
        reader, rows, polls = follow(process, tmp_path)
        assert process.returncode == 0
    assert polls > 1
    assert [row.values["train/global_step"] for row in rows if "train/global_step" in row.values] == list(range(1, 151))
    assert [row.values["_step"] for row in rows] == sorted({row.values["_step"] for row in rows})
    assert reader.finished
    assert len(rows) == len(read(tmp_path)[1])


def test_a_killed_run_gives_all_that_reached_the_disk(tmp_path: Path) -> None:
    with writing(tmp_path, 10_000, 0.005) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 120:
                break
        process.send_signal(signal.SIGKILL)
    time.sleep(0.5)  # the SDK's own process notices
    (log,) = tmp_path.rglob("*.wandb")
    reader, rows = read(tmp_path)
    steps = [row.values["train/global_step"] for row in rows if "train/global_step" in row.values]
    assert steps == list(range(1, len(steps) + 1))
    assert steps
    assert len(steps) == len([record for record in whole_records(log) if record.history.item and "train/reward" in str(record)])
    assert reader.finished is False
    assert {note.kind for note in reader.notes} <= {"skipped", "incomplete"}
    assert list(reader.poll()) == []


def follow(process: subprocess.Popen[str], folder: Path) -> tuple[WandbFileReader, list[Row], int]:
    """Poll while the writer runs, and once after it has ended."""
    while not list(folder.rglob("*.wandb")):
        assert process.poll() is None
        time.sleep(0.02)
    reader, rows = read(folder)
    polls = int(bool(rows))
    while True:
        ended = process.poll() is not None
        fresh = list(reader.poll())
        polls += bool(fresh)
        rows += fresh
        if ended:
            break
        time.sleep(0.05)
    return reader, rows, polls


def whole_records(log: Path) -> list[Any]:
    """Second opinion: reassemble by the book, stop at the first chunk that is not whole."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts, records = log.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        payload = data[at + 7 : at + 7 + length]
        if len(payload) < length or kind == 0 or zlib.crc32(bytes([kind]) + payload) != checksum:
            break
        parts = payload if kind in (1, 2) else parts + payload
        at += 7 + length
        if kind in (1, 4):
            records.append(wandb_internal_pb2.Record.FromString(parts))
    return records


# From here on: logs written by hand, with the damage where the test wants it.


def history(step: int, filler: int = 0) -> bytes:
    from wandb.proto import wandb_internal_pb2

    record = wandb_internal_pb2.Record()
    for key, value in (("reward", step / 10), ("_step", step), ("note", "x" * filler)):
        record.history.item.add(nested_key=[key], value_json=json.dumps(value))
    return bytes(record.SerializeToString())


def transaction_log(payloads: Iterable[bytes]) -> bytearray:
    out = bytearray(MAGIC + b"\0")
    for payload in payloads:
        first = True
        while first or payload:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                continue
            part, payload = payload[: left - 7], payload[left - 7 :]
            kind = bytes([{(True, False): 1, (True, True): 2, (False, True): 3, (False, False): 4}[first, bool(payload)]])
            out += struct.pack("<IH", zlib.crc32(kind + part), len(part)) + kind + part
            first = False
    return out


def steps_of(path: Path, data: bytes) -> tuple[list[int], WandbFileReader]:
    path.write_bytes(data)
    reader, rows = read(path)
    return [row.values["_step"] for row in rows], reader


def test_records_over_several_blocks(tmp_path: Path) -> None:
    log = transaction_log(history(step, filler=step * 7919) for step in range(60))
    assert steps_of(tmp_path / "run-a.wandb", log)[0] == list(range(60))


@pytest.mark.parametrize("pace", [1, 4093, BLOCK, BLOCK + 1])
def test_growth_by_any_number_of_bytes(tmp_path: Path, pace: int) -> None:
    count = 12 if pace == 1 else 90
    log = transaction_log(history(step, filler=step % 3 * (20 if pace == 1 else 9000)) for step in range(count))
    path = tmp_path / "run-a.wandb"
    path.touch()
    reader, rows = read(path)
    for end in (*range(0, len(log), pace), len(log)):
        path.write_bytes(log[:end])
        rows += reader.poll()
    assert [row.values["_step"] for row in rows] == list(range(count))
    assert reader.notes == []
    path.write_bytes(log[: len(log) // 2])
    assert next(reader.poll()).values["_step"] == 0
    assert reader.rewound


def test_a_damaged_record_costs_no_other_record(tmp_path: Path) -> None:
    log = transaction_log(history(step, filler=1000) for step in range(100))
    log[log.index(b"reward", 5500) + 50] ^= 0xFF
    steps, reader = steps_of(tmp_path / "run-a.wandb", log)
    assert len(steps) == 99
    assert [(note.kind, note.count) for note in reader.notes] == [("skipped", 1)]


def test_a_damaged_block_is_skipped_and_counted(tmp_path: Path) -> None:
    log = transaction_log(history(step, filler=1000) for step in range(100))
    log[BLOCK : 2 * BLOCK] = bytes(BLOCK)
    steps, reader = steps_of(tmp_path / "run-a.wandb", log)
    assert 60 < len(steps) < 70
    assert (steps[0], steps[-1]) == (0, 99)
    assert [(note.kind, note.count) for note in reader.notes] == [("skipped", 1)]


def test_a_cut_or_zeroed_tail_is_not_damage(tmp_path: Path) -> None:
    log = transaction_log(history(step) for step in range(10))
    for data in (log[:-5], log + bytes(100), log[:-20] + bytes(20)):
        steps, reader = steps_of(tmp_path / "run-a.wandb", data)
        assert steps in (list(range(9)), list(range(10)))
        assert [note.kind for note in reader.notes] == ["incomplete"]


def test_a_resumed_run_is_one_run_and_others_are_named(tmp_path: Path) -> None:
    for stamp, run, steps in (
        ("20260101_000000", "a", range(5)),
        ("20260101_010000", "b", range(3)),
        ("20260102_000000", "a", range(5, 8)),
    ):
        folder = tmp_path / "wandb" / f"run-{stamp}-{run}"
        folder.mkdir(parents=True)
        (folder / f"run-{run}.wandb").write_bytes(transaction_log(history(step) for step in steps))
    reader, rows = read(tmp_path)
    assert [row.values["_step"] for row in rows] == list(range(8))
    assert [row.file for row in rows] == [0] * 5 + [1] * 3
    assert reader.other_runs == ("b",)
    assert len(read(tmp_path, run="b")[1]) == 3


def test_older_writers_put_the_name_into_the_key(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    record = wandb_internal_pb2.Record()
    record.history.item.add(key="train/reward", value_json="0.5")
    record.history.item.add(key="env", value_json='{"done": 1, "image": {"_type": "image-file"}}')
    record.history.item.add(key="broken", value_json="{")
    path = tmp_path / "run-a.wandb"
    path.write_bytes(transaction_log([record.SerializeToString(), b"\xff\xff\xff"]))
    reader, rows = read(path)
    assert [row.values for row in rows] == [{"train/reward": 0.5, "env.done": 1}]
    assert sorted(note.message.split(" ")[0] for note in reader.notes) == ["logged", "records", "values"]


def test_it_is_recognised_by_its_content(tmp_path: Path) -> None:
    assert FORMAT.sniff(Head(tmp_path / "x", MAGIC + b"\0")) == 1
    assert FORMAT.sniff(Head(tmp_path / "x.wandb", b"{}")) == 0
    path = tmp_path / "run-a.wandb"
    path.write_bytes(b"{}")
    with pytest.raises(SourceError, match="not a W&B transaction log"):
        read(path)


def test_a_run_that_has_only_begun_is_followed_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "wandb" / "offline-run-20260101_000000-a"
    folder.mkdir(parents=True)
    log = transaction_log(history(step) for step in range(5))
    (folder / "run-a.wandb").write_bytes(log[:7])  # all that the SDK writes before its first block is full
    reader = open_reader(str(tmp_path))
    assert list(reader.poll()) == []
    (folder / "run-a.wandb").write_bytes(log)
    assert [row.values["_step"] for row in reader.poll()] == list(range(5))


def verl(step: int) -> bytes:
    from wandb.proto import wandb_internal_pb2

    record = wandb_internal_pb2.Record()
    for key, value in (("critic/score/mean", step / 10), ("training/global_step", step), ("_step", step)):
        record.history.item.add(nested_key=[key], value_json=json.dumps(value))
    return bytes(record.SerializeToString())


def test_the_last_steps_of_a_killed_verl_run_come_from_what_it_printed(tmp_path: Path) -> None:
    path = tmp_path / "run-a.wandb"
    path.write_bytes(transaction_log(verl(step) for step in range(1, 6)))
    (tmp_path / "files").mkdir()
    printed = (f"step:{step} - critic/score/mean:{step / 10} - training/global_step:{step}\n" for step in range(1, 9))
    (tmp_path / "files" / "output.log").write_text("loading\n" + "".join(printed))
    reader, rows = read(path)
    assert [row.values["training/global_step"] for row in rows] == list(range(1, 9))
    assert [Path(reader.files[row.file]).name for row in rows] == ["run-a.wandb"] * 5 + ["output.log"] * 3
    assert [(note.kind, note.count) for note in reader.notes] == [("supplemented", 3)]
    path.write_bytes(transaction_log(verl(step) for step in range(1, 11)))  # it was alive after all, and its log catches up
    assert [row.values["training/global_step"] for row in reader.poll()] == [9, 10]
