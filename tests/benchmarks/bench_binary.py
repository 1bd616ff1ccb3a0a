"""Reading 50 MB of TensorBoard and of W&B files against the readers that people use today, as ratios of one run.

    python tests/benchmarks/bench_binary.py [--megabytes 50] [--wandb-datastore FOLDER]

TensorBoard's own ``EventAccumulator`` keeps all points here, as echotrap does. W&B ships no reader for its files any more; the
last one, ``DataStore``, is in wandb 0.28 and is used where FOLDER holds that (``pip install --target FOLDER --no-deps
wandb==0.28``); otherwise the comparison is with the plainest loop over the same protobuf classes. Both files come from real
writers' classes. CPU seconds, so that other work on the machine does not count; imports are not counted.
"""

from __future__ import annotations

import argparse
import random
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

METRICS = [f"train/metric_{number}/mean" for number in range(30)]
REPORT = "print(time.process_time() - t)"

READ = (
    """
import time, sys
from echotrap.sources.base import Options
from echotrap.sources.{module} import FORMAT
{warm}
t = time.process_time()
reader = FORMAT.open(sys.argv[1], Options())
rows = list(reader.poll())
assert len(rows) >= int(sys.argv[2]), len(rows)
"""
    + REPORT
)

ACCUMULATOR = (
    """
import time, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
t = time.process_time()
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
accumulator.Reload()
rows = [accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]]
assert len(rows[0]) == int(sys.argv[2])
"""
    + REPORT
)

DATASTORE = (
    """
import time, sys, json
sys.path.insert(0, sys.argv[3])
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore
t = time.process_time()
store = DataStore()
store.open_for_scan(sys.argv[1])
rows = []
while (data := store.scan_data()) is not None:
    record = Record.FromString(data)
    if record.WhichOneof("record_type") == "history":
        rows.append({".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item})
assert len(rows) == int(sys.argv[2])
"""
    + REPORT
)

LOOP = (
    """
import time, sys, json, struct, zlib
from wandb.proto.wandb_internal_pb2 import Record
t = time.process_time()
rows, parts = [], b""
with open(sys.argv[1], "rb") as stream:
    stream.read(7)
    while header := stream.read(7):
        if len(header) < 7 or not any(header):
            stream.seek(stream.tell() // 32768 * 32768)
            continue
        checksum, length, kind = struct.unpack("<IHB", header)
        payload = stream.read(length)
        assert zlib.crc32(bytes([kind]) + payload) == checksum
        parts = payload if kind in (1, 2) else parts + payload
        if kind in (1, 4):
            record = Record.FromString(parts)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
        left = 32768 - stream.tell() % 32768
        if left < 7:
            stream.read(left)
assert len(rows) == int(sys.argv[2])
"""
    + REPORT
)


def event_file(path: Path, megabytes: float) -> int:
    """One event a tag, as every trainer writes them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    from echotrap.sources import tensorboard

    def checksums(parts: list[bytes]) -> Iterator[bytes]:
        octets = np.frombuffer(b"".join(parts), np.uint8)
        lengths = np.array([len(part) for part in parts])
        crc = tensorboard._masked_crc(octets, np.cumsum(lengths) - lengths, lengths)
        return (int(value).to_bytes(4, "little") for value in crc)

    draw, steps = random.Random(0), int(megabytes * 1e6 / (57 * len(METRICS)))
    events = [Event(wall_time=0, file_version="brain.Event:2")]
    for step in range(steps):
        for tag in METRICS:
            events.append(Event(wall_time=step, step=step, summary=Summary(value=[{"tag": tag, "simple_value": draw.random()}])))
    records = [event.SerializeToString() for event in events]
    headers = [struct.pack("<Q", len(record)) for record in records]
    with path.open("wb") as stream:
        for pieces in zip(headers, checksums(headers), records, checksums(records), strict=True):
            stream.write(b"".join(pieces))
    return steps


def transaction_log(path: Path, megabytes: float) -> int:
    """A history and a summary record a step, as the SDK writes them."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    draw, steps, out = random.Random(0), 0, bytearray(b":W&B\xe1\xbe\0")
    while len(out) < megabytes * 1e6:
        history, summary = Record(), Record()
        for key, value in [*((tag, draw.random()) for tag in METRICS), ("train/global_step", steps), ("_step", steps)]:
            history.history.item.add(nested_key=[key], value_json=repr(value))
            summary.summary.update.add(nested_key=[key], value_json=repr(value))
        for payload in (history.SerializeToString(), summary.SerializeToString()):
            first = True
            while first or payload:
                left = 32768 - len(out) % 32768
                if left < 7:
                    out += bytes(left)
                    continue
                part, payload = payload[: left - 7], payload[left - 7 :]
                kind = bytes([{(True, False): 1, (True, True): 2, (False, True): 3, (False, False): 4}[first, bool(payload)]])
                out += struct.pack("<IH", zlib.crc32(kind + part), len(part)) + kind + part
                first = False
        steps += 1
    path.write_bytes(out)
    return steps


def measured(code: str, *arguments: object) -> float:
    """CPU seconds of a snippet in a process of its own; the better of two."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return min(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]) for _ in range(2))


def main() -> None:
    """Print a line a format."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--wandb-datastore", metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events.out.tfevents.1.host")
        steps = event_file(events, options.megabytes)
        warm = "from tensorboard.compat.proto import event_pb2"
        ours, theirs = measured(READ.format(module="tensorboard", warm=warm), events, steps), measured(ACCUMULATOR, events, steps)
        show("TensorBoard", events, ours, theirs, "EventAccumulator")
        log = Path(folder, "run-bench.wandb")
        steps = transaction_log(log, options.megabytes)
        warm = "from wandb.proto import wandb_internal_pb2"
        ours = measured(READ.format(module="wandb_file", warm=warm), log, steps)
        if options.wandb_datastore:
            theirs = measured(DATASTORE, log, steps, options.wandb_datastore)
        else:
            theirs = measured(LOOP, log, steps)
        show("W&B", log, ours, theirs, "wandb's DataStore" if options.wandb_datastore else "a plain loop")


def show(what: str, path: Path, ours: float, theirs: float, name: str) -> None:
    """One line."""
    size = path.stat().st_size / 1e6
    print(f"{what}: {size:.0f} MB  echotrap {ours:.2f} s  {name} {theirs:.2f} s  ratio {theirs / ours:.1f}")


if __name__ == "__main__":
    main()
