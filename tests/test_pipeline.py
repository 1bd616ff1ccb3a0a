"""From a location to a report: what the user declared, and what lies beside the log, reaches the judgement."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from echotrap import pipeline
from echotrap.config import DeclaredEvent, RunSettings, Settings, Suppression


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A run whose gradient is lost half-way."""
    rows = [
        {"step": step, "reward": 0.4, "entropy": 1.0, "grad_norm": 0.5 if step < 31 else float("nan")} for step in range(1, 61)
    ]
    file = tmp_path / "run" / "metrics.jsonl"
    file.parent.mkdir()
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_declared_facts_and_events_reach_the_run(log: Path) -> None:
    settings = Settings(run=RunSettings(group_size=16, framework="verl"), events=(DeclaredEvent(step=20, label="curriculum"),))
    run = pipeline.load(str(log), settings)
    assert (run.config.group_size, run.framework) == (16, "verl")
    assert [(event.step, event.kind, event.label) for event in run.events] == [(20, "declared", "curriculum")]


def test_accepted_findings_say_why_and_until_when(log: Path) -> None:
    until = datetime.date.today() + datetime.timedelta(days=1)
    accepted = Suppression(run=f"{log.parent.name}*", detector="non-*", reason="known", until=until)
    report = pipeline.check(str(log), Settings(suppress=(accepted,), only=("non-finite",)))
    assert [finding.waived for finding in report.findings] == [f"known (until {until})"]
    other = Suppression(run="another", detector="*", reason="known")
    assert pipeline.check(str(log), Settings(suppress=(other,), only=("non-finite",))).findings[0].waived is None


def test_what_loading_had_to_say_is_in_the_notes(log: Path) -> None:
    settings = Settings().model_copy(update={"notices": ("expired",)})
    assert pipeline.check(str(log), settings).notes[-1].message == "expired"


@pytest.mark.parametrize("name", ["checkpoint-{}", "global_step_{}", "iter_{:07d}"])
def test_the_checkpoint_from_before_the_onset_is_named(log: Path, name: str) -> None:
    report = pipeline.check(str(log), Settings())
    assert (report.verdict.onset_step, report.last_good_step, report.last_good_saved) == (31, 30, False)
    for step in (10, 20, 40):
        (log.parent / name.format(step)).mkdir()
    (log.parent / "checkpoint-25").write_text("no folder")
    for location in (log, log.parent):
        report = pipeline.check(str(location), Settings())
        assert (report.last_good_step, report.last_good_saved) == (20, True)
