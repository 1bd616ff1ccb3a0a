"""JUnit XML: one suite a run, one test case a detector. JUnit knows no warning, so what does not fail goes to system-out."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from echotrap.render import Result, View, words
from echotrap.report import RANK, Finding, Report, RunError

__all__ = ["render"]


def render(results: tuple[Result, ...], view: View) -> str:
    """All runs as one document."""
    root = ET.Element("testsuites", name="echotrap")
    suites = [_unread(item) if isinstance(item, RunError) else _suite(item, view) for item in results]
    root.extend(suites)
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def _suite(report: Report, view: View) -> ET.Element:
    name = words.plain(report.run.name)
    suite = ET.Element("testsuite", name=name)
    properties = ET.SubElement(suite, "properties")
    for key, value in (
        ("source", report.run.source),
        ("verdict", report.verdict.label),
        ("severity", report.verdict.severity),
        ("onset_step", report.verdict.onset_step),
        ("alarm_step", report.verdict.alarm_step),
        ("tool_version", report.tool_version),
    ):
        if value is not None:
            ET.SubElement(properties, "property", name=key, value=words.plain(str(value)))
    found: dict[str, list[Finding]] = {}
    for finding in words.by_severity(report.findings):
        found.setdefault(finding.detector, []).append(finding)
    failures = 0
    for detector, findings in found.items():
        case = _case(suite, detector, name)
        failing = [item for item in findings if _fails(item, view)]
        failures += bool(failing)
        if failing:
            worst = failing[0]
            failure = ET.SubElement(case, "failure", type=worst.severity, message=words.plain(worst.message))
            failure.text = "\n".join(map(_told, findings))
        else:
            ET.SubElement(case, "system-out").text = "\n".join(map(_told, findings))
    for item in report.failed:
        ET.SubElement(_case(suite, item.detector, name), "error", type="detector", message=words.plain(item.error))
    for skipped in report.not_evaluated:
        ET.SubElement(_case(suite, skipped.detector, name), "skipped", message=words.plain(skipped.reason))
    for detector in report.clear:
        _case(suite, detector, name)
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(failures))
    suite.set("errors", str(len(report.failed)))
    suite.set("skipped", str(len(report.not_evaluated)))
    return suite


def _unread(error: RunError) -> ET.Element:
    name = words.plain(error.source)
    suite = ET.Element("testsuite", name=name, tests="1", failures="0", errors="1", skipped="0")
    ET.SubElement(_case(suite, "read", name), "error", type=error.kind, message=words.error_line(error))
    return suite


def _case(suite: ET.Element, detector: str, run: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", name=detector, classname=f"echotrap.{run}")


def _fails(finding: Finding, view: View) -> bool:
    if view.fail_on == "never" or finding.waived is not None or finding.suppressed_by is not None:
        return False
    return RANK[finding.severity] >= RANK[view.fail_on]


def _told(finding: Finding) -> str:
    lines = [f"{finding.severity}: {words.plain(finding.message)}", words.when(finding)]
    lines += [words.evidence(item) for item in finding.evidence]
    lines += [f"against: {words.plain(line)}" for line in finding.counter_evidence]
    lines += [f"do: {words.plain(lever.action)}" for lever in finding.remedy]
    if finding.suppressed_by:
        lines.append(f"follows from {finding.suppressed_by}")
    if finding.waived:
        lines.append(f"accepted: {words.plain(finding.waived)}")
    return "\n".join(lines)
