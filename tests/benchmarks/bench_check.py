"""``echotrap check`` on 5,000 and 100,000 steps of 21 metrics, beside rl-doctor where it is installed, in one run.

    python tests/benchmarks/bench_check.py [STEPS ...]

Budgets: at 5,000 steps not slower than rl-doctor; 100,000 steps at most 25 times that; peak memory at most 8 times the file.
rl-doctor is stopped at 6 GiB and two minutes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

EVERY = {"reward": 0.02, "reward_std": 0.03, "frac_reward_zero_std": 0.05, "entropy": 0.05, "grad_norm": 0.2, "kl": 0.003,
         "loss": 0.01, "learning_rate": 0.0, "completions/mean_length": 20.0, "completions/max_length": 30.0,
         "completions/min_length": 10.0, "completions/clipped_ratio": 0.01, "clip_ratio/region_mean": 0.001,
         "clip_ratio/low_mean": 0.001, "clip_ratio/high_mean": 0.001, "rewards/accuracy/mean": 0.02,
         "rewards/accuracy/std": 0.02, "step_time": 0.5, "epoch": 0.0, "num_tokens": 0.0}  # fmt: skip
LEVEL = {"reward": 0.5, "reward_std": 0.3, "frac_reward_zero_std": 0.2, "entropy": 0.8, "grad_norm": 0.5, "kl": 0.01,
         "learning_rate": 1e-6, "completions/mean_length": 400.0, "completions/max_length": 900.0,
         "completions/min_length": 50.0, "completions/clipped_ratio": 0.03, "rewards/accuracy/mean": 0.5,
         "rewards/accuracy/std": 0.4, "step_time": 10.0}  # fmt: skip
MEMORY_BYTES, SECONDS = 6 << 30, 120


def write(path: Path, steps: int) -> None:
    """A healthy run of 21 metrics, as TRL would log it."""
    rng = np.random.default_rng(1)
    columns = {name: np.abs(LEVEL.get(name, 0.0) + sd * rng.normal(size=steps)).tolist() for name, sd in EVERY.items()}
    with path.open("w") as file:
        for i in range(steps):
            file.write(json.dumps({"step": i + 1, **{name: values[i] for name, values in columns.items()}}) + "\n")


def timed(command: list[str]) -> tuple[float, float, int]:
    """Seconds, peak MiB and exit code of a command in a process of its own."""
    reader, writer = os.pipe()
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            code = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -1
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        os.write(writer, f"{time.perf_counter() - start} {peak / 1024} {code}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    seconds, peak_mib, code_text = os.read(reader, 200).decode().split()
    return float(seconds), float(peak_mib), int(code_text)


def main() -> None:
    """Print the figures."""
    sizes = [int(word) for word in sys.argv[1:]] or [5_000, 100_000]
    ours: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for steps in sizes:
            log = Path(folder) / f"{steps}.jsonl"
            write(log, steps)
            size = log.stat().st_size / 2**20
            commands = {"echotrap": [sys.executable, "-m", "echotrap", "check", str(log)]}
            if shutil.which("rl-doctor"):
                commands["rl-doctor"] = ["rl-doctor", "diagnose", str(log)]
            for name, command in commands.items():
                runs = [timed(command) for _ in range(3 if steps <= 10_000 else 1)]
                seconds, peak, code = min(runs)
                if name == "echotrap":
                    ours[steps] = seconds
                    ratio = ""
                else:
                    ratio = f", {seconds / ours[steps]:.2f} times echotrap's time"
                print(f"{name:10} {steps:>7} steps ({size:.1f} MiB): {seconds:.2f} s, peak {peak:.0f} MiB, exit {code}{ratio}")
    if len(sizes) > 1:
        print(f"echotrap, {sizes[-1]} against {sizes[0]} steps: {ours[sizes[-1]] / ours[sizes[0]]:.1f} times")


if __name__ == "__main__":
    main()
