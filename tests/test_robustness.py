"""The same run told in another way gets the same verdict, or an honest abstention."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from echotrap.diagnosis import diagnose
from echotrap.evaluation.harness import curves, labelled
from echotrap.evaluation.score import Case
from echotrap.record import Run

SAMPLES = Path(__file__).parents[1] / "sample_runs"
SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / "../shared"))


def _with(run: Run, metrics: pd.DataFrame) -> Run:
    known = set(metrics.index)
    return replace(run, metrics=metrics, nonfinite=tuple(item for item in run.nonfinite if item.step in known))


def _thin(run: Run) -> Run:
    """Only every fifth row."""
    return _with(run, run.metrics.iloc[4::5])


def _averaged(run: Run) -> Run:
    """Logged every fifth step, as the mean since the last log."""
    group = np.arange(len(run.metrics)) // 5
    metrics = run.metrics.groupby(group).mean()
    metrics.index = pd.Index(run.metrics.index[np.minimum(5 * np.arange(len(metrics)) + 4, len(run.metrics) - 1)], name="step")
    return _with(run, metrics)


def _smoothed(run: Run) -> Run:
    """Drawn through an exponential moving average."""
    smooth = run.metrics.ewm(alpha=0.2, ignore_na=True).mean()
    return _with(run, smooth.where(run.metrics.notna()))


def _without(name: str) -> Callable[[Run], Run]:
    return lambda run: _with(run, run.metrics.drop(columns=[name], errors="ignore"))


def _relabelled(run: Run) -> Run:
    """Steps that begin elsewhere."""
    moved = run.metrics.set_axis(pd.Index(run.metrics.index + 1000, name="step"))
    return replace(
        run,
        metrics=moved,
        nonfinite=tuple(item._replace(step=item.step + 1000) for item in run.nonfinite),
        events=tuple(item._replace(step=item.step + 1000) for item in run.events),
    )


def _rescaled(run: Run) -> Run:
    """Rewards in other units, and the scale unknown."""
    rewards = ("reward_mean", "reward_min", "reward_max", "reward_std", "group_reward_std")
    metrics = run.metrics.assign(**{name: 50 * run.metrics[name] for name in rewards if name in run.metrics})
    return replace(_with(run, metrics), config=replace(run.config, reward_min=None, reward_max=None, format_penalty=None))


WAYS: dict[str, Callable[[Run], Run]] = {
    "every fifth row": _thin,
    "mean of five": _averaged,
    "smoothed": _smoothed,
    "without entropy": _without("entropy"),
    "without gradient": _without("grad_norm"),
    "without in-group std": _without("group_reward_std"),
    "steps from 1000 on": _relabelled,
    "rewards times fifty": _rescaled,
}


@cache
def _runs() -> tuple[tuple[Case, Run], ...]:
    sets = labelled(SAMPLES)
    if (SHARED / "real_logs/labels.tsv").is_file():
        sets += labelled(SHARED / "real_logs") + curves(SHARED / "ragen_curves")
    return tuple((item.case, item.open()) for item in sets if item.case.expect in ("quiet", "critical", "warning+"))


@pytest.mark.parametrize("way", WAYS)
def test_quiet_runs_stay_quiet(way: str) -> None:
    loud = []
    for case, run in _runs():
        if case.expect == "quiet":
            verdict = diagnose(WAYS[way](run)).verdict
            if verdict.severity in ("warning", "critical"):
                loud.append((case.case, verdict.label, verdict.severity))
    assert loud == []


@pytest.mark.parametrize("way", WAYS)
def test_failing_runs_are_not_called_healthy(way: str) -> None:
    missed = []
    for case, run in _runs():
        told = WAYS[way](run)
        if case.expect != "quiet" and len(told.nonfinite) == len(run.nonfinite):  # a thinned log has lost NaN rows
            verdict = diagnose(told).verdict
            if verdict.severity in ("ok", "info"):
                missed.append((case.case, verdict.label))
    assert missed == []


def test_the_best_reward_seen_may_be_a_failure() -> None:
    """A reward that sits at 0, with a penalty now and then, is not solved only because nothing better was ever seen."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"reward_mean": -0.1 * rng.binomial(64, 0.02, 100) / 64, "reward_max": np.zeros(100), "reward_min": np.full(100, -0.1)},
        index=pd.Index(np.arange(1, 101), name="step"),
    )
    assert diagnose(Run("dead", "-", "frame", frame)).verdict.label != "converged"


def test_a_report_does_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    """Signals that were never measured are told in the order of the field list, whatever the hash seed."""
    log = tmp_path / "run.jsonl"
    row = '{{"step": {step}, "entropy": 0, "kl": 0, "ppo_kl": 0, "grad_norm": 0, "reward": 0.{step}}}\n'
    log.write_text("".join(row.format(step=step) for step in range(1, 9)))
    script = "import sys, echotrap; print([n.message for n in echotrap.open_run(sys.argv[1]).notes if n.kind == 'unmeasured'])"
    told = set()
    for seed in "01234":
        command = [sys.executable, "-c", script, str(log)]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        told.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    (notes,) = told
    assert notes.count("not measured") > 1
