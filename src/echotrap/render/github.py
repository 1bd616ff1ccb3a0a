"""GitHub annotations on the line of the log: ten errors and ten warnings a step are shown, so the worst come first."""

from __future__ import annotations

from echotrap.render import Result, View, words
from echotrap.report import RANK, Finding, Report, RunError

__all__ = ["render"]

MOST = 10
COMMAND = {"critical": "error", "warning": "warning", "info": "notice"}


def render(results: tuple[Result, ...], view: View) -> str:
    """One line an annotation; the rest is counted in a last one."""
    unread = [item for item in results if isinstance(item, RunError)]
    errors = [_command("error", item.where or item.source, "cannot be judged", words.error_line(item)) for item in unread]
    reports = [item for item in results if isinstance(item, Report)]
    for report in reports:
        errors += [_command("error", report.run.source, f"{item.detector} failed", item.error) for item in report.failed]
    pairs = [(report, finding) for report in reports for finding in report.findings if _speaks(finding)]
    pairs.sort(key=lambda pair: (-RANK[pair[1].severity], pair[1].onset_step))
    errors += [_annotation(*pair) for pair in pairs if pair[1].severity == "critical"]
    warnings = [_annotation(*pair) for pair in pairs if pair[1].severity == "warning"]
    left = max(len(errors) - MOST, 0) + max(len(warnings) - MOST, 0)
    lines = errors[:MOST] + warnings[:MOST]
    if left:
        lines.append(_command("notice", None, "echotrap", f"{left} more findings are not annotated"))
    return "\n".join(lines)


def _speaks(finding: Finding) -> bool:
    return finding.suppressed_by is None and finding.waived is None


def _annotation(report: Report, finding: Finding) -> str:
    title = f"{finding.detector} since step {finding.onset_step} in {report.run.name}"
    text = finding.message
    if finding.remedy:
        text += f". Do: {finding.remedy[0].action}"
    return _command(COMMAND[finding.severity], finding.origin or report.run.source, title, text)


def _command(name: str, place: str | None, title: str, text: str) -> str:
    facts = {}
    if place:
        file, line = words.place(place)
        facts["file"] = file
        if line:
            facts["line"] = str(line)
    facts["title"] = title
    told = ",".join(f"{key}={_property(value)}" for key, value in facts.items())
    return f"::{name} {told}::{_data(text)}"


def _data(text: str) -> str:
    return words.plain(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
