"""Examination in, report out: words, numbers and excerpts for what was seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from echotrap._version import __version__
from echotrap.detector import Alert, Card, Clear, Episode, Failed, Level, NotEvaluated, Remedy, Track
from echotrap.diagnosis import HEALTHY_POINTS, Examination, Incident, baseline_of, usable_points
from echotrap.fields import FIELDS, SIGNATURE
from echotrap.record import Run
from echotrap.report import (
    RANK,
    STAGES,
    Coverage,
    EventMark,
    Evidence,
    Failure,
    Finding,
    Lever,
    NoteLine,
    Report,
    RolloutRef,
    RunFacts,
    Signal,
    SignalCoverage,
    Skipped,
    Verdict,
)
from echotrap.report import (
    Incident as IncidentSpan,
)

__all__ = ["report"]

PARTS = ("dispersion", "entropy", "gradient", "text", "outcome")
SIGNAL_POINTS = 400
FALLBACKS = {"RAGEN": "verl", "VAGEN": "verl", "verl-agent": "verl", "Search-R1": "verl", "ToolRL": "verl", "rLLM": "verl",
             "agent-lightning": "verl", "ms-swift": "TRL", "Unsloth": "TRL"}  # fmt: skip

HEADLINES = {
    "healthy": "No sign of trouble in {steps} steps",
    "converged": "The task is solved: the reward is at its ceiling and its spread is gone for that reason",
    "echo-trap": "Echo Trap, stage {stage} of 3 ({stage_name}), since step {onset}",
    "entropy-eruption": "The policy's entropy is erupting since step {onset}",
    "numerical-failure": "The numbers broke: values that are not finite, or output of one symbol, since step {onset}",
    "no-learning-signal": "The rewards carry no learning signal since step {onset}",
    "policy-collapse": "The policy has collapsed since step {onset}",
    "template-collapse": "One template answers every prompt since step {onset}",
    "truncation-starvation": "Responses are cut at the length limit since step {onset}",
    "environment-failure": "The environment failed at step {onset}; the policy is not to blame for what followed",
    "reward-hacking-suspected": "Training reward and held-out score part since step {onset}",
    "unstable": "Unstable since step {onset}: {symptom}",
    "insufficient-data": "Not enough to judge: {reason}",
}


def report(seen: Examination) -> Report:
    """Write the report of an examination."""
    run, incident = seen.run, seen.incident
    findings = _findings(seen, incident)
    coverage = _coverage(seen)
    verdict = _verdict(seen, incident, findings, coverage)
    return Report(
        tool_version=__version__,
        run=_facts(run),
        verdict=verdict,
        findings=findings,
        clear=tuple(name for name, out in seen.outcomes.items() if isinstance(out, Clear)),
        coverage=coverage,
        not_evaluated=tuple(
            Skipped(detector=name, reason=out.reason) for name, out in seen.outcomes.items() if isinstance(out, NotEvaluated)
        ),
        failed=tuple(Failure(detector=name, error=out.error) for name, out in seen.outcomes.items() if isinstance(out, Failed)),
        story=_story(findings, verdict),
        incidents=_spans(seen),
        events=tuple(EventMark(step=e.step, kind=e.kind, label=e.label) for e in run.events),
        signals=_signals(run),
        notes=tuple(NoteLine(kind=n.kind, message=n.message, count=n.count) for n in run.notes),
        last_good_step=_last_good(run, verdict),
        last_good_saved=_last_good(run, verdict) in run.config.checkpoints,
        seconds_since_onset=_spent(run, verdict),
    )


def _facts(run: Run) -> RunFacts:
    steps = run.steps
    config = {
        name: getattr(run.config, name)
        for name in run.config.__dataclass_fields__
        if name not in ("raw", "checkpoints") and getattr(run.config, name) is not None
    }
    return RunFacts(
        name=run.name,
        source=run.source,
        format=run.format,
        framework=run.framework,
        framework_version=run.framework_version,
        steps=len(steps),
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        finished=run.finished,
        config=config,
        other_runs=run.other_runs,
    )


def _coverage(seen: Examination) -> Coverage:
    run = seen.run
    parts = []
    for part, names in zip(PARTS, SIGNATURE, strict=True):
        name = next((name for name in names if run.has(name)), None)
        parts.append(
            SignalCoverage(
                part=part,  # type: ignore[arg-type]
                signal=name,
                key=run.keys.get(name) if name else None,
                provenance=run.provenance.get(name, "logged") if name else "absent",
            )
        )
    have = {item.part for item in parts if item.signal}
    highest = 0
    if have & {"dispersion", "text"} and len(have) >= 2:
        highest = 1
        if "entropy" in have or {"dispersion", "text"} <= have:
            highest = 2
            if have & {"gradient", "outcome"} or {"dispersion", "text"} <= have:
                highest = 3
    signals = {name: run.provenance.get(name, "logged") for name in FIELDS if run.has(name)}
    unknown = tuple(str(c) for c in run.metrics.columns if c not in FIELDS and "/" not in c[:5])
    return Coverage(
        signature=tuple(parts), present=len(have), of=len(parts), highest_stage=highest, signals=signals, unknown_keys=unknown
    )


def _findings(seen: Examination, incident: Incident | None) -> tuple[Finding, ...]:
    found = []
    for name, outcome in seen.outcomes.items():
        if not isinstance(outcome, Alert):
            continue
        card = seen.detectors[name].card
        episode = _episode(outcome, incident, seen.run)
        level = episode.level if _current(episode, incident) else Level.WATCH
        found.append(_finding(seen, card, outcome.track, episode, level))
    found.sort(key=lambda f: (-RANK[f.severity], f.alarm_step, f.onset_step))
    return _suppress(tuple(found), seen, incident)


def _episode(outcome: Alert, incident: Incident | None, run: Run) -> Episode:
    """The episode to tell of: the gravest of the open incident, else the one that lasts, else the gravest.

    Where an incident holds several of the gravest, they are told as one: begun with the first, as it stands at the last.
    """
    lasting = [e for e in outcome.episodes if e.cleared_step is None]
    if incident is not None:
        inside = [e for e in outcome.episodes if _current(e, incident)]
        if inside:
            gravest = [e for e in inside if e.level == max(e.level for e in inside)]
            return replace(gravest[-1], onset_step=gravest[0].onset_step, alarm_steps=gravest[0].alarm_steps)
    return lasting[-1] if lasting else max(outcome.episodes, key=lambda e: (e.level, e.onset_step))


def _current(episode: Episode, incident: Incident | None) -> bool:
    """Whether an episode belongs to the open incident, so that its level still counts."""
    if episode.level < Level.WARNING or incident is None:
        return False
    return episode.cleared_step is None or episode.cleared_step > min(incident.onset_step, incident.alarm_step)


def _finding(seen: Examination, card: Card, track: Track, episode: Episode, level: Level) -> Finding:
    run = seen.run
    evidence = track.evidence_at(_told(card, track, episode))
    severity = level.severity
    alarm = episode.alarm_steps.get(level, min(episode.alarm_steps.values()))
    origin = run.origin(alarm)
    facts = {**evidence, "step": alarm, "onset": episode.onset_step}
    return Finding(
        detector=card.id,
        title=card.title,
        family=card.family,
        severity="info" if severity == "ok" else severity,
        onset_step=episode.onset_step,
        alarm_step=alarm,
        cleared_step=episode.cleared_step,
        message=_words(card.message, facts),
        evidence=tuple(_number(name, value, card) for name, value in evidence.items()),
        remedy=tuple(_lever(remedy, run) for remedy in card.remedies),
        references=card.references,
        rollouts=_rollouts(run, card, episode) if level >= Level.WARNING else (),
        origin=f"{origin.file}:{origin.line}" if origin else None,
    )


def _told(card: Card, track: Track, episode: Episode) -> int:
    """The point of an episode that the message is about."""
    if card.tell == "now":
        above = track.score >= track.limit
        still = episode.cleared_step is None and above[episode.last] == above[episode.peak]  # else it lasts by hysteresis only
        return episode.last if still else episode.peak
    if card.tell == "alarm":
        return episode.peak
    return episode.first + int(np.nanargmax(np.nan_to_num(track.score[episode.first : episode.last + 1], nan=-np.inf)))


def _words(template: str, facts: dict[str, float | str | int]) -> str:
    try:
        return template.format(**facts)
    except (KeyError, ValueError, TypeError):
        return template


def _number(name: str, value: float | str, card: Card) -> Evidence:
    if isinstance(value, str):
        return Evidence(name=name, value=None, text=value)
    return Evidence(name=name, value=value if math.isfinite(value) else None, unit=card.units.get(name, ""))


def _lever(remedy: Remedy, run: Run) -> Lever:
    framework = run.framework or ""
    key = remedy.keys.get(framework) or remedy.keys.get(FALLBACKS.get(framework, ""))
    return Lever(action=remedy.action, key=key, cost=remedy.cost)


def _rollouts(run: Run, card: Card, episode: Episode) -> tuple[RolloutRef, ...]:
    if run.rollouts is None:
        return ()
    from echotrap.text import evidence

    return evidence(run, card.id, episode.onset_step, min(episode.alarm_steps.values()))


def _suppress(findings: tuple[Finding, ...], seen: Examination, incident: Incident | None) -> tuple[Finding, ...]:
    """Mark findings of the incident that are consequences of what the verdict rests on."""
    from echotrap.verdicts import RULES

    if incident is None:
        return findings
    rests_on = next((rule.rests_on for rule in RULES if rule.label == incident.label), ())
    causes = [f for f in findings if f.detector in rests_on and f.severity != "info"]
    if not causes:
        return findings
    first = min(causes, key=lambda f: (f.onset_step, f.alarm_step))
    return tuple(
        f.model_copy(update={"suppressed_by": first.detector})
        if f.severity != "info" and f.detector not in rests_on and f.onset_step >= first.onset_step
        else f
        for f in findings
    )


def _verdict(seen: Examination, incident: Incident | None, findings: tuple[Finding, ...], coverage: Coverage) -> Verdict:
    run = seen.run
    against = _against(seen)
    points = usable_points(run)
    confidence = (
        "high" if coverage.present >= 4 and points >= 30 else "medium" if coverage.present >= 2 and points >= 12 else "low"
    )
    stage = _stage(seen)
    if incident is not None:
        grave = [f for f in findings if f.severity != "info" and f.suppressed_by is None] or list(findings)
        severity = max((Level(incident.level), *(_level(f.severity) for f in grave if f.severity != "info"))).severity
        shown = stage if incident.label == "echo-trap" else None
        return Verdict(
            label=incident.label,  # type: ignore[arg-type]
            severity=severity,
            stage=shown,
            onset_step=incident.onset_step,
            alarm_step=incident.alarm_step,
            headline=HEADLINES[incident.label].format(
                onset=incident.onset_step,
                stage=shown,
                stage_name=STAGES.get(shown or 0, ""),
                symptom=next((seen.detectors[f.detector].card.title for f in grave), "no finding stands any more"),
            ),
            why=(
                *_changes(run),
                *(f.message for f in grave if f.severity != "info" and f.detector != "echo-trap"),
            )[:6],
            against=against,
            confidence=confidence,  # type: ignore[arg-type]
        )
    reason = _insufficient(seen, points, coverage)
    past = seen.incidents[-1] if seen.incidents else None
    recovered = past.cleared_step if past else None
    if reason:
        return Verdict(
            label="insufficient-data",
            severity="insufficient",
            headline=HEADLINES["insufficient-data"].format(reason=reason),
            why=(reason,),
            confidence="low",
        )
    solved = bool(len(seen.gates.solved)) and bool(seen.gates.solved[-1])
    label = "converged" if solved else "healthy"
    watched = sum(f.cleared_step is None for f in findings)
    headline = HEADLINES[label].format(steps=len(run.steps))
    if not solved and watched:
        headline = f"Nothing above a watch in {len(run.steps)} steps; {watched} to keep an eye on"
    if not solved and coverage.present <= 2:
        headline += (
            f" (seen: {', '.join(part.part for part in coverage.signature if part.signal)}; {coverage.present} of 5 parts)"
        )
    why = [f"recovered at step {recovered} from: {past.label}, first told at step {past.alarm_step}"] if past else []
    why += [f"watch: {f.message}" for f in findings if f.cleared_step is None][:3]
    return Verdict(
        label=label,  # type: ignore[arg-type]
        severity="info" if solved else "ok",
        stage=(stage or None) if not solved else None,
        recovered_step=recovered,
        headline=headline,
        why=tuple(why),
        against=against if solved or watched else (),
        confidence=confidence,  # type: ignore[arg-type]
    )


def _changes(run: Run) -> tuple[str, ...]:
    """The parts of the signature that moved by half or more, from their baseline to the last points, in one line."""
    moved = []
    for part in SIGNATURE:
        name = next((name for name in part if run.has(name)), None)
        normal = baseline_of(run, name) if name else None
        if name is None or normal is None:
            continue
        last = float(np.median(run.series(name).values[-5:]))
        if abs(last - normal[0]) >= 0.5 * max(abs(normal[0]), 1e-12):
            moved.append(f"{FIELDS[name].title} {_short(name, normal[0])} → {_short(name, last)}")
    return (" · ".join(moved),) if moved else ()


def _short(name: str, value: float) -> str:
    return f"{value:.0%}" if FIELDS[name].unit == "0..1" else f"{value:.3g}"


def _insufficient(seen: Examination, points: int, coverage: Coverage) -> str | None:
    judged = [
        n
        for n, out in seen.outcomes.items()
        if isinstance(out, Alert | Clear) and seen.detectors[n].card.family not in ("numerics", "event", "input")
    ]
    if not len(seen.run.steps):
        return "the log holds no training steps"
    if not judged or not points:
        return "no signal in the log is one that a detector knows"
    if not any(part.signal for part in coverage.signature if part.part == "outcome") and coverage.present < 2:
        return "only one part of the signature is in the log, and no outcome"
    if points < HEALTHY_POINTS:
        return f"{points} usable points, a healthy verdict needs {HEALTHY_POINTS}"
    return None


def _stage(seen: Examination) -> int:
    out = seen.outcomes.get("echo-trap")
    if isinstance(out, Alert | Clear) and len(out.track.level):
        return int(out.track.level[-1])
    return 0


def _level(severity: str) -> Level:
    return {"ok": Level.CLEAR, "info": Level.WATCH, "warning": Level.WARNING, "critical": Level.CRITICAL}[severity]


def _against(seen: Examination) -> tuple[str, ...]:
    """What speaks against an alarm at the end of the run, in numbers."""
    run = seen.run
    lines = []
    if len(seen.gates.solved) and seen.gates.solved[-1]:
        lines.append("the reward is at its ceiling")
    elif len(seen.gates.risen) and seen.gates.risen[-1]:
        lines.append("the outcome stands at its best, well above its start: spread and entropy fall by convergence too")
    if len(seen.gates.improving) and seen.gates.improving[-1]:
        lines.append("the outcome set a new best within the last 20 steps")
    for name in ("eval_score", "reward_mean"):
        values = run.series(name).values
        if len(values) >= 10:
            early, late = float(np.median(values[-10:-5])), float(np.median(values[-5:]))
            spread = float(values.max() - values.min())
            if spread > 0 and late - early > 0.05 * spread:
                lines.append(f"{FIELDS[name].title} is still rising ({early:.3g} to {late:.3g} over the last 10 points)")
    for name, low, high in (("group_reward_std", 0.7, math.inf), ("entropy", 0.5, 1.5), ("cross_rollout_share", 0.0, 1.5)):
        normal, (_, values) = baseline_of(run, name), run.series(name)
        if normal and normal[0] > 0 and low <= float(np.median(values[-5:])) / normal[0] <= high:
            lines.append(
                f"{FIELDS[name].title} is near its baseline ({float(np.median(values[-5:])):.3g} against {normal[0]:.3g})"
            )
    _, right = run.series("zero_std_all_pass_frac")
    _, dead = run.series("zero_std_frac")
    if len(right) and len(dead) and float(np.median(right[-5:])) >= 0.8 * float(np.median(dead[-5:])) > 0:
        lines.append("the constant groups are all-right ones")
    return tuple(lines)


def _story(findings: tuple[Finding, ...], verdict: Verdict) -> tuple[str, ...]:
    told = sorted((f for f in findings if f.severity != "info"), key=lambda f: (f.onset_step, f.alarm_step))
    lines = [f"step {f.onset_step}: {f.title} ({f.detector}); told at step {f.alarm_step}" for f in told]
    if verdict.recovered_step is not None:
        lines.append(f"step {verdict.recovered_step}: recovered")
    return tuple(lines)


def _spans(seen: Examination) -> tuple[IncidentSpan, ...]:
    return tuple(
        IncidentSpan(
            detector=name,
            severity="info" if episode.level == Level.WATCH else episode.level.severity,  # type: ignore[arg-type]
            onset_step=episode.onset_step,
            alarm_step=episode.alarm_steps[episode.level],
            cleared_step=episode.cleared_step,
        )
        for name, outcome in seen.outcomes.items()
        if isinstance(outcome, Alert)
        for episode in outcome.episodes[-50:]
    )


def _signals(run: Run) -> tuple[Signal, ...]:
    names: Iterable[str] = dict.fromkeys(
        [name for part in SIGNATURE for name in part if run.has(name)]
        + [n for n in ("kl_ref", "response_length", "truncated_frac", "zero_std_all_pass_frac") if run.has(n)]
    )
    return tuple(_signal(run, name) for name in names)


def _signal(run: Run, name: str) -> Signal:
    field = FIELDS[name]
    steps, values = run.series(name)
    if len(steps) > SIGNAL_POINTS:
        from tsdownsample import MinMaxLTTBDownsampler

        sampler = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]
        keep = sampler.downsample(np.ascontiguousarray(values), n_out=SIGNAL_POINTS)
        steps, values = steps[keep], values[keep]
    normal = baseline_of(run, name)
    return Signal(
        name=name,
        title=field.title,
        unit=field.unit,
        log_axis=field.log_axis,
        steps=tuple(int(step) for step in steps),
        values=tuple(float(value) for value in values),
        baseline=normal[0] if normal else None,
        band=(normal[1], normal[2]) if normal else None,
    )


def _last_good(run: Run, verdict: Verdict) -> int | None:
    if verdict.onset_step is None or verdict.label == "no-learning-signal":
        return None  # nothing was good before a signal that never was there
    saved = [step for step in run.config.checkpoints if step < verdict.onset_step]
    if saved:
        return max(saved)
    interval = run.config.save_interval
    if interval:
        step = (verdict.onset_step - 1) // interval * interval
        return step if step > 0 else None
    earlier = run.steps[run.steps < verdict.onset_step]
    return int(earlier[-1]) if len(earlier) else None


def _spent(run: Run, verdict: Verdict) -> float | None:
    """Seconds of training since the onset: by the clock, else the sum of the steps that say how long they took."""
    if verdict.onset_step is None:
        return None
    clock, took = run.series("wall_time"), run.series("step_time")
    since = clock.values[clock.steps >= verdict.onset_step]
    if len(since) > 1:
        return float(since[-1] - since[0])
    spent = took.values[took.steps >= verdict.onset_step]
    return float(spent.sum()) if len(spent) else None
