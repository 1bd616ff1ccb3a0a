"""What to tell, and the memory of what was told.

:func:`alarms` turns an examination into the few things worth telling somebody. It is causal: the alarms of the first n steps
are the first alarms of the run, so it does not matter how often, or in which chunks, a growing run is looked at.
:class:`Store` remembers in a small SQLite file what was told and what still has to be delivered, so that a restart neither
repeats nor loses anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from echotrap.errors import EchotrapError

if TYPE_CHECKING:
    from echotrap.diagnosis import Examination
    from echotrap.report import Report

__all__ = ["COOL_DOWN_STEPS", "Alarm", "Delivery", "Message", "Store", "alarms", "compose", "state_file"]

Kind = Literal["opened", "escalated", "changed", "recovered", "stalled", "resumed"]

RISES: tuple[Kind, ...] = ("opened", "escalated", "changed")
"""From what matters most."""

WRITER: tuple[Kind, ...] = ("stalled", "resumed")
"""About the program that writes the log."""

COOL_DOWN_STEPS = 20
"""Steps for which a run must stay clear before its recovery is told; a relapse before that is the same incident."""


@dataclass(frozen=True)
class Alarm:
    """Something worth telling.

    Attributes
    ----------
    kind : str
        ``opened``, ``escalated`` (graver than told before), ``changed`` (as grave, another cause), ``recovered``; ``stalled`` and
        ``resumed`` speak of the writer rather than of the policy.
    label : str
        Verdict that it is about.
    severity : str
        ``warning`` or ``critical``; of a recovery, the gravest of the incident.
    onset_step, step : int
        When it began, and when it could first be told.
    incident : int
        Step at which the incident was opened.
    segment : int
        Number of resumes before it: the same step trained again is another step.
    """

    kind: Kind
    label: str
    severity: str
    onset_step: int
    step: int
    incident: int
    segment: int = 0

    @property
    def stage(self) -> int | None:
        """Echo Trap stage, where there is one."""
        return {"warning": 2, "critical": 3}.get(self.severity) if self.label == "echo-trap" else None


def alarms(seen: Examination, *, cool_down_steps: int = COOL_DOWN_STEPS) -> tuple[Alarm, ...]:
    """Everything that was worth telling during a run, in the order in which it could be told.

    One incident per cause: it is opened once, told again only when it gets graver or its cause turns out to be another one, and
    closed by a recovery after a cool-down.

    Parameters
    ----------
    seen : Examination
        Of the run so far.
    cool_down_steps : int
        See :data:`COOL_DOWN_STEPS`.
    """
    told: list[Alarm] = []
    firsts = [segment.first_step for segment in seen.run.segments[1:]]
    steps = seen.run.steps
    incidents = seen.incidents
    opened: int | None = None
    gravest, labels = 0, set[str]()
    for position, incident in enumerate(incidents):
        if opened is None:
            opened, gravest, labels = incident.alarm_step, 0, set()
        for stood in seen.history(incident):
            if stood.level < gravest or (stood.level == gravest and stood.label in labels):
                continue
            kind: Kind = "opened" if not gravest else "escalated" if stood.level > gravest else "changed"
            if stood.level > gravest:
                gravest, labels = int(stood.level), set()
            labels.add(stood.label)
            told.append(Alarm(kind, stood.label, stood.level.severity, stood.onset_step, stood.alarm_step, opened))
        if incident.cleared_step is None:
            continue
        calm = steps[steps >= incident.cleared_step + cool_down_steps]
        relapse = incidents[position + 1].alarm_step if position + 1 < len(incidents) else None
        if len(calm) and (relapse is None or calm[0] < relapse):
            told.append(replace(told[-1], kind="recovered", step=int(calm[0])))
            opened = None
    return tuple(replace(alarm, segment=sum(first <= alarm.step for first in firsts)) for alarm in told)


class Message(NamedTuple):
    """An alarm in words: what every channel sends, each in its own form."""

    id: str
    kind: Kind
    run: str
    label: str
    severity: str
    stage: int | None
    onset_step: int
    alarm_step: int
    last_step: int | None
    headline: str
    why: tuple[str, ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    remedy: str = ""
    link: str = ""

    @property
    def title(self) -> str:
        """One line for a subject or a notification."""
        stage = f" (stage {self.stage})" if self.stage else ""
        word = {
            "opened": self.severity,
            "escalated": f"now {self.severity}",
            "changed": self.severity,
            "recovered": "recovered",
            "stalled": "stalled",
            "resumed": "running again",
        }[self.kind]
        what = self.run if self.kind in WRITER else f"{self.label}{stage} in {self.run}"
        return f"[{word}] {what}"

    @property
    def body(self) -> str:
        """A few lines: what, since when, two reasons with their numbers, one remedy, a link."""
        lines = [self.headline]
        if self.kind in ("opened", "escalated", "changed", "recovered"):
            now = f", now {self.last_step}" if self.last_step is not None and self.kind != "recovered" else ""
            end = f", clear again, told at {self.alarm_step}" if self.kind == "recovered" else f", alarm at {self.alarm_step}"
            lines.append(f"began at step {self.onset_step}{end}{now}")
        lines += self.why
        lines += [f"do: {self.remedy}"] if self.remedy and self.kind != "recovered" else []
        lines += [self.link] if self.link else []
        return "\n".join(lines)


def compose(alarm: Alarm, report: Report | None, *, run: str, key: str, headline: str = "") -> Message:
    """Put an alarm into words.

    Parameters
    ----------
    alarm : Alarm
        What to tell.
    report : Report or None
        The run as it stands: source of the numbers and of the remedy.
    run, key : str
        Name of the run, and the key of its memory: together with the alarm it makes the message's id.
    headline : str
        Instead of the report's, for an alarm that the report does not know.
    """
    policy = alarm.kind not in WRITER
    findings = [item for item in report.findings if item.severity != "info"] if report and policy else []
    current = report is not None and report.verdict.label == alarm.label
    leading = next((item for item in findings if not item.suppressed_by and item.family != "composite"), None)
    lever = next((item.remedy[0] for item in findings if item.remedy and not item.suppressed_by), None)
    numbers = [(item.name, item.value) for item in leading.evidence if item.value is not None] if leading else []
    if not headline:
        headline = report.verdict.headline if report and current else f"{alarm.label}, {alarm.severity}"
    named = json.dumps([key, *asdict(alarm).values()])
    return Message(
        id=hashlib.sha256(named.encode()).hexdigest()[:16],
        kind=alarm.kind,
        run=run,
        label=alarm.label,
        severity=alarm.severity,
        stage=alarm.stage,
        onset_step=alarm.onset_step,
        alarm_step=alarm.step,
        last_step=report.run.last_step if report else None,
        headline=headline,
        why=(report.verdict.why if report and current else (leading.message,) if leading else ())[:2],
        numbers=tuple(numbers[:2]),
        remedy="" if lever is None else f"{lever.action} ({lever.key})" if lever.key else lever.action,
    )


def state_file() -> Path:
    """Where the memory of alarms lies: ``ECHOTRAP_STATE_DIR``, else the user's state folder. Never beside a log."""
    from platformdirs import user_state_path

    return Path(os.environ.get("ECHOTRAP_STATE_DIR") or user_state_path("echotrap", appauthor=False)) / "alarms.sqlite3"


class Delivery(NamedTuple):
    """A message that a channel still has to deliver."""

    number: int
    message: Message
    attempts: int


SCREEN = ""
"""The audience of whoever starts a watcher; every channel is another one."""

KEPT_S = 180 * 86400.0
"""A run that nobody has watched for so long is forgotten."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, last_step INTEGER NOT NULL, seen_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS met (run TEXT NOT NULL, audience TEXT NOT NULL, PRIMARY KEY (run, audience));
CREATE TABLE IF NOT EXISTS told (
  run TEXT NOT NULL, audience TEXT NOT NULL,
  kind TEXT NOT NULL, label TEXT NOT NULL, severity TEXT NOT NULL,
  onset_step INTEGER NOT NULL, step INTEGER NOT NULL, incident INTEGER NOT NULL, segment INTEGER NOT NULL, told_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS told_run ON told (run);
CREATE TABLE IF NOT EXISTS outbox (
  number INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, channel TEXT NOT NULL, message TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL DEFAULT 0,
  held_by TEXT, held_until REAL NOT NULL DEFAULT 0
);
"""


class Store:
    """What was told and what is still to be delivered, shared by all processes of one user.

    A message is written to the outbox in the same transaction that marks its alarm as told, and leaves it when a channel has
    delivered it: a crash repeats at most the one delivery that was under way, under the same message id.

    Parameters
    ----------
    file : Path, optional
        ``None`` keeps everything in memory: for a process that has nowhere to write.
    """

    HOLD_S = 120.0  # longer than any delivery takes

    def __init__(self, file: Path | None = None) -> None:
        self._lock = threading.RLock()
        self._holder = os.urandom(8).hex()
        try:
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(file or ":memory:", timeout=10, isolation_level=None, check_same_thread=False)
            self._db.executescript(_SCHEMA)
            old = (time.time() - KEPT_S,)
            for table in ("told", "met"):
                self._db.execute(f"DELETE FROM {table} WHERE run IN (SELECT key FROM runs WHERE seen_at < ?)", old)
            self._db.execute("DELETE FROM runs WHERE seen_at < ?", old)
        except (OSError, sqlite3.Error) as error:
            raise EchotrapError(
                f"the memory of alarms cannot be used: {error}", where=str(file), cure="set ECHOTRAP_STATE_DIR"
            ) from None

    @classmethod
    def open(cls, file: Path | None = None) -> tuple[Store, str]:
        """The user's store, or one in memory and the reason why."""
        try:
            return cls(file or state_file()), ""
        except EchotrapError as error:
            return cls(), f"{error}: alarms are remembered until the end of this process only"

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def last_seen(self, run: str) -> tuple[int, float] | None:
        """Last step that was seen of a run and when it was new, by this or an earlier process."""
        with self._lock:
            row = self._db.execute("SELECT last_step, seen_at FROM runs WHERE key = ?", (run,)).fetchone()
        return (int(row[0]), float(row[1])) if row else None

    def saw(self, run: str, last_step: int, at: float) -> None:
        """Remember the newest step of a run."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", (run, last_step, at))

    def take(
        self,
        run: str,
        found: Sequence[Alarm],
        channels: Iterable[str] = (),
        words: Callable[[Alarm], Message] | None = None,
        *,
        first: Literal["everything", "what lasts", "nothing"] = "everything",
    ) -> tuple[Alarm, ...]:
        """Mark alarms as told and return those that are news, one an incident.

        The screen and every channel are audiences of their own: a channel that is added later is told what still lasts.

        Parameters
        ----------
        run : str
            Key of the run's memory.
        found : sequence of Alarm
            Everything that :func:`alarms` says.
        channels : iterable of str
            Names of the channels that have to deliver the news.
        words : callable, optional
            Makes a message of an alarm; needed with channels.
        first : str
            What is news for an audience that meets the run for the first time.
        """
        shown: dict[Alarm, None] = {}
        with self._transaction() as db:
            for audience in (SCREEN, *channels):
                met = db.execute("INSERT OR IGNORE INTO met VALUES (?, ?)", (run, audience)).rowcount == 0
                told = [
                    Alarm(*row)
                    for row in db.execute(
                        "SELECT kind, label, severity, onset_step, step, incident, segment FROM told "
                        "WHERE run = ? AND audience = ?",
                        (run, audience),
                    )
                ]
                fresh = [alarm for alarm in found if not any(_same(alarm, other) for other in told)]
                db.executemany(
                    "INSERT INTO told VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [(run, audience, *asdict(alarm).values(), time.time()) for alarm in fresh],
                )
                news = _latest(fresh)
                if not met and first != "everything":
                    news = tuple(alarm for alarm in news[-1:] if first == "what lasts" and alarm.kind in RISES)
                shown.update(dict.fromkeys(news))
                if words is not None and audience != SCREEN:
                    messages = [json.dumps(words(alarm)._asdict(), ensure_ascii=False) for alarm in news]
                    db.executemany(
                        "INSERT INTO outbox (run, channel, message) VALUES (?, ?, ?)",
                        [(run, audience, message) for message in messages],
                    )
        return tuple(shown)

    def claim(self, run: str, channel: str, now: float) -> Delivery | None:
        """The oldest message that a channel has to deliver, held for this process; ``None`` if there is none or it is not due."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT number, message, attempts, due_at, held_by, held_until FROM outbox "
                "WHERE run = ? AND channel = ? ORDER BY number LIMIT 1",
                (run, channel),
            ).fetchone()
            if row is None or row[3] > now or (row[4] != self._holder and row[5] > now):
                return None
            db.execute(
                "UPDATE outbox SET held_by = ?, held_until = ? WHERE number = ?", (self._holder, now + self.HOLD_S, row[0])
            )
        facts: dict[str, Any] = json.loads(row[1])
        facts |= {"why": tuple(facts["why"]), "numbers": tuple(map(tuple, facts["numbers"]))}
        return Delivery(row[0], Message(**facts), row[2])

    def settle(self, delivery: Delivery) -> None:
        """A message was delivered, or is given up."""
        with self._transaction() as db:
            db.execute("DELETE FROM outbox WHERE number = ?", (delivery.number,))

    def postpone(self, delivery: Delivery, until: float) -> None:
        """A delivery failed and is tried again later, by whoever comes first."""
        with self._transaction() as db:
            db.execute(
                "UPDATE outbox SET attempts = attempts + 1, due_at = ?, held_until = 0 WHERE number = ?",
                (until, delivery.number),
            )

    def waiting(self, run: str, channel: str) -> int:
        """How many messages of a run a channel still has to deliver."""
        with self._lock:
            row = self._db.execute("SELECT count(*) FROM outbox WHERE run = ? AND channel = ?", (run, channel)).fetchone()
        return int(row[0])

    def last(self, run: str, *kinds: Kind) -> Alarm | None:
        """The newest alarm of some kinds that was told of a run."""
        marks = ", ".join("?" * len(kinds))
        with self._lock:
            row = self._db.execute(
                "SELECT kind, label, severity, onset_step, step, incident, segment FROM told "
                f"WHERE run = ? AND audience = ? AND kind IN ({marks}) ORDER BY rowid DESC LIMIT 1",
                (run, SCREEN, *kinds),
            ).fetchone()
        return Alarm(*row) if row else None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def _same(alarm: Alarm, other: Alarm) -> bool:
    """Whether two alarms are one: late rows of a step may move a verdict a little, but not the end of the log."""
    slack = 0 if alarm.kind in WRITER else COOL_DOWN_STEPS - 1
    return (
        (alarm.kind, alarm.label, alarm.severity, alarm.segment) == (other.kind, other.label, other.severity, other.segment)
        and abs(alarm.step - other.step) <= slack
        and abs(alarm.incident - other.incident) <= slack
    )


def _latest(fresh: Sequence[Alarm]) -> tuple[Alarm, ...]:
    """The last alarm of each incident; one that was opened in between is news as a whole."""
    last: dict[tuple[bool, int], Alarm] = {}
    for alarm in fresh:
        about = alarm.kind in WRITER, alarm.incident
        before = last.get(about)
        if before is not None and alarm.kind in RISES:
            alarm = replace(alarm, kind=min(before.kind, alarm.kind, key=RISES.index))
        last[about] = alarm
    return tuple(last.values())
