"""A run that is being watched: a view that is drawn again and again, or one line per change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from echotrap.alerts import Alarm
from echotrap.live import Scene
from echotrap.render import View, words
from echotrap.render.text import STYLE, head, signals

__all__ = ["alarm_line", "line", "scene"]

SHOWN_ALARMS = 5
STATUS_STYLE = {"live": "green", "finished": "cyan", "stalled": "bold yellow", "away": "bold yellow", "waiting": "dim"}


def scene(now: Scene, view: View, said: Sequence[str] = (), *, older_s: float = 0.0) -> Group:
    """Everything on one screen.

    Parameters
    ----------
    now : Scene
        What was seen.
    view : View
        Facts about the terminal.
    said : sequence of str
        The last lines that something had to say.
    older_s : float
        Seconds since the scene was seen.
    """
    parts: list[RenderableType] = [Text(status(now, older_s), style=STATUS_STYLE[now.status])]
    if now.look is not None:
        parts += [head(now.look.brief), Text(""), *signals(now.look.brief, view), Text("")]
        parts += [Text(alarm_line(alarm), style=_style(alarm)) for alarm in now.look.alarms[-SHOWN_ALARMS:]]
        parts += [Text(f"do      {words.plain(lever.action)}") for lever in words.remedies(now.look.brief, 1)]
    parts += [Text(words.plain(text), style="dim") for text in said]
    return Group(*parts)


def status(now: Scene, older_s: float = 0.0) -> str:
    """Whether the run moves, how fast, and how old the newest step is."""
    parts: list[str] = [now.status]
    if now.age_s is not None:
        parts.append(f"last step {words.duration(now.age_s + older_s)} ago")
    if now.steps_per_minute:
        parts.append(f"{now.steps_per_minute:.3g} steps/min")
    if now.trouble:
        parts.append(words.plain(now.trouble))
    return " · ".join(parts)


def line(now: Scene) -> str:
    """What a scene says, without anything that changes from second to second: two equal lines mean that nothing happened."""
    if now.look is None:
        return f"{now.status}  {words.plain(now.trouble)}".rstrip()
    verdict = now.look.brief.verdict
    parts = [words.title(verdict), verdict.severity, words.when(verdict), "" if now.status == "live" else now.status]
    if now.status == "away":
        parts.append(words.plain(now.trouble))
    return " · ".join(filter(None, parts))


def alarm_line(alarm: Alarm) -> str:
    """An alarm in one line.

    >>> alarm_line(Alarm("escalated", "echo-trap", "critical", 180, 214, 195))
    'step 214  escalated  echo-trap (stage 3) · critical · began step 180'
    """
    stage = f" (stage {alarm.stage})" if alarm.stage else ""
    return f"step {alarm.step}  {alarm.kind}  {alarm.label}{stage} · {alarm.severity} · began step {alarm.onset_step}"


def _style(alarm: Alarm) -> str:
    return STYLE["ok"] if alarm.kind in ("recovered", "resumed") else STYLE[alarm.severity]
