"""Diagnostics inside the training process: log, be told, stop.

Importing this module and logging are cheap; the libraries that judge are loaded at the first evaluation. Whatever goes wrong in
here stays in here: a monitor that fails says so once and is silent from then on.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from echotrap.rollouts import MemoryStore, Message, Rollout
from echotrap.sources.base import Reader, Row

if TYPE_CHECKING:
    from echotrap.alerts import Alarm, Store
    from echotrap.config import Settings
    from echotrap.live import Follower, Look
    from echotrap.notify import Dispatcher
    from echotrap.report import Report

__all__ = ["Monitor"]

T = TypeVar("T")

logger = logging.getLogger("echotrap")

GRAVITY = {"warning": 2, "critical": 3}
KEPT_CHARACTERS = 64_000_000
"""Rollout texts that are kept for the report; what they say is measured before the oldest are let go."""

TEXT_KEYS = ("text", "completion", "output", "response")
PROMPT_KEYS = ("prompt", "input", "question")
REWARD_KEYS = ("reward", "score")


class Monitor:
    """Watches one run from inside its training loop.

    Parameters
    ----------
    name : str
        What the run is called.
    every : int
        Steps between evaluations.
    stop_on : str, optional
        ``"warning"`` or ``"critical"``: :attr:`should_stop` turns true at such an alarm.
    on_alarm : callable, optional
        Called with each :class:`~echotrap.alerts.Alarm` and the :class:`~echotrap.Report`.
    budget_share : float
        Evaluations take at most this share of the time; where one is dear, the next comes later.
    jsonl : path, optional
        Also write what is logged: metrics there, rollouts as ``rollouts/STEP.jsonl`` beside it. ``echotrap watch`` and the
        dashboard read both.
    notify : sequence of str
        Channels, ``[notify.NAME]`` of the configuration.
    settings : Settings, optional
        Those of the nearest echotrap.toml by default.
    framework, framework_version : str, optional
        Decide between the readings of a key.
    config : Mapping
        Facts that metrics cannot tell (``group_size``, ``max_steps``, ...), as in ``[run]`` of echotrap.toml.

    Attributes
    ----------
    spent_s : float
        Time taken from the training loop so far, loading included.

    Examples
    --------
    >>> monitor = Monitor(every=10, stop_on="critical")
    >>> for step in range(30):
    ...     monitor.log({"reward": 0.5, "grad_norm": float("nan") if step > 15 else 1.0}, step)
    ...     if monitor.should_stop:
    ...         break
    >>> [(alarm.label, alarm.severity) for alarm in monitor.alarms]  # doctest: +SKIP
    [('numerical-failure', 'critical')]
    """

    def __init__(
        self,
        *,
        name: str = "run",
        every: int = 10,
        stop_on: Literal["warning", "critical"] | None = None,
        on_alarm: Callable[[Alarm, Report], None] | None = None,
        budget_share: float = 0.02,
        jsonl: str | Path | None = None,
        notify: Sequence[str] = (),
        settings: Settings | None = None,
        framework: str | None = None,
        framework_version: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.spent_s = 0.0
        self._every, self._stop_on, self._on_alarm, self._budget_share = every, stop_on, on_alarm, budget_share
        self._notify, self._settings = tuple(notify), settings
        self._reader = _Memory(name, framework, config or {})
        self._reader.framework_version = framework_version
        self._sink = None if jsonl is None else _Sink(Path(jsonl))
        self._judge: _Judge | None = None
        self._step, self._evaluated_at, self._rest_until = -1, 0, 0.0
        self._should_stop = self._broken = False

    @property
    def should_stop(self) -> bool:
        """Whether an alarm asked to stop; stays true."""
        return self._should_stop

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Everything that was worth telling up to the last evaluation, in order."""
        return self._judge.look.alarms if self._judge and self._judge.look else ()

    @property
    def report(self) -> Report | None:
        """The newest report; ``None`` before the first evaluation."""
        return self._guarded(self._written)

    def log(self, metrics: Mapping[str, Any], step: int | None = None, rollouts: Iterable[Any] | None = None) -> None:
        """Take one step's metrics, and judge the run when it is time. Never raises.

        Parameters
        ----------
        metrics : Mapping
            Whatever the loop logs, under its own keys; scalars of any library.
        step : int, optional
            Optimiser step; counted where it is not given.
        rollouts : iterable, optional
            :class:`~echotrap.rollouts.Rollout` objects, mappings with at least ``text`` (``prompt``, ``reward``, ``group``
            where known), or plain texts.
        """
        self._guarded(self._log, metrics, step, rollouts)

    def evaluate(self) -> Report | None:
        """Judge the run now. Never raises; ``None`` where nothing can be judged."""
        self._guarded(self._evaluate)
        return self.report

    def close(self) -> None:
        """Judge the run a last time, deliver what is due, and let go."""
        self._guarded(self._evaluate)
        if self._judge is not None:
            self._guarded(self._judge.close)

    def _guarded(self, work: Callable[..., T], *arguments: Any) -> T | None:
        """Do it, take the time, and let no fault out."""
        if self._broken:
            return None
        began = time.perf_counter()
        try:
            return work(*arguments)
        except Exception as error:
            self._broken = True
            logger.warning("echotrap.Monitor is off, training goes on: %s: %s", type(error).__name__, error)
            logger.debug("what went wrong", exc_info=error)
            return None
        finally:
            self.spent_s += time.perf_counter() - began

    def _log(self, metrics: Mapping[str, Any], step: int | None, rollouts: Iterable[Any] | None) -> None:
        self._step = self._step + 1 if step is None else int(step)
        values = {str(key): number for key, value in metrics.items() if (number := _scalar(value)) is not ...}
        texts = [_rollout(item, self._step) for item in rollouts or ()]
        self._reader.add(values, self._step, texts)
        if self._sink is not None:
            self._sink.write(values, self._step, texts)
        if self._step - self._evaluated_at >= self._every and time.perf_counter() >= self._rest_until:
            self._evaluate()

    def _evaluate(self) -> None:
        self._evaluated_at = self._step
        began, first = time.perf_counter(), self._judge is None
        if self._judge is None:
            self._judge = _Judge(self._reader, self._settings, self._notify)
        news = self._judge.news()
        if not first:  # which loads the libraries, and says nothing about the next
            now = time.perf_counter()
            self._rest_until = now + (now - began) * (1 / self._budget_share - 1)
        self._reader.forget()
        for alarm in news:
            if self._stop_on and alarm.kind != "recovered" and GRAVITY[alarm.severity] >= GRAVITY[self._stop_on]:
                self._should_stop = True
            report = self._written() if self._on_alarm is not None else None
            if self._on_alarm is not None and report is not None:
                self._on_alarm(alarm, report)

    def _written(self) -> Report | None:
        return self._judge.look.report if self._judge and self._judge.look else None


class _Judge:
    """The heavy half: everything that is loaded at the first evaluation."""

    def __init__(self, reader: Reader, settings: Settings | None, notify: tuple[str, ...]) -> None:
        from echotrap.alerts import Store
        from echotrap.config import load
        from echotrap.live import Follower
        from echotrap.notify import open_channels

        self._settings = settings or load()
        self._follower: Follower = Follower(reader, self._settings)
        self._store: Store = Store()
        self._channels = open_channels(notify, self._settings.notify)
        self._dispatcher: Dispatcher | None = None
        self._name = reader.name
        self.look: Look | None = None

    def news(self) -> tuple[Alarm, ...]:
        """Alarms that were not told yet."""
        from echotrap import alerts
        from echotrap.live import accepted
        from echotrap.notify import Dispatcher

        look = self._follower.look()
        if look is None or look is self.look:
            return ()
        self.look = look
        if self._dispatcher is None and self._channels:
            self._dispatcher = Dispatcher(self._store, self._name, self._channels, logger.warning)
        found = [alarm for alarm in look.alarms if not accepted(alarm, look.brief, self._settings)]
        news = self._store.take(
            self._name,
            found,
            self._channels,
            lambda alarm: alerts.compose(alarm, look.brief, run=self._name, key=look.key),
        )
        if news and self._dispatcher is not None:
            self._dispatcher.wake()
        return news

    def close(self) -> None:
        """Deliver what is due."""
        if self._dispatcher is not None:
            self._dispatcher.close()
        self._store.close()


class _Memory(Reader):
    """What was logged, as a source."""

    def __init__(self, name: str, framework: str | None, config: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.format = self.source = "monitor"
        self.files = [f"<{name}>"]
        self.framework, self.config = framework, dict(config)
        self._rows: list[Row] = []
        self._count = 0

    def add(self, values: dict[str, Any], step: int, rollouts: list[Rollout]) -> None:
        """Take one log call."""
        self._count += 1
        self._rows.append(Row(values, step, self._count))
        if rollouts:
            if self.rollouts is None:
                self.rollouts = _Texts(())
            assert isinstance(self.rollouts, _Texts)
            self.rollouts.add(rollouts)

    def poll(self) -> Iterator[Row]:
        """Rows that were logged since."""
        rows, self._rows = self._rows, []
        yield from rows

    def forget(self) -> None:
        """Let the oldest texts go."""
        if isinstance(self.rollouts, _Texts):
            self.rollouts.forget()


class _Texts(MemoryStore):
    """Rollouts whose oldest texts are let go: their steps stay, and so does what was measured."""

    _characters = 0

    def add(self, rollouts: list[Rollout]) -> None:
        """Take some rollouts."""
        for rollout in rollouts:
            step = self._train.setdefault(rollout.step, [])
            object.__setattr__(rollout, "index", len(step))
            step.append(rollout)
            self._characters += len(rollout.text)

    def forget(self) -> None:
        """Drop texts from the second step on; the first shows the format, the newest two are still measured."""
        for step in self.steps()[1:-2]:
            if self._characters <= KEPT_CHARACTERS:
                return
            self._characters -= sum(len(rollout.text) for rollout in self._train[step])
            self._train[step] = []


class _Sink:
    """Writes what is logged where other programs can read it."""

    def __init__(self, file: Path) -> None:
        self._file, self._folder = file, file.parent / "rollouts"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()  # what cannot be written is told at once, not in the middle of training

    def write(self, values: Mapping[str, Any], step: int, rollouts: list[Rollout]) -> None:
        """One line; rollouts as verl dumps them."""
        _append(self._file, [{"step": step, **values}])
        if rollouts:
            self._folder.mkdir(exist_ok=True)
            records = (
                {"input": item.prompt, "output": item.text, "score": item.reward, "step": step, "uid": item.group}
                for item in rollouts
            )
            known = ({key: value for key, value in record.items() if value is not None} for record in records)
            _append(self._folder / f"{step}.jsonl", known)


def _append(file: Path, records: Iterable[Mapping[str, Any]]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def _scalar(value: Any) -> Any:
    """A number of any library as Python's; ``...`` for what is none. ``None`` is a value: frameworks log it for NaN."""
    if isinstance(value, int | float | str | None):
        return value
    item = getattr(value, "item", None)
    try:
        return item() if callable(item) else ...
    except (TypeError, ValueError, RuntimeError):  # an array of more than one
        return ...


def _rollout(item: Any, step: int) -> Rollout:
    """Whatever the loop holds as a rollout."""
    if isinstance(item, Rollout):
        return item
    if isinstance(item, str):
        return Rollout(step, item)
    text = next((item[key] for key in TEXT_KEYS if key in item), "")
    prompt = next((item[key] for key in PROMPT_KEYS if key in item), None)
    reward = next((_scalar(item[key]) for key in REWARD_KEYS if key in item), None)
    messages = () if isinstance(text, str) else tuple(Message(str(m.get("role", "")), str(m.get("content", ""))) for m in text)
    prompt = prompt if prompt is None or isinstance(prompt, str) else json.dumps(prompt, default=str)
    group = item.get("group", prompt)
    return Rollout(
        step,
        text if isinstance(text, str) else "\n".join(message.content for message in messages),
        prompt=prompt,
        group=None if group is None else str(group),
        reward=float(reward) if isinstance(reward, int | float) else math.nan,
        messages=messages,
        truncated=item.get("truncated"),
        tokens=item.get("tokens"),
    )
