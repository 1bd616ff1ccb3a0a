"""SARIF 2.1.0, for code scanning: a result a finding, at the line of the log where the alarm could first be given."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from echotrap._version import __version__
from echotrap.render import Result, View, words
from echotrap.report import RANK, Finding, Report, RunError

__all__ = ["render"]

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_RESULTS = 5_000  # code scanning shows no more of one upload
LEVEL = {"critical": "error", "warning": "warning", "info": "note"}


def render(results: tuple[Result, ...], view: View) -> str:
    """All runs as one SARIF run, worst findings first; what could not be looked at as notifications."""
    reports = [item for item in results if isinstance(item, Report)]
    errors = [item for item in results if isinstance(item, RunError)]
    found = [(report, finding) for report in reports for finding in report.findings]
    found.sort(key=lambda pair: (-RANK[pair[1].severity], pair[1].suppressed_by is not None, pair[1].onset_step))
    rules = {finding.detector: finding for _, finding in reversed(found)}
    order = sorted(rules)
    raised = [
        _notification("error", f"{item.detector} raised {item.error}", report) for report in reports for item in report.failed
    ]
    unread = [{"level": "error", "message": {"text": words.error_line(item)}} for item in errors]
    skipped = [
        _notification("note", f"{item.detector} was not evaluated: {item.reason}", report)
        for report in reports
        for item in report.not_evaluated
    ]
    run = {
        "tool": {
            "driver": {
                "name": "echotrap",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rules[name]) for name in order],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not (errors or raised),
                "toolExecutionNotifications": unread + raised,
                "toolConfigurationNotifications": skipped,
            }
        ],
        "results": [_result(report, finding, order.index(finding.detector)) for report, finding in found[:MOST_RESULTS]],
        "columnKind": "unicodeCodePoints",
        "properties": {"verdicts": {words.plain(report.run.name): report.verdict.label for report in reports}},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _rule(finding: Finding) -> dict[str, Any]:
    todo = [f"{lever.action}{f' ({lever.cost})' if lever.cost else ''}" for lever in finding.remedy]
    sections = [finding.title]
    if todo:
        sections.append("What to do: " + "; ".join(todo))
    if finding.references:
        sections.append("References: " + "; ".join(finding.references))
    return {
        "id": finding.detector,
        "name": "".join(part.capitalize() for part in finding.detector.split("-")),
        "shortDescription": {"text": words.plain(finding.title)},
        "fullDescription": {"text": words.plain(finding.title)},
        "help": {"text": words.plain(". ".join(sections))},
        "properties": {"tags": ["training-stability", finding.family]},
    }


def _result(report: Report, finding: Finding, rule: int) -> dict[str, Any]:
    name = words.plain(report.run.name)
    text = f"{name}: {words.plain(finding.message)} ({words.when(finding)})"
    against = [words.plain(line) for line in finding.counter_evidence]
    mark = hashlib.sha256(f"{report.run.name}\0{finding.detector}\0{finding.onset_step}".encode()).hexdigest()
    result: dict[str, Any] = {
        "ruleId": finding.detector,
        "ruleIndex": rule,
        "level": LEVEL[finding.severity],
        "message": {"text": text + "".join(f". Against: {line}" for line in against)},
        "locations": [_location(finding.origin or report.run.source)],
        "partialFingerprints": {"echotrap/v1": mark},
        "properties": {
            "run": name,
            "onset_step": finding.onset_step,
            "alarm_step": finding.alarm_step,
            "cleared_step": finding.cleared_step,
            "follows_from": finding.suppressed_by,
            "evidence": {item.name: item.text or item.value for item in finding.evidence},
        },
    }
    if finding.waived:
        result["suppressions"] = [{"kind": "external", "justification": words.plain(finding.waived)}]
    return result


def _notification(level: str, text: str, report: Report) -> dict[str, Any]:
    message = f"{words.plain(report.run.name)}: {words.plain(text)}"
    return {"level": level, "message": {"text": message}, "locations": [_location(report.run.source)]}


def _location(origin: str) -> dict[str, Any]:
    file, line = words.place(origin)
    uri = file if "://" in file else quote(file)
    where: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        where["region"] = {"startLine": line}
    return {"physicalLocation": where}
