"""One detector as a page of documentation: its card, its story, its parameters and its remedies by framework."""

from __future__ import annotations

import re
from dataclasses import fields

from echotrap.detector import Card, Detector

__all__ = ["page"]

HEADING = re.compile(r"^(.+)\n-{3,}$", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def page(detector: Detector, story: str, figure: str | None = None) -> str:
    """Markdown of one detector.

    Parameters
    ----------
    detector : Detector
        Whose card and parameters are shown.
    story : str
        The docstring of its file.
    figure : str, optional
        Address of a picture, and after a blank its caption.
    """
    card = detector.card
    first, _, rest = story.partition("\n\n")
    rest = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", HEADING.sub(r"## \1", rest))
    parts = [f"# {card.id}", first, _facts(card)]
    if figure:
        address, _, caption = figure.partition(" ")
        parts += [f"![{caption}]({address})", f"_{caption}_"]
    parts += [rest, *_parameters(detector), *_remedies(card)]
    return "\n\n".join(parts) + "\n"


def _facts(card: Card) -> str:
    needs = ", ".join(" or ".join(f"`{name}`" for name in names) for names in card.needs)
    rows = {
        "tier": card.tier,
        "listens to": card.family,
        "says at most": card.highest.severity,
        "needs": needs or "nothing in particular",
        "sharpened by": ", ".join(f"`{name}`" for name in card.uses),
        "held back by": ", ".join(card.gates),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items() if value)])


def _parameters(detector: Detector) -> list[str]:
    rows = []
    for field in fields(detector.params):
        facts, default = field.metadata, getattr(detector.params, field.name)
        if "source" in facts:
            numbers = (f"{default:g}", f"{facts['low']:g}", f"{facts['high']:g}", f"{facts['least']:g} to {facts['most']:g}")
            rows.append(f"| `{field.name}` | {' | '.join(numbers)} | {_cell(str(facts['source']))} |")
        else:
            rows.append(f"| `{field.name}` | {default} | | | | |")
    if not rows:
        return []
    head = "| name | default | at low sensitivity | at high | bounds | where from |\n|---|---|---|---|---|---|"
    return ["## Parameters", head + "\n" + "\n".join(rows)]


def _remedies(card: Card) -> list[str]:
    if not card.remedies:
        return []
    parts = ["## What to set"]
    for remedy in card.remedies:
        parts.append(f"**{remedy.action}**" + (f" ({remedy.cost})" if remedy.cost else ""))
        if remedy.keys:
            rows = "\n".join(f"| {name} | `{_cell(text)}` |" for name, text in remedy.keys.items())
            parts.append(f"| framework | setting |\n|---|---|\n{rows}")
    return parts


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
