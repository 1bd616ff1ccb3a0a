"""Markdown for a pull request or a step summary: worst first, and cut before the 1 MiB that GitHub allows."""

from __future__ import annotations

import re

from echotrap.render import Result, View, words
from echotrap.report import Finding, Report, RunError

__all__ = ["render"]

LIMIT_BYTES = 1_000_000  # GitHub drops a step summary of more than 1 MiB whole
MARK = {"critical": "🔴", "warning": "🟠", "info": "🔵", "ok": "🟢", "insufficient": "⚪"}


def render(results: tuple[Result, ...], view: View) -> str:
    """A summary table where there are several runs, then one section a run."""
    ordered = words.worst_first(results)
    parts = [_table(ordered)] if len(ordered) > 1 else []
    parts += [_error(item) if isinstance(item, RunError) else _section(item) for item in ordered]
    text, used = "", 0
    for count, part in enumerate(parts):
        size = len(part.encode()) + 2
        if used + size > LIMIT_BYTES:
            return text + f"_Cut here: {len(parts) - count} more sections do not fit into a step summary._\n"
        text, used = text + part + "\n\n", used + size
    return text.rstrip("\n")


def _table(results: list[Result]) -> str:
    lines = ["| run | verdict | began | first alarm |", "|---|---|---|---|"]
    for item in results[:2000]:
        if isinstance(item, RunError):
            lines.append(f"| {_text(item.source)} | ❌ could not be read | | |")
        else:
            verdict = item.verdict
            cells = (_text(item.run.name), f"{MARK[verdict.severity]} {words.title(verdict)}")
            lines.append(f"| {' | '.join(cells)} | {_step(verdict.onset_step)} | {_step(verdict.alarm_step)} |")
    return "\n".join(["## echotrap", "", *lines])


def _error(error: RunError) -> str:
    return f"### ❌ {_text(error.source)}\n\n{_text(words.error_line(error))}"


def _section(report: Report) -> str:
    verdict = report.verdict
    lines = [f"### {MARK[verdict.severity]} {_text(report.run.name)}: {words.title(verdict)}", ""]
    lines += [_text(verdict.headline), ""]
    about = (words.when(verdict), f"confidence {verdict.confidence}", words.coverage(report.coverage))
    lines.append(f"{_text(words.facts(report.run))}  \n{' · '.join(filter(None, about))}")
    lines += _bullets("Why", verdict.why) + _bullets("Against", verdict.against)
    levers = words.remedies(report)
    back = words.go_back(report)
    if levers or back:
        lines += ["", "**Do now**", ""]
        lines += [f"1. {_text(back)}"] if back else []
        for lever in levers:
            key = f": {_code(lever.key)}" if lever.key else ""
            cost = f" ({_text(lever.cost)})" if lever.cost else ""
            lines.append(f"1. {_text(lever.action)}{key}{cost}")
    if report.findings:
        lines += ["", "| | finding | began | alarm | what |", "|---|---|---|---|---|"]
        lines += [_row(finding) for finding in words.by_severity(report.findings)]
    for failure in report.failed:
        lines += ["", f"❌ {_code(failure.detector)} failed: {_text(failure.error)}"]
    if report.not_evaluated:
        lines += ["", f"<details><summary>Not evaluated: {len(report.not_evaluated)}</summary>", ""]
        for reason, ids in words.reasons(report.not_evaluated):
            lines.append(f"- {_text(reason)}: {', '.join(map(_code, ids))}")
        lines += ["", "</details>"]
    if report.notes:
        lines += ["", f"<details><summary>Notes: {len(report.notes)}</summary>", ""]
        lines += [f"- {_text(note.message)} ({note.count}x)" for note in report.notes]
        lines += ["", "</details>"]
    return "\n".join(lines)


def _row(finding: Finding) -> str:
    what = [_text(finding.message)]
    what += [f"against: {_text(item)}" for item in finding.counter_evidence]
    if finding.suppressed_by:
        what.append(f"follows from {_code(finding.suppressed_by)}")
    if finding.waived:
        what.append(f"accepted: {_text(finding.waived)}")
    mark = "⚪" if finding.waived else MARK[finding.severity]
    cells = (f"{mark} {finding.severity}", _code(finding.detector), finding.onset_step, finding.alarm_step, "<br>".join(what))
    return f"| {' | '.join(map(str, cells))} |"


def _bullets(title: str, lines: tuple[str, ...]) -> list[str]:
    return ["", f"**{title}**", "", *(f"- {_text(line)}" for line in lines)] if lines else []


def _step(step: int | None) -> str:
    return "" if step is None else str(step)


def _text(text: str) -> str:
    """Text of others, so that it stays text: no markup, no mention, no cell border."""
    return re.sub(r"([\\`*_\[\]<>|#~!&@])", lambda m: f"&#{ord(m[1])};" if m[1] in "<>|&@`" else f"\\{m[1]}", words.plain(text))


def _code(text: str) -> str:
    return f"<code>{_text(text)}</code>"
