"""Phrases that several formats share, so that a run is described in the same words everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from echotrap.render import Result
from echotrap.report import (
    RANK,
    STAGES,
    Coverage,
    Evidence,
    Finding,
    Label,
    Lever,
    Report,
    RunError,
    RunFacts,
    Signal,
    Skipped,
    Verdict,
)

__all__ = [
    "VERDICTS",
    "by_severity",
    "column",
    "coverage",
    "duration",
    "error_line",
    "evidence",
    "facts",
    "go_back",
    "key_lines",
    "leading",
    "number",
    "place",
    "plain",
    "reasons",
    "remedies",
    "settings",
    "short",
    "sparkline",
    "title",
    "unseen",
    "when",
    "worst_first",
]

VERDICTS: dict[Label, str] = {
    "healthy": "Nothing known is wrong, and enough was logged to say so.",
    "converged": "The task is solved: spread, entropy and gradient are gone for that reason.",
    "echo-trap": "The policy echoes itself: the spread of rewards, entropy, gradient and text go together. Stage 1 forms and"
    " leaves the verdict healthy, stage 2 is suspected, stage 3 confirmed.",
    "entropy-eruption": "The policy drifts into garble: its entropy rises and does not come back.",
    "numerical-failure": "The numbers broke: values are not finite, or the output is one repeated symbol.",
    "no-learning-signal": "The optimiser learns nothing: gradients are dead, or every prompt group gets one reward.",
    "policy-collapse": "Entropy, length or performance is gone, without the signature of the Echo Trap.",
    "template-collapse": "One template answers every prompt.",
    "truncation-starvation": "Responses are cut at the length limit, so that the reward cannot reach them.",
    "environment-failure": "Tools or environment failed; the policy is not to blame for what followed.",
    "reward-hacking-suspected": "The training reward rises while the held-out score does not.",
    "unstable": "There is a symptom that no diagnosis explains.",
    "insufficient-data": "Too few steps, or no signal that is known.",
}
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-~=+*#"


def plain(text: str) -> str:
    """Text of others without control characters: a log must not be able to steer a terminal or break a line.

    >>> plain("two" + chr(10) + "lines"), plain(chr(27) + "[31m").isprintable()
    ('two lines', True)
    """
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else c.encode("unicode_escape").decode() for c in text)


def title(verdict: Verdict) -> str:
    """The verdict as a headline.

    >>> title(Verdict(label="echo-trap", severity="critical", stage=3, headline=""))
    'ECHO TRAP, confirmed (stage 3)'
    """
    name = verdict.label.replace("-", " ").upper()
    if verdict.stage is None:
        return name
    stage = f"{STAGES.get(verdict.stage, 'stage')} (stage {verdict.stage})"
    return f"{name}, {stage}" if verdict.label == "echo-trap" else f"{name}, Echo Trap {stage}"


def when(item: Verdict | Finding) -> str:
    """Onset, first alarm and recovery.

    >>> when(Verdict(label="unstable", severity="warning", onset_step=180, alarm_step=195, headline=""))
    'began step 180 · first alarm 195'
    """
    parts = []
    if item.onset_step is not None:
        parts.append(f"began step {item.onset_step}")
    if item.alarm_step is not None:
        parts.append(f"first alarm {item.alarm_step}")
    over = item.recovered_step if isinstance(item, Verdict) else item.cleared_step
    if over is not None:
        parts.append(f"over at step {over}")
    return " · ".join(parts)


def facts(run: RunFacts) -> str:
    """Name, framework and extent of a run."""
    framework = " ".join(filter(None, (run.framework, run.framework_version)))
    extent = f"{run.steps} step" + ("s" if run.steps != 1 else "")
    if run.first_step is not None and run.last_step is not None:
        extent += f" ({run.first_step} to {run.last_step})"
    state = {True: "finished", False: "running", None: ""}[run.finished]
    return " · ".join(filter(None, (plain(run.name), plain(framework), extent, state)))


def coverage(found: Coverage) -> str:
    """How many parts of the signature were there, and which were not."""
    absent = [item.part for item in found.signature if item.provenance == "absent"]
    without = f" (no {', '.join(absent)})" if absent else ""
    return f"{found.present} of {found.of} signature signals{without}"


def number(value: float | None, unit: str = "") -> str:
    """A number for a person.

    >>> number(0.8, "0..1"), number(1234.5), number(0.03125, "nats/token"), number(None)
    ('80 %', '1234', '0.0312 nats/token', 'unknown')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit == "0..1":
        return f"{100 * value:.3g} %"
    text = f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
    return f"{text} {unit}" if unit and unit not in ("count", "-", "L2", "ratio", "score") else text


def short(value: float | None, unit: str) -> str:
    """A number without its unit, but for shares, which are told in per cent."""
    return number(value, unit if unit == "0..1" else "")


def evidence(item: Evidence) -> str:
    """One number behind a finding, with its name."""
    return f"{item.name.replace('_', ' ')} {plain(item.text) if item.text else number(item.value, item.unit)}"


def reasons(skipped: Iterable[Skipped]) -> list[tuple[str, list[str]]]:
    """Detectors that could not look, by reason, the most common reason first."""
    ordered = sorted(skipped, key=lambda item: item.reason)
    grouped = [(reason, sorted(item.detector for item in items)) for reason, items in groupby(ordered, lambda item: item.reason)]
    return sorted(grouped, key=lambda item: (-len(item[1]), item[0]))


def duration(seconds: float) -> str:
    """A stretch of time for a person.

    >>> duration(40), duration(4000), duration(200_000)
    ('40 s', '1.1 h', '2.3 days')
    """
    for least, size, unit in ((172_800, 86_400, "days"), (3_600, 3_600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.0f} s"


def go_back(report: Report) -> str | None:
    """The step to return to, and what was spent since; nothing where nothing is wrong now."""
    verdict, run = report.verdict, report.run
    if report.last_good_step is None or verdict.onset_step is None or verdict.severity not in ("warning", "critical"):
        return None
    spent = [f"{run.last_step - verdict.onset_step} steps"] if run.last_step is not None else []
    spent += [duration(report.seconds_since_onset)] if report.seconds_since_onset else []
    since = f"; {' and '.join(spent)} were spent since the onset" if spent else ""
    if report.last_good_saved:
        return f"Go back to checkpoint {report.last_good_step}, the last one from before the onset{since}"
    return f"Go back to step {report.last_good_step}, the last good one{since}"


def unseen(skipped: Iterable[Skipped]) -> list[str]:
    """The same in short, a line a kind of reason: what would have to be logged rather than who misses it.

    >>> unseen([Skipped(detector=d, reason=f"not in the log: {s}") for d, s in (("a", "x"), ("b", "y"), ("c", "x"))])
    ['not in the log: x, y (3 detectors)']
    """
    kinds: dict[str, list[tuple[str, list[str]]]] = {}
    for reason, ids in reasons(skipped):
        kinds.setdefault(reason.partition(": ")[0], []).append((reason, ids))
    lines = []
    for kind, items in kinds.items():
        count = sum(len(ids) for _, ids in items)
        what = [reason.partition(": ")[2] for reason, _ in items]
        if all(what):
            lines.append(f"{kind}: {_some(what)} ({count} detector{'s' if count > 1 else ''})")
        else:
            lines.append(f"{kind}: {_some([name for _, ids in items for name in ids])}")
    return [plain(line) for line in lines]


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def remedies(report: Report, most: int = 3) -> list[Lever]:
    """What to do, each lever once: that of the verdict first, then by severity; consequences of another finding come last."""
    label = report.verdict.label
    findings = sorted(by_severity(report.findings), key=lambda item: (item.detector != label, item.suppressed_by is not None))
    levers = {lever.action: lever for item in reversed(findings) for lever in reversed(item.remedy) if item.severity != "info"}
    return list(reversed(levers.values()))[:most]


def settings(report: Report, most: int = 4) -> list[str]:
    """Configuration of the framework in use that carries the remedies, ready to copy; each setting once, the first one told."""
    lines = [line for lever in remedies(report, most) if lever.key for line in key_lines(lever.key)]
    return list({line.split("=")[0]: line for line in reversed(lines)}.values())[::-1]


def leading(report: Report) -> Finding | None:
    """The finding to read first: the one that gave the verdict its name, else the gravest."""
    ordered = by_severity(report.findings)
    named = (item for item in ordered if item.detector == report.verdict.label)
    return next(named, ordered[0] if ordered else None)


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """Findings, worst first, then earliest."""
    return sorted(findings, key=lambda item: (-RANK[item.severity], item.suppressed_by is not None, item.onset_step))


def worst_first(results: Sequence[Result]) -> list[Result]:
    """Results, worst first; runs that could not be judged lead."""
    return sorted(results, key=lambda item: -9 if isinstance(item, RunError) else -RANK[item.verdict.severity])


def key_lines(key: str) -> list[str]:
    """Configuration text, one setting a line where it holds nothing but settings.

    >>> key_lines("a.b=1 c.d=2"), key_lines("--eps 0.2 0.28")
    (['a.b=1', 'c.d=2'], ['--eps 0.2 0.28'])
    """
    parts = plain(key).split()
    return parts if all("=" in part for part in parts) else [plain(key)]


def error_line(error: RunError) -> str:
    """One line for a run that could not be judged."""
    where = plain(error.where or error.source)
    return f"{where}: {plain(error.message)}" + (f" ({plain(error.cure)})" if error.cure else "")


def place(origin: str) -> tuple[str, int | None]:
    """File, relative to the working folder where it lies below, and line of an origin.

    >>> place("runs/a.jsonl:12"), place("C:/a.jsonl"), place("wandb://x/y")
    (('runs/a.jsonl', 12), ('C:/a.jsonl', None), ('wandb://x/y', None))
    """
    file, colon, line = origin.rpartition(":")
    if not (colon and line.isdigit() and file):
        file, line = origin, ""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        file = path.relative_to(Path.cwd()).as_posix()
    elif path.is_absolute():
        file = path.as_uri()
    return file, int(line) if line else None


def column(step: int, first: int, last: int, width: int) -> int:
    """Where a step lies on an axis of ``width`` cells."""
    return min(max(round((step - first) / max(last - first, 1) * (width - 1)), 0), width - 1)


def sparkline(signal: Signal, first: int, last: int, width: int, *, unicode: bool = True) -> str:
    """A signal as one line of cells on the given step axis; a cell shows its most unusual value, a gap stays empty.

    >>> sparkline(Signal(name="x", title="x", unit="", steps=(1, 2, 3, 4), values=(0.0, 1.0, None, 7.0)), 1, 4, 4)
    '▁▂ █'
    """
    logged = signal.log_axis
    points = [
        (step, math.log10(value) if logged else value)
        for step, value in zip(signal.steps, signal.values, strict=True)
        if value is not None and math.isfinite(value) and first <= step <= last and (value > 0 or not logged)
    ]
    if not points:
        return " " * width
    ordered = sorted(value for _, value in points)
    middle, low, high = ordered[len(ordered) // 2], ordered[0], ordered[-1]
    cells: dict[int, float] = {}
    for step, value in points:
        cell = column(step, first, last, width)
        if cell not in cells or abs(value - middle) > abs(cells[cell] - middle):
            cells[cell] = value
    blocks = BLOCKS if unicode else ASCII_BLOCKS
    spread = high - low
    top = len(blocks) - 1
    dense = len(points) >= width
    line = []
    for cell in range(width):
        if cell not in cells:
            line.append(" ")
            continue
        share = (cells[cell] - low) / spread if spread > 0 else 0.5
        line.append(blocks[min(int(share * top + 0.5), top)])
    text = "".join(line)
    return text if dense else _bridged(text, points, first, last, width)


def _bridged(text: str, points: list[tuple[int, float]], first: int, last: int, width: int) -> str:
    """Carry each value on to the next point where points are sparser than cells, but never over a missing one."""
    gaps = sorted(b[0] - a[0] for a, b in pairwise(points))
    usual = 1.5 * gaps[(len(gaps) - 1) // 2] if gaps else 1
    line = list(text)
    for (a, _), (b, _) in pairwise(points):
        if b - a <= usual:
            left, right = column(a, first, last, width), column(b, first, last, width)
            line[left + 1 : right] = line[left] * max(right - left - 1, 0)
    return "".join(line)
