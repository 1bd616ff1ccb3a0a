"""The report: everything a renderer, a page or another program needs to know about one run.

It is data. Renderers never compute; what they show is here. ``schema_version`` changes its first number when a field is removed
or changes its meaning, its second when one is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "SCHEMA_VERSION", "Batch", "Coverage", "Evidence", "Failure", "Finding", "Incident", "Lever", "Report", "RolloutRef",
    "RunError", "RunFacts", "Signal", "SignalCoverage", "Skipped", "Span", "Verdict",
]  # fmt: skip

SCHEMA_VERSION = "1.0"

Severity = Literal["ok", "info", "warning", "critical", "insufficient"]
Label = Literal[
    "healthy", "converged", "echo-trap", "entropy-eruption", "numerical-failure", "no-learning-signal", "policy-collapse",
    "template-collapse", "truncation-starvation", "environment-failure", "reward-hacking-suspected", "unstable",
    "insufficient-data",
]  # fmt: skip
RANK: Mapping[str, int] = {"ok": 0, "info": 1, "insufficient": 1, "warning": 2, "critical": 3}
STAGES: Mapping[int, str] = {1: "forming", 2: "suspected", 3: "confirmed"}
"""What the stages of an Echo Trap are called."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    @model_validator(mode="before")
    @classmethod
    def _encodable(cls, data: Any) -> Any:
        """Replace halves of surrogate pairs: file names and rollouts may hold them, JSON cannot."""
        return _encodable(data) if isinstance(data, dict) else data


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, tuple | list):
        return tuple(map(_encodable, value)) if value and isinstance(value[0], str) else value
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


class RunFacts(_Data):
    """What the run is."""

    name: str
    source: str
    format: str
    framework: str | None = None
    framework_version: str | None = None
    steps: int = Field(description="number of logged steps")
    first_step: int | None = None
    last_step: int | None = None
    finished: bool | None = None
    config: dict[str, float | int | str | None] = {}
    other_runs: tuple[str, ...] = ()


class Verdict(_Data):
    """The one-line answer."""

    label: Label
    severity: Severity
    stage: int | None = Field(default=None, description="Echo Trap stage 1-3, where there is one")
    onset_step: int | None = None
    alarm_step: int | None = Field(default=None, description="first step at which the alarm could have been given")
    recovered_step: int | None = None
    headline: str = Field(description="one sentence for a person")
    why: tuple[str, ...] = ()
    against: tuple[str, ...] = Field(default=(), description="counter-evidence")
    confidence: Literal["low", "medium", "high"] = "medium"


class Evidence(_Data):
    """One number behind a finding."""

    name: str
    value: float | None
    unit: str = ""
    text: str = Field(default="", description="the value where it is not a number")


class Lever(_Data):
    """Something to do."""

    action: str
    key: str | None = Field(default=None, description="configuration of the framework in use")
    cost: str = ""


class Span(_Data):
    """Characters ``start`` to ``end`` of a rollout's text."""

    start: int
    end: int


class RolloutRef(_Data):
    """A rollout that shows a finding, or how it was before."""

    step: int
    index: int
    when: Literal["before", "during"]
    group: str | None = None
    reward: float | None = None
    text: str = Field(description="excerpt, at most 2,000 characters")
    spans: tuple[Span, ...] = ()
    score: float | None = None
    origin: str = ""


class Finding(_Data):
    """What one detector saw."""

    detector: str
    title: str
    family: str
    severity: Literal["info", "warning", "critical"]
    onset_step: int
    alarm_step: int
    cleared_step: int | None = None
    message: str
    evidence: tuple[Evidence, ...] = ()
    counter_evidence: tuple[str, ...] = ()
    remedy: tuple[Lever, ...] = ()
    references: tuple[str, ...] = ()
    rollouts: tuple[RolloutRef, ...] = ()
    suppressed_by: str | None = Field(default=None, description="the finding whose consequence this one is")
    waived: str | None = Field(default=None, description="why the user accepts this finding for now")
    origin: str | None = Field(default=None, description="file:line of the alarm step")


class SignalCoverage(_Data):
    """One part of the Echo Trap's signature."""

    part: Literal["dispersion", "entropy", "gradient", "text", "outcome"]
    signal: str | None
    key: str | None = None
    provenance: Literal["logged", "derived", "assumed", "absent"]


class Coverage(_Data):
    """Which signals were there, and how far a diagnosis could go with them."""

    signature: tuple[SignalCoverage, ...]
    present: int
    of: int
    highest_stage: int
    signals: dict[str, Literal["logged", "derived", "assumed"]] = {}
    unknown_keys: tuple[str, ...] = ()


class Skipped(_Data):
    """A detector that could not look."""

    detector: str
    reason: str


class Failure(_Data):
    """A detector that raised."""

    detector: str
    error: str


class Signal(_Data):
    """A series to draw: at most 400 points, extremes kept."""

    name: str
    title: str
    unit: str
    log_axis: bool = False
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    baseline: float | None = None
    band: tuple[float, float] | None = Field(default=None, description="baseline band, low and high")


class Incident(_Data):
    """A stretch during which one detector was above clear, for a timeline."""

    detector: str
    severity: Literal["info", "warning", "critical"]
    onset_step: int
    alarm_step: int
    cleared_step: int | None = None


class EventMark(_Data):
    """A declared or detected event."""

    step: int
    kind: str
    label: str


class NoteLine(_Data):
    """Something that was renamed, dropped, skipped or assumed while reading."""

    kind: str
    message: str
    count: int


class Report(_Data):
    """One run's report."""

    schema_version: str = SCHEMA_VERSION
    tool_version: str
    run: RunFacts
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    clear: tuple[str, ...] = Field(default=(), description="detectors that looked and saw nothing")
    coverage: Coverage
    not_evaluated: tuple[Skipped, ...] = ()
    failed: tuple[Failure, ...] = ()
    story: tuple[str, ...] = Field(default=(), description="the incident in time order, one line an onset")
    incidents: tuple[Incident, ...] = ()
    events: tuple[EventMark, ...] = ()
    signals: tuple[Signal, ...] = ()
    notes: tuple[NoteLine, ...] = ()
    last_good_step: int | None = Field(default=None, description="last saved checkpoint, else last step, before the onset")
    last_good_saved: bool = Field(default=False, description="whether a checkpoint of that step is known to exist")
    seconds_since_onset: float | None = Field(default=None, description="training time since the onset, where it was logged")
    settings: dict[str, float | int | str | bool | None] = Field(
        default={}, description="parameters that differ from the defaults"
    )


class RunError(_Data):
    """A run that could not be judged at all."""

    source: str
    kind: str = Field(description="error, unreadable, unknown-format, unreachable, configuration, detector or internal")
    message: str
    where: str | None = None
    cure: str | None = None


class Batch(_Data):
    """What several runs gave, in the order they were named."""

    schema_version: str = SCHEMA_VERSION
    runs: tuple[Report, ...] = ()
    errors: tuple[RunError, ...] = ()
