"""Signals that follow from rollouts."""

import numpy as np
import pandas as pd
import pytest

from echotrap import signals
from echotrap.record import Run
from echotrap.rollouts import MemoryStore, Message, Rollout

WORDS = np.array(
    [
        "the",
        "arm",
        "left",
        "right",
        "because",
        "value",
        "high",
        "low",
        "risk",
        "points",
        "choose",
        "pull",
        "then",
        "state",
        "goal",
        "wall",
        "near",
        "safe",
        "try",
        "maybe",
    ]
)


def rollouts(step, rewards, *, texts=None, seed=None, **more):
    """Rollouts of one step: ``rewards`` is a list of groups."""
    rng = np.random.default_rng(step if seed is None else seed)
    out = []
    for g, group in enumerate(rewards):
        for k, reward in enumerate(group):
            text = " ".join(rng.choice(WORDS, 30)) if texts is None else texts[g][k]
            out.append(Rollout(step, text, prompt=f"prompt {g}", group=str(g), reward=reward, **more))
    return out


def run_of(items, metrics=None, steps=None, **facts):
    index = pd.Index(steps or sorted({r.step for r in items}), name="step", dtype=np.int64)
    frame = pd.DataFrame(metrics or {}, index=index, dtype=float)
    return Run("r", "-", "frame", frame, rollouts=MemoryStore(items), **facts)


def derived(items, **facts):
    return signals.derive(run_of(items, **facts), cache=False)


def test_in_group_spread_is_the_mean_of_the_groups_sample_std():
    run = derived(rollouts(3, [[0, 1, 1, 0], [1, 1, 1, 1]]))
    row = run.metrics.loc[3]
    assert row["group_reward_std"] == pytest.approx((np.std([0, 1, 1, 0], ddof=1) + 0) / 2)
    assert row["reward_std"] == pytest.approx(np.std([0, 1, 1, 0, 1, 1, 1, 1], ddof=1))
    assert row["zero_std_frac"] == 0.5
    assert row["success_rate"] == row["reward_mean"] == 0.75
    assert (row["group_size"], row["group_count"]) == (4, 2)
    assert run.provenance["group_reward_std"] == "derived"


def test_a_constant_reward_with_float_noise_is_a_zero_variance_group():
    noisy = np.float32([0.15] * 8).astype(float) + np.array([0, 1.5e-8] * 4)
    assert derived(rollouts(1, [noisy, [0, 1, 0.3, 0.2]])).metrics.loc[1, "zero_std_frac"] == 0.5


def test_dead_groups_are_told_apart_by_side_and_copies():
    same = ["pull the left arm because its value is high"] * 4
    mixed = ["alpha beta gamma one", "delta epsilon zeta two", "eta theta iota three", "kappa lambda mu four"]
    run = derived(
        rollouts(1, [[0, 1, 0, 1]] * 4)
        + rollouts(2, [[0] * 4, [1] * 4, [0] * 4, [0, 1, 0, 1]], texts=[same, mixed, mixed, mixed])
    )
    row = run.metrics.loc[2]
    assert row["zero_std_frac"] == 0.75
    assert row["zero_std_all_fail_frac"] == 0.5
    assert row["zero_std_all_pass_frac"] == 0.25
    assert row["zero_std_copies_frac"] == 0.25


def test_the_within_group_share_separates_solving_from_polarising():
    def steps(p_of):
        rng = np.random.default_rng(0)
        return [r for s in range(1, 16) for r in rollouts(s, [rng.random(8) < p for p in p_of(s)])]

    solving = derived(steps(lambda s: [0.5 + 0.02 * s] * 8)).metrics["rw_ratio"].iloc[-1]
    polarised = derived(steps(lambda s: [0.5] * 8 if s < 5 else [0.02, 0.98] * 4)).metrics["rw_ratio"].iloc[-1]
    assert solving > 0.8
    assert polarised < 0.2


def test_without_groups_there_are_no_group_signals():
    items = [Rollout(1, f"text {i} and more of it", reward=i % 2) for i in range(8)]
    run = derived(items)
    assert not {"group_reward_std", "zero_std_frac", "rw_ratio", "cross_group_share", "copies_frac"} & set(run.metrics.columns)
    assert run.metrics.loc[1, "reward_mean"] == 0.5
    assert any("no in-group signals" in note.message for note in run.notes)


def test_groups_of_one_have_no_spread():
    items = [Rollout(1, f"text {i}", prompt=f"p{i}", reward=i) for i in range(4)]
    assert "group_reward_std" not in derived(items).metrics.columns


def test_missing_rewards_stay_missing():
    run = derived(rollouts(1, [[float("nan")] * 2] * 2))
    assert not {"reward_mean", "group_reward_std", "success_rate"} & set(run.metrics.columns)
    assert "rep_4" in run.metrics.columns


def test_a_logged_signal_is_kept_and_the_preferred_one_replaced():
    items = [r for s in (1, 2, 3) for r in rollouts(s, [[0, 1], [1, 1]])]
    run = derived(items, metrics={"reward_mean": [9, 9, 9], "group_reward_std": [5, 5, 5]}, provenance={"reward_mean": "logged"})
    assert run.metrics["reward_mean"].tolist() == [9, 9, 9]
    assert run.provenance["reward_mean"] == "logged"
    assert run.metrics["logged/group_reward_std"].tolist() == [5, 5, 5]
    assert run.metrics["group_reward_std"].iloc[0] == pytest.approx(np.sqrt(0.5) / 2)


def test_a_dense_logged_series_beats_sparse_rollouts():
    run = derived(rollouts(1, [[0, 1], [1, 1]]), metrics={"group_reward_std": [5.0] * 10}, steps=range(1, 11))
    assert run.metrics["group_reward_std"].tolist() == [5] * 10
    assert run.metrics["rollouts/group_reward_std"].notna().sum() == 1


def test_steps_that_only_rollouts_have_are_added_without_an_origin():
    run = signals.derive(
        run_of(
            rollouts(7, [[0, 1], [1, 1]]),
            metrics={"loss": [1.0, 2.0]},
            steps=[5, 10],
            files=("a.jsonl",),
            origin_files=np.zeros(2, np.int32),
            origin_lines=np.array([1, 2]),
        ),
        cache=False,
    )
    assert run.steps.tolist() == [5, 7, 10]
    assert run.origin(7) is None
    assert run.origin(10).line == 2


def test_rollouts_of_another_time_are_left_out():
    run = signals.derive(run_of(rollouts(0, [[0, 1], [1, 1]]), metrics={"loss": [1.0, 2.0]}, steps=[251, 252]), cache=False)
    assert run.steps.tolist() == [251, 252]
    assert "outside" in run.notes[-1].message


def test_evaluation_rollouts_serve_where_there_are_no_others():
    items = [Rollout(s, f"a text of step {s}", reward=1.0, split="eval") for s in (10, 20)]
    run = signals.derive(run_of(items), cache=False)
    assert run.metrics["eval_score"].tolist() == [1, 1]
    assert "success_rate" not in run.metrics.columns
    assert "rep_4" in run.metrics.columns


def test_sampling_takes_whole_groups_and_is_declared():
    items = rollouts(1, [[0, 1, 0, 1]] * 10)
    run = signals.derive(run_of(items), max_rollouts_per_step=10, cache=False)
    assert run.metrics.loc[1, "group_count"] == 2
    assert run.metrics.loc[1, "group_size"] == 4
    assert [note.count for note in run.notes if note.kind == "sampled"] == [1]
    again = signals.derive(run_of(items), max_rollouts_per_step=10, cache=False)
    pd.testing.assert_frame_equal(run.metrics, again.metrics)


class Fingerprinted(MemoryStore):
    reads = 0

    def at(self, step):
        self.reads += 1
        return super().at(step)

    def fingerprint(self, step):
        return str(hash(tuple(r.text for r in self._train[step])))


def test_results_are_cached_by_content(tmp_path):
    items = [r for s in range(1, 5) for r in rollouts(s, [[0, 1], [1, 1], [0, 1], [0, 0]])]
    store = Fingerprinted(items)
    run = Run("r", "-", "frame", pd.DataFrame(index=pd.Index([1], name="step")), rollouts=store)
    first = signals.derive(run, cache=tmp_path / "c.sqlite")
    cold, store.reads = store.reads, 0
    second = signals.derive(run, cache=tmp_path / "c.sqlite")
    assert (cold, store.reads) == (5, 1)  # only the first step is read again, to learn the format
    pd.testing.assert_frame_equal(first.metrics, second.metrics)
    changed = Fingerprinted(items + rollouts(4, [[1, 1]], seed=99))
    third = signals.derive(Run("r", "-", "frame", run.metrics, rollouts=changed), cache=tmp_path / "c.sqlite")
    assert changed.reads == 2
    assert third.metrics.loc[3].equals(first.metrics.loc[3])


def test_a_broken_cache_is_not_used(tmp_path):
    (tmp_path / "c.sqlite").write_bytes(b"not a database" * 100)
    run = signals.derive(run_of(rollouts(1, [[0, 1], [1, 1]])), cache=tmp_path / "c.sqlite")
    assert run.has("group_reward_std")


def test_processes_give_the_same_answer():
    items = [r for s in range(1, 7) for r in rollouts(s, [[0, 1], [1, 1], [0, 1], [0, 0]])]
    one = signals.derive(run_of(items), cache=False)
    seen = []
    two = signals.derive(run_of(items), cache=False, workers=2, progress=lambda done, of: seen.append((done, of)))
    pd.testing.assert_frame_equal(one.metrics, two.metrics)
    assert seen == [(k, 6) for k in range(1, 7)]


def test_a_prefix_of_the_run_has_the_same_signals():
    items = [r for s in range(1, 13) for r in rollouts(s, [[0, 1, 1], [1, 1, 1], [0, 1, 0], [0, 0, 0]])]
    whole = derived(items)
    part = derived([r for r in items if r.step <= 7])
    pd.testing.assert_frame_equal(part.metrics, whole.metrics.loc[:7])


def test_lengths_follow_the_tokens():
    items = [
        Rollout(1, "<think>one two three</think><answer>four</answer>", tokens=40, truncated=False),
        Rollout(1, "<think>one</think><answer>a b c</answer>", tokens=80, truncated=True),
    ]
    row = derived(items).metrics.loc[1]
    assert row["response_length"] == 60
    assert row["thinking_length"] == (40 * 3 / 4 + 80 * 1 / 4) / 2
    assert row["truncated_frac"] == 0.5


def test_a_run_without_rollouts_is_returned_as_it_is():
    run = Run("r", "-", "frame", pd.DataFrame(index=pd.Index([1], name="step")))
    assert signals.derive(run) is run


def test_only_the_policys_words_are_measured():
    shown = "the same long observation text of the tool, again and again. " * 20
    items = [
        Rollout(
            1,
            "",
            messages=(
                Message("user", "go"),
                Message("assistant", f"look {i}"),
                Message("tool", shown),
                Message("assistant", f"done {i * 7}"),
            ),
        )
        for i in range(8)
    ]
    row = derived(items).metrics.loc[1]
    assert row["rep_4"] == 0
    assert row.get("cross_rollout_share", 0) == 0
    assert row["num_turns"] == 2


def test_a_growing_run_looks_at_new_and_unfinished_steps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Store(MemoryStore):
        def at(self, step: int) -> list[Rollout]:
            looked.append(step)
            return super().at(step)

    def grown(steps: int) -> Run:
        rollouts = [
            Rollout(step, f"take arm {step} {i}", group="ab"[i // 2], reward=float(i))
            for step in range(1, steps + 1)
            for i in range(4)
        ]
        frame = pd.DataFrame({"loss": np.zeros(steps)}, index=pd.Index(np.arange(1, steps + 1), name="step"))
        return Run("r", "-", "frame", frame, rollouts=Store(rollouts))

    memo: signals.Memo = {}
    signals.derive(grown(3), cache=False, memo=memo)
    looked.clear()
    run = signals.derive(grown(5), cache=False, memo=memo)
    assert set(looked) == {1, 3, 4, 5}  # the first shows the format; 3 was the newest, and may have grown
    pd.testing.assert_frame_equal(run.metrics, signals.derive(grown(5), cache=False).metrics)


def test_rollouts_that_a_filter_left_are_said_to_be_such():
    mixed = [[0, 0, 0, 1]] * 8
    run = derived([r for step in range(1, 6) for r in rollouts(step, mixed)], metrics={"zero_std_frac": [0.6] * 5})
    assert any(note.kind == "filtered" for note in run.notes)
    assert run.metrics["zero_std_frac"].tolist() == [0.6] * 5
    run = derived([r for step in range(1, 6) for r in rollouts(step, [*mixed, [0, 0, 0, 0]])])
    assert not any(note.kind == "filtered" for note in run.notes)


@pytest.mark.parametrize(
    ("groups", "ratio"),
    [([[0, 0, 0, 0]] * 3 + [[0, 1, 0, 1]], 2.0), ([[0, 1, 0, 1]] * 4, 0.0)],
)
def test_a_filter_has_much_to_choose_where_group_variances_differ(groups, ratio):
    assert derived(rollouts(1, groups)).metrics.loc[1, "group_variance_dispersion"] == pytest.approx(ratio)
