"""Mutated inputs of the binary and exported formats: a run or one clear error, in bounded time and memory.

200 inputs a format; ``ECHOTRAP_FUZZ=2000`` makes it so many.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from echotrap.errors import EchotrapError
from echotrap.sources import mlflow, tensorboard, trackio, wandb_export, wandb_file
from echotrap.sources.base import Format, Head, Options

STORES = Path(__file__).parent / "fixtures" / "stores"
COUNT = int(os.environ.get("ECHOTRAP_FUZZ", "200"))
SECONDS_EACH = 5.0
MEMORY = 1 << 30


def event_file(folder: Path) -> Path:
    writer = EventFileWriter(str(folder))
    for step in range(40):
        for tag in ("train/reward", "train/entropy"):
            writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=step)])))
    writer.close()
    (path,) = folder.glob("*tfevents*")
    return path


def transaction_log(folder: Path) -> Path:
    import struct
    import zlib

    from wandb.proto import wandb_internal_pb2

    out = bytearray(wandb_file.MAGIC + b"\0")
    for step in range(40):
        record = wandb_internal_pb2.Record()
        record.history.item.add(nested_key=["train/reward"], value_json=str(step / 10))
        record.history.item.add(nested_key=["env", "done"], value_json="NaN")
        record.history.item.add(nested_key=["completions", "_type"], value_json='"table-file"')
        payload = record.SerializeToString()
        out += struct.pack("<IH", zlib.crc32(b"\x01" + payload), len(payload)) + b"\x01" + payload
    table = folder / "files/media/table/completions_1_0123456789abcdef0123.table.json"
    table.parent.mkdir(parents=True)
    table.write_text('{"columns": ["step", "prompt", "completion"], "data": [[1, "p", "c"]]}')
    path = folder / "run-a.wandb"
    path.write_bytes(out)
    return path


def chart(folder: Path) -> Path:
    path = folder / "chart.csv"
    rows = [f'"{step}","{step / 10}","{step}","","NaN"' for step in range(40)]
    path.write_text("\n".join(['"Step","a - r","a - r__MIN","b - r","c - r"', *rows]))
    return path


def history(folder: Path) -> Path:
    path = folder / "history.csv"
    path.write_text("\n".join(["_step,_runtime,train/reward", *(f"{step},1.0,{step / 10}" for step in range(40))]))
    return path


def copied(name: str) -> Callable[[Path], Path]:
    def copy(folder: Path) -> Path:
        return Path(shutil.copy(STORES / name, folder / name))

    return copy


def metric_file(folder: Path) -> Path:
    shutil.copytree(STORES / "mlruns", folder / "mlruns")
    return min(folder.rglob("reward"))


CASES: dict[str, tuple[Format, Callable[[Path], Path]]] = {
    "tensorboard": (tensorboard.FORMAT, event_file),
    "wandb": (wandb_file.FORMAT, transaction_log),
    "wandb-chart": (wandb_export.FORMAT, chart),
    "wandb-history": (wandb_export.FORMAT, history),
    "trackio-db": (trackio.FORMAT, copied("trackio.db")),
    "trackio-parquet": (trackio.FORMAT, copied("trackio.parquet")),
    "mlflow-db": (mlflow.FORMAT, copied("mlflow.db")),
    "mlflow-files": (mlflow.FORMAT, metric_file),
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Cut, flip, repeat, swap, overwrite or insert; several of these at once."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        at, end = sorted(chance.randrange(len(out) + 1) for _ in range(2))
        end = min(end, at + chance.choice((1, 4, 64, 4096)))
        match chance.randrange(8):
            case 0:
                del out[at : chance.choice((end, len(out)))]
            case 1 if out:
                out[min(at, len(out) - 1)] ^= 1 << chance.randrange(8)
            case 2:
                out[at:at] = out[at:end] * chance.choice((1, 2, 50))
            case 3:
                out[at:end] = bytes(end - at)
            case 4:
                out[at:end] = chance.randbytes(end - at)
            case 5:
                out[at:at] = chance.choice((b"\xff\xfe", b"\0" * 40, b"9" * 400, b"-1e999", b'"', b"[" * 5000, b"\n", b"1e400,"))
            case 6:
                out[at:end] = b"\xff" * (end - at)
            case 7:
                out[at:end] = reversed(out[at:end])
        if not out:
            break
    return bytes(out)


@pytest.mark.parametrize("case", CASES)
def test_a_mutated_input_is_read_or_refused(case: str, tmp_path: Path) -> None:
    chance = random.Random(case)
    item, make = CASES[case]
    path = make(tmp_path)
    data = path.read_bytes()
    place = tmp_path / "mlruns" if case == "mlflow-files" else path
    refused, messages = 0, set()
    for number in range(COUNT):
        path.write_bytes(broken := mutated(data, chance))
        began = time.monotonic()
        try:
            item.sniff(Head(path, broken[:65536]))
            reader = item.open(str(place), Options())
            rows = sum(1 for _ in reader.poll())
            again = list(reader.poll())
            assert not again or reader.rewound
            if reader.rollouts is not None:
                for step in reader.rollouts.steps()[:3]:
                    reader.rollouts.at(step)
            reader.close()
            assert rows < 1_000_000
        except EchotrapError as error:
            refused += 1
            messages.add(str(error))
        assert time.monotonic() - began < SECONDS_EACH, f"input {number}"
    assert not any("\n" in message for message in messages)
    assert refused < COUNT  # some of them still hold something
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < 2 * MEMORY
