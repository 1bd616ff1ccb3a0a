"""One real TRL run, written through its own integrations to four stores at once: all readers tell the same."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from echotrap.record import Run
from echotrap.sources import open_run

RUN = Path(__file__).parents[1] / "sample_runs" / "four-writers"
WRITERS = {
    "W&B": "wandb",
    "TensorBoard": "tensorboard",
    "Trackio": "trackio/echotrap-lab.db",
    "trainer_state.json": "trainer_state.json",
}
SIGNATURE = {"reward_mean", "entropy", "grad_norm", "zero_std_frac", "response_length", "loss", "kl_ref", "learning_rate"}
UNSTAMPED = "profiling/"  # several a step; W&B stamps them with the step before the update, Trackio with none

pytestmark = pytest.mark.skipif(not RUN.is_dir(), reason="the sample run is not here")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Each from a copy of its own, so that none sees the files of another."""
    found = {}
    for writer, path in WRITERS.items():
        place = tmp_path_factory.mktemp("copy")
        source = RUN / path
        if source.is_dir():
            shutil.copytree(source, place / source.name)
        else:
            for file in source.parent.glob(f"{source.name}*"):  # a database with its log
                shutil.copy(file, place / file.name)
        found[writer] = open_run(place / source.name)
    return found


def bare(run: Run) -> pd.DataFrame:
    """The metrics; keys that echotrap does not know without the prefix that W&B, TensorBoard and Trackio put before them."""
    return run.metrics.rename(columns=lambda name: name.removeprefix("train/"))


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(WRITERS, 2)))
def test_two_readers_agree_on_every_shared_key(runs: dict[str, Run], one: str, other: str) -> None:
    first, second = bare(runs[one]), bare(runs[other])
    assert first.index.tolist() == second.index.tolist()
    shared = {name for name in first.columns.intersection(second.columns) if not name.startswith(UNSTAMPED)}
    assert len(shared) > 20
    assert shared >= SIGNATURE
    for name in sorted(shared):
        both = first[name].notna() & second[name].notna()
        assert both.any(), name
        np.testing.assert_allclose(first[name][both], second[name][both], rtol=1e-6, atol=1e-12, err_msg=name)
        assert first[name].notna().equals(second[name].notna()), name


def test_the_same_rollouts_from_wandb_and_trackio(runs: dict[str, Run]) -> None:
    first, second = runs["W&B"].rollouts, runs["Trackio"].rollouts
    assert first is not None
    assert second is not None
    assert first.steps() == second.steps()
    for step in first.steps():
        ours, theirs = first.at(step), second.at(step)
        assert [rollout.text for rollout in ours] == [rollout.text for rollout in theirs]
        assert [rollout.group for rollout in ours] == [rollout.group for rollout in theirs]
        np.testing.assert_allclose([rollout.reward for rollout in ours], [rollout.reward for rollout in theirs], rtol=1e-6)


def test_the_steps(runs: dict[str, Run]) -> None:
    for run in runs.values():
        assert run.steps.tolist() == list(range(1, 25))
        assert run.framework == "TRL"
