"""Signals that follow from rollouts: what the rewards of a prompt group say, and what the texts say.

Computed step by step, so memory does not grow with the run, and kept in the user's cache directory under a key of the content:
a second look costs nothing, and nothing is ever written beside the user's files.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from echotrap import stats
from echotrap.record import Provenance, Run
from echotrap.rollouts import SOLVED, Rollout, RolloutStore, solved
from echotrap.sources.base import Note
from echotrap.text import ngrams
from echotrap.text.measure import Scores, Start, groups_of, measure

__all__ = ["PREFERRED", "SOLVED", "Memo", "cache_path", "derive", "sample", "start_of"]

Progress = Callable[[int, int | None], None]

VERSION = 11  # of the cached records: raise it when a definition changes
PREFERRED = ("group_reward_std", "zero_std_frac")
BROKEN_FROM = 0.2  # TRL compares stds with 1e-8: constant rewards of 0.15 have 1.5e-8 and are logged as no constant group at all
"""Signals whose derived reading replaces the logged one: frameworks log them under wrong names or with a wrong tolerance."""

ZERO_STD = 1e-6  # relative to the largest reward of the group: sixteen rewards of 0.15 have a std of 1.5e-8
RW_WINDOW = 10
EARLIER = 10
FILTERED = 5  # constant groups to expect by chance at least, before their absence means that a filter took them out


@dataclass
class _Record:
    """One step's results before steps are put in relation: small, and JSON."""

    signals: dict[str, float] = field(default_factory=dict)
    rollouts: int = 0
    sampled_from: int = 0
    count: int = 0  # rollouts with a reward
    groups: int = 0  # prompt groups of two or more of them
    grouped: int = 0  # rollouts in those
    mean: float = 0.0
    square: float = 0.0  # sum of squared deviations from the mean
    square_within: float = 0.0
    binary: bool = False
    constants: list[tuple[float, bool]] = field(default_factory=list)  # reward of each constant group, and whether it is copies
    low: float = float("nan")
    high: float = float("nan")
    sketch: str = ""


Memo: TypeAlias = dict[int, tuple[str | None, _Record]]
"""What :func:`derive` remembers of each step of a run that grows: the key of its content, and its results."""


def derive(
    run: Run,
    *,
    max_rollouts_per_step: int | None = None,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
    cache: Path | bool = True,
    memo: Memo | None = None,
) -> Run:
    """Add the signals that a run's rollouts tell.

    Parameters
    ----------
    run : Run
        Returned as it is when it has no rollouts.
    max_rollouts_per_step : int, optional
        Look at this many prompt-wise complete rollouts of a step at most; always declared in a note.
    seed : int
        Draws the samples.
    workers : int
        Processes. More than one starts fresh interpreters, so a script needs its ``__main__`` guard.
    progress : callable, optional
        Called with steps done and steps in all.
    cache : Path or bool
        Database of earlier results; ``True`` for :func:`cache_path`, ``False`` for none.
    memo : Memo, optional
        Results of an earlier call for the same run, which still grows: only steps that are new or have changed are looked at.

    Returns
    -------
    Run
        With further columns of provenance *derived*. A logged signal is kept, except those in :data:`PREFERRED` where rollouts
        cover at least half of its steps and no filter had taken some out; the logged reading is then ``logged/<name>``, the
        losing one else ``rollouts/<name>``.

    Examples
    --------
    >>> from echotrap.rollouts import MemoryStore
    >>> rollouts = [Rollout(1, f"take arm {i}", group="ab"[i // 2], reward=float(i % 3 == 0)) for i in range(4)]
    >>> frame = pd.DataFrame({"loss": [0.0]}, index=pd.Index([1], name="step"))
    >>> run = derive(Run("example", "-", "frame", frame, rollouts=MemoryStore(rollouts)), cache=False)
    >>> run.metrics.loc[1, ["group_reward_std", "zero_std_frac", "success_rate"]].round(3).to_dict()
    {'group_reward_std': 0.707, 'zero_std_frac': 0.0, 'success_rate': 0.5}
    """
    if run.rollouts is None:
        return run
    reader = Reader(run.rollouts, max_rollouts_per_step, seed)
    if not reader.steps:
        return run
    if len(run.metrics) and not any(run.steps[0] <= step <= run.steps[-1] for step in reader.steps):
        note = Note("rollouts", "rollouts whose steps lie outside of the run's were not measured", len(reader.steps))
        return replace(run, notes=(*run.notes, note))
    start = reader.start()
    with _Cache(cache) as stored:
        columns, notes = _relate(_records(reader, start, stored, workers, progress, memo), len(reader.steps))
    if reader.split == "eval":
        rewards = columns.pop("reward_mean", None)
        columns = {name: values for name, values in columns.items() if name not in _REWARD}
        if rewards is not None:
            columns["eval_score"] = rewards
        notes.append(Note("rollouts", "no training rollouts; the text signals come from evaluation rollouts"))
    return _merge(run, pd.DataFrame(columns, index=pd.Index(reader.steps, name="step", dtype=np.int64)), notes)


_REWARD = ("reward_min", "reward_max", "reward_std", "group_reward_std", "rw_ratio", "success_rate", "group_size", "group_count",
           "group_variance_dispersion", "zero_std_frac", "zero_std_all_fail_frac", "zero_std_all_pass_frac",
           "zero_std_copies_frac", "tie_frac", "ranked_ties_frac", "reward_levels", "unequal_copies_frac")  # fmt: skip


class Reader:
    """The rollouts to look at, one step at a time: training ones, or evaluation ones where there are no others.

    Parameters
    ----------
    store : RolloutStore
        Where they are.
    most : int, optional
        Sample a step to this many (:func:`sample`).
    seed : int
        Draws the samples.
    """

    def __init__(self, store: RolloutStore, most: int | None = None, seed: int = 0) -> None:
        self.store, self.most, self.seed = store, min(most or ngrams.MOST_ROLLOUTS, ngrams.MOST_ROLLOUTS), seed
        self.steps, self.split = store.steps(), "train"
        if not self.steps:
            self.steps, self.split = store.eval_steps(), "eval"

    def at(self, step: int, *, by_group: bool = True) -> tuple[list[Rollout], int]:
        """The step's rollouts, and how many there were before sampling."""
        rollouts = self.store.at(step) if self.split == "train" else self.store.eval_at(step)
        return sample(rollouts, self.most, seed=self.seed + step, by_group=by_group), len(rollouts)

    def start(self) -> Start:
        """The format that the first step shows."""
        return Start.of(self.at(self.steps[0])[0])

    def key(self, step: int, start: Start) -> str | None:
        """Names the step's content and everything else that the result depends on."""
        content = self.store.fingerprint(step) if self.split == "train" else None
        return content and _digest(f"{VERSION} {content} {start.digest} {self.most} {self.seed}")


def start_of(store: RolloutStore) -> Start:
    """The format that a run's first rollouts show, for :func:`echotrap.text.measure.measure` of any of its steps."""
    reader = Reader(store)
    return reader.start() if reader.steps else Start()


def sample(rollouts: Sequence[Rollout], most: int, *, seed: int = 0, by_group: bool = True) -> list[Rollout]:
    """At most ``most`` rollouts, in order; whole prompt groups, as long as one fits."""
    if len(rollouts) <= most:
        return list(rollouts)
    rng = np.random.default_rng(seed)
    group, known = groups_of(rollouts)
    chosen: list[int] = []
    if known and by_group:
        for name in rng.permutation(np.unique(group)):
            members = np.flatnonzero(group == name).tolist()
            if len(chosen) + len(members) <= most:
                chosen += members
    if not chosen:
        chosen = rng.choice(len(rollouts), most, replace=False).tolist()
    return [rollouts[index] for index in sorted(chosen)]


def _records(
    reader: Reader, start: Start, stored: _Cache, workers: int, progress: Progress | None, memo: Memo | None
) -> Iterator[_Record]:
    """Results per step, in order; remembered, read from the cache, computed here, or in other processes."""
    waiting: deque[tuple[int, str | None, bool, _Record | Future[_Record]]] = deque()
    done, pool = 0, ProcessPoolExecutor(workers) if workers > 1 else None

    def finished() -> _Record:
        nonlocal done
        step, key, fresh, result = waiting.popleft()
        if isinstance(result, Future):
            result = result.result()
        if fresh and key is not None:
            stored.put(key, result)
        if memo is not None and (
            key is not None or step != reader.steps[-1]
        ):  # without a fingerprint the newest step may still be written
            memo[step] = key, result
        done += 1
        if progress is not None:
            progress(done, len(reader.steps))
        return result

    try:
        for step in reader.steps:
            key = reader.key(step, start)
            remembered = None if memo is None else memo.get(step)
            if remembered is not None and remembered[0] == key:
                known: _Record | None = remembered[1]
            else:
                known = None if key is None else stored.get(key)
            if known is not None:
                waiting.append((step, key, False, known))
            else:
                rollouts, of = reader.at(step)
                if pool is None:
                    waiting.append((step, key, True, _record(rollouts, of, start, reader.seed)))
                else:
                    waiting.append((step, key, True, pool.submit(_record, rollouts, of, start, reader.seed)))
            while len(waiting) > 2 * (workers - 1):  # bounds what is held in memory
                yield finished()
        while waiting:
            yield finished()
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _record(rollouts: Sequence[Rollout], of: int, start: Start, seed: int) -> _Record:
    """Everything about one step that needs no other step."""
    record = _Record(rollouts=len(rollouts), sampled_from=of)
    if not rollouts:
        return record
    scores = measure(rollouts, start, seed=seed)
    record.signals = dict(scores.signals)
    record.sketch = scores.sketch.tobytes().hex()
    _lengths(rollouts, scores, record.signals)
    _rewards(rollouts, scores, record)
    return record


def _lengths(rollouts: Sequence[Rollout], scores: Scores, signals: dict[str, float]) -> None:
    tokens = np.array([np.nan if rollout.tokens is None else rollout.tokens for rollout in rollouts], float)
    if np.isfinite(tokens).all():
        signals["response_length"] = float(tokens.mean())
        signals["response_length_max"] = float(tokens.max())
        words = scores.per_rollout["words"]
        share = np.divide(scores.per_rollout["thinking_words"], words, out=np.zeros(len(words)), where=words > 0)
        signals["thinking_length"] = float((tokens * share).mean())
    cut = [rollout.truncated for rollout in rollouts if rollout.truncated is not None]
    if len(cut) * 2 >= len(rollouts):
        signals["truncated_frac"] = sum(cut) / len(cut)


def _rewards(rollouts: Sequence[Rollout], scores: Scores, record: _Record) -> None:
    reward = np.array([rollout.reward for rollout in rollouts], float)
    seen = np.isfinite(reward)
    outcomes = [value for value in map(solved, rollouts) if value in (0.0, 1.0)]
    if len(outcomes) == len(rollouts):
        record.signals["success_rate"] = float(np.mean(outcomes))
    if not seen.any():
        return
    reward, group = reward[seen], scores.group[seen]
    record.count, record.mean = len(reward), float(reward.mean())
    record.square = float(((reward - record.mean) ** 2).sum())
    record.binary = bool(np.isin(reward, (0.0, 1.0)).all())
    record.low, record.high = float(reward.min()), float(reward.max())
    record.signals |= {"reward_mean": record.mean, "reward_min": record.low, "reward_max": record.high}
    if len(reward) > 1:
        record.signals["reward_std"] = float(reward.std(ddof=1))
    copy = scores.per_rollout["copy"][seen] > 0
    spreads = []
    for name in np.unique(group):
        mine = group == name
        values = reward[mine]
        if len(values) < 2:
            continue
        spread = float(values.std(ddof=1))
        spreads.append(spread)
        record.grouped += len(values)
        record.square_within += float(((values - values.mean()) ** 2).sum())
        if spread <= ZERO_STD * float(np.abs(values).max()):
            record.constants.append((float(values.mean()), bool(copy[mine].all())))
    record.groups = len(spreads)
    if spreads:
        record.signals |= {
            "group_reward_std": float(np.mean(spreads)),
            "zero_std_frac": len(record.constants) / len(spreads),
            "group_size": float(np.median(np.unique(group, return_counts=True)[1])),
            "group_count": float(record.groups),
        }
        if np.isfinite(ratio := stats.dispersion(np.square(spreads))):
            record.signals["group_variance_dispersion"] = ratio


def _relate(records: Iterable[_Record], n: int) -> tuple[dict[str, NDArray[np.float64]], list[Note]]:
    """Columns of the frame: the steps' own signals, and those that look back."""
    columns: dict[str, NDArray[np.float64]] = {}
    low, high = np.inf, -np.inf
    recent: deque[_Record] = deque(maxlen=RW_WINDOW)
    sketches: deque[NDArray[np.uint64]] = deque(maxlen=EARLIER)
    graded = sampled = 0
    grouped, binary = False, True
    expected = dead = 0.0
    for row, record in enumerate(records):
        found = dict(record.signals)
        low, high = np.fmin(low, record.low), np.fmax(high, record.high)
        if record.groups:
            size, rate = found["group_size"], record.mean
            expected += record.groups * (rate**size + (1 - rate) ** size) if record.binary else 0.0
            dead += len(record.constants)
            sides = [_side(value, low, high) for value, _ in record.constants]
            found["zero_std_all_fail_frac"] = sides.count("fail") / record.groups
            found["zero_std_all_pass_frac"] = sides.count("pass") / record.groups
            found["zero_std_copies_frac"] = sum(copies for _, copies in record.constants) / record.groups
            recent.append(replace(record, sketch=""))
            found["rw_ratio"] = _rw_ratio(recent)
        own = np.frombuffer(bytes.fromhex(record.sketch), np.uint64)
        if len(own):
            if sketches:
                found["earlier_share"] = _seen_before(own, sketches)
            sketches.append(own)
        for name, value in found.items():
            columns.setdefault(name, np.full(n, np.nan))[row] = value
        if np.isfinite(record.low):
            graded, grouped, binary = graded + 1, grouped or record.groups > 0, binary and record.binary
        sampled += record.sampled_from > record.rollouts
    if "success_rate" not in columns and graded and binary:
        columns["success_rate"] = columns["reward_mean"].copy()
    notes = []
    if graded and not grouped:
        notes.append(Note("rollouts", "prompt groups are unknown or of one rollout each: no in-group signals"))
    if expected >= FILTERED and not dead:
        notes.append(Note("filtered", f"no prompt group is constant, {expected:.0f} would be by chance: written after a filter?"))
    if "thinking_length" in columns and "response_length" not in columns:
        notes.append(Note("rollouts", "token counts are not logged: thinking_length counts words"))
    if sampled:
        notes.append(Note("sampled", "steps of which only a seeded sample of the rollouts was looked at", sampled))
    return columns, notes


def _side(value: float, low: float, high: float) -> str:
    """Whether a constant group is right or wrong, by the rewards seen so far."""
    margin = ZERO_STD * max(abs(low), abs(high))
    if high - low <= margin:  # no other reward was ever seen
        return "pass" if value > 0 else "fail"
    return "fail" if value <= low + margin else "pass" if value >= high - margin else "between"


def _rw_ratio(recent: Sequence[_Record]) -> float:
    """Pooled within-group variance over total variance."""
    count = sum(record.count for record in recent)
    mean = sum(record.count * record.mean for record in recent) / count
    total = sum(record.square + record.count * (record.mean - mean) ** 2 for record in recent)
    free = sum(record.grouped - record.groups for record in recent)
    if free <= 0 or count < 2 or total <= (ZERO_STD * max(abs(mean), 1e-12)) ** 2 * count:
        return float("nan")
    within = sum(record.square_within for record in recent) / free
    return min(within / (total / (count - 1)), 1.0)


def _seen_before(own: NDArray[np.uint64], earlier: Sequence[NDArray[np.uint64]]) -> float:
    """Share of a step's n-grams that earlier steps had, from bottom-k sketches: compared where all of them are complete."""
    limit = min(int(item[-1]) for item in (own, *earlier))
    own = own[own <= np.uint64(limit)]
    before = np.sort(np.concatenate(list(earlier)))
    return float(ngrams.member(own, before).mean()) if len(own) else float("nan")


def _merge(run: Run, derived: pd.DataFrame, notes: list[Note]) -> Run:
    """The run with the derived columns in their place."""
    index = run.metrics.index.union(derived.index).rename("step")
    frame = run.metrics.reindex(index)
    derived = derived.reindex(index)
    provenance: dict[str, Provenance] = dict(run.provenance)
    added: dict[str, pd.Series[float]] = {}
    filtered = any(note.kind == "filtered" for note in notes)  # what a filter hides, only its counters tell
    for name in map(str, derived.columns):
        column: pd.Series[float] = derived[name]
        if not run.has(name):
            added[name], provenance[name] = column, "derived"
            continue
        logged = frame[name]
        both = int((logged.notna() & column.notna()).sum())
        broken = name == "zero_std_frac" and not logged.fillna(0.0).any() and float(column.max()) >= BROKEN_FROM
        if name in PREFERRED and not filtered and (broken or both * 2 >= int(logged.notna().sum())):
            frame[name], added[f"logged/{name}"] = column, logged
            provenance[name] = "derived"
            notes.append(Note("derived", f"{name} is computed from the rollouts; the logged one is logged/{name}"))
        elif name in PREFERRED:
            added[f"rollouts/{name}"] = column
    frame = frame.drop(columns=[name for name in added if name in frame.columns])
    frame = pd.concat([frame, pd.DataFrame(added, index=index)], axis=1)
    notes.insert(0, Note("derived", "signals computed from rollouts", sum(p == "derived" for p in provenance.values())))
    files, lines = run.origin_files, run.origin_lines
    if files is not None and lines is not None and len(index) != len(run.metrics):
        at = index.get_indexer(run.metrics.index)
        files, lines = np.zeros(len(index), np.int32), np.zeros(len(index), np.int64)
        assert run.origin_files is not None
        assert run.origin_lines is not None
        files[at], lines[at] = run.origin_files, run.origin_lines
    return replace(run, metrics=frame, provenance=provenance, notes=(*run.notes, *notes), origin_files=files, origin_lines=lines)


def cache_path() -> Path:
    """Where results are kept: one database in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("echotrap") / "signals.sqlite"


class _Cache:
    """Step results by content key. A cache that cannot be used is no reason to fail: it is then not used."""

    MOST = 200_000

    def __init__(self, where: Path | bool) -> None:
        self._connection: sqlite3.Connection | None = None
        if where is False:
            return
        path = cache_path() if where is True else where
        with suppress(sqlite3.Error, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=5)
            self._connection.execute("create table if not exists step (key text primary key, record text)")

    def __enter__(self) -> _Cache:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is None:
            return
        with suppress(sqlite3.Error):
            self._connection.execute("delete from step where rowid <= (select max(rowid) from step) - ?", (self.MOST,))
            self._connection.commit()
        self._connection.close()

    def get(self, key: str) -> _Record | None:
        if self._connection is None:
            return None
        with suppress(sqlite3.Error, ValueError, TypeError):
            row = self._connection.execute("select record from step where key = ?", (key,)).fetchone()
            if row is not None:
                return _Record(**_restored(json.loads(row[0])))
        return None

    def put(self, key: str, record: _Record) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("insert or replace into step values (?, ?)", (key, json.dumps(asdict(record))))


def _restored(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "constants": [(float(reward), bool(copies)) for reward, copies in value["constants"]]}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
