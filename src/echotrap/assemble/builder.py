"""Which rows belong together, what is missing and what is not finite: a run, built again and again while its log grows.

The raw rows are kept as columns of numbers (:mod:`echotrap.assemble.table`), so that a refresh reads only what is new; everything
that follows from them is computed afresh each time, on whole arrays. A run that is followed and the same run read at once are
therefore the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from echotrap.assemble.derived import RULES
from echotrap.assemble.naming import Naming, name_keys
from echotrap.assemble.steps import place
from echotrap.assemble.table import (
    INF,
    MAX_CELLS,
    MINUS_INF,
    NAN,
    NULL,
    NUMBER,
    SPELLED,
    SPELLING,
    Flags,
    Floats,
    Table,
    read_number,
)
from echotrap.errors import ConfigError
from echotrap.fields import CONFIG_KEYS, FIELDS, PERCENT, UPDATE_FIELDS
from echotrap.record import NonFinite, Provenance, Run, RunConfig
from echotrap.sources.base import Note, Reader

__all__ = ["RunBuilder"]

MAX_EVENTS_PER_FIELD = 1000
DENSE_ROWS = 5
OUTCOMES = frozenset({"reward_mean", "success_rate"})
CLOCKS = frozenset({"wall_time", "step_time", "epoch", "learning_rate", "num_tokens"})
LITERALS = (NUMBER, NAN, INF, MINUS_INF, SPELLED)


class RunBuilder:
    """Builds a run from a reader, again and again while it grows.

    Parameters
    ----------
    reader : Reader
        What is read.
    config : mapping or RunConfig, optional
        Facts that win over those in the log.
    framework : str, optional
        Where the keys do not tell.
    keys : mapping, optional
        Raw key to signal (or ``"step"``), where the user knows better.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        config: Mapping[str, Any] | RunConfig | None = None,
        framework: str | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self.reader = reader
        self.keys = dict(keys or {})
        self._given = config
        self._framework = framework
        self.table = Table()

    def refresh(self) -> Run:
        """Read what is new and build the run.

        Raises
        ------
        SourceError
            The log cannot be read any more.
        """
        self.poll()
        return self.build()

    def poll(self) -> bool:
        """Read what is new; whether there was anything.

        Raises
        ------
        SourceError
            The log cannot be read any more.
        """
        self.reader.rewound = False
        before = self.table, len(self.table)
        with _no_collection():
            for batch in self.reader.batches():
                self._forget_if_rewound()
                self.table.add(batch)
        self._forget_if_rewound()
        self.table.spread()
        rollouts = self.reader.rollouts
        steps = rollouts.steps() if rollouts is not None else ()
        if rollouts is not None:
            rollouts.refresh()
        return (self.table, len(self.table)) != before or (rollouts is not None and rollouts.steps() != steps)

    def build(self) -> Run:
        """The run as it was read so far."""
        run = _Assembly(self).run()
        if run.rollouts is not None:
            run.rollouts.group_size = run.config.group_size
        return run

    def identity(self) -> str:
        """Tells a run from another one in the same place: a digest of its first row, which nothing that follows can change."""
        table = self.table
        values = sorted(float(column.values[0]) for column in table.columns.values() if column.marks[0] == NUMBER)
        return hashlib.sha256(repr((table.steps[0], values)).encode()).hexdigest()[:12] if len(table) else ""

    def _forget_if_rewound(self) -> None:
        if self.reader.rewound:
            self.reader.rewound, self.table = False, Table()

    def naming(self) -> Naming:
        """What the keys read so far mean."""
        counts = {key: int(np.count_nonzero(self.table.cells(key)[1])) for key in self.table.columns}
        keys = [key for key, count in counts.items() if count]
        return name_keys(keys, self._framework or self.reader.framework, self.reader.framework_version, counts, self.keys)

    def config(self) -> RunConfig:
        """Facts about the run, from the log and from the user."""
        raw = {str(key).replace("/", "."): value for key, value in {**self.table.of, **self.reader.config}.items()}
        facts: dict[str, Any] = {}
        for name, words in CONFIG_KEYS.items():
            for word in words.split():
                found = next((v for k, v in raw.items() if k == word or k.endswith(f".{word}")), None)
                number, mark = read_number(found)
                if mark == NUMBER and number == number and (number > 0 or name in ("reward_min", "reward_max", "format_penalty")):
                    facts[name] = number
                    break
        given = self._given
        if isinstance(given, RunConfig):
            given = {item.name: getattr(given, item.name) for item in dataclasses.fields(given)}
        for name, value in (given or {}).items():
            if name == "raw":
                raw.update(value)
            elif name not in RunConfig.__dataclass_fields__:
                raise ConfigError(f"no fact about a run is called {name!r}", where="[run]")
            elif value is not None:
                facts[name] = value
        whole = ("group_size", "prompts_per_step", "max_turns", "length_limit", "max_steps", "save_interval")
        for name in whole:
            if name in facts:
                facts[name] = int(facts[name])
        return RunConfig(**facts, raw=raw)


class _Assembly:
    """One pass from raw columns to a run. It is the :class:`echotrap.assemble.derived.View` of the rules."""

    def __init__(self, builder: RunBuilder) -> None:
        self.reader, self.table = builder.reader, builder.table
        self.naming, self.config = builder.naming(), builder.config()
        self.signals = dict(self.naming.signals)
        self.framework = self.naming.framework
        self.placed = place(self.table, self.naming, [key for key, name in builder.keys.items() if name == "step"])
        self.size = len(self.placed.index)
        self.notes: list[Note] = [*self.reader.notes, *self.naming.notes, *self.placed.notes]
        self.columns: dict[str, Floats] = {}
        self.provenance: dict[str, Provenance] = {}
        self._raw: dict[str, Floats] = {}

    def run(self) -> Run:
        """Do it."""
        self._fill_columns()
        self._settle_reward_std()
        self._derive()
        nonfinite = self._nonfinite()
        self._unmeasured()
        table, reader, placed = self.table, self.reader, self.placed
        keys = {name: keys[0] for name, keys in self.signals.items()}
        keys.update({name: key for key, name in self.naming.evals.items()})
        for kind, message, count in (
            ("dropped", "cells of further keys were left out for want of memory", table.crowded),
            ("converted", "numbers were logged as strings", table.strings),
            ("renamed", "keys were read under their canonical names", len(keys)),
        ):
            if count:
                self.notes.append(Note(kind, message, count))
        first = placed.first_rows()
        return Run(
            name=reader.name,
            source=reader.source,
            format=reader.format,
            metrics=pd.DataFrame(self.columns, index=pd.Index(placed.index, name="step"), copy=False),
            framework=self.framework,
            framework_version=reader.framework_version,
            rollouts=reader.rollouts,
            config=self.config,
            events=placed.events,
            nonfinite=tuple(nonfinite),
            segments=placed.segments,
            notes=tuple(self.notes),
            keys=keys,
            provenance=self.provenance,
            smoothed=frozenset(name for name, key in keys.items() if re.search(r"(?:_ema|_smooth(?:ed)?|_s\d+)$", key)),
            files=tuple(reader.files),
            origin_files=np.frombuffer(table.files, np.int32)[first] if len(table) else None,
            origin_lines=np.frombuffer(table.lines, np.int64)[first] if len(table) else None,
            finished=reader.finished,
            other_runs=reader.other_runs,
        )

    # -- columns -------------------------------------------------------------------------------------------------------------

    def _by_step(self, key: str) -> Floats:
        """A raw key by step; the mean of its finite values where there are several."""
        if key not in self._raw:
            values = self.table.columns[key].values[self.placed.rows]
            if not self.placed.single:
                finite = np.isfinite(values)
                counts = np.bincount(self.placed.groups[finite], minlength=self.size)
                sums = np.bincount(self.placed.groups[finite], values[finite], self.size)
                with np.errstate(invalid="ignore", over="ignore"):
                    values = sums / np.where(np.isfinite(sums) & (counts > 0), counts, np.nan)
            self._raw[key] = values
        return self._raw[key]

    def _present(self, key: str, *kinds: int) -> Flags:
        """Steps at which a raw key holds something of these kinds."""
        return self.placed.any(np.isin(self.table.cells(key)[1], kinds))

    def _fill_columns(self) -> None:
        for name, keys in list(self.signals.items()):
            self.columns[name] = _mean([self._by_step(key) for key in keys])
            self.provenance[name] = self.naming.provenance.get(name, "logged" if len(keys) == 1 else "derived")
            if len(keys) > 1:
                self.notes.append(Note("averaged", f"{name} is the mean of {len(keys)} keys: {', '.join(keys[:4])}", len(keys)))
            self._check_share(name)
        for key, name in self.naming.evals.items():
            if self._present(key, NUMBER).any():
                self.columns[name] = self._by_step(key)
        room = max(0, MAX_CELLS // max(1, self.size) - len(self.columns))
        unknown = [key for key in self.naming.unknown if self._present(key, NUMBER).any()]
        if len(unknown) > room:
            often = sorted(unknown, key=lambda key: -int(np.isfinite(self._by_step(key)).sum()))
            self.notes.append(Note("dropped", "rare unknown keys were left out for want of memory", len(unknown) - room))
            unknown = often[:room]
        for key in unknown:
            self.columns[key if key not in FIELDS else f"raw/{key}"] = self._by_step(key)
        if unknown:
            self.notes.append(Note("unknown", "keys are not known and keep their own name", len(unknown)))

    def _check_share(self, name: str) -> None:
        """A share above 1 is a percentage, or not the share that its key suggests."""
        values, [key, *_] = self.columns[name], self.signals[name]
        if FIELDS[name].unit != "0..1" or not (values > 1.5).any():
            return
        if PERCENT.search(key) and not (values > 100).any() and not (values < 0).any():
            self.columns[name] = values / 100.0
            self.notes.append(Note("converted", f"{key!r} is a percentage", int(np.isfinite(values).sum())))
        else:
            self.columns[key if key not in FIELDS else f"raw/{key}"] = self.columns.pop(name)
            del self.signals[name], self.provenance[name]
            self.notes.append(Note("unknown", f"{key!r} is no {FIELDS[name].title}: it exceeds 1"))

    def _settle_reward_std(self) -> None:
        """Where TRL's ``reward_std`` has two readings, a spread while no group has any proves that it is the batch's."""
        name = next((name for name in ("group_reward_std", "reward_std") if self.provenance.get(name) == "assumed"), None)
        if name is None or "zero_std_frac" not in self.columns:
            return
        proofs = int(((self.columns[name] > 1e-4) & (self.columns["zero_std_frac"] == 1)).sum())
        if proofs:
            self.columns["reward_std"] = self.columns.pop(name)
            self.signals["reward_std"] = self.signals.pop(name)
            self.provenance.pop(name)
            self.provenance["reward_std"] = "logged"
            self.notes.append(Note("settled", "reward_std is the batch's: it is not 0 while every group has no variance", proofs))

    def _derive(self) -> None:
        for rule in RULES:
            logged = rule.name in self.columns and np.isfinite(self.columns[rule.name]).any()
            if logged != rule.replaces:
                continue
            values = rule.compute(self)
            if values is not None and np.isfinite(values).any():
                self.columns[rule.name] = values
                self.provenance[rule.name] = "derived"
                self.notes.append(Note("derived", f"{rule.name} = {rule.how}"))

    def _unmeasured(self) -> None:
        for name in [item.name for item in FIELDS.values() if item.zero_is_missing and item.name in self.columns]:
            values = self.columns[name]
            nonzero = np.isfinite(values) & (values != 0)
            until = int(nonzero.argmax()) if nonzero.any() else len(values)
            zeros = int((values[:until] == 0).sum())
            if zeros:
                self.columns[name] = np.where(np.arange(len(values)) < until, np.nan, values)
                self.notes.append(
                    Note("unmeasured", f"{name} is exactly 0 at first, which means that it was not measured", zeros)
                )

    # -- what is not finite --------------------------------------------------------------------------------------------------

    def _nonfinite(self) -> list[NonFinite]:
        found: list[NonFinite] = []
        signals = {name: keys for name, keys in self.signals.items() if name != "eval_score" and name != "pass_at_k"}
        padding = self._padding(signals)
        for name, keys in [*signals.items(), *((key, (key,)) for key in self.naming.unknown)]:
            for key in keys:
                marks = self.table.cells(key)[1]
                if not (marks > NUMBER).any():
                    continue
                for kind in (NAN, INF, MINUS_INF, SPELLED):
                    at = np.flatnonzero(self._present(key, kind) & ~padding)
                    if len(at) > MAX_EVENTS_PER_FIELD:
                        self.notes.append(
                            Note("dropped", f"further non-finite {name} are not listed", len(at) - MAX_EVENTS_PER_FIELD)
                        )
                        at = at[:MAX_EVENTS_PER_FIELD]
                    found.extend(NonFinite(step, name, SPELLING[kind]) for step in self.placed.index[at].tolist())
        found.extend(self._suspected(signals))
        return sorted(found)

    def _padding(self, signals: Mapping[str, tuple[str, ...]]) -> Flags:
        """Steps of evaluation rows that a table has padded: nothing of training is finite in them."""
        if not self.naming.evals and "eval_score" not in self.signals:
            return np.zeros(self.size, bool)
        lives = np.zeros(self.size, bool)
        for name in signals.keys() - CLOCKS:
            lives |= np.isfinite(self.columns[name])
        evaluated = np.zeros(self.size, bool)
        for name in [*self.naming.evals.values(), "eval_score", "pass_at_k"]:
            if name in self.columns:
                evaluated |= np.isfinite(self.columns[name])
        return ~lives & evaluated

    def _suspected(self, signals: Mapping[str, tuple[str, ...]]) -> Iterable[NonFinite]:
        """A dense update metric that becomes null, or is absent twice in a row, while others go on."""
        if self.reader.lossy or self.size <= DENSE_ROWS:
            return
        siblings = [name for name in signals if name in UPDATE_FIELDS or name == "learning_rate"]
        there = {name: np.logical_or.reduce([self._present(key, *LITERALS) for key in signals[name]]) for name in siblings}
        if not there:
            return
        alive = np.logical_or.reduce(list(there.values()))
        for name in siblings:
            if name not in UPDATE_FIELDS:
                continue
            nulls = np.logical_or.reduce([self._present(key, NULL) for key in signals[name]])
            found = list(self._gaps(name, alive, there[name], nulls))
            outcome = self._outcome_beside(signals, name) & ~alive
            if outcome.any():
                found += self._gaps(name, alive | outcome, there[name], nulls, only=outcome)
            if found:
                what = " or ".join(sorted({item.spelling for item in found}))
                first = min(item.step for item in found)
                self.notes.append(Note("suspected", f"{name} is {what} from step {first} on, while others go on", len(found)))
            yield from found

    def _gaps(self, name: str, rows: Flags, there: Flags, nulls: Flags, only: Flags | None = None) -> Iterator[NonFinite]:
        """Suspicions where a dense signal is not there; with ``only``, of gaps in which no update metric at all is there.

        An update may be skipped for a step or two, and one row may be written by something else. So the latter count from the
        second null on, and where the keys are absent, only if they never come back.
        """
        steps, here, null = self.placed.index[rows], there[rows], nulls[rows]
        alone = None if only is None else only[rows]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], ~here, [False]))))
        dense = _count_before(here)
        for start, stop in edges.reshape(-1, 2).tolist():
            if dense[start] < DENSE_ROWS or (alone is not None and (stop - start < 2 or not alone[start:stop].all())):
                continue
            gone = alone is None or (stop == len(here) and stop - start >= DENSE_ROWS and "filter_kept_frac" not in self.signals)
            for at in range(start, min(stop, start + MAX_EVENTS_PER_FIELD)):
                if null[at]:
                    yield NonFinite(int(steps[at]), name, "null", certain=False)
                elif at > start and gone:
                    yield NonFinite(int(steps[at]), name, "missing", certain=False)

    def _outcome_beside(self, signals: Mapping[str, tuple[str, ...]], name: str) -> Flags:
        """Steps with a reward, where the log calls that write it are those that write the signal."""
        found = np.zeros(self.size, bool)
        for reward in OUTCOMES & signals.keys():
            for key in signals[reward]:
                written = self.table.cells(key)[1] == NUMBER
                if any((written & (self.table.cells(other)[1] == NUMBER)).any() for other in signals[name]):
                    found |= self._present(key, NUMBER)
        return found

    # -- what the rules of derived.py see --------------------------------------------------------------------------------------

    def key(self, pattern: str) -> Floats | None:
        """A raw key by its documented name; the mean where a pattern finds several."""
        keys = self.naming.find(pattern)
        return _mean([self._by_step(key) for key in keys]) if keys else None

    def total(self, pattern: str) -> Floats | None:
        """The sum over all keys that match, a missing one counting as nothing."""
        keys = self.naming.find(pattern)
        if not keys:
            return None
        parts = np.array([self._by_step(key) for key in keys])
        return np.where(np.isfinite(parts).any(axis=0), np.nansum(parts, axis=0), np.nan)

    def signal(self, name: str) -> Floats | None:
        """A canonical signal, logged or derived before."""
        return self.columns.get(name)

    def fact(self, name: str) -> float | None:
        """A fact of the configuration."""
        value = getattr(self.config, name, None)
        if value is None:
            value = self.config.raw.get(name)
        number, mark = read_number(value)
        return number if mark == NUMBER else None


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of short-lived values without a cycle among them: looking for cycles would only cost time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _mean(columns: list[Floats]) -> Floats:
    if len(columns) == 1:
        return columns[0]
    stacked = np.array(columns)
    known = np.isfinite(stacked)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(known, stacked, 0.0).sum(axis=0) / known.sum(axis=0)
    return np.where(np.isfinite(mean), mean, np.nan)


def _count_before(flags: Flags) -> NDArray[np.int_]:
    """How many flags in a row were up just before each entry."""
    index = np.arange(len(flags))
    last_down = np.maximum.accumulate(np.where(flags, -1, index)) if len(flags) else index
    run = index - last_down
    return np.concatenate(([0], run[:-1])) if len(flags) else run
