"""``echotrap watch``."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from echotrap.cli import _console, _options
from echotrap.errors import SourceError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from echotrap.live import Scene

SHARE = 0.2
"""Looking takes at most this share of the time: where a look is dear, the next one comes later."""


def watch(
    run_: _options.RunArgument,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.05, help="Time between looks.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, tell what is new, and leave.")] = False,
    stop_on: Annotated[
        Literal["warning", "critical"] | None, typer.Option(help="Leave when the verdict is this grave.", show_default=False)
    ] = None,
    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec", metavar="COMMAND", help="Run this at each alarm, without a shell; the report is on its standard input."
        ),
    ] = None,
    notify: Annotated[
        list[str] | None, typer.Option("--notify", metavar="NAME", help="Send alarms to [notify.NAME] of the configuration.")
    ] = None,
    stalled_after: Annotated[
        float, typer.Option(metavar="N", min=0, help="No step for N times the usual step time is an alarm; 0: never.")
    ] = 10.0,
    fail_on: Annotated[
        _options.FailOn | None,
        typer.Option(help="Lowest severity that gives exit code 1. [default: critical]", show_default=False),
    ] = None,
    only: _options.OnlyOption = None,
    skip: _options.SkipOption = None,
    param: _options.ParamOption = None,
    key: _options.KeyOption = None,
    config: _options.ConfigOption = None,
    sensitivity: _options.SensitivityOption = None,
    event: _options.EventOption = None,
    run: _options.RunNameOption = None,
    input_format: _options.InputFormatOption = None,
    detectors: _options.DetectorsOption = None,
    max_rollouts_per_step: _options.RolloutsOption = None,
) -> None:
    """Follow a run while it trains, tell what goes wrong, and leave with the exit code of `echotrap check`.

    RUN need not exist yet. Alarms are remembered: a watcher that is started again repeats none.
    """
    settings = _options.settings(
        config,
        only=only,
        skip=skip,
        param=param,
        key=key,
        event=event,
        detectors=detectors,
        fail_on=fail_on,
        sensitivity=sensitivity,
        max_rollouts_per_step=max_rollouts_per_step,
    )
    from echotrap import policy
    from echotrap.alerts import Store
    from echotrap.live import Watcher
    from echotrap.notify import Channel, open_channels
    from echotrap.notify.command import Command
    from echotrap.sources.base import Options

    screen = _Screen(live=sys.stdout.isatty() and not once)
    last: Scene | None = None

    def watcher_report() -> str:
        look = watcher.told or watcher.look
        return look.report.model_dump_json() if look else "{}"

    channels: dict[str, Channel] = open_channels(tuple(notify or ()), settings.notify)
    if exec_ is not None:
        channels["--exec"] = Command(exec_, watcher_report)
    store, reason = Store.open()
    for text in (*settings.notices, reason):
        if text:
            _console.talk(f"note: {text}")
    watcher = Watcher(
        run_,
        settings,
        options=Options(format=input_format, run=run, framework=settings.run.framework),
        store=store,
        channels=channels,
        say=screen.say,
        stall_factor=stalled_after,
    )
    try:
        with screen.shown(), _ended_by_signal():
            while True:
                began = time.monotonic()
                last = watcher.tick()
                screen.draw(last)
                if once or last.status == "finished" or _grave(last, stop_on):
                    break
                pause = max(interval, (time.monotonic() - began) * (1 - SHARE) / SHARE)
                time.sleep(pause)
    except KeyboardInterrupt:
        pass
    finally:
        watcher.close()
        store.close()
    if last is None or last.look is None:
        if once:
            raise SourceError(last.trouble if last else "there is nothing to read")
        raise typer.Exit(policy.Exit.INSUFFICIENT)
    ruling = policy.rule(last.look.brief, settings)
    for text in ruling.reasons:
        _console.talk(f"exit {ruling.code:d}: {last.look.run.name}: {text}")
    raise typer.Exit(ruling.code)


def _grave(scene: Scene, stop_on: str | None) -> bool:
    """Whether the verdict is as grave as what the user wants to stop at."""
    from echotrap.report import RANK

    return stop_on is not None and scene.look is not None and RANK[scene.look.brief.verdict.severity] >= RANK[stop_on]


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM ends the watch as Ctrl-C does: what is due is still delivered."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Screen:
    """What the person sees: a view that is redrawn on a terminal, a line per change anywhere else."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._scene: Scene | None = None
        self._drawn_at, self._line = 0.0, ""
        self._said: deque[str] = deque(maxlen=4)

    def say(self, text: str) -> None:
        """Something that is no result."""
        if self._live:
            self._said.append(text)
        else:
            _console.talk(text)

    def draw(self, scene: Scene) -> None:
        """Show what was seen."""
        self._scene, self._drawn_at = scene, time.monotonic()
        if self._live:
            return
        from echotrap.render.live import alarm_line, line

        at = time.strftime("%H:%M:%S")
        step = f"step {scene.look.brief.run.last_step}  " if scene.look else ""
        for alarm in scene.news:
            _console.write(f"{at}  alarm  {alarm_line(alarm)}\n")
        if (text := line(scene)) != self._line:
            self._line = text
            _console.write(f"{at}  {step}{text}\n")

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the view on the terminal."""
        if not self._live:
            yield
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(no_color=not _console.color(), highlight=False, markup=False, emoji=False)
        with Live(get_renderable=self._view, console=console, refresh_per_second=1, vertical_overflow="crop"):
            yield

    def _view(self) -> RenderableType:
        from rich.text import Text

        from echotrap.render.live import scene

        if self._scene is None:
            return Text("reading")
        return scene(self._scene, _console.view(), self._said, older_s=time.monotonic() - self._drawn_at)
