"""A page of its own: no script, no request, readable on a phone, on paper and in the dark. Text of others stays text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from html import escape

from echotrap._version import __version__
from echotrap.render import Result, View, svg, words
from echotrap.report import Evidence, Finding, Lever, Report, RolloutRef, RunError

__all__ = ["render"]

LIMIT_BYTES = 1_400_000

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1b1f24; --soft: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --critical: #b3261e; --warning: #8a5300; --info: #0b57d0; --ok: #1a7f37; --insufficient: #7b3fa0; --mark: #ffe08a; }
@media (prefers-color-scheme: dark) { :root { --bg: #0f1318; --fg: #e6e9ee; --soft: #a3adb8; --line: #3a424c; --card: #181e25;
  --critical: #ff8a80; --warning: #ffb95c; --info: #8ab4f8; --ok: #6fdd8b; --insufficient: #d7a8f5; --mark: #6b5200; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 1rem; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; } h4 { font-size: .95rem; margin: .8rem 0 .2rem; }
p { margin: .3rem 0; } ul, ol { margin: .3rem 0; padding-left: 1.3rem; } small, .soft { color: var(--soft); font-size: .875rem; }
code, pre { font: .875rem/1.45 ui-monospace, monospace; } pre { white-space: pre-wrap; margin: .3rem 0; }
.banner { border: 1px solid var(--line); border-left: .5rem solid currentColor; background: var(--card); padding: .8rem 1rem; }
.banner > * { color: var(--fg); } .banner > :first-child { color: inherit; font-size: 1.6rem; margin: 0 0 .3rem; }
.banner h2 { font-size: 1rem; margin: .8rem 0 .2rem; }
.critical { color: var(--critical); fill: var(--critical); } .warning { color: var(--warning); fill: var(--warning); }
.info { color: var(--info); fill: var(--info); } .ok { color: var(--ok); fill: var(--ok); }
.insufficient { color: var(--insufficient); fill: var(--insufficient); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0;
  border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; font-size: .875rem; }
.pairs { width: auto; }
.pairs th { padding-right: 1.5rem; } .scroll { overflow-x: auto; }
article { border-top: 1px solid var(--line); padding-top: .3rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: .8rem; }
.rollout { border: 1px solid var(--line); background: var(--card); padding: .5rem .7rem; margin: 0 0 .5rem; }
mark { background: var(--mark);
  color: inherit; } .panel p { margin: .4rem 0 0; font-size: .875rem; } svg { display: block; overflow: visible; }
.panel > svg { border-bottom: 1px solid var(--line); } .line { fill: none; stroke: var(--info); stroke-width: 1.5;
  stroke-linecap: round; stroke-linejoin: round; vector-effect: non-scaling-stroke; } .band { fill: var(--soft); opacity: .18; }
.baseline { stroke: var(--soft); stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; }
.shade { fill: var(--critical); opacity: .12; } .alarm { stroke: var(--critical); vector-effect: non-scaling-stroke; }
.event { stroke: var(--soft); stroke-dasharray: 2 3; vector-effect: non-scaling-stroke; }
text { fill: var(--fg); font-size: 12px; } .legend { font-size: .875rem; color: var(--soft); }
.key { display: inline-block; width: 1rem; height: .7rem; border-left: 2px solid transparent; }
.key.shade { background: var(--critical); opacity: .3; } .key.alarm { border-color: var(--critical); }
.key.event { border-left: 2px dotted var(--soft); } .key.band { background: var(--soft); opacity: .4; }
footer { margin-top: 2rem; border-top: 1px solid var(--line); padding-top: .5rem; }
@media print { body { max-width: none; font-size: 11pt; } article, .panel, .rollout { break-inside: avoid; } }
"""


def render(results: tuple[Result, ...], view: View) -> str:
    """One page: an index where there are several runs, then the runs, worst first, as long as they fit."""
    ordered = words.worst_first(results)
    many = len(ordered) > 1
    parts = [_index(ordered)] if many else []
    used = len(STYLE) + len(parts[0].encode() if parts else "")
    for count, item in enumerate(ordered):
        part = _unread(item) if isinstance(item, RunError) else _run(item, count)
        part = re.sub(r"(</?h)(\d)>", lambda tag: f"{tag[1]}{int(tag[2]) + 1}>", part) if many else part
        used += len(part.encode())
        if used > LIMIT_BYTES and count:
            parts.append(f"<p>{len(ordered) - count} more runs do not fit on this page; they are in the table above.</p>")
            break
        parts.append(part)
    return _page(_name(ordered), "\n".join(parts))


def _page(title: str, body: str) -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n<footer><p><small>echotrap {__version__}</small></p></footer>\n</body>\n</html>\n"
    )


def _name(ordered: list[Result]) -> str:
    if len(ordered) == 1 and isinstance(ordered[0], Report):
        return f"{_(ordered[0].run.name)}: {_(words.title(ordered[0].verdict))}"
    return f"echotrap: {len(ordered)} runs"


def _index(ordered: list[Result]) -> str:
    rows = []
    for count, item in enumerate(ordered):
        if isinstance(item, RunError):
            rows.append(f'<tr><td>{_(item.source)}</td><td class="critical">cannot be judged</td><td></td><td></td></tr>')
        else:
            verdict = item.verdict
            steps = f"<td>{_step(verdict.onset_step)}</td><td>{_step(verdict.alarm_step)}</td>"
            link = f'<a href="#run-{count}">{_(item.run.name)}</a>'
            rows.append(f'<tr><td>{link}</td><td class="{verdict.severity}">{_(words.title(verdict))}</td>{steps}</tr>')
    head = "<tr><th>run</th><th>verdict</th><th>began</th><th>first alarm</th></tr>"
    return f'<h1>{len(ordered)} runs</h1>\n<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _unread(error: RunError) -> str:
    head = f"<h1>{_(error.source)} cannot be judged</h1>"
    return f'<section class="banner critical">{head}<p>{_(words.error_line(error))}</p></section>'


def _run(report: Report, number: int) -> str:
    sections = [
        _banner(report),
        _section("What happened", _items(report.story, "ol")),
        _section("Signals", svg.figure(report)),
        _section("Findings", "".join(_finding(item) for item in words.by_severity(report.findings))),
        _section("Detectors that raised", _items(f"{item.detector}: {item.error}" for item in report.failed)),
        _section("What was looked at", _coverage(report)),
        _section("Not evaluated", _items(f"{reason}: {', '.join(ids)}" for reason, ids in words.reasons(report.not_evaluated))),
        _section("Notes from reading the log", _items(f"{item.message} ({item.count}x)" for item in report.notes)),
        _section("The run", _facts(report)),
    ]
    return f'<section id="run-{number}">\n' + "\n".join(filter(None, sections)) + "\n</section>"


def _section(title: str, body: str) -> str:
    return f"<h2>{title}</h2>\n{body}" if body else ""


def _banner(report: Report) -> str:
    verdict = report.verdict
    about = " · ".join(filter(None, (words.when(verdict), f"confidence {verdict.confidence}", words.coverage(report.coverage))))
    parts = [
        f"<h1>{_(words.title(verdict))}</h1>",
        f"<p><b>{_(verdict.headline)}</b></p>",
        f'<p class="soft">{_(words.facts(report.run))}<br>{_(about)}</p>',
    ]
    for title, lines in (("Why", verdict.why), ("What speaks against it", verdict.against)):
        parts.append(_titled("h2", title, _items(lines)))
    todo = [_lever(lever) for lever in words.remedies(report)]
    if back := words.go_back(report):
        todo.insert(0, back)
    parts.append(_titled("h2", "Do now", f"<ol>{''.join(f'<li>{item}</li>' for item in todo)}</ol>" if todo else ""))
    return f'<header class="banner {verdict.severity}">{"".join(parts)}</header>'


def _titled(heading: str, title: str, body: str) -> str:
    return f"<{heading}>{title}</{heading}>{body}" if body else ""


def _lever(lever: Lever) -> str:
    key = f"<br><code>{'<br>'.join(map(_, words.key_lines(lever.key)))}</code>" if lever.key else ""
    cost = f" <small>{_(lever.cost)}</small>" if lever.cost else ""
    return f"{_(lever.action)}{cost}{key}"


def _finding(finding: Finding) -> str:
    about = [words.when(finding), finding.family]
    if finding.suppressed_by:
        about.append(f"follows from {finding.suppressed_by}")
    if finding.waived:
        about.append(f"accepted: {finding.waived}")
    if finding.origin:
        about.append(finding.origin)
    levers = "".join(f"<li>{_lever(lever)}</li>" for lever in finding.remedy)
    rows = "".join(f"<tr><th>{_(item.name)}</th><td>{_(_value(item))}</td></tr>" for item in finding.evidence)
    return "".join(
        (
            f'<article><h3><span class="{finding.severity}">{finding.severity}</span> ',
            f"{_(finding.detector)}: {_(finding.title)}</h3>",
            f'<p>{_(finding.message)}</p><p class="soft">{_(" · ".join(about))}</p>',
            f'<table class="pairs">{rows}</table>' if rows else "",
            _titled("h4", "Against", _items(finding.counter_evidence)),
            _titled("h4", "What to do", f"<ol>{levers}</ol>" if levers else ""),
            _titled("h4", "Rollouts", _rollouts(finding.rollouts)),
            f"<p><small>References: {_('; '.join(finding.references))}</small></p>" if finding.references else "",
            "</article>",
        )
    )


def _value(item: Evidence) -> str:
    return item.text or words.number(item.value, item.unit)


def _rollouts(rollouts: Iterable[RolloutRef]) -> str:
    """Before beside during."""
    sides: dict[str, list[str]] = {"before": [], "during": []}
    for item in rollouts:
        about = [f"step {item.step}"]
        about += [f"group {item.group}"] if item.group is not None else []
        about += [f"reward {words.number(item.reward)}"] if item.reward is not None else []
        about += [item.origin] if item.origin else []
        text = f'<p class="soft">{_(" · ".join(about))}</p><pre>{_marked(item)}</pre>'
        sides[item.when].append(f'<div class="rollout">{text}</div>')
    columns = [f"<div><p><b>{when.capitalize()}</b></p>{''.join(cards)}</div>" for when, cards in sides.items() if cards]
    return f'<div class="pair">{"".join(columns)}</div>' if columns else ""


def _marked(item: RolloutRef) -> str:
    """The excerpt with repeated spans marked."""
    out, at = [], 0
    for span in sorted(item.spans, key=lambda span: span.start):
        start, end = max(span.start, at), min(span.end, len(item.text))
        if start < end:
            out += [_text(item.text[at:start]), f"<mark>{_text(item.text[start:end])}</mark>"]
            at = end
    return "".join([*out, _text(item.text[at:])])


def _coverage(report: Report) -> str:
    rows = []
    for part in report.coverage.signature:
        key = f" from <code>{_(part.key)}</code>" if part.key else ""
        rows.append(f"<tr><td>{part.part}</td><td>{_(part.signal or '')}{key}</td><td>{part.provenance}</td></tr>")
    head = "<tr><th>part of the signature</th><th>signal</th><th>where from</th></tr>"
    table = f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>' if rows else ""
    others = sorted(set(report.coverage.signals) - {part.signal for part in report.coverage.signature})
    lines = [f"highest stage that these signals can show: {report.coverage.highest_stage}"]
    lines += [f"also read: {', '.join(others)}"] if others else []
    lines += [f"nothing found by: {', '.join(report.clear)}"] if report.clear else []
    lines += [f"unknown keys: {', '.join(report.coverage.unknown_keys[:60])}"] if report.coverage.unknown_keys else []
    return table + _items(lines)


def _facts(report: Report) -> str:
    run = report.run
    facts: dict[str, object] = {"source": run.source, "format": run.format, "framework": run.framework}
    facts |= {"framework version": run.framework_version, "steps": run.steps, "first step": run.first_step}
    facts |= {"last step": run.last_step, "also there, not judged": ", ".join(run.other_runs[:40]) or None, **run.config}
    facts |= {f"setting {name}": value for name, value in report.settings.items()}
    facts |= {"echotrap": report.tool_version, "report schema": report.schema_version}
    rows = [f"<tr><th>{_(name)}</th><td>{_(str(value))}</td></tr>" for name, value in facts.items() if value is not None]
    return f'<table class="pairs">{"".join(rows)}</table>'


def _items(lines: Iterable[str], kind: str = "ul") -> str:
    items = "".join(f"<li>{_(line)}</li>" for line in lines)
    return f"<{kind}>{items}</{kind}>" if items else ""


def _step(step: int | None) -> str:
    return "" if step is None else str(step)


def _text(text: str) -> str:
    """Several lines of text of others."""
    return "\n".join(_(line) for line in text.split("\n"))


def _(text: str) -> str:
    return escape(words.plain(text))
