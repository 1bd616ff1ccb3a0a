"""Specs: what a detector must do, written as short series (``tests/specs/<id>.toml``).

The notation is that of promtool's unit tests, without its off-by-one: ``VxN`` is N values, not N + 1. Authors of detectors
outside this repository can use it too::

    from echotrap.specs import load

    for case in load("my_specs/my-detector.toml"):
        case.check(DETECTOR)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from echotrap.detector import Detector, Failed, Level, NotEvaluated, Track, episodes
from echotrap.errors import EchotrapError
from echotrap.fields import FIELDS
from echotrap.record import Event, NonFinite, Run, RunConfig

__all__ = ["Case", "expand", "load"]

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(
    rf"(?P<value>_|nan|[+-]?inf|{_NUMBER})"
    rf"(?:(?P<op>[*+-])(?P<by>{_NUMBER}))?"
    r"(?:x(?P<count>\d+))?"
    rf"(?:~(?P<noise>{_NUMBER})(?P<percent>%)?)?"
)


def expand(notation: str, seed: int = 0) -> NDArray[np.float64]:
    """Turn series notation into values.

    Parameters
    ----------
    notation : str
        Blank-separated tokens. ``3`` one value; ``_`` a missing one; ``nan`` and ``inf`` logged as such; ``3x5`` five values;
        ``1+0.5x4`` is 1, 1.5, 2, 2.5; ``1*0.5x3`` is 1, 0.5, 0.25. A token may end with noise: ``~0.1`` adds a normal of that
        standard deviation, ``~10%`` multiplies with a log-normal one.
    seed : int
        Of the noise.

    Examples
    --------
    >>> expand("1x2 1-0.25x3 _ 8*0.5x3").tolist()
    [1.0, 1.0, 1.0, 0.75, 0.5, nan, 8.0, 4.0, 2.0]
    """
    random = np.random.default_rng(seed)
    parts: list[NDArray[np.float64]] = [np.empty(0)]
    for token in notation.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise EchotrapError(f"not series notation: {token!r}", cure="see tests/specs/README.md")
        count = np.arange(int(match["count"] or 1), dtype=np.float64)
        value = np.nan if match["value"] == "_" else float(match["value"])
        by = float(match["by"] or 0)
        part = value * by**count if match["op"] == "*" else value + (-by if match["op"] == "-" else by) * count
        if match["noise"]:
            noise = random.standard_normal(len(part)) * float(match["noise"]) / (100 if match["percent"] else 1)
            part = part * np.exp(noise) if match["percent"] else part + noise
        parts.append(part)
    return np.concatenate(parts)


@dataclass(frozen=True)
class Case:
    """One case of a spec: a run in short notation, and what the detector must say about it.

    Attributes
    ----------
    name : str
        What happens, in words.
    expect : str
        ``"alert"``, ``"clear"`` (never above clear) or ``"not-evaluated"``.
    series : Mapping
        Signal to notation; a shorter one is missing at the end.
    level : str, optional
        The highest level that is reached, exactly.
    onset, alarm : pair of int, optional
        First and last acceptable step of the first episode's onset, and of the first alarm at ``level`` (default: watch).
    cleared : bool, optional
        Whether the last episode has ended.
    says : str, optional
        Words that the formatted message or the reason must hold.
    start, every : int
        First logged step, and steps between logged ones.
    config, params : Mapping
        Fields of :class:`~echotrap.record.RunConfig`; parameters that differ from the defaults.
    events : tuple of Mapping
        Each with ``step``, ``kind``, ``label``.
    smoothed : tuple of str
        Signals that are averages of several points.
    suspect : tuple of Mapping
        Entries of :attr:`Run.nonfinite` beyond the ``nan`` and ``inf`` written in a series: ``step``, ``field``, ``spelling``,
        ``certain``.
    """

    name: str
    expect: Literal["alert", "clear", "not-evaluated"]
    series: Mapping[str, str] = field(default_factory=dict)
    level: Literal["watch", "warning", "critical"] | None = None
    onset: tuple[int, int] | None = None
    alarm: tuple[int, int] | None = None
    cleared: bool | None = None
    says: str = ""
    start: int = 1
    every: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Mapping[str, Any], ...] = ()
    smoothed: tuple[str, ...] = ()
    suspect: tuple[Mapping[str, Any], ...] = ()

    def run(self) -> Run:
        """The run that the case describes."""
        columns = {name: expand(text, seed=index) for index, (name, text) in enumerate(self.series.items())}
        length = max(map(len, columns.values()), default=0)
        steps = self.start + self.every * np.arange(length)
        nonfinite = []
        for name, values in columns.items():
            written = [token for token in self.series[name].split() if token[:1] != "_"]
            if any("nan" in token or "inf" in token for token in written):
                told = expand(self.series[name].replace("_", "0"))
                nonfinite += [NonFinite(int(steps[i]), name, f"{told[i]:g}") for i in np.flatnonzero(~np.isfinite(told))]
            known = FIELDS.get(name)
            finite = np.where(np.isfinite(values), values, np.nan)
            low, high = (known.low, known.high) if known else (None, None)
            finite = np.clip(finite, low, high) if low is not None or high is not None else finite
            columns[name] = np.concatenate((finite, np.full(length - len(values), np.nan)))
        nonfinite += [NonFinite(**item) for item in self.suspect]
        return Run(
            name=self.name,
            source="spec",
            format="spec",
            metrics=pd.DataFrame(columns, index=pd.Index(steps, name="step", dtype=np.int64), dtype=np.float64),
            config=RunConfig(**self.config),
            events=tuple(Event(**item) for item in self.events),
            nonfinite=tuple(sorted(nonfinite)),
            smoothed=frozenset(self.smoothed),
        )

    def _judge(self, detector: Detector) -> Track | NotEvaluated:
        if detector.combine is None:
            return detector(self.run(), replace(detector.params, **self.params) if self.params else None)
        from echotrap.config import Settings
        from echotrap.diagnosis import examine

        outcome = examine(self.run(), Settings(params={detector.card.id: dict(self.params)})).outcomes[detector.card.id]
        assert not isinstance(outcome, Failed), outcome
        return outcome if isinstance(outcome, NotEvaluated) else outcome.track

    def check(self, detector: Detector) -> None:
        """Assert that the detector says what the case expects.

        Raises
        ------
        AssertionError
            It says something else; the message holds what it said.
        """
        track = self._judge(detector)
        if isinstance(track, NotEvaluated):
            assert self.expect == "not-evaluated", f"not evaluated: {track.reason}"
            assert self.says in track.reason, track.reason
            return
        found = episodes(track)
        told = [f"{e.level.name.lower()} from {e.onset_step}, alarms {dict(e.alarm_steps)}, {e.cleared_step=}" for e in found]
        assert self.expect == ("alert" if found else "clear"), f"it found: {told or 'nothing'}"
        if not found:
            return
        highest = max(e.level for e in found)
        if self.level:
            assert highest == Level[self.level.upper()], told
        if self.onset:
            assert self.onset[0] <= found[0].onset_step <= self.onset[1], told
        if self.alarm:
            wanted = Level[self.level.upper()] if self.level else Level.WATCH
            first = next(e.alarm_steps[wanted] for e in found if wanted in e.alarm_steps)
            assert self.alarm[0] <= first <= self.alarm[1], told
        if self.cleared is not None:
            assert (found[-1].cleared_step is not None) == self.cleared, told
        at = next(e for e in found if e.level == highest)
        index = at.first + int(np.argmax(track.level[at.first : at.last + 1] == highest))
        message = detector.card.message.format(
            **{"step": int(track.steps[index]), "onset": int(track.onset[index])} | track.evidence_at(index)
        )
        assert self.says in message, message


def load(path: str | Path) -> list[Case]:
    """Read the cases of a spec.

    Raises
    ------
    EchotrapError
        The file is not TOML, or a case has an unknown or missing key.
    """
    where = str(path)
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise EchotrapError(str(error), where=where) from error
    cases = []
    for number, raw in enumerate(table.get("case", []), start=1):
        facts: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
        try:
            cases.append(Case(**facts))
        except TypeError as error:
            raise EchotrapError(f"case {number}: {error}".replace("Case.__init__() ", ""), where=where) from error
    return cases
