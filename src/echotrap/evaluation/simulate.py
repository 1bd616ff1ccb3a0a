"""Seeded runs with a known onset, and every confounder the catalogue names.

Rewards are drawn per rollout and grouped, so that mean, in-group spread and dead groups belong together. Noise is what real logs
have: autocorrelated, heavy-tailed in the gradient, with missing metrics, sparse logging, resumes and smoothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from echotrap.record import Event, NonFinite, Run, RunConfig, Segment

__all__ = ["CONFOUNDERS", "FAILURES", "Simulated", "simulate"]

Floats = NDArray[np.float64]


class Simulated(NamedTuple):
    """A run, what it is, and between which steps its failure sets in (``None`` where nothing fails)."""

    run: Run
    kind: str
    onset: tuple[int, int] | None


@dataclass
class _World:
    """Latent course of a run, one value a step; a scenario bends it."""

    rng: np.random.Generator
    steps: NDArray[np.int64]
    onset: int
    success: Floats = field(init=False)  # mean success probability
    sameness: Floats = field(init=False)  # 0: outcomes vary within a prompt, 1: they are fixed per prompt
    log_entropy: Floats = field(init=False)
    log_grad: Floats = field(init=False)
    log_length: Floats = field(init=False)
    truncated: Floats = field(init=False)
    log_kl: Floats = field(init=False)
    penalty: Floats = field(init=False)  # share of rollouts at the format penalty
    held_out: Floats = field(init=False)  # held-out minus training success
    echo: Floats = field(init=False)  # share of 4-grams found in other prompts' rollouts
    valid: Floats = field(init=False)  # share of turns that can be parsed
    tool_errors: Floats = field(init=False)  # share of tool calls that fail
    fit: Floats = field(init=False)  # share of reasonings that fit their own prompt best
    gibberish: Floats = field(init=False)  # share of rollouts that are no language
    events: list[Event] = field(default_factory=list)
    broken: list[NonFinite] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.steps)
        rise = 1 - np.exp(-np.arange(n) / self.rng.uniform(60, 250))
        start, gain = self.rng.uniform(0.15, 0.5), self.rng.uniform(0.05, 0.35)
        self.success = start + gain * rise
        self.sameness = np.full(n, self.rng.uniform(0.0, 0.15))
        self.log_entropy = np.log(self.rng.uniform(0.2, 1.6)) - self.rng.uniform(0.1, 1.2) * rise
        self.log_grad = np.log(self.rng.uniform(0.05, 5)) - self.rng.uniform(0, 0.5) * rise
        self.log_length = np.log(self.rng.uniform(80, 1500)) + self.rng.uniform(-0.3, 0.4) * rise
        self.truncated = np.full(n, self.rng.uniform(0, 0.08))
        self.log_kl = np.log(0.02) + 1.5 * rise
        self.penalty = np.full(n, self.rng.uniform(0, 0.05))
        self.held_out = np.full(n, self.rng.uniform(-0.08, 0.0))
        self.echo = np.full(n, self.rng.uniform(0.02, 0.15))
        self.valid = np.full(n, self.rng.uniform(0.88, 0.99))
        self.tool_errors = np.full(n, self.rng.uniform(0.0, 0.08))
        self.fit = np.full(n, self.rng.uniform(0.55, 0.9))
        self.gibberish = np.full(n, 0.002)

    def ramp(self, length: int, start: int | None = None) -> Floats:
        """0 before the onset, 1 after ``length`` steps."""
        first = self.onset if start is None else start
        return np.clip((np.arange(len(self.steps)) - first) / max(length, 1), 0, 1)


def _ar1(rng: np.random.Generator, n: int, sd: float, corr: float) -> Floats:
    out = np.empty(n)
    level = rng.normal(0, sd)
    kick = rng.normal(0, sd * np.sqrt(1 - corr**2), n)
    for i in range(n):
        level = corr * level + kick[i]
        out[i] = level
    return out


def _healthy(w: _World) -> None:
    """Nothing happens."""


def _plateau(w: _World) -> None:
    w.success[:] = w.success.mean()


def _solved(w: _World) -> None:
    reach = 1 - np.exp(-np.arange(len(w.steps)) / w.rng.uniform(30, 90))
    w.success = w.success[0] + (0.985 - w.success[0]) * reach
    w.log_entropy = w.log_entropy[0] - w.rng.uniform(2, 4) * reach
    w.log_grad = w.log_grad[0] - 1.5 * reach


def _hard(w: _World) -> None:
    w.success = 0.03 + 0.25 * (1 - np.exp(-np.arange(len(w.steps)) / 200))


def _entropy_decay(w: _World) -> None:
    w.log_entropy = w.log_entropy[0] - w.rng.uniform(1.2, 1.8) * (1 - np.exp(-np.arange(len(w.steps)) / 120))


def _curriculum(w: _World) -> None:
    w.success -= w.rng.uniform(0.1, 0.3) * w.ramp(1)
    w.success = np.clip(w.success, 0.06, 1)
    w.events.append(Event(int(w.steps[w.onset]), "declared", "harder data"))


def _resume(w: _World) -> None:
    w.log_grad[w.onset : w.onset + 3] += 1.0
    w.events.append(Event(int(w.steps[w.onset]), "resume", "resumed from a checkpoint"))


def _spike_recovered(w: _World) -> None:
    w.log_grad[w.onset] += np.log(w.rng.uniform(8, 40))


def _longer(w: _World) -> None:
    w.log_length += 1.0 * w.ramp(200, 20)


def _shorter(w: _World) -> None:
    w.log_length -= 1.2 * w.ramp(200, 20)


def _kl_growth(w: _World) -> None:
    w.log_kl += 1.2 * w.ramp(300, 10)


def _outage(w: _World) -> None:
    stop = w.onset + int(w.rng.integers(2, 5))
    w.success[w.onset : stop] *= 0.1


def _echo_trap(w: _World) -> None:
    fall = w.ramp(int(w.rng.integers(20, 80)))
    w.sameness = w.sameness + (0.985 - w.sameness) * fall
    w.echo = w.echo + (w.rng.uniform(0.5, 0.9) - w.echo) * fall
    direction = w.rng.choice([-1, 1])
    w.log_entropy += direction * w.rng.uniform(1.5, 3.0) * w.ramp(60, w.onset + 10)
    late = w.ramp(20, w.onset + int(w.rng.integers(40, 90)))
    w.success *= 1 - 0.97 * late
    w.penalty = np.clip(w.penalty + 0.95 * late, 0, 1)
    w.log_grad += w.rng.uniform(3, 6) * late * (w.rng.random(len(w.steps)) < 0.4)


def _entropy_collapse(w: _World) -> None:
    w.log_entropy -= w.rng.uniform(4, 7) * w.ramp(int(w.rng.integers(5, 40)))
    w.success *= 1 - w.rng.uniform(0.3, 0.9) * w.ramp(20)
    w.log_grad -= 4 * w.ramp(30)


def _eruption(w: _World) -> None:
    w.log_entropy += w.rng.uniform(1.2, 2.5) * w.ramp(int(w.rng.integers(20, 60)))
    w.log_length += 0.9 * w.ramp(40)
    w.success *= 1 - 0.9 * w.ramp(40)
    w.log_grad += 2.5 * w.ramp(30) * (w.rng.random(len(w.steps)) < 0.3)


def _non_finite(w: _World) -> None:
    for i in range(w.onset, len(w.steps)):
        w.broken += [NonFinite(int(w.steps[i]), name, "nan") for name in ("grad_norm", "entropy", "loss")]
    w.success *= 1 - w.ramp(1)


def _dead_signal(w: _World) -> None:
    w.success[:] = 0.0
    w.onset = 0
    w.log_grad[:] = -np.inf


def _length_collapse(w: _World) -> None:
    w.log_length -= 5.5 * w.ramp(int(w.rng.integers(6, 25)))
    w.success *= 1 - w.ramp(10)
    w.log_entropy -= 4 * w.ramp(20)


def _truncation(w: _World) -> None:
    w.log_length += 1.6 * w.ramp(40)
    w.truncated += (0.97 - w.truncated) * w.ramp(40)
    w.success *= 1 - 0.8 * w.ramp(40)


def _hacking(w: _World) -> None:
    w.success = np.clip(w.success + 0.4 * w.ramp(100), 0, 0.93)
    w.held_out -= 0.7 * w.ramp(100)


def _kl_blowup(w: _World) -> None:
    w.log_kl += 5.0 * w.ramp(15)
    w.log_grad += 3.0 * w.ramp(15) * (w.rng.random(len(w.steps)) < 0.4)


def _format_loss(w: _World) -> None:
    w.valid -= (w.valid - w.rng.uniform(0.1, 0.45)) * w.ramp(10)
    w.success *= 1 - 0.6 * w.ramp(15)


def _tools_down(w: _World) -> None:
    w.tool_errors += w.rng.uniform(0.3, 0.6) * w.ramp(1)
    w.success *= 1 - 0.7 * w.ramp(1)


def _template(w: _World) -> None:
    w.fit -= (w.fit - 0.15) * w.ramp(30)
    w.success *= 1 - 0.35 * w.ramp(120, w.onset + 30)


def _gibberish(w: _World) -> None:
    w.gibberish += w.rng.uniform(0.1, 0.5) * w.ramp(30)
    w.log_entropy += 1.5 * w.ramp(30)
    w.success *= 1 - 0.8 * w.ramp(40)


CONFOUNDERS: dict[str, Callable[[_World], None]] = {
    "healthy-learning": _healthy,
    "healthy-plateau": _plateau,
    "solved": _solved,
    "hard-but-learning": _hard,
    "entropy-decay": _entropy_decay,
    "curriculum": _curriculum,
    "resume": _resume,
    "spike-recovered": _spike_recovered,
    "longer-answers": _longer,
    "shorter-answers": _shorter,
    "kl-growth": _kl_growth,
    "env-outage": _outage,
}
FAILURES: dict[str, Callable[[_World], None]] = {
    "echo-trap": _echo_trap,
    "entropy-collapse": _entropy_collapse,
    "entropy-eruption": _eruption,
    "non-finite": _non_finite,
    "dead-signal": _dead_signal,
    "length-collapse": _length_collapse,
    "truncation": _truncation,
    "reward-hacking": _hacking,
    "kl-blowup": _kl_blowup,
    "format-loss": _format_loss,
    "tools-down": _tools_down,
    "template-collapse": _template,
    "gibberish": _gibberish,
}
ONSET_STEPS = {
    "template-collapse": 60,
    "gibberish": 40,
    "echo-trap": 60,
    "reward-hacking": 100,
    "truncation": 40,
    "entropy-eruption": 40,
}


def simulate(kind: str, seed: int, *, steps: int = 500, text: bool | None = None) -> Simulated:
    """Draw one run.

    Parameters
    ----------
    kind : str
        A key of :data:`CONFOUNDERS` or :data:`FAILURES`.
    seed : int
        Same seed, same run. Tuning uses even seeds, testing odd ones.
    steps : int
        Length of the run.
    text : bool, optional
        Whether signals from rollouts are there too; for two runs in five, if not said.
    """
    number = sorted({**CONFOUNDERS, **FAILURES}).index(kind)
    rng = np.random.default_rng([seed, number, 20504])
    every = int(rng.choice([1, 1, 1, 2, 5, 10]))
    index = np.arange(steps, dtype=np.int64) + 1
    onset = int(rng.integers(8, 20)) if rng.random() < 0.3 else int(rng.integers(int(0.2 * steps), int(0.7 * steps)))
    world = _World(rng, index, onset)
    (CONFOUNDERS | FAILURES)[kind](world)
    frame = _observe(world)
    frame = frame.iloc[every - 1 :: every]
    present = _present(rng, kind, frame, text)
    failing = kind in FAILURES
    first = int(index[world.onset])
    window = (first, first + ONSET_STEPS.get(kind, 20)) if failing else None
    run = Run(
        name=f"{kind}-{seed}",
        source="simulated",
        format="simulated",
        metrics=frame[present],
        config=RunConfig(group_size=8, prompts_per_step=16),
        events=tuple(world.events),
        nonfinite=tuple(item for item in world.broken if item.step in frame.index),
        segments=(Segment(1, steps, "start"),),
    )
    return Simulated(run, kind, window)


def _observe(w: _World) -> pd.DataFrame:
    """Draw what would have been logged."""
    rng, n = w.rng, len(w.steps)
    prompts, size = int(rng.choice([8, 16, 32])), 8
    difficulty = rng.normal(0, 0.8, (n, prompts))
    base = np.clip(w.success, 1e-4, 1 - 1e-4)
    logit = np.log(base / (1 - base))[:, None] + difficulty
    chance = 1 / (1 + np.exp(-logit))
    chance *= (base / chance.mean(axis=1))[:, None]
    fixed = rng.random((n, prompts)) < chance
    same = rng.random((n, prompts)) < w.sameness[:, None]
    free = rng.random((n, prompts, size)) < np.clip(chance, 0, 1)[:, :, None]
    reward = np.where(same[:, :, None], fixed[:, :, None], free).astype(float)
    reward[rng.random(reward.shape) < (w.penalty * (1 - w.sameness))[:, None, None]] = -0.1
    floor = rng.random((n, prompts)) < (w.penalty * w.sameness)[:, None]
    reward = np.where(floor[:, :, None], -0.1, reward)
    spread = reward.std(axis=2, ddof=1)
    dead = spread < 1e-9
    frame = pd.DataFrame(index=pd.Index(w.steps, name="step"))
    frame["reward_mean"] = reward.mean(axis=(1, 2))
    frame["reward_max"], frame["reward_min"] = reward.max(axis=(1, 2)), reward.min(axis=(1, 2))
    frame["group_reward_std"] = spread.mean(axis=1)
    frame["zero_std_frac"] = dead.mean(axis=1)
    frame["zero_std_all_pass_frac"] = (dead & (reward[:, :, 0] > 0.5)).mean(axis=1)
    corr = rng.uniform(0.2, 0.8)
    frame["entropy"] = np.exp(w.log_entropy + _ar1(rng, n, rng.uniform(0.03, 0.12), corr))
    frame["grad_norm"] = np.exp(w.log_grad + _ar1(rng, n, 0.15, corr) + 0.12 * np.clip(rng.standard_t(4, n), -20, 20))
    frame["response_length"] = np.exp(w.log_length + _ar1(rng, n, 0.08, corr))
    frame["truncated_frac"] = np.clip(w.truncated + rng.normal(0, 0.02, n), 0, 1)
    frame["kl_ref"] = np.exp(w.log_kl + _ar1(rng, n, 0.15, corr))
    frame["loss"] = rng.normal(0, 0.02, n)
    held_out = np.clip(w.success + w.held_out, 0, 1)
    frame["eval_score"] = np.where(w.steps % 20 == 0, rng.binomial(256, held_out) / 256, np.nan)
    size_of_share = prompts * size
    frame["valid_action_frac"] = rng.binomial(size_of_share, np.clip(w.valid, 0, 1)) / size_of_share
    frame["tool_error_frac"] = rng.binomial(size_of_share, np.clip(w.tool_errors, 0, 1)) / size_of_share
    frame["rollout_count"] = float(size_of_share)
    frame["cross_rollout_share"] = np.clip(w.echo + rng.normal(0, 0.02, n), 0, 1)
    frame["retrieval_acc"] = rng.binomial(64, np.clip(w.fit, 0, 1)) / 64
    frame["retrieval_chance"] = 1 / prompts
    frame["gibberish_frac"] = rng.binomial(size_of_share, np.clip(w.gibberish, 0, 1)) / size_of_share
    frame["rep_4"] = np.clip(0.02 + 0.1 * w.echo + rng.normal(0, 0.01, n), 0, 1)
    for item in w.broken:
        if item.field in frame:
            frame.loc[item.step, item.field] = np.nan
    return frame


NEEDED = {"entropy-collapse": "entropy", "entropy-eruption": "entropy", "length-collapse": "response_length",
          "truncation": "truncated_frac",
          "reward-hacking": "eval_score", "kl-blowup": "kl_ref", "non-finite": "grad_norm", "dead-signal": "zero_std_frac",
          "echo-trap": "group_reward_std", "format-loss": "valid_action_frac", "tools-down": "tool_error_frac",
          "template-collapse": "retrieval_acc", "gibberish": "gibberish_frac"}  # fmt: skip


TEXT = ("cross_rollout_share", "rep_4", "retrieval_acc", "retrieval_chance", "gibberish_frac", "rollout_count")


def _present(rng: np.random.Generator, kind: str, frame: pd.DataFrame, text: bool | None) -> list[str]:
    """Metrics that this run logs: some are missing, never the one that its failure consists of; rollouts are there or not."""
    needed = NEEDED.get(kind)
    rollouts = rng.random() < 0.4 if text is None else text
    keep = []
    for name in map(str, frame.columns):
        logged = rng.random() < 0.8  # drawn for each, so that the choice for one does not move the others
        if name in TEXT:
            logged = rollouts or needed in TEXT
        if logged or name in ("reward_mean", needed):
            keep.append(name)
    return keep if "zero_std_frac" in keep else [name for name in keep if name != "zero_std_all_pass_frac"]
