"""The statistics against what they say they are, computed naively."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echotrap import stats

flags = st.lists(st.booleans(), min_size=1, max_size=40).map(lambda x: np.array(x, bool))
floats = st.lists(st.floats(-100, 100, width=16), min_size=1, max_size=40).map(lambda x: np.array(x, np.float64))


def steps_for(n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.cumsum(random.choice([1, 1, 1, 2, 10], n)).astype(np.int64)


def naive_held(flag, steps, window, release):
    """One state machine, one point at a time."""
    on, since, begun, points, flagged, up = [], [], -1, 0, 0, False
    for i, (is_up, step) in enumerate(zip(flag, steps, strict=True)):
        if release[i] and not is_up:
            begun, up = -1, False
        elif begun < 0 and is_up:
            begun, points, flagged, up = int(step), 0, 0, False
        if begun >= 0:
            points, flagged = points + 1, flagged + int(is_up)
            if is_up and flagged >= min(window, 2) and step - begun + 1 >= window and 2 * flagged > points:
                up = True
        on.append(up)
        since.append(begun)
    return on, since


@settings(max_examples=200, deadline=None, derandomize=True)
@given(flags, st.integers(0, 99), st.sampled_from([1, 2, 3, 5, 12]), st.booleans())
def test_held_is_the_state_machine_it_describes(flag, seed, window, hysteresis) -> None:
    steps = steps_for(len(flag), seed)
    release = np.random.default_rng(seed).random(len(flag)) < 0.3 if hysteresis else ~flag
    found = stats.held(flag, steps, window, release=release if hysteresis else None)
    on, since = naive_held(flag, steps, window, release)
    np.testing.assert_array_equal(found.on, on)
    np.testing.assert_array_equal(found.since, since)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(flags, st.integers(0, 99), st.sampled_from([1, 3, 20]))
def test_lingering_ends_after_quiet(flag, seed, quiet) -> None:
    steps = steps_for(len(flag), seed)
    wanted = [any(flag[j] and steps[i] - steps[j] < quiet for j in range(i + 1)) for i in range(len(flag))]
    np.testing.assert_array_equal(stats.lingering(flag, steps, quiet).on, wanted)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(floats, st.integers(0, 99), st.sampled_from([1, 5, 20]), st.sampled_from(["median", "mean", "min", "max", "sum"]))
def test_trailing_looks_at_steps_not_points(values, seed, window, how) -> None:
    steps = steps_for(len(values), seed)
    wanted = [getattr(np, how)(values[(steps > steps[i] - window) & (steps <= steps[i])]) for i in range(len(values))]
    np.testing.assert_allclose(stats.trailing(values, steps, window, how), wanted, atol=1e-6)
    points = [np.sum((steps > steps[i] - window) & (steps <= steps[i])) for i in range(len(values))]
    np.testing.assert_array_equal(stats.points_in(steps, window), points)


def test_local_leaves_the_newest_out() -> None:
    values = np.array([1.0, 1.2, 0.8, 1.0, 50.0, 1.0])
    usual = stats.local(values, np.arange(6), 50)
    assert np.isnan(usual.centre[0])
    assert usual.centre[4] == 1.0  # the spike is not in its own normal
    assert 0 < usual.spread[4] < 0.5


def test_noise_is_that_of_independent_points_whatever_the_trend() -> None:
    random = np.random.default_rng(3)
    values = 0.1 * np.arange(3000) + random.normal(0, 2.0, 3000)
    for how in ("median", "mean"):
        assert np.nanmedian(stats.noise(values, 200, how)) == pytest.approx(2.0, rel=0.1)


def test_unlikely_takes_the_history_into_account() -> None:
    calm = np.array([0] * 20 + [1] * 4, bool)
    often = np.array([0, 1] * 10 + [1] * 4, bool)
    assert stats.unlikely(calm)[-3:].all()
    assert not stats.unlikely(often).any()


class TestBaseline:
    def test_median_of_the_first_steps_then_frozen(self) -> None:
        values = np.concatenate((np.arange(1.0, 21.0), np.full(30, 100.0)))
        normal = stats.baseline(values, np.arange(1, 51), off_factor=None)
        assert np.isnan(normal[:2]).all()
        assert normal[2] == 2.0
        assert (normal[20:] == np.median(np.arange(1.0, 21.0))).all()

    def test_a_collapse_within_the_first_dozen_steps_is_not_learned(self) -> None:
        values = np.array([4.6, 4.0, 5.0, 5.6, 5.3, 4.8, 2.6, 1.1, 0.47, 0.19, 0.09] + [0.02] * 30)
        assert stats.baseline(values, np.arange(41))[-1] == pytest.approx(4.8)

    def test_shares_are_kept_out_by_distance(self) -> None:
        values = np.array([0.0, 0.0, 0.1, 0.9, 0.9, 0.1, 0.0, 0.9])
        assert stats.baseline(values, np.arange(8), off_factor=None, off_by=0.3)[-1] == 0.0

    def test_a_declared_change_begins_anew(self) -> None:
        values = np.concatenate((np.full(30, 1.0), np.full(30, 9.0)))
        normal = stats.baseline(values, np.arange(60), arm_steps=(30,))
        assert normal[29] == 1.0
        assert np.isnan(normal[30:32]).all()
        assert normal[-1] == 9.0

    def test_sparse_logs_wait_for_three_points(self) -> None:
        normal = stats.baseline(np.array([1.0, 2.0, 3.0, 50.0]), np.array([10, 20, 30, 40]))
        np.testing.assert_array_equal(normal, [np.nan, np.nan, 2.0, 2.0])


def test_fallen_asks_for_more_than_noise() -> None:
    random = np.random.default_rng(5)
    steps = np.arange(400)
    calm = random.normal(0.5, 0.1, 400)
    assert not stats.fallen(calm, steps, 0.2).any()
    dropped = np.where(steps < 300, calm, calm - 0.45)
    assert stats.fallen(dropped, steps, 0.2)[320:].all()
    assert not stats.fallen(dropped, steps, 0.2)[:300].any()


def test_union_of_axes() -> None:
    one, two = np.array([1, 3, 5]), np.array([2, 3])
    assert stats.union(one, two).tolist() == [1, 2, 3, 5]
    assert stats.union(one, one).tolist() == [1, 3, 5]
    assert stats.union(np.empty(0, np.int64)).tolist() == []


def test_empty_series_pass_through() -> None:
    none, at = np.empty(0), np.empty(0, np.int64)
    flag = np.empty(0, bool)
    assert stats.held(flag, at, 5).on.size == 0
    assert stats.lingering(flag, at, 5).on.size == 0
    assert stats.trailing(none, at, 5).size == 0
    assert stats.local(none, at, 5).centre.size == 0
    assert stats.noise(none).size == 0
    assert stats.baseline(none, at).size == 0
    assert stats.unlikely(flag).size == 0
    assert np.isnan(stats.as_of(none, at, np.array([1, 2]), np.nan)).all()
