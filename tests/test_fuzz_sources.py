"""Damaged input: whatever is done to a log, it is read or refused in one line; never a traceback, never without bound.

``ECHOTRAP_FUZZ=2000`` asks for more than the 200 mutations per source of an ordinary run.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from echotrap import EchotrapError, open_run

HERE = Path(__file__).parent / "fixtures" / "sources"
ROUNDS = int(os.environ.get("ECHOTRAP_FUZZ", "200"))

SOURCES = {
    "jsonl": "verl/run.jsonl",
    "jsonl-partial": "prime_rl/metrics.jsonl",
    "json": "trl/checkpoint-20/trainer_state.json",
    "csv": "home_made/table.tsv",
    "console-verl": "verl/console.log",
    "console-blocks": "skyrl/console.log",
    "console-table": "unsloth/table.txt",
    "rollouts-jsonl": "verl_v1/rollouts/3.jsonl",
    "rollouts-traces": "prime_rl/rollouts/step_41/train/all/traces.jsonl",
    "rollouts-columns": "ms_swift/completions.jsonl",
    "rollouts-table": "wandb_tables/val/generations_20_aaaaaaaaaaaaaaaaaaaa.table.json",
    "rollouts-parquet": "trl/completions/completions_00010.parquet",
}

Mutation = Callable[[random.Random, bytes], bytes]
VALUES = (
    b"null", b'"x"', b"[]", b"{}", b"[[1]]", b'{"a": {"b": 1}}', b"1e999", b"-1e999", b"NaN", b"true", b'""', b"9" * 400,
    b'"nan"', b'"1/0"', b"-0", b"1e18", b"99999999999999999999", b'"\\ud800"', b'"\\u0000"',
)  # fmt: skip


def truncate(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data))]


def flip(draw: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw.randint(1, 20)):
        out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    return bytes(out)


def drop(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + data[at + draw.randint(1, 80) :]


def repeat(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    piece = data[at : at + draw.randint(1, 200)]
    return data[:at] + piece * draw.randint(2, 40) + data[at:]


def insert(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + draw.randbytes(draw.randint(1, 60)) + data[at:]


def other_types(draw: random.Random, data: bytes) -> bytes:
    return re.sub(
        rb'(?<=[:\[,] )(?:-?\d[\d.e-]*|"[^"]*"|null)', lambda m: draw.choice(VALUES) if draw.random() < 0.3 else m[0], data
    )


def deep(draw: random.Random, data: bytes) -> bytes:
    depth = draw.choice((50, 1000, 20_000))
    nest = b'{"a":' * depth + b"1" + b"}" * depth if draw.random() < 0.5 else b"[" * depth + b"]" * depth
    return re.sub(rb"(?<=: )-?\d[\d.]*", lambda m: nest if draw.random() < 0.05 else m[0], data, count=40)


def long_line(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + draw.choice((b"a", b" ", b"{", b'"', b"\\", b"|", b"1", b"\x1b[", b"step:")) * 100_000 + data[at:]


def shuffle(draw: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n") * draw.randint(1, 4)
    draw.shuffle(lines)
    return b"\n".join(lines)


def strange_steps(draw: random.Random, data: bytes) -> bytes:
    return re.sub(
        rb'(?<="step": )\d+', lambda m: draw.choice((b"-1", b"0", b"1e308", b"1.5", b"null", b"9007199254740993", m[0])), data
    )


MUTATIONS: tuple[Mutation, ...] = (
    truncate, flip, drop, repeat, insert, other_types, deep, long_line, shuffle, strange_steps,
)  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_damaged_input_is_read_or_refused(name: str, tmp_path: Path) -> None:
    data = (HERE / SOURCES[name]).read_bytes()
    path = tmp_path / Path(SOURCES[name]).name
    for seed in range(ROUNDS):
        draw = random.Random(f"{name}-{seed}")
        damaged = data
        for _ in range(draw.randint(1, 3)):
            if damaged:
                damaged = draw.choice(MUTATIONS)(draw, damaged)
        path.write_bytes(damaged[: 1 << 22])
        try:
            run = open_run(path)
        except EchotrapError as error:
            assert "\n" not in str(error), seed  # noqa: PT017
            continue
        steps = run.metrics.index.to_numpy()
        assert (np.diff(steps) > 0).all(), seed
        assert all(kind.kind == "f" for kind in run.metrics.dtypes), seed
        assert not np.isinf(run.metrics.to_numpy()).any(), seed
        if run.rollouts is not None:
            for step in run.rollouts.steps()[:5]:
                run.rollouts.at(step)
            for step in run.rollouts.eval_steps()[:5]:
                run.rollouts.eval_at(step)
