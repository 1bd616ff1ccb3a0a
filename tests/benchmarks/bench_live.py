"""A run that grows by one step: what a look costs, in CPU seconds, and what the monitor takes from a training loop.

    python tests/benchmarks/bench_live.py [ROWS]

Budgets: reading costs the same whatever was read before; a whole look (read, build, judge, report) takes at most 0.5 s at
100,000 steps.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import echotrap
from echotrap.config import Settings
from echotrap.live import Follower
from echotrap.sources import open_reader

KEYS = {
    "reward": 0.4, "reward_std": 0.3, "frac_reward_zero_std": 0.1, "entropy": 1.2, "grad_norm": 0.5, "kl": 0.01, "loss": 0.01,
    "completions/mean_length": 200.0, "completions/clipped_ratio": 0.02, "clip_ratio/region_mean": 0.01, "learning_rate": 1e-5,
    **{f"custom/{number}": 1.0 for number in range(9)},
}  # fmt: skip


def row(step: int, draw: random.Random) -> str:
    return json.dumps({"step": step, **{key: usual * draw.lognormvariate(0, 0.1) for key, usual in KEYS.items()}}) + "\n"


def cost(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def looks(rows: int) -> None:
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.jsonl"
        with file.open("w") as out:
            out.writelines(row(step, draw) for step in range(rows))
        follower = Follower(open_reader(str(file)), Settings())
        first = cost(follower.look)
        reads, wholes = [], []
        for step in range(rows, rows + 10):
            with file.open("a") as out:
                out.write(row(step, draw))
            wholes.append(cost(follower.look))
            with file.open("a") as out:
                out.write(row(step + rows, draw))
            reads.append(cost(follower._builder.poll))
        idle = cost(follower.look)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{rows:7d} steps: first look {first:.2f} s, a new step: read {1e3 * median(reads):.2f} ms, "
        f"whole look {median(wholes):.3f} s, nothing new {1e3 * idle:.2f} ms, peak {peak:.0f} MB"
    )


def monitor() -> None:
    draw = random.Random(1)
    rows = [json.loads(row(step, draw)) for step in range(520)]
    words = [f"word{number}" for number in range(2000)]
    texts = [{"prompt": f"p{i // 8}", "text": " ".join(draw.choices(words, k=200)), "reward": draw.random()} for i in range(64)]
    for name, rollouts in (("metrics", None), ("metrics and 64 rollouts of 200 words", texts)):
        watching = echotrap.Monitor(every=10**9, settings=Settings())
        logs = [cost(partial(watching.log, item, item["step"], rollouts)) for item in rows[:100]]
        watching.evaluate()
        for item in rows[100:110]:
            watching.log(item, item["step"], rollouts)
        print(f"monitor, {name}: log {1e6 * median(logs):.0f} us, an evaluation of 10 new steps {cost(watching.evaluate):.3f} s")


if __name__ == "__main__":
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for count in (most // 20, most):
        looks(count)
    monitor()
