"""What a result means for a pipeline: the exit code, and why."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from fnmatch import fnmatch
from typing import NamedTuple

from echotrap.config import Settings
from echotrap.report import RANK, Finding, Report, RunError

__all__ = ["Exit", "Ruling", "overall", "rule"]


class Exit(IntEnum):
    """Exit codes of ``echotrap check``."""

    CLEAN = 0
    FINDINGS = 1
    FAILED = 2
    INSUFFICIENT = 3


class Ruling(NamedTuple):
    """An exit code and the sentences that explain it."""

    code: Exit
    reasons: tuple[str, ...] = ()


def overall(codes: Iterable[Exit]) -> Exit:
    """One code for several runs: could not do the job, then findings, then nothing to judge.

    >>> overall([Exit.CLEAN, Exit.INSUFFICIENT, Exit.FINDINGS]).name, overall([]).name
    ('FINDINGS', 'CLEAN')
    """
    order = (Exit.CLEAN, Exit.INSUFFICIENT, Exit.FINDINGS, Exit.FAILED)
    return max(codes, key=order.index, default=Exit.CLEAN)


def rule(result: Report | RunError, settings: Settings, baseline: Report | None = None) -> Ruling:
    """The exit code of one run.

    Parameters
    ----------
    result : Report or RunError
        What the run gave.
    settings : Settings
        Threshold, requirements, expectations and suppressions.
    baseline : Report, optional
        A run to compare with: only what is worse than there counts.
    """
    if isinstance(result, RunError):
        return Ruling(Exit.FAILED, (result.message,))
    broken = [f"{item.detector} raised {item.error}" for item in result.failed]
    looked = {item.detector for item in result.findings} | set(result.clear)
    why = {item.detector: item.reason for item in result.not_evaluated}
    broken += [
        f"required {name} was not evaluated: {why.get(name, 'not run')}" for name in settings.require if name not in looked
    ]
    if broken:
        return Ruling(Exit.FAILED, tuple(broken))
    names = (result.run.name, result.run.source)
    for item in settings.expect:
        if item.holds(*names):
            if result.verdict.label in item.verdict:
                return Ruling(Exit.CLEAN, (f"{result.verdict.label} is expected: {item.reason}",))
            return Ruling(Exit.FINDINGS, (f"expected {' or '.join(item.verdict)}, got {result.verdict.label}",))
    if settings.fail_on != "never":
        reasons = _failing(result, settings, baseline)
        if reasons:
            return Ruling(Exit.FINDINGS, tuple(reasons))
    if result.verdict.severity == "insufficient" and not settings.allow_insufficient:
        return Ruling(Exit.INSUFFICIENT, ("nothing could be judged (--allow-insufficient gives 0)",))
    return Ruling(Exit.CLEAN)


def _failing(report: Report, settings: Settings, baseline: Report | None) -> list[str]:
    least = RANK[settings.fail_on]
    known: dict[str, int] = {}
    for finding in baseline.findings if baseline else ():
        known[finding.detector] = max(known.get(finding.detector, 0), RANK[finding.severity])
    grave = [item for item in report.findings if RANK[item.severity] >= least and item.suppressed_by is None]
    counted = [
        item
        for item in grave
        if item.waived is None and not _over(item, settings.since) and RANK[item.severity] > known.get(item.detector, 0)
    ]
    if grave:  # they speak for the verdict, also where each of them is accepted
        return [f"{item.severity} {item.detector} since step {item.onset_step}" for item in counted]
    verdict = report.verdict
    if verdict.severity not in ("warning", "critical", "info") or RANK[verdict.severity] < least:
        return []
    waived = any(
        fnmatch(verdict.label, item.detector) for item in settings.suppress if item.holds(report.run.name, report.run.source)
    )
    over = settings.since is not None and verdict.recovered_step is not None and verdict.recovered_step < settings.since
    as_before = baseline is not None and RANK[baseline.verdict.severity] >= RANK[verdict.severity]
    return [] if waived or over or as_before else [f"verdict {verdict.label} ({verdict.severity})"]


def _over(finding: Finding, since: int | None) -> bool:
    return since is not None and finding.cleared_step is not None and finding.cleared_step < since
