"""Exit codes: what a result means for a pipeline."""

from __future__ import annotations

import datetime

import pytest

from echotrap.config import Expectation, Settings, Suppression
from echotrap.policy import Exit, overall, rule
from echotrap.report import Report, RunError

CLEAN, FINDINGS, FAILED, INSUFFICIENT = Exit


@pytest.fixture
def trap(trap_report: Report) -> Report:
    """The trap without the detector that raised."""
    return trap_report.model_copy(update={"failed": ()})


@pytest.mark.parametrize(
    ("fail_on", "label", "code"),
    [
        ("critical", "trap", FINDINGS),
        ("never", "trap", CLEAN),
        ("info", "trap", FINDINGS),
        ("critical", "warned", CLEAN),
        ("warning", "warned", FINDINGS),
        ("info", "converged", FINDINGS),
        ("warning", "converged", CLEAN),
        ("info", "healthy", CLEAN),
        ("critical", "scant", INSUFFICIENT),
        ("never", "scant", INSUFFICIENT),
    ],
)
def test_threshold(fail_on, label, code, trap, healthy_report, scant_report) -> None:
    warned = trap.findings[0].model_copy(update={"suppressed_by": None})
    unstable = trap.verdict.model_copy(update={"label": "unstable", "severity": "warning", "stage": None})
    solved = healthy_report.verdict.model_copy(update={"label": "converged", "severity": "info"})
    reports = {
        "trap": trap,
        "warned": trap.model_copy(update={"findings": (warned,), "verdict": unstable}),
        "converged": healthy_report.model_copy(update={"verdict": solved}),
        "healthy": healthy_report,
        "scant": scant_report,
    }
    assert rule(reports[label], Settings(fail_on=fail_on)).code is code


def test_a_detector_that_raised_or_could_not_look_is_a_failure(trap_report, trap, healthy_report, scant_report) -> None:
    assert rule(trap_report, Settings(fail_on="never")).code is FAILED
    assert rule(RunError(source="x", kind="unreadable", message="no"), Settings()).code is FAILED
    ruling = rule(trap, Settings(require=("critic-failure",)))
    assert ruling == (FAILED, ("required critic-failure was not evaluated: not in the log: explained_variance",))
    assert rule(healthy_report, Settings(require=("echo-trap",))).code is CLEAN
    assert rule(healthy_report, Settings(require=("format-floor",))).code is FAILED  # it was not even asked


def test_insufficient_can_be_allowed(scant_report) -> None:
    assert rule(scant_report, Settings(allow_insufficient=True)).code is CLEAN


def test_the_worst_of_several_runs_counts() -> None:
    assert overall([CLEAN, INSUFFICIENT]) is INSUFFICIENT
    assert overall([INSUFFICIENT, FINDINGS, CLEAN]) is FINDINGS
    assert overall([FINDINGS, FAILED, INSUFFICIENT]) is FAILED


def test_a_baseline_leaves_only_what_became_worse(trap) -> None:
    assert rule(trap, Settings(), baseline=trap).code is CLEAN
    milder = tuple(item.model_copy(update={"severity": "warning"}) for item in trap.findings)
    assert rule(trap, Settings(), baseline=trap.model_copy(update={"findings": milder})).code is FINDINGS


def test_since_forgives_only_what_was_over(trap) -> None:
    over = tuple(item.model_copy(update={"cleared_step": 250}) for item in trap.findings)
    recovered = trap.model_copy(update={"findings": over})
    assert rule(recovered, Settings(since=300)).code is CLEAN
    assert rule(recovered, Settings(since=240)).code is FINDINGS
    assert rule(trap, Settings(since=300)).code is FINDINGS  # it lasts


def test_expectations_turn_the_question_round(trap, healthy_report) -> None:
    settings = Settings(expect=(Expectation(run="runs/*", verdict=("echo-trap",), reason="kept to test the alarm"),))
    assert rule(trap, settings).code is CLEAN
    assert rule(healthy_report, settings) == (FINDINGS, ("expected echo-trap, got healthy",))


def test_an_expectation_ends_with_its_last_day(trap) -> None:
    past = datetime.date.today() - datetime.timedelta(days=1)
    settings = Settings(expect=(Expectation(run="*", verdict=("echo-trap",), until=past, reason="old"),))
    assert rule(trap, settings).code is FINDINGS


def test_accepted_findings_do_not_fail(trap) -> None:
    accepted = tuple(item.model_copy(update={"waived": "known"}) for item in trap.findings)
    assert rule(trap.model_copy(update={"findings": accepted}), Settings()).code is CLEAN


def test_a_verdict_can_be_accepted_by_name(trap) -> None:
    bare = trap.model_copy(update={"findings": ()})
    assert rule(bare, Settings()).code is FINDINGS
    assert rule(bare, Settings(suppress=(Suppression(detector="echo-*", reason="known"),))).code is CLEAN
