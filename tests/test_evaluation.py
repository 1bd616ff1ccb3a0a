"""The measure of the diagnosis: scores, simulator, and what was promised on the runs that are here."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from echotrap.errors import SourceError
from echotrap.evaluation import harness, pages
from echotrap.evaluation.judges import Alarm, half_peak, ragen
from echotrap.evaluation.score import Case, expectation_met, interval, judge_case, no_return, score
from echotrap.evaluation.simulate import CONFOUNDERS, FAILURES, simulate
from echotrap.record import Run

SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / "../shared"))
SAMPLES = Path(__file__).parents[1] / "sample_runs"
needs_shared = pytest.mark.skipif(not (SHARED / "real_logs/labels.tsv").is_file(), reason="the shared logs are not here")
needs_curves = pytest.mark.skipif(not (SHARED / "ragen_curves").is_dir(), reason="the RAGEN curves are not here")


def _run(**columns: list[float]) -> Run:
    frame = pd.DataFrame(columns, dtype=float)
    frame.index = pd.Index(np.arange(1, len(frame) + 1), name="step")
    return Run("made", "-", "frame", frame)


@pytest.mark.parametrize(("hits", "of", "low", "high"), [(0, 60, 0.0, 0.060), (5, 5, 0.478, 1.0), (3, 10, 0.067, 0.652)])
def test_intervals_are_exact(hits: int, of: int, low: float, high: float) -> None:
    rate = interval(hits, of)
    assert rate.low == pytest.approx(low, abs=1e-3)
    assert rate.high == pytest.approx(high, abs=1e-3)


def test_what_a_label_expects() -> None:
    assert expectation_met("critical", "critical")
    assert not expectation_met("critical", "warning")
    assert expectation_met("warning+", "critical")
    assert expectation_met("quiet", "info")
    assert not expectation_met("quiet", "insufficient")
    assert expectation_met("any", "critical") is None


def test_point_of_no_return_is_the_last_crossing() -> None:
    assert no_return(_run(reward_mean=[0.2, 0.8, 0.3, 0.8, 0.3, 0.2, 0.1])) == 5
    assert no_return(_run(reward_mean=[0.2, 0.8, 0.3, 0.8])) is None
    assert no_return(_run(loss=[1.0, 2.0])) is None


def test_an_alarm_before_the_onset_is_no_hit() -> None:
    run = _run(reward_mean=[1.0] * 50 + [0.0] * 50)
    case = Case(case="x", label="collapsed", expect="warning+", onset_first=51, onset_last=51)
    for step, hits in ((40, 0), (55, 1)):
        scores = score("judge", [judge_case(case, run, Alarm("critical", "x", step, step))])
        assert scores.recall["collapsed"].hits == hits


def test_timely_is_a_tenth_of_the_run_or_five_points_after_the_onset() -> None:
    run = _run(reward_mean=[1.0] * 100)
    case = Case(case="x", label="collapsed", expect="critical", onset_first=50, onset_last=60)
    for step, timely in ((49, False), (50, True), (69, True), (75, False)):
        assert judge_case(case, run, Alarm("critical", "x", step, step)).timely is timely


def test_baselines_fire_as_written() -> None:
    std = [1.0] * 20 + [0.05] * 12
    assert ragen(_run(group_reward_std=std)).first_step == 30
    assert ragen(_run(reward_mean=std)).severity == "insufficient"
    assert half_peak(_run(reward_mean=[0.2, 0.8, 0.5, 0.3])).first_step == 4


@pytest.mark.parametrize("kind", [*CONFOUNDERS, *FAILURES])
def test_the_same_seed_draws_the_same_run(kind: str) -> None:
    one, two = simulate(kind, 3), simulate(kind, 3)
    pd.testing.assert_frame_equal(one.run.metrics, two.run.metrics)
    assert one.onset == two.onset
    assert (one.onset is None) == (kind in CONFOUNDERS)


def test_simulated_runs_are_told_apart() -> None:
    """One seed of each kind, of those the thresholds were not tuned on; docs/evaluation.md has the full figures."""
    result = harness.bench("simulated", list(harness.simulated([41], steps=300)), baselines=False)
    [scores] = result.scores
    assert scores.all_false_alarms.hits <= 1
    assert scores.false_criticals.hits == 0
    assert sum(rate.hits for rate in scores.recall.values()) >= len(FAILURES) - 1
    assert "| class |" in pages.markdown(result)
    assert "<script" not in pages.page([result])


def test_a_folder_without_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no labels"):
        harness.labelled(tmp_path)


def test_a_run_that_cannot_be_read_is_an_abstention(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("case\tmain\tclass\texpect\nnothing\tlog.jsonl\tcollapsed\tcritical\n")
    result = harness.bench("folder", harness.labelled(tmp_path))
    [item] = result.judged["echotrap"]
    assert item.error
    assert item.met is False


def test_our_own_samples_get_the_verdict_of_their_truth() -> None:
    result = harness.bench("samples", harness.labelled(SAMPLES), baselines=False)
    missed = [(item.case.case, item.case.expect, item.severity, item.label) for item in result.judged["echotrap"] if not item.met]
    assert [item for item in missed if item[1] != "any"] == []


@needs_shared
def test_shared_logs_meet_their_labels() -> None:
    """A development set: at most one run may miss its label, and none that should be quiet may be critical."""
    judged = harness.bench("shared", harness.labelled(SHARED / "real_logs"), baselines=False).judged["echotrap"]
    missed = [(item.case.case, item.case.expect, item.severity) for item in judged if item.met is False]
    assert len(missed) <= 1, missed
    assert [item.case.case for item in judged if item.case.expect == "quiet" and item.critical_step is not None] == []


CURVE_STEPS = {  # by the recovered curves: latest first warning, latest critical
    "FrozenLake-PPO": (80, 100),
    "Sokoban-PPO": (100, 100),
    "Bandit-PPO": (120, 180),  # told at 120, recovers at 160, told again at 170, critical one point later
    "Bandit-GRPO": (90, 200),
    "Sokoban-GRPO": (90, 50),
}


@needs_curves
@pytest.mark.parametrize("name", sorted(CURVE_STEPS))
def test_ragens_collapses_are_told_in_time(name: str) -> None:
    [item] = [item for item in harness.curves(SHARED / "ragen_curves") if item.case.case == name]
    [judged] = harness.bench(name, [item], baselines=False).judged["echotrap"]
    warning, critical = CURVE_STEPS[name]
    assert judged.severity == "critical"
    assert judged.first_step is not None
    assert judged.first_step <= warning
    assert judged.critical_step is not None
    assert judged.critical_step <= max(critical, judged.first_step)


@needs_curves
@pytest.mark.parametrize("suffix", ["", "_s5"])
def test_ragens_healthy_run_is_quiet(suffix: str) -> None:
    [item] = [item for item in harness.curves(SHARED / "ragen_curves", suffix) if "FrozenLake-GRPO" in item.case.case]
    [judged] = harness.bench("healthy", [item], baselines=False).judged["echotrap"]
    assert judged.first_step is None


@needs_curves
def test_earlier_than_ragens_own_rule_on_every_collapse() -> None:
    result = harness.bench("curves", harness.curves(SHARED / "ragen_curves"))
    theirs = {item.case.case: item.first_step for item in result.judged["RAGEN's stop rule"]}
    for item in result.judged["echotrap"]:
        if item.case.fails:
            other = theirs[item.case.case]
            assert item.first_step is not None
            assert other is None or item.first_step < other, item.case.case
