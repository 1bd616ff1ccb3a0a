"""Follow a run that is still being written: only new rows are read, and it is judged only when there are some."""

from __future__ import annotations

import os
import re
import sqlite3
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Literal

from echotrap import alerts, pipeline, windows
from echotrap.alerts import Alarm, Message, Store
from echotrap.assemble import RunBuilder
from echotrap.config import Settings
from echotrap.diagnosis import Examination, examine
from echotrap.errors import EchotrapError, SourceError
from echotrap.notify import Channel, Dispatcher
from echotrap.record import Run
from echotrap.render.words import duration
from echotrap.report import Report
from echotrap.reporting import report as write_report
from echotrap.sources import entries, open_reader
from echotrap.sources.base import Options, Reader

__all__ = ["Follower", "Look", "Scene", "Watcher", "accepted"]

STALL_FACTOR = 10.0
STALL_LEAST_S = 60.0  # checkpoints and evaluations take their time
STALL_UNKNOWN_S = 1800.0  # before the usual time between steps is known
LONGEST_PAUSE_S = 300.0
LISTING_S = 30.0  # a folder on a network is slow to list


@dataclass(frozen=True, eq=False)
class Look:
    """A run as it stands, and what it means.

    Attributes
    ----------
    report, brief : Report
        As ``echotrap check`` gives it, and without the rollouts that prove its findings: looking them up takes longer than
        judging. Each is written when it is asked for.
    alarms : tuple of Alarm
        Everything that was worth telling so far, told or not.
    key : str
        Tells the run from another one in the same place.
    """

    run: Run
    seen: Examination
    settings: Settings
    key: str

    @cached_property
    def report(self) -> Report:  # noqa: D102
        return self.brief if self.run.rollouts is None else pipeline.mark(write_report(self.seen), self.settings)

    @cached_property
    def brief(self) -> Report:  # noqa: D102
        bare = replace(self.seen, run=replace(self.run, rollouts=None))
        return pipeline.mark(write_report(bare), self.settings)

    @cached_property
    def alarms(self) -> tuple[Alarm, ...]:  # noqa: D102
        return alerts.alarms(self.seen)


class Follower:
    """Reads a run again and again.

    Parameters
    ----------
    reader : Reader
        What is read.
    settings : Settings
        As for ``echotrap check``.
    """

    def __init__(self, reader: Reader, settings: Settings) -> None:
        from echotrap.signals import Memo

        facts = settings.run.model_dump(exclude={"framework"}, exclude_none=True)
        self._builder = RunBuilder(reader, config=facts, framework=settings.run.framework, keys=settings.keys)
        self._settings = settings
        self._memo: Memo = {}
        self._memory: windows.Memory = {}
        self._look: Look | None = None

    def look(self) -> Look | None:
        """What is there now; the same object where nothing is new, ``None`` where there is no step yet.

        Raises
        ------
        SourceError
            The log cannot be read any more.
        """
        try:
            new = self._builder.poll()
        except Exception:
            self._look = None  # rows may have come before it broke off
            raise
        if not new and self._look is not None:
            return self._look
        key = self._builder.identity()
        if self._look is not None and self._look.key != key:
            self._memo, self._memory = {}, {}
        run = pipeline.declare(self._builder.build(), self._settings)
        if run.rollouts is not None:
            from echotrap import signals

            run = signals.derive(run, max_rollouts_per_step=self._settings.max_rollouts_per_step, memo=self._memo)
        if not len(run.steps):
            return None
        with windows.growing(self._memory):
            seen = examine(run, self._settings)
        self._look = Look(run, seen, self._settings, key)
        return self._look

    def close(self) -> None:
        """Release what the reader holds open."""
        self._builder.reader.close()


@dataclass(frozen=True, eq=False)
class Scene:
    """What a watcher sees at one moment.

    Attributes
    ----------
    status : str
        ``waiting`` (nothing to read yet), ``live``, ``stalled``, ``finished``, or ``away`` (the source does not answer).
    look : Look or None
        The run as it was last read.
    news : tuple of Alarm
        What is told for the first time.
    age_s : float or None
        Since the newest step appeared.
    steps_per_minute : float or None
        As seen by this watcher.
    trouble : str
        Why it waits or what does not answer, in one line.
    """

    status: Literal["waiting", "live", "stalled", "finished", "away"]
    look: Look | None = None
    news: tuple[Alarm, ...] = ()
    age_s: float | None = None
    steps_per_minute: float | None = None
    trouble: str = ""


class Watcher:
    """Follows one location and tells what is new.

    Parameters
    ----------
    location : str
        A path or URL; it need not exist yet.
    settings : Settings
        As for ``echotrap check``.
    options : Options
        Format and name of the run, where the location leaves a choice.
    store : Store
        Memory of what was told.
    channels : Mapping
        Where alarms are sent to.
    say : callable
        Takes one line for the person in front of the screen.
    stall_factor : float
        The run is stalled after this many times the usual time between steps; 0 for never.
    clock : callable
        Seconds since the epoch.

    Attributes
    ----------
    look, told : Look or None
        The run as it was last read, and as it was when there was news; its report has been written.
    """

    def __init__(
        self,
        location: str,
        settings: Settings,
        *,
        options: Options | None = None,
        store: Store | None = None,
        channels: Mapping[str, Channel] | None = None,
        say: Callable[[str], None] = lambda line: None,
        stall_factor: float = STALL_FACTOR,
        stall_least_s: float = STALL_LEAST_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._location, self._settings, self._options = location, settings, options or Options()
        self._store, self._channels, self._say = store or Store(), channels or {}, say
        self._stall_factor, self._stall_least_s, self._clock = stall_factor, stall_least_s, clock
        self._follower: Follower | None = None
        self._dispatcher: Dispatcher | None = None
        self.look: Look | None = None
        self._failures, self._again_at = 0, 0.0
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=21)
        self._grew = False
        self._progress_at = clock()
        self._trouble = ""
        self._key = ""
        self._replaced = False
        self.told: Look | None = None
        self._layout: frozenset[str] = frozenset()
        self._listed_at = 0.0

    def tick(self) -> Scene:
        """Look once. Trouble with the source is part of the scene; only a fault of the settings is raised."""
        now = self._clock()
        if now < self._again_at:
            return self._scene("away" if self.look else "waiting", now)
        try:
            self._open(now)
            assert self._follower is not None
            look = self._follower.look()
        except (SourceError, OSError) as error:
            return self._failed(error, now)
        self._failures, self._trouble = 0, ""
        if look is None:
            self._let_go()
            return self._scene("waiting", now)
        try:
            stalled, news = self._heed(look, now)
        except sqlite3.Error as error:
            self._say(f"the memory of alarms failed ({error}): they are remembered until the end of this process only")
            self._store, self._key = Store(), ""
            stalled, news = self._heed(look, now)
        finished = look.run.finished is True
        return self._scene("finished" if finished else "stalled" if stalled else "live", now, news)

    def _heed(self, look: Look, now: float) -> tuple[bool, tuple[Alarm, ...]]:
        if look is not self.look or not self._key:
            self._moved(look, now)
        stalled = self._stalled(look, now)
        return stalled, self._tell(look, stalled)

    def close(self, patience_s: float = 10.0) -> None:
        """Deliver what is due and let go."""
        if self._dispatcher is not None:
            self._dispatcher.close(patience_s)
        self._let_go()

    def _open(self, now: float) -> None:
        """Open the location, and again when a folder has got files of another kind: the log itself, or a newer checkpoint."""
        if self._follower is not None and now < self._listed_at + LISTING_S:
            return
        layout = _layout(self._location)
        if self._follower is not None and layout != self._layout:
            self._let_go()
        if self._follower is None:
            self._follower = Follower(open_reader(self._location, self._options), self._settings)
        self._layout, self._listed_at = layout, now

    def _let_go(self) -> None:
        """Forget the reader: before there is a step, a file or folder may still become any format."""
        if self._follower is not None:
            self._follower.close()
        self._follower = None

    def _failed(self, error: Exception, now: float) -> Scene:
        self._failures += 1
        kind = "" if isinstance(error, EchotrapError) else f"{type(error).__name__}: "
        self._trouble = f"{kind}{error}"
        if self.look is None:
            self._let_go()
            return self._scene("waiting", now)
        self._again_at = now + min(2.0**self._failures, LONGEST_PAUSE_S)
        return self._scene("away", now)

    def _scene(
        self, status: Literal["waiting", "live", "stalled", "finished", "away"], now: float, news: tuple[Alarm, ...] = ()
    ) -> Scene:
        rate = None
        if len(self._arrivals) > 2:
            (began, first), (_, last) = self._arrivals[0], self._arrivals[-1]
            spent = self._arrivals[-1][0] - began
            rate = 60 * (last - first) / spent if spent > 0 else None
        age = None if self.look is None else max(now - self._progress_at, 0.0)
        return Scene(status, self.look, news, age, rate, self._trouble)

    def _moved(self, look: Look, now: float) -> None:
        """There are new rows: note when, and whose they are."""
        last = int(look.run.steps[-1])
        key = f"{_place(self._location)}|{look.run.name}|{look.key}"
        if key != self._key:
            self._begin(key, look, now)
        elif self._arrivals[-1][1] != last:
            self._arrivals.append((now, last))
            self._progress_at, self._grew = now, True
        self.look = look
        self._store.saw(self._key, last, self._progress_at)

    def _begin(self, key: str, look: Look, now: float) -> None:
        """A run is met: for the first time, again after a restart, or another one that was written to the same place."""
        last = int(look.run.steps[-1])
        before = self._store.last_seen(key)
        self._replaced = bool(self._key)
        self._key = key
        self._arrivals.clear()
        self._arrivals.append((now, last))
        if before is not None and before[0] == last:
            self._progress_at, self._grew = before[1], True
        else:
            self._progress_at, self._grew = min(_written_at(look.run.files), now), before is not None
        if self._channels:
            if self._dispatcher is not None:
                self._dispatcher.close(0.0)
            self._dispatcher = Dispatcher(self._store, key, self._channels, self._say)

    def _stalled(self, look: Look, now: float) -> bool:
        if not self._stall_factor or not self._grew or look.run.finished is True:
            return False
        return now - self._progress_at > self._limit_s(look.run)

    def _limit_s(self, run: Run) -> float:
        """How long without a new step is too long."""
        times = [at for at, _ in self._arrivals]
        gaps = [after - before for before, after in pairwise(times)]
        if len(gaps) < 3:
            logged = run.series("step_time").values[-20:]
            gaps = [float(value) for value in logged] if len(logged) >= 3 else []
        return max(self._stall_factor * statistics.median(gaps), self._stall_least_s) if gaps else STALL_UNKNOWN_S

    def _tell(self, look: Look, stalled: bool) -> tuple[Alarm, ...]:
        last = int(look.run.steps[-1])
        segment = max(len(look.run.segments) - 1, 0)
        found = [alarm for alarm in look.alarms if not accepted(alarm, look.brief, self._settings)]
        writer = self._store.last(self._key, "stalled", "resumed")
        if stalled:
            found.append(Alarm("stalled", "stalled", "warning", last, last, last, segment))
        elif writer is not None and writer.kind == "stalled" and (last != writer.step or segment != writer.segment):
            found.append(replace(writer, kind="resumed", step=last, segment=segment))

        def words(alarm: Alarm) -> Message:
            headline = ""
            if alarm.kind == "stalled":
                headline = f"no new step after {last} for {duration(self._clock() - self._progress_at)}"
            elif alarm.kind == "resumed":
                headline = f"steps again, now {last}"
            return alerts.compose(alarm, look.brief, run=look.run.name, key=self._key, headline=headline)

        lasts = look.seen.incident is not None
        first: Literal["everything", "what lasts", "nothing"] = "what lasts" if lasts else "nothing"
        if self._replaced:  # under our eyes, so all of it is news
            first = "everything"
        news = self._store.take(self._key, found, self._channels, words, first=first)
        if news and self._dispatcher is not None:
            self.told, _ = look, look.report  # written here: stores of rollouts are not for several threads
            self._dispatcher.wake()
        return news


def accepted(alarm: Alarm, report: Report, settings: Settings) -> bool:
    """Whether the user has accepted what the alarm is about."""
    names = (report.run.name, report.run.source)
    if any(fnmatch(alarm.label, item.detector) for item in settings.suppress if item.holds(*names)):
        return True
    grave = [item for item in report.findings if item.severity in ("warning", "critical") and item.suppressed_by is None]
    return bool(grave) and report.verdict.label == alarm.label and all(item.waived for item in grave)


def _layout(location: str) -> frozenset[str]:
    """Kinds of files below a folder; numbered ones are one kind, but each checkpoint has a state of its own."""
    folder = Path(location)
    if "://" in location or not folder.is_dir():
        return frozenset()
    names = (path.relative_to(folder).as_posix() for path in entries(folder))
    return frozenset(
        name if name.endswith("trainer_state.json") else re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", name) for name in names
    )


def _place(location: str) -> str:
    return location if "://" in location else os.path.realpath(location)


def _written_at(files: tuple[str, ...]) -> float:
    """When any of the files was last written; infinity where they are no files."""
    times = [os.stat(file).st_mtime for file in files if Path(file).exists()]
    return max(times, default=float("inf"))
