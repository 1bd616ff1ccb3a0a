"""Scores as text, Markdown and a page with every run's timeline. Nothing is computed here."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from echotrap.detector import Sensitivity
from echotrap.evaluation.harness import Result
from echotrap.evaluation.score import Judged, Rate, Scores

__all__ = ["document", "markdown", "page"]


def _rate(rate: Rate) -> str:
    if not rate.of:
        return "-"
    return f"{rate.hits}/{rate.of} ({rate.share:.1%}; {rate.low:.1%}-{rate.high:.1%})"


def _step(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows])


def markdown(result: Result) -> str:
    """One set of runs: the judges side by side, then echotrap by class, then every labelled run that missed."""
    parts = [f"## {result.name}", _judges(result.scores)]
    own = next(score for score in result.scores if score.judge == "echotrap")
    if own.recall or own.false_alarms:
        parts += ["### echotrap by class", _classes(own)]
    if own.confusion:
        parts += ["### verdict by class", _confusion(own)]
    parts += ["### runs that miss their label or are not told in time", _misses(result.judged["echotrap"])]
    return "\n\n".join(parts) + "\n"


def document(results: Sequence[Result], dials: Sequence[tuple[str, Mapping[Sensitivity, Scores]]], command: str) -> str:
    """``docs/evaluation.md``: what was measured, on what, and what it is worth."""
    parts = [PREFACE.format(command=command), *(markdown(result) for result in results)]
    parts += [f"## {name}: the dial\n\n{_dial(scores)}\n" for name, scores in dials]
    return "\n".join(parts)


PREFACE = """# Evaluation

Written by one command, failures included:

    {command}

The unit is the run. *Found* means that a failing run ends at warning or above and that the first alarm did not come before
the labelled onset. A *false alarm* is a run that should be quiet and was at warning or above at any step, even if it
recovered. *In time* is an alarm from the first labelled onset to a tenth of the run, at least five points, past the last.
Intervals are exact (Clopper-Pearson, 95 %). Lead is counted to the point of no return: the first step from which
the outcome stays below half of its peak until the end. *RAGEN's stop rule* asks that each of the last ten steps be below a
tenth of the mean in-group standard deviation of the first ten. *random, as often* alarms on as many runs as echotrap, at
random steps. Other tools see the same run as JSON lines with TRL's keys; they name no causal alarm step, so their first alarm
is the end of the run.

The sets are never pooled. The simulated runs were tuned on even seeds and are scored on odd ones; the generator is ours, so
its figures say that the rules do what they are meant to, not how often the world will agree. RAGEN's curves are single seeds,
read off figures. The recorded samples are tiny agents. The public logs are a development set: rules were changed after
looking at them.
"""


def _dial(scores: Mapping[Sensitivity, Scores]) -> str:
    rows = []
    for point, score in scores.items():
        found = sum(rate.hits for rate in score.recall.values())
        failing = sum(rate.of for rate in score.recall.values())
        delays = [value for value in score.delay_median.values() if value is not None]
        middle = sorted(delays)[len(delays) // 2] if delays else None
        rows.append((point, f"{found}/{failing}", _rate(score.all_false_alarms), _rate(score.false_criticals), _step(middle)))
    return _table(
        ("sensitivity", "failures found", "false alarms", "false criticals", "median of the classes' median delays"), rows
    )


def _judges(scores: Sequence[Scores]) -> str:
    rows = []
    for score in scores:
        found = sum(rate.hits for rate in score.recall.values())
        failing = sum(rate.of for rate in score.recall.values())
        rows.append(
            (
                score.judge,
                f"{found}/{failing}",
                _rate(score.all_false_alarms),
                _rate(score.false_criticals),
                _rate(score.met),
                _step(score.lead_median),
                _rate(score.detected_before_no_return),
                str(score.abstained),
            )
        )
    head = ("judge", "failures found", "false alarms (95 % interval)", "false criticals", "label met", "median lead, steps",
            "told before the point of no return", "abstained")  # fmt: skip
    return _table(head, rows)


def _classes(score: Scores) -> str:
    rows = [(kind, "recall", _rate(rate), _step(score.delay_median.get(kind))) for kind, rate in score.recall.items()]
    rows += [(kind, "false alarms", _rate(rate), "-") for kind, rate in score.false_alarms.items()]
    return _table(("class", "measure", "share (95 % interval)", "median delay, steps"), rows)


def _confusion(score: Scores) -> str:
    labels = sorted({label for row in score.confusion.values() for label in row})
    rows = [(kind, *(str(row.get(label, "")) for label in labels)) for kind, row in score.confusion.items()]
    return _table(("class", *labels), rows)


def _misses(judged: Sequence[Judged]) -> str:
    rows = [
        (item.case.case, item.case.expect, f"{item.severity} ({item.label})", _step(item.first_step), item.error or item.case.why)
        for item in judged
        if item.met is False or item.timely is False
    ]
    return _table(("run", "expected", "said", "first alarm", "why"), rows[:60]) if rows else "none"


COLOURS = {"ok": "#4c9a6a", "info": "#5b8db8", "warning": "#d08a1d", "critical": "#c0392b", "insufficient": "#8a8a8a"}


def page(results: Sequence[Result]) -> str:
    """A self-contained HTML page: the tables, and one bar a run with onset window, first alarm and point of no return."""
    body = []
    for result in results:
        body.append(f"<h2>{html.escape(result.name)}</h2>")
        body.append(f"<pre>{html.escape(markdown(result))}</pre>")
        body += [_bar(item) for item in result.judged["echotrap"][:400]]
    style = (
        "body{font:14px system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
        "pre{overflow-x:auto;font-size:12px}figure{margin:.25rem 0;display:flex;gap:.75rem;align-items:center}"
        "figcaption{width:22rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}"
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>echotrap bench</title>"
        f"<style>{style}</style><h1>echotrap bench</h1>{''.join(body)}</html>\n"
    )


def _bar(item: Judged) -> str:
    last = max(item.last_step or 1, 1)

    def x(step: int) -> float:
        return 600 * min(max(step / last, 0), 1)

    marks = ""
    if item.case.onset_first is not None:
        first, end = x(item.case.onset_first), x(item.case.onset_last or item.case.onset_first)
        marks += f'<rect x="{first:.1f}" y="0" width="{max(end - first, 2):.1f}" height="16" fill="#d08a1d" opacity=".35"/>'
    if item.first_step is not None:
        marks += f'<rect x="{x(item.first_step):.1f}" y="0" width="3" height="16" fill="{COLOURS[item.severity]}"/>'
    if item.no_return_step is not None:
        marks += f'<circle cx="{x(item.no_return_step):.1f}" cy="8" r="4" fill="none" stroke="currentColor"/>'
    title = html.escape(f"{item.case.case}: {item.severity} ({item.label})")
    return (
        f'<figure><figcaption title="{title}"><b style="color:{COLOURS[item.severity]}">{item.severity}</b> '
        f"{html.escape(item.case.case)}</figcaption>"
        f'<svg role="img" aria-label="{title}" viewBox="0 0 604 16" width="604" height="16">'
        f'<rect width="604" height="16" fill="#8882"/>{marks}</svg></figure>'
    )
