"""TensorBoard event files: framing, both scalar forms, restarts, growth, damage."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from echotrap.errors import SourceError
from echotrap.sources.base import Head, Options, Reader, Row
from echotrap.sources.tensorboard import CHUNK, FORMAT

SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / "../shared"))


def write(folder: Path, *rows: tuple[int, Mapping[str, float]], suffix: str = "") -> Path:
    """Write an event file with TensorBoard's own writer: one event a tag, as training code does."""
    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    for step, values in rows:
        for tag, value in values.items():
            writer.add_event(Event(wall_time=step, step=step, summary=scalar(tag, value)))
    writer.close()
    return max(folder.glob(f"*tfevents*{suffix}"), key=lambda path: path.stat().st_mtime_ns)


def scalar(tag: str, value: float) -> Summary:
    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def read(location: Path, run: str | None = None) -> tuple[Reader, list[Row]]:
    reader = FORMAT.open(str(location), Options(run=run))
    return reader, list(reader.poll())


def test_one_row_a_step_with_every_tag(tmp_path: Path) -> None:
    write(tmp_path, (1, {"train/reward": 0.25, "train/kl": 0.5}), (2, {"train/reward": 0.75}))
    reader, rows = read(tmp_path)
    assert [(row.step, row.values) for row in rows] == [
        (1, {"train/reward": 0.25, "train/kl": 0.5}),
        (2, {"train/reward": 0.75}),
    ]
    assert [row.line for row in rows] == [2, 4]  # the first record names the version
    assert reader.notes == []
    assert reader.name == tmp_path.name


def test_tensor_form_text_and_other_summaries(tmp_path: Path) -> None:
    def tensor(tag: str, proto: TensorProto) -> Summary.Value:
        return Summary.Value(tag=tag, tensor=proto, metadata=SummaryMetadata())

    one = TensorShapeProto()
    arguments = json.dumps({"num_generations": 8, "beta": 0.04}).encode()
    values = [
        tensor("float", TensorProto(dtype=1, float_val=[0.5], tensor_shape=one)),
        tensor("content", TensorProto(dtype=2, tensor_content=np.float64(0.1).tobytes(), tensor_shape=one)),
        tensor("bfloat", TensorProto(dtype=14, half_val=[0x3FC0], tensor_shape=one)),
        tensor("int", TensorProto(dtype=9, int64_val=[7], tensor_shape=one)),
        tensor("args/text_summary", TensorProto(dtype=7, string_val=[arguments])),
        tensor("bomb", TensorProto(dtype=1, float_val=[1.0], tensor_shape={"dim": [{"size": 1 << 60}]})),
        Summary.Value(tag="image", image=Summary.Image(height=1)),
    ]
    writer = EventFileWriter(str(tmp_path))
    writer.add_event(Event(step=3, summary=Summary(value=values)))
    writer.close()
    reader, rows = read(tmp_path)
    assert [row.values for row in rows] == [{"float": 0.5, "content": 0.1, "bfloat": 1.5, "int": 7.0}]
    assert reader.config == {"num_generations": 8, "beta": 0.04}
    assert {note.message.split(" ")[0]: note.count for note in reader.notes} == {"text": 1, "summaries": 2}


def test_non_finite_values_stay_non_finite(tmp_path: Path) -> None:
    write(tmp_path, (1, {"a": math.nan, "b": math.inf, "c": -math.inf}))
    (row,) = read(tmp_path)[1]
    assert math.isnan(row.values["a"])
    assert row.values["b"] == math.inf
    assert row.values["c"] == -math.inf


def test_more_than_ten_thousand_points_are_all_there(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path), max_queue_size=100_000)
    for step in range(10_500):
        writer.add_event(Event(step=step, summary=scalar("reward", step)))
    writer.close()
    assert [row.values["reward"] for row in read(tmp_path)[1]] == list(range(10_500))


def test_a_restart_in_a_second_file_comes_after_what_it_replaces(tmp_path: Path) -> None:
    first = write(tmp_path, *((step, {"reward": 1.0, "kl": 1.0}) for step in range(1, 6)), suffix=".a")
    first.rename(tmp_path / "events.out.tfevents.100.host.1.0")
    second = write(tmp_path, *((step, {"reward": 2.0, "kl": 2.0}) for step in range(4, 8)), suffix=".b")
    second.rename(tmp_path / "events.out.tfevents.200.host.1.0")
    reader, rows = read(tmp_path)
    assert [(row.step, row.file, row.values["reward"]) for row in rows] == [
        *((step, 0, 1.0) for step in range(1, 6)),
        *((step, 1, 2.0) for step in range(4, 8)),
    ]
    assert [Path(file).name.split(".")[3] for file in reader.files] == ["100", "200"]


def test_tags_written_one_after_the_other_are_no_restart(tmp_path: Path) -> None:
    write(tmp_path, *((step, {"a": step}) for step in range(4)), *((step, {"b": -step}) for step in range(4)))
    assert [(row.step, row.values) for row in read(tmp_path)[1]] == [(step, {"a": step, "b": -step}) for step in range(4)]


def test_only_new_rows_and_no_half_record_when_the_file_grows(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", *((step, {"reward": step, "kl": 0.0}) for step in range(40))).read_bytes()
    live = tmp_path / "live" / "events.out.tfevents.1.host"
    live.parent.mkdir()
    live.write_bytes(b"")
    reader = FORMAT.open(str(live), Options())
    seen: list[tuple[int | None, str]] = []
    for end in (*range(0, len(whole), 37), len(whole)):
        live.write_bytes(whole[:end])
        seen += [(row.step, tag) for row in reader.poll() for tag in row.values]
    assert seen == [(step, tag) for step in range(40) for tag in ("reward", "kl")]
    assert reader.notes == []
    live.write_bytes(whole[:400])
    assert next(reader.poll()).step == 0
    assert reader.rewound


def test_a_cut_tail_is_not_damage(tmp_path: Path) -> None:
    path = write(tmp_path, *((step, {"reward": step}) for step in range(10)))
    path.write_bytes(path.read_bytes()[:-5])
    reader, rows = read(tmp_path)
    assert len(rows) == 9
    assert [note.kind for note in reader.notes] == ["incomplete"]


@pytest.mark.parametrize("where", ["length", "length checksum", "content", "content checksum"])
def test_a_damaged_record_is_jumped_over_and_counted(tmp_path: Path, where: str) -> None:
    path = write(tmp_path, *((step, {"reward": step}) for step in range(10)))
    data = bytearray(path.read_bytes())
    begin = 0
    for _ in range(3):  # over the version and two steps
        begin += 16 + int.from_bytes(data[begin : begin + 8], "little")
    content, length = begin + 12, data[begin]
    at = {"length": begin, "length checksum": begin + 8, "content": content + 9, "content checksum": content + length}[where]
    data[at] ^= 0xFF
    path.write_bytes(data)
    reader, rows = read(tmp_path)
    assert [row.step for row in rows] == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert [(note.kind, note.count) for note in reader.notes] == [("skipped", 1)]


def test_a_record_longer_than_the_buffer_is_passed(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    writer.add_event(Event(step=1, summary=scalar("reward", 1)))
    writer.close()
    path = next(tmp_path.iterdir())
    small = path.read_bytes()
    frame = small[small.rindex(b"\x00" * 7) - 1 :]  # the scalar's own record
    from echotrap.sources import tensorboard

    def crc(data: bytes) -> bytes:
        octets = np.frombuffer(data, np.uint8)
        return int(tensorboard._masked_crc(octets, np.array([0]), np.array([len(data)]))[0]).to_bytes(4, "little")

    large = Event(step=2, graph_def=bytes(CHUNK + 10)).SerializeToString()
    length = len(large).to_bytes(8, "little")
    path.write_bytes(small + length + crc(length) + large + b"????" + frame)
    assert sum(len(row.values) for row in read(tmp_path)[1]) == 1
    assert [row.line for row in read(path)[1]] == [2]


def test_one_of_several_runs_is_picked_and_the_others_are_named(tmp_path: Path) -> None:
    for stamp, name in ((100, "grpo-a"), (300, "grpo-b"), (200, "grpo-c"), (400, "grpo-b/hparams")):
        write(tmp_path / name, (1, {"reward": stamp})).rename(tmp_path / name / f"events.out.tfevents.{stamp}.host")
    reader, rows = read(tmp_path)
    assert (reader.name, rows[0].values["reward"]) == ("grpo-b", 300)
    assert reader.other_runs == ("grpo-c", "grpo-a", "grpo-b/hparams")
    assert read(tmp_path, run="grpo-a")[1][0].values["reward"] == 100
    with pytest.raises(SourceError, match="there are: grpo-b, grpo-c"):
        read(tmp_path, run="ppo")


def test_it_is_recognised_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path, (1, {"reward": 1.0}))
    assert FORMAT.sniff(Head(tmp_path / "log", path.read_bytes()[:65536])) > 0.9
    assert FORMAT.sniff(Head(tmp_path / "log", b'{"step": 1}\n')) == 0
    assert FORMAT.sniff(Head(tmp_path, entries=(path,))) > 0


def test_a_folder_without_event_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no event files"):
        read(tmp_path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared logs are not here")
@pytest.mark.parametrize("case", ["entropy-dead", "nan-24", "ok-100"])
def test_real_logs_agree_with_tensorboards_own_reader(case: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (path,) = (SHARED / "real_logs" / f"tfevents-wordle4070-{case}").glob("events.*")
    reference = EventAccumulator(str(path), size_guidance={"scalars": 0})
    reference.Reload()
    expected: dict[int, dict[str, Any]] = {}
    for tag in reference.Tags()["scalars"]:
        for event in reference.Scalars(tag):
            expected.setdefault(event.step, {})[tag] = event.value
    rows = read(path)[1]
    assert [row.step for row in rows] == sorted(expected)
    for row in rows:
        assert row.step is not None
        np.testing.assert_equal(row.values, expected[row.step])
