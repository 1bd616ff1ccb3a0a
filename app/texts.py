"""The rollouts of one step as a table, and each of them as marked turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from echotrap.app.components.rollout import Block, block
from echotrap.rollouts import Rollout, RolloutStore

__all__ = ["Scored", "at", "companions"]

Companion = tuple[str, "Scored", int]


@dataclass(frozen=True)
class Scored:
    """The rollouts of one step with what was measured on each."""

    step: int
    rollouts: tuple[Rollout, ...]
    table: pd.DataFrame
    spans: tuple[tuple[tuple[int, int], ...], ...]
    remarks: tuple[str, ...] = ()

    def row(self, index: int) -> dict[str, Any]:
        """One line of the table."""
        return {str(key): value for key, value in self.table.iloc[index].items()}

    def blocks(self, index: int, *, raw: bool = False) -> list[Block]:
        """One rollout by turns, prompt first, repeated spans marked; or the record as it was logged."""
        item = self.rollouts[index]
        if raw:
            return [block("", self.raw(index))]
        prompt = [block("prompt", item.prompt)] if item.prompt else []
        if item.messages and not item.text:
            return prompt + [block(message.role, message.content) for message in item.messages]
        return [*prompt, block("assistant", item.text, self.spans[index])]

    def raw(self, index: int) -> str:
        """One rollout as JSON."""
        item = self.rollouts[index]
        whole = {name: getattr(item, name) for name in item.__slots__}
        whole["messages"] = [{"role": m.role, "content": m.content, "tool_calls": list(m.tool_calls)} for m in item.messages]
        return json.dumps(whole, indent=2, ensure_ascii=False, default=str)


@st.cache_data(max_entries=64, show_spinner="Reading the rollouts …")
def at(source: str, _store: RolloutStore, step: int) -> Scored:
    """The rollouts of one step, measured."""
    rollouts = tuple(_store.at(step))
    measured = [_measure(item.text) for item in rollouts]
    table = pd.DataFrame(
        {
            "rollout": range(len(rollouts)),
            "group": [item.group or "" for item in rollouts],
            "reward": [item.reward for item in rollouts],
            "repetition": [share for share, _ in measured],
            "words": [len(item.text.split()) for item in rollouts],
            "tags": [_tags(item) for item in rollouts],
            "begins": [" ".join(item.text[:400].split())[:160] for item in rollouts],
        }
    )
    table["shared"] = float("nan")
    best = table["reward"].max()
    table["passed"] = [_passed(item, best) for item in rollouts]
    return Scored(step, rollouts, table, tuple(spans for _, spans in measured))


def companions(source: str, store: RolloutStore, scored: Scored, step: int, index: int) -> list[Companion]:
    """What to look at beside a rollout: the same prompt at earlier steps, then others of its own group."""
    item = scored.rollouts[index]
    earlier = [other for other in store.steps() if other < step]
    tried = sorted({*earlier[:3], *earlier[-3:], *earlier[:: max(len(earlier) // 8, 1)]})
    found: list[Companion] = []
    for other in tried:
        before = at(source, store, other)
        same = [k for k, candidate in enumerate(before.rollouts) if item.prompt and candidate.prompt == item.prompt]
        if same:
            found.append(("same prompt", before, same[0]))
    if not found and earlier:
        found = [("another prompt", before, 0) for other in tried[:4] if (before := at(source, store, other)).rollouts]
    group = [k for k, mate in enumerate(scored.rollouts) if item.group is not None and mate.group == item.group and k != index]
    return [*found[:8], *(("same group", scored, k) for k in group[:8])]


def _passed(item: Rollout, best: float) -> bool:
    said = item.extra.get("acc", item.extra.get("correct"))
    return bool(said) if isinstance(said, bool | int | float) else bool(item.reward >= best > 0)


def _tags(item: Rollout) -> list[str]:
    facts = {"truncated": item.truncated, "empty": not item.text.strip()}
    return [name for name, holds in facts.items() if holds]


def _measure(text: str) -> tuple[float, tuple[tuple[int, int], ...]]:
    """Share of repeated word 4-grams, and where they are."""
    import re

    words = [(m.group().lower(), m.start(), m.end()) for m in re.finditer(r"\w+", text)]
    grams: dict[tuple[str, ...], list[int]] = {}
    for k in range(len(words) - 3):
        grams.setdefault(tuple(w for w, _, _ in words[k : k + 4]), []).append(k)
    total = max(len(words) - 3, 1)
    twice: Sequence[int] = sorted(k for places in grams.values() if len(places) > 1 for k in places)
    return (sum(len(p) - 1 for p in grams.values()) / total, tuple((words[k][1], words[k + 3][2]) for k in twice))
