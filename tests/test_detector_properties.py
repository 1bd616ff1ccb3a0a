"""Laws that the rules obey whatever the numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from echotrap.detector import Detector, Level, NotEvaluated, Track
from echotrap.fields import FIELDS
from echotrap.record import Run, RunConfig
from echotrap.registry import catalogue

RULES = {name: detector for name, detector in catalogue().items() if detector.card.family != "composite"}
# judge a ratio to the run itself, whatever the unit
RATIO = (
    "entropy-collapse", "entropy-eruption", "gradient-spike", "dead-gradient", "length-explosion", "length-collapse",
    "reward-variance-collapse",
)  # fmt: skip
rule = pytest.mark.parametrize("detector", [pytest.param(d, id=name) for name, d in RULES.items()])
bounded = settings(max_examples=15, deadline=None, derandomize=True)


def signals(detector: Detector) -> list[str]:
    return sorted({name for alternatives in detector.card.needs for name in alternatives} | set(detector.card.uses))


@st.composite
def frames(draw: st.DrawFn, names: list[str], least: int = 8, most: int = 90) -> pd.DataFrame:
    """Frames with levels that shift once, noise, gaps and irregular steps."""
    n = draw(st.integers(least, most))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    steps = np.cumsum(draw(arrays(np.int64, n, elements=st.integers(1, draw(st.sampled_from([1, 1, 3, 12]))))))
    columns = {}
    for name in names:
        field = FIELDS[name]
        share = field.high == 1.0
        start = random.uniform(0.02, 0.98) if share else np.exp(random.normal(0, 1))
        factor = random.choice([0.0011, 0.053, 0.31, 1, 1, 2.9, 41])
        at = random.integers(0, n)
        values = start * np.where(np.arange(n) >= at, factor, 1.0) * np.exp(random.normal(0, random.choice([0.0, 0.05, 0.3]), n))
        values[random.random(n) < random.choice([0.0, 0.2])] = np.nan
        columns[name] = np.clip(values, field.low, field.high) if field.low is not None or field.high is not None else values
    return pd.DataFrame(columns, index=pd.Index(steps, name="step"))


def run_of(frame: pd.DataFrame) -> Run:
    return Run("property", "-", "frame", frame, config=RunConfig(group_size=8))


@rule
def test_no_look_ahead(detector: Detector) -> None:
    @bounded
    @given(frames(signals(detector)), st.floats(0.1, 1.0))
    def check(frame: pd.DataFrame, share: float) -> None:
        run = run_of(frame)
        step = int(run.steps[max(int(share * len(run.steps)) - 1, 0)])
        whole, part = detector(run), detector(run.until(step))
        if isinstance(part, NotEvaluated):
            return
        assert isinstance(whole, Track)
        count = len(part.steps)
        np.testing.assert_array_equal(whole.steps[:count], part.steps)
        np.testing.assert_array_equal(whole.level[:count], part.level)
        np.testing.assert_array_equal(whole.onset[:count], part.onset)
        assert whole.steps[count:].min(initial=step + 1) > step

    check()


@rule
def test_other_columns_change_nothing(detector: Detector) -> None:
    @bounded
    @given(frames(signals(detector)))
    def check(frame: pd.DataFrame) -> None:
        more = frame.assign(**{"custom/thing": 1.0, "wall_time": np.arange(len(frame)) * 9.0})
        assert_same(detector(run_of(frame)), detector(run_of(more)))

    check()


@rule
def test_shifted_steps_shift_the_onset(detector: Detector) -> None:
    @bounded
    @given(frames(signals(detector)), st.integers(1, 10_000))
    def check(frame: pd.DataFrame, by: int) -> None:
        moved = frame.set_axis(frame.index + by)
        here, there = detector(run_of(frame)), detector(run_of(moved))
        assert isinstance(here, NotEvaluated) == isinstance(there, NotEvaluated)
        if isinstance(here, Track) and isinstance(there, Track):
            np.testing.assert_array_equal(here.level, there.level)
            np.testing.assert_array_equal(np.where(here.onset >= 0, here.onset + by, -1), there.onset)

    check()


@pytest.mark.parametrize("name", RATIO)
def test_the_unit_does_not_matter(name: str) -> None:
    detector = RULES[name]
    scaled = [item for item in signals(detector) if FIELDS[item].high != 1.0 and "reward" not in item]

    @bounded
    @given(frames(signals(detector)), st.sampled_from([1 / 8, 2.0, 1024.0]))
    def check(frame: pd.DataFrame, factor: float) -> None:
        other = frame.copy()
        columns = scaled if name != "reward-variance-collapse" else ["group_reward_std"]
        columns = [column for column in columns if column in other]
        other[columns] *= factor
        if name == "reward-variance-collapse":
            frame, other = frame.drop(columns="rw_ratio"), other.drop(columns="rw_ratio")
        assert_same(detector(run_of(frame)), detector(run_of(other)))

    check()


@rule
def test_healthy_noise_raises_no_alarm(detector: Detector) -> None:
    @bounded
    @given(st.integers(0, 2**32 - 1), st.integers(30, 400), st.sampled_from([1, 1, 5]))
    def check(seed: int, n: int, every: int) -> None:
        random = np.random.default_rng(seed)
        columns = {}
        for name in signals(detector):
            level = HEALTHY.get(name, 0.5)
            share = FIELDS[name].unit == "0..1"
            noise = np.sqrt(level * (1 - level) / 64) if share else 0.05 * abs(level)
            columns[name] = np.clip(level + random.normal(0, noise + 1e-9, n), FIELDS[name].low, FIELDS[name].high)
        frame = pd.DataFrame(columns, index=pd.Index(every * np.arange(1, n + 1), name="step"))
        track = detector(run_of(frame))
        assert isinstance(track, NotEvaluated) or track.level.max(initial=0) <= Level.WATCH

    check()


HEALTHY = {
    "response_length": 400.0, "thinking_length": 200.0, "prompt_length": 300.0, "kl_ref": 0.05, "kl_old": 0.001,
    "truncated_frac": 0.02, "tool_error_frac": 0.02, "empty_frac": 0.005, "zero_std_frac": 0.3, "zero_std_all_pass_frac": 0.15,
    "zero_std_all_fail_frac": 0.15, "zero_std_copies_frac": 0.02, "valid_action_frac": 0.95, "valid_thinking_frac": 0.95,
    "reward_max": 1.0, "reward_min": 0.0, "clip_frac": 0.002, "is_ratio_mean": 1.0, "is_ratio_min": 0.5, "is_ratio_std": 0.05,
    "ess_frac": 0.95, "prob_gap": 0.003, "logprob_gap": 0.01, "mismatch_kl": 0.001, "prob_corr": 0.995, "policy_lag": 1.0,
    "explained_variance": 0.7, "logp_correct": -0.5, "logp_incorrect": -0.7, "num_turns": 4.0, "tool_calls": 3.0,
    "observation_share": 0.3, "group_size": 8.0, "rep_4": 0.02, "char_rep": 0.05, "repetitive_frac": 0.01,
    "cross_rollout_share": 0.05, "cross_group_share": 0.1, "copies_frac": 0.02, "opening_share": 0.1, "single_symbol_frac": 0.0,
    "single_symbol_count": 0.0, "rollout_count": 64.0, "retrieval_acc": 0.8, "retrieval_chance": 0.125, "mi_zscore": 1.5,
    "filter_kept_frac": 0.6,
}  # fmt: skip


def assert_same(one: Track | NotEvaluated, other: Track | NotEvaluated) -> None:
    if isinstance(one, NotEvaluated) or isinstance(other, NotEvaluated):
        assert isinstance(one, NotEvaluated)
        assert isinstance(other, NotEvaluated)
        return
    np.testing.assert_array_equal(one.level, other.level)
    np.testing.assert_array_equal(one.onset, other.onset)


def test_sensitivity_only_moves_parameters() -> None:
    for detector in RULES.values():
        assert replace(detector.params) == detector.params
