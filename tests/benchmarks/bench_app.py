"""The dashboard on a long run: what goes to the browser, and the CPU seconds of pages and refreshes, in one run.

    python tests/benchmarks/bench_app.py [ROWS]

Budgets: at most 1 MB for the chart of 20 signals; the first script run at most twice an empty page plus one read and judgement;
a live refresh after one new row at most 0.5 s at 100,000 steps.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

ROOT = Path(__file__).parents[2]
KEYS = (
    "critic/score/mean", "critic/score/max", "critic/score/min", "critic/rewards/mean", "critic/advantages/mean",
    "critic/advantages/max", "critic/advantages/min", "critic/returns/mean", "actor/entropy", "actor/grad_norm",
    "actor/pg_loss", "actor/pg_clipfrac", "actor/ppo_kl", "actor/kl_loss", "actor/lr", "response_length/mean",
    "response_length/max", "response_length/clip_ratio", "prompt_length/mean", "timing_s/step",
)  # fmt: skip
T = TypeVar("T")


def row(step: int, draw: random.Random) -> str:
    values = {key: math.exp(draw.gauss(0, 0.3)) for key in KEYS}
    return json.dumps({"step": step, "data": values}) + "\n"


def timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def first_run(script: str | Path, *paths: Path) -> float:
    """CPU seconds of one script run, in a warm process."""
    from streamlit.testing.v1 import AppTest

    sys.argv = ["main.py", *map(str, paths)]
    app = AppTest.from_file(str(script), default_timeout=600)
    seconds, _ = timed(app.run)
    assert not app.exception
    assert not app.error
    return seconds


def main(rows: int = 100_000) -> None:
    folder = Path(tempfile.mkdtemp())
    os.environ["XDG_CACHE_HOME"] = str(folder)
    draw = random.Random(1)
    log, small, empty = folder / "long.jsonl", folder / "small.jsonl", folder / "empty.py"
    with log.open("w") as file:
        file.writelines(row(step, draw) for step in range(1, rows + 1))
    small.write_text("".join(row(step, draw) for step in range(1, 50)))
    empty.write_text("import streamlit as st\nst.write('nothing')\n")

    from echotrap import config
    from echotrap.app import runs
    from echotrap.render import charts, figures

    first_run(ROOT / "app/main.py", small)  # imports are paid once a process
    nothing = median(first_run(empty) for _ in range(3))
    reading, watcher = timed(lambda: runs.Watched(str(log), config.Settings()))
    looking, scene = timed(watcher.look)
    seen = scene.look
    assert seen is not None
    page = first_run(ROOT / "app/main.py", log)
    print(f"{rows:,} steps x {len(KEYS)} signals, {log.stat().st_size / 1e6:.0f} MB")
    base = nothing + reading + looking
    print(f"first page {page:.2f} s; empty page {nothing:.3f} s + read and judge {reading + looking:.2f} s: {page / base:.2f}x")

    names = [str(name) for name in seen.run.metrics.columns if seen.run.has(str(name))]
    drawing, figure = timed(lambda: figures.plotly(charts.of_run(seen.run, seen.report, names[:20])).to_json())
    print(f"chart of {len(names[:20])} signals: {len(figure) / 1e6:.2f} MB, drawn in {drawing:.2f} s")

    refreshes = []
    for step in range(rows + 1, rows + 4):
        with log.open("a") as file:
            file.write(row(step, draw))
        watcher._looked = watcher._cost_s = 0.0  # no rest between two looks here
        refreshes.append(timed(watcher.look)[0])
    print(f"live refresh after one new row: {median(refreshes):.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
