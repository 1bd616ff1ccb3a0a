"""``echotrap detectors``."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echotrap.cli import _console, _options

if TYPE_CHECKING:
    from echotrap.detector import Card


class Format(StrEnum):
    """What the catalogue can be written as."""

    text = "text"
    json = "json"
    markdown = "markdown"


def detectors(
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print.")] = Format.text,
    folders: _options.DetectorsOption = None,
) -> None:
    """List the catalogue: what each detector sees, what it needs, and the most it may say."""
    cards = _cards(folders or [])
    if format is Format.json:
        _console.write(json.dumps([_facts(card) for card in cards], indent=2, ensure_ascii=False) + "\n")
    elif format is Format.markdown:
        _console.write(_page(cards))
    else:
        _table(cards)


def catalogue_page() -> str:
    """The page of the built-in catalogue, ``detectors/README.md``."""
    return _page(_cards([]))


def _cards(folders: list[Path]) -> list[Card]:
    from echotrap.registry import catalogue

    cards = [detector.card for detector in catalogue(folders).values()]
    return sorted(cards, key=lambda card: (("core", "extension", "run-level").index(card.tier), card.family, card.id))


def _page(cards: list[Card]) -> str:
    lines = [
        "# The catalogue",
        "",
        "One file, one detector. `echotrap explain ID` prints the whole story of one: what it looks at, why it matters, how it",
        "decides, when it is wrong and what to do; [docs/catalogue](../docs/catalogue) holds the same with figures. This page is",
        "written by `echotrap detectors --format markdown`.",
    ]
    for tier in dict.fromkeys(card.tier for card in cards):
        lines += ["", f"## {tier.capitalize()}", "", "| id | symptom | listens to | needs | at most |", "|---|---|---|---|---|"]
        for card in cards:
            if card.tier == tier:
                link = f"[{card.id}]({card.id.replace('-', '_')}.py)"
                lines.append(f"| {link} | {card.title} | {card.family} | {_needs(card)} | {card.highest.severity} |")
    return "\n".join(lines) + "\n"


def _table(cards: list[Card]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("id", no_wrap=True, style="bold")
    table.add_column("at most", no_wrap=True)
    table.add_column("symptom", overflow="fold")
    for card in cards:
        table.add_row(card.id, card.highest.severity, card.title)
    _console.show(table)


def _needs(card: Card) -> str:
    return ", ".join(" or ".join(f"`{name}`" for name in names) for names in card.needs)


def _facts(card: Card) -> dict[str, object]:
    return {
        "id": card.id,
        "code": card.code,
        "title": card.title,
        "tier": card.tier,
        "family": card.family,
        "highest": card.highest.severity,
        "needs": card.needs,
        "uses": card.uses,
        "gates": card.gates,
        "remedies": [{"action": item.action, "keys": dict(item.keys), "cost": item.cost} for item in card.remedies],
        "references": card.references,
    }
