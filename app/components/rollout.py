"""Rollout text: shown as text, with repeated spans marked. The browser builds text nodes only; no markup is ever parsed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypedDict

import streamlit as st

from echotrap.app.components.chart import STATIC

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

__all__ = ["Block", "block", "show"]

MAX_CHARS = 60_000
"""Longer blocks are cut in the middle on the page; the raw log still holds them."""


class Block(TypedDict):
    """One turn, or one part of it: who wrote it, and pieces of text that are marked or not."""

    role: str
    pieces: list[tuple[str, bool]]


def block(role: str, text: str, spans: Iterable[tuple[int, int]] = ()) -> Block:
    """Cut a text into marked and unmarked pieces.

    Examples
    --------
    >>> block("assistant", "go go go!", [(0, 5), (3, 8)])["pieces"]
    [('go go go', True), ('!', False)]
    """
    pieces: list[tuple[str, bool]] = []
    at = 0
    for start, end in _merged(spans, len(text)):
        if start > at:
            pieces.append((text[at:start], False))
        pieces.append((text[start:end], True))
        at = end
    if at < len(text) or not pieces:
        pieces.append((text[at:], False))
    return {"role": role, "pieces": _cut(pieces)}


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


def _merged(spans: Iterable[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in sorted((max(start, 0), min(end, length)) for start, end in spans):
        if end <= start:
            continue
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _cut(pieces: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    total = sum(len(text) for text, _ in pieces)
    if total <= MAX_CHARS:
        return pieces
    out, left = [], MAX_CHARS
    for text, marked in pieces:
        out.append((text[:left], marked))
        left -= len(text)
        if left <= 0:
            break
    return [*out, (f"\n… {total - MAX_CHARS:,} more characters are in the log", False)]
