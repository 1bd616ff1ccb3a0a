"""Rollout text: shown as text, with repeated spans marked. The browser builds text nodes only; no markup is ever parsed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import streamlit as st

from echotrap.app.components.chart import STATIC

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

__all__ = ["Block", "Span", "block", "show"]

MAX_CHARS = 60_000
"""Longer blocks are cut on the page; the log still holds them."""


class Span(NamedTuple):
    """Characters ``start`` to ``end``, and why they are marked: ``"repeat"`` or ``"shared"``."""

    start: int
    end: int
    kind: str = "repeat"


class Block(TypedDict):
    """One turn, or one part of it: who wrote it, and its pieces, each with the reason why it is marked or with none."""

    role: str
    pieces: list[tuple[str, str]]


def block(role: str, text: str, spans: Iterable[Span] = ()) -> Block:
    """Cut a text into marked and unmarked pieces; where spans overlap, the later kind in the alphabet gives way.

    Examples
    --------
    >>> block("assistant", "go go go!", [Span(0, 5), Span(3, 8)])["pieces"]
    [('go go go', 'repeat'), ('!', '')]
    """
    kinds = [""] * min(len(text), MAX_CHARS)
    for start, end, kind in sorted(spans, key=lambda span: span.kind, reverse=True):
        kinds[start:end] = [kind] * (min(end, len(kinds)) - min(start, len(kinds)))
    pieces: list[tuple[str, str]] = []
    at = 0
    for kind, run in groupby(kinds):
        length = sum(1 for _ in run)
        pieces.append((text[at : at + length], kind))
        at += length
    if len(text) > MAX_CHARS:
        pieces.append((f"\n… {len(text) - MAX_CHARS:,} more characters are in the log", ""))
    return {"role": role, "pieces": pieces}


def show(blocks: Sequence[Block], *, key: str, raw: str | None = None, height: int = 460, keys: bool = False) -> int:
    """Show a rollout by turns, with a copy button.

    Parameters
    ----------
    blocks : sequence of Block
        In order.
    key : str
        Identity on the page.
    raw : str, optional
        What the copy button copies; the blocks' text if not given.
    height : int
        Of the scrolling box, in pixels.
    keys : bool
        Whether the arrow keys step to the neighbours.

    Returns
    -------
    int
        +1 or -1 when an arrow key was pressed just now, else 0.
    """
    text = raw if raw is not None else "\n".join("".join(piece for piece, _ in item["pieces"]) for item in blocks)
    data = {"blocks": list(blocks), "raw": text[: 4 * MAX_CHARS], "height": height, "keys": keys}
    return int(_component()(key=key, data=data, on_move_change=lambda: None).move or 0)


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component(
        "echotrap.rollout",
        html='<div class="echotrap-rollout"></div>',
        css=(STATIC / "rollout.css").read_text("utf-8"),
        js=(STATIC / "rollout.js").read_text("utf-8"),
        isolate_styles=False,
    )
