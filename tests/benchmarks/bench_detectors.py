"""What the detectors cost: milliseconds on 5,000 steps x 21 signals, and how that grows to 100,000 steps.

Run ``python tests/benchmarks/bench_detectors.py``. Budget (design, section 8): linear, at most 25 times for 20 times the steps;
all detectors together on 5,000 steps well under 0.3 s.
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd

from echotrap.record import Run, RunConfig
from echotrap.registry import catalogue

SIGNALS = {
    "reward_mean": 0.4, "reward_std": 0.4, "group_reward_std": 0.3, "zero_std_frac": 0.3, "zero_std_all_pass_frac": 0.1,
    "zero_std_all_fail_frac": 0.2, "success_rate": 0.4, "eval_score": 0.4, "entropy": 0.8, "grad_norm": 0.5, "kl_ref": 0.05,
    "policy_loss": 0.01, "learning_rate": 1e-6, "clip_frac": 0.01, "is_ratio_mean": 1.0, "mismatch_kl": 0.001, "prob_gap": 0.004,
    "response_length": 400.0, "truncated_frac": 0.03, "num_turns": 4.0, "valid_action_frac": 0.95,
}  # fmt: skip


def run(steps: int) -> Run:
    """A healthy, noisy run."""
    random = np.random.default_rng(1)
    frame = {name: level * np.exp(0.1 * random.standard_normal(steps)) for name, level in SIGNALS.items()}
    return Run("bench", "-", "frame", pd.DataFrame(frame, index=pd.Index(np.arange(1, steps + 1), name="step")),
               config=RunConfig(group_size=8))  # fmt: skip


def cost(steps: int, repeats: int) -> dict[str, float]:
    """Best time of each detector, in milliseconds."""
    subject, best = run(steps), {}
    for name, detector in catalogue().items():
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            detector(subject)
            times.append(1000 * (time.perf_counter() - begin))
        best[name] = min(times)
    return best


def main() -> None:
    """Print the table."""
    cost(500, 1)  # imports
    small, large = cost(5_000, 3), cost(100_000, 1)
    print(f"{'detector':28}{'5,000 steps':>14}{'100,000':>12}{'ratio':>8}")
    for name in sorted(small, key=small.__getitem__, reverse=True):
        print(f"{name:28}{small[name]:11.1f} ms{large[name]:9.0f} ms{large[name] / max(small[name], 1e-3):8.1f}")
    total, grown = sum(small.values()), sum(large.values())
    print(f"{'all':28}{total:11.1f} ms{grown:9.0f} ms{grown / total:8.1f}")


if __name__ == "__main__":
    main()
