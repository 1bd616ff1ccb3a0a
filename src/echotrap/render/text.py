"""Text for a terminal: the answer first, then why, what to do, and what could not be seen. Fits 80 columns."""

from __future__ import annotations

import shlex
from typing import Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from echotrap.render import Result, View, words
from echotrap.render.terminal import to_text
from echotrap.report import Finding, Report, RunError, Signal

__all__ = ["STYLE", "head", "render", "signals"]

STYLE = {
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "bold cyan",
    "ok": "bold green",
    "insufficient": "bold magenta",
}
DETAILED_RUNS = 5
SHORT_FINDINGS = 6
SHORT_NOTES = 3


def render(results: tuple[Result, ...], view: View) -> str:
    """A table where there are several runs, then each run; calm ones, and those of a long list, only when all is wanted."""
    many, few = len(results) > 1, len(results) <= DETAILED_RUNS
    parts: list[RenderableType] = [_table(words.worst_first(results))] if many else []
    for item in results:
        if isinstance(item, RunError):
            parts.append(Text(f"cannot be judged  {words.error_line(item)}", style=STYLE["critical"]))
        elif not many or view.verbose or (few and item.verdict.severity in ("warning", "critical")):
            parts += [Rule(style="dim")] if many else []
            parts += _report(item, view)
    if not few and not view.verbose:
        parts += [Text(""), Text("check one run for its details, or -v for all", style="dim")]
    return to_text(view, *parts)


def _table(results: list[Result]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("verdict", no_wrap=True)
    table.add_column("began", justify="right")
    table.add_column("alarm", justify="right")
    table.add_column("run", overflow="fold")
    for item in results:
        if isinstance(item, RunError):
            table.add_row(Text("CANNOT BE READ", style=STYLE["critical"]), "", "", words.plain(item.source))
        else:
            verdict = item.verdict
            name = Text(words.title(verdict), style=STYLE[verdict.severity])
            table.add_row(name, _step(verdict.onset_step), _step(verdict.alarm_step), words.plain(item.run.name))
    return table


def _report(report: Report, view: View) -> list[RenderableType]:
    parts: list[RenderableType] = [head(report)]
    lines = signals(report, view)
    if lines:
        parts += [Text(""), *lines]
    answers = _answers(report)
    parts += [Text(""), answers] if answers.row_count else []
    findings = words.by_severity(report.findings)
    shown = findings if view.verbose else findings[:SHORT_FINDINGS]
    if shown:
        parts += [Text(""), _findings(shown, view)]
        if len(shown) < len(findings):
            parts.append(Text(f"  and {len(findings) - len(shown)} more (-v)", style="dim"))
    parts += [Text(f"FAILED  {words.plain(f'{item.detector}: {item.error}')}", style=STYLE["critical"]) for item in report.failed]
    return parts + _footer(report, view)


def head(report: Report) -> Group:
    """The verdict, the run, and what was seen of it."""
    verdict = report.verdict
    first = Text()
    first.append(words.title(verdict), style=STYLE[verdict.severity] + " reverse")
    first.append(f"  {verdict.severity}", style=STYLE[verdict.severity])
    if when := words.when(verdict):
        first.append(f"  {when}")
    about = Text(words.facts(report.run), style="dim")
    seen = f"{words.coverage(report.coverage)} · confidence {verdict.confidence}"
    return Group(first, about, Text(seen, style="dim"), Text(words.plain(verdict.headline)))


def signals(report: Report, view: View) -> list[RenderableType]:
    """The signature as sparklines on one step axis, with the onset and the first alarm marked below."""
    run, verdict = report.run, report.verdict
    if run.first_step is None or run.last_step is None or run.first_step == run.last_step:
        return []
    signature = [part.signal for part in report.coverage.signature]
    drawn = [signal for signal in report.signals if view.verbose or signal.name in signature]
    if not drawn:
        return []
    ends = [_ends(signal) for signal in drawn]
    label = max(len(signal.title) for signal in drawn)
    left = max(*(len(start) for start, _ in ends), len(str(run.first_step)))
    right = max(*(len(end) for _, end in ends), len(str(run.last_step)))
    width = max(view.width - label - left - right - 5, 10)
    lines: list[RenderableType] = []
    onset = None if verdict.onset_step is None else words.column(verdict.onset_step, run.first_step, run.last_step, width)
    for signal, (start, end) in zip(drawn, ends, strict=True):
        cells = Text(words.sparkline(signal, run.first_step, run.last_step, width, unicode=view.unicode), style="cyan")
        if onset is not None:
            cells.stylize(STYLE[verdict.severity], onset)
        lines.append(Text.assemble("  ", signal.title.ljust(label), " ", start.rjust(left), " ", cells, " ", end))
    axis = [" "] * width
    if verdict.alarm_step is not None and verdict.alarm_step != verdict.onset_step:
        _mark(axis, words.column(verdict.alarm_step, run.first_step, run.last_step, width), str(verdict.alarm_step), "right")
    if onset is not None:
        _mark(axis, onset, str(verdict.onset_step), "left")
    ruler = Text("".join(axis), style=STYLE[verdict.severity])
    lines.append(Text.assemble("  ", "step".ljust(label), " ", str(run.first_step).rjust(left), " ", ruler, f" {run.last_step}"))
    return lines


def _ends(signal: Signal) -> tuple[str, str]:
    """First and last value."""
    finite = [value for value in signal.values if value is not None]
    return (words.short(finite[0], signal.unit), words.short(finite[-1], signal.unit)) if finite else ("", "")


def _mark(axis: list[str], at: int, label: str, side: Literal["left", "right"]) -> None:
    """Point at a cell of the axis, with the label on the given side, or on the other where there is no room."""
    axis[at] = "▲"
    left, right = range(at - len(label), at), range(at + 1, at + 1 + len(label))
    for cells in (left, right) if side == "left" else (right, left):
        if cells[0] >= 0 and cells[-1] < len(axis) and all(axis[cell] == " " for cell in cells):
            for cell, sign in zip(cells, label, strict=True):
                axis[cell] = sign
            return


def _answers(report: Report) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, lines in (("why", report.verdict.why), ("against", report.verdict.against)):
        for count, line in enumerate(lines):
            grid.add_row(name if count == 0 else "", words.plain(line))
    todo: list[Text] = []
    if back := words.go_back(report):
        todo.append(Text(back))
    for lever in words.remedies(report):
        text = Text(words.plain(lever.action))
        if lever.key:
            text.append("".join(f"\n  {line}" for line in words.key_lines(lever.key)), style="cyan")
        todo.append(text)
    for count, text in enumerate(todo):
        grid.add_row("do now" if count == 0 else "", text)
    return grid


def _findings(findings: list[Finding], view: View) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title_justify="left")
    table.add_column("finding", no_wrap=True)
    table.add_column("began", justify="right")
    table.add_column("alarm", justify="right")
    table.add_column("what", overflow="fold")
    for finding in findings:
        quiet = finding.suppressed_by or finding.waived
        what = Text(words.plain(finding.message))
        if finding.cleared_step is not None:
            what.append(f" (over at {finding.cleared_step})")
        if finding.suppressed_by:
            what.append(f" (follows from {finding.suppressed_by})", style="dim")
        if finding.waived:
            what.append(f" (accepted: {words.plain(finding.waived)})", style="dim")
        if view.verbose:
            if finding.evidence:
                what.append("\n" + " · ".join(map(words.evidence, finding.evidence)), style="dim")
            for line in finding.counter_evidence:
                what.append(f"\nagainst: {words.plain(line)}", style="dim")
            for lever in finding.remedy:
                what.append(f"\ndo: {words.plain(lever.action)}", style="dim")
            if finding.origin:
                what.append(f"\nat {words.plain(finding.origin)}", style="dim")
        style = "dim" if quiet else STYLE[finding.severity]
        table.add_row(Text(finding.detector, style=style), _step(finding.onset_step), _step(finding.alarm_step), what)
    return table


def _footer(report: Report, view: View) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if report.not_evaluated:
        lines += [Text(""), Text(f"not evaluated: {len(report.not_evaluated)} of {_asked(report)} detectors", style="bold")]
        if view.verbose:
            told = [words.plain(f"{reason}: {', '.join(ids)}") for reason, ids in words.reasons(report.not_evaluated)]
        else:
            told = words.unseen(report.not_evaluated)
        shown = told if view.verbose else told[:SHORT_NOTES]
        lines += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in shown]
        if len(shown) < len(told):
            lines.append(Text(f"  and {len(told) - len(shown)} more reasons (-v)", style="dim"))
    if report.notes:
        lines += [Text(""), Text(f"notes: {len(report.notes)}", style="bold")]
        for note in report.notes if view.verbose else report.notes[:SHORT_NOTES]:
            count = f" ({note.count}x)" if note.count > 1 else ""
            lines.append(Padding(Text(f"{words.plain(note.message)}{count}", style="dim"), (0, 0, 0, 2)))
        if not view.verbose and len(report.notes) > SHORT_NOTES:
            lines.append(Text(f"  and {len(report.notes) - SHORT_NOTES} more (-v)", style="dim"))
    if report.verdict.severity in ("warning", "critical"):
        lines += [Text(""), *_next(report)]
    return lines


def _next(report: Report) -> list[RenderableType]:
    """Where to look next, as commands to paste."""
    source = shlex.quote(words.plain(report.run.source))
    leading = words.leading(report)
    commands = [f"echotrap report {source} -o report.html"]
    if leading is not None:
        commands.append(f"echotrap explain {leading.detector}")
        during = [item.step for item in leading.rollouts if item.when == "during"]
        commands += [f"echotrap rollouts {source} --step {step}" for step in during[:1]]
    heads = ["next", *[""] * len(commands)]
    return [
        Text(f"{head:6}{command}", style="dim", no_wrap=True, overflow="ignore")  # to be copied whole
        for head, command in zip(heads, commands, strict=False)
    ]


def _asked(report: Report) -> int:
    looked = {item.detector for item in report.findings} | set(report.clear) | {item.detector for item in report.failed}
    return len(looked | {item.detector for item in report.not_evaluated})


def _step(step: int | None) -> str:
    return "" if step is None else str(step)
