"""Reading JSON lines: echotrap (with its frame) against ``pandas.read_json(lines=True)``, in one run.

    python tests/benchmarks/bench_read.py [ROWS]

Budget: at least 3 times as fast, peak memory at most 8 times the file.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KEYS = (
    "critic/score/mean", "critic/score/max", "critic/score/min", "critic/rewards/mean",
    "critic/advantages/mean", "critic/advantages/max", "critic/advantages/min", "actor/entropy", "actor/grad_norm",
    "actor/pg_loss", "actor/pg_clipfrac", "actor/ppo_kl", "actor/kl_loss", "actor/lr", "response_length/mean",
    "response_length/max", "response_length/clip_ratio", "timing_s/step", "perf/throughput_of_all_workers_in_tokens_per_second",
)  # fmt: skip


def write(path: Path, rows: int, *, nested: bool) -> None:
    """A log of 21 metrics per row, about 880 bytes each."""
    draw = random.Random(1)
    with path.open("w") as file:
        for step in range(1, rows + 1):
            row: dict[str, object] = {"step": step, "epoch": step // 1000, **{key: draw.random() * 10 for key in KEYS}}
            file.write(json.dumps({"step": step, "data": row} if nested else row) + "\n")


def timed(code: str, path: Path) -> tuple[float, float]:
    """Seconds and peak MiB of a snippet in a process of its own; imports are not counted."""
    script = f"import sys, time, resource\npath = sys.argv[1]\n{code}\n"
    out = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True).stdout
    seconds, peak = map(float, out.split())
    return seconds, peak


REPORT = "print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
OURS = f"""
import echotrap, echotrap.assemble, echotrap.sources
echotrap.sources.formats()
t = time.perf_counter()
run = echotrap.open_run(path)
assert run.metrics.shape[0] > 0
{REPORT}"""
PANDAS = f"""
import pandas
t = time.perf_counter()
frame = pandas.read_json(path, lines=True)
{REPORT}"""


def refresh(path: Path) -> tuple[float, float]:
    """Seconds of a refresh after one new row: all of it, and reading alone."""
    from echotrap.assemble import RunBuilder
    from echotrap.sources import open_reader

    builder = RunBuilder(open_reader(str(path)))
    builder.refresh()
    last = path.read_bytes().rsplit(b"\n", 2)[1]
    with path.open("ab") as file:
        file.write(last.replace(b'"step": ', b'"step": 9') + b"\n")
    start = time.perf_counter()
    builder.refresh()
    whole = time.perf_counter() - start
    with path.open("ab") as file:
        file.write(last.replace(b'"step": ', b'"step": 99') + b"\n")
    start = time.perf_counter()
    list(builder.reader.poll())
    return whole, time.perf_counter() - start


def main() -> None:
    """Print the figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for nested in (False, True):
        compare(rows, nested=nested)


def compare(rows: int, *, nested: bool) -> None:
    """Print the figures of one shape: flat rows, or verl's envelope (which pandas leaves unopened)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        write(path, rows, nested=nested)
        size = path.stat().st_size / 2**20
        ours, pandas = timed(OURS, path), timed(PANDAS, path)
        print(f"{rows} rows, {size:.0f} MiB, {'verl envelope' if nested else 'flat'}")
        print(f"echotrap  {ours[0]:6.2f} s   peak {ours[1]:6.0f} MiB = {ours[1] / size:.1f}x the file")
        print(f"pandas    {pandas[0]:6.2f} s   peak {pandas[1]:6.0f} MiB")
        print(f"ratio     {pandas[0] / ours[0]:6.2f}")
        whole, reading = refresh(path)
        print(f"one new row: refresh {whole * 1000:.0f} ms, of which reading {reading * 1000:.1f} ms")


if __name__ == "__main__":
    main()
