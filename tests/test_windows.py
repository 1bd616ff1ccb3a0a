"""Trailing windows: the same answer whether a series is seen at once or while it grows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echotrap import gates, stats, windows

VALUES = st.lists(st.sampled_from([0.0, 1.0, 1.5, -2.0, float("nan")]), min_size=1, max_size=60)
HOWS: tuple[windows.How, ...] = ("median", "mean", "min", "max", "sum", "quantile")


@given(
    VALUES, st.lists(st.integers(1, 9), min_size=60, max_size=60), st.lists(st.integers(1, 60), max_size=4), st.integers(1, 25)
)
def test_a_growing_series_gives_what_the_whole_gives(values: list[float], gaps: list[int], cuts: list[int], window: int) -> None:
    x, steps = np.array(values), np.cumsum(gaps[: len(values)])
    memory: windows.Memory = {}
    for cut in [*sorted(cuts), len(x)]:
        for how in HOWS:
            with windows.growing(memory):
                found = windows.by_steps(x[:cut], steps[:cut], window, how), windows.by_points(x[:cut], window, how)
            whole = windows.by_steps(x[:cut], steps[:cut], window, how), windows.by_points(x[:cut], window, how)
            for a, b in zip(found, whole, strict=True):
                np.testing.assert_array_equal(a, b)


def test_what_is_known_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).normal(size=1000)
    memory: windows.Memory = {}
    with windows.growing(memory):
        windows.by_points(x[:999], 20)
        lengths = []
        series = pd.Series
        monkeypatch.setattr(pd, "Series", lambda part: lengths.append(len(part)) or series(part))
        windows.by_points(x, 20)
        windows.by_points(x, 20)
    assert lengths == [20]


def test_newest_points_that_change_are_computed_again_and_nothing_piles_up() -> None:
    x = np.arange(50.0)
    memory: windows.Memory = {}
    for n in range(30, 50):
        with windows.growing(memory):
            part = np.concatenate((x[:n], [-1.0]))  # the last step is still being written
            np.testing.assert_array_equal(windows.by_points(part, 5), pd.Series(part).rolling(5, min_periods=1).median())
    assert [len(known) for known in memory.values()] == [1]


def test_what_a_caller_does_to_a_result_is_not_remembered() -> None:
    x = np.arange(9.0)
    with windows.growing({}):
        windows.by_points(x, 3)[:] = 99
        np.testing.assert_array_equal(windows.by_points(x, 3), windows.by_points(x.copy(), 3))
        assert windows.by_points(x, 3)[0] == 0


def test_a_series_that_was_rewritten_is_another_one() -> None:
    x = np.arange(9.0)
    with windows.growing({}):
        windows.by_points(x, 3)
        np.testing.assert_array_equal(windows.by_points(x[::-1].copy(), 3), pd.Series(x[::-1]).rolling(3, min_periods=1).median())


@given(VALUES.filter(lambda v: len(v) > 2), st.integers(1, 9))
def test_new_bests_are_those_of_one_look_at_a_time(values: list[float], window: int) -> None:
    x, steps = np.nan_to_num(np.array(values)), np.arange(len(values))
    noise = np.abs(np.sin(x)) / 5
    best, at, low, high, expected = x[0], None, x[0], x[0], [False]
    for i in range(1, len(x)):
        low, high = min(low, x[i]), max(high, x[i])
        if x[i] > best + max(0.05 * (high - low), 0.5 * noise[i]):
            best, at = x[i], i
        expected.append(at is not None and i - at <= window)
    assert gates._fresh_best(steps, x, noise, window).tolist() == expected


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_unions_and_latest(one: list[int], two: list[int]) -> None:
    a, b = np.unique(one).astype(np.int64), np.unique(two).astype(np.int64)
    assert stats.union(a, b).tolist() == sorted({*one, *two})
    assert stats.union(a, a).tolist() == a.tolist()
    assert windows.latest(a, b).tolist() == (np.searchsorted(a, b, side="right") - 1).tolist()
    assert windows.latest(a, a).tolist() == list(range(len(a)))
