"""The rollouts of one step as a table, each of them as marked turns, and what to read beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from echotrap import signals
from echotrap.app.components.rollout import Block, Span, block
from echotrap.record import Run
from echotrap.rollouts import Rollout, RolloutStore
from echotrap.text import ngrams
from echotrap.text import stories as stories_of
from echotrap.text.measure import Scores, Start, measure
from echotrap.text.parse import dialogue
from echotrap.text.templates import Clusters
from echotrap.text.words import locate

__all__ = ["Companion", "Scored", "at", "companions", "steps_of", "stories"]

TAGS = {"copy": 0.5, "one_symbol": 0.5, "loop_coverage": 0.5, "gibberish": 0.5, "empty": 0.5, "malformed": 0.5}
TAG_WORDS = {"loop_coverage": "loop", "one_symbol": "one symbol", "malformed": "malformed call"}
MOST_EARLIER = 12
MOST_SHOWN = 2000
LONG_GROUP = 8  # characters: a longer name is shown as a number
RUN_OF_ONE = re.compile(r"(\S)\1{15,}|(\S{1,12}\s?)\2{9,}")


class Companion(NamedTuple):
    """A rollout to read beside another one: why, and which."""

    why: str
    step: int
    place: int


@dataclass(frozen=True)
class Scored:
    """The rollouts of one step with what was measured on each."""

    step: int
    rollouts: tuple[Rollout, ...]
    scores: Scores
    table: pd.DataFrame
    remarks: tuple[str, ...]

    def row(self, index: int) -> dict[str, Any]:
        """One line of the table."""
        return {str(key): value for key, value in self.table.iloc[index].items()}

    def blocks(self, index: int, *, raw: bool = False) -> list[Block]:
        """One rollout by turns, what it repeats and what it shares marked; or the record as it was logged."""
        if raw:
            return [block("", self.raw(index))]
        said = dialogue(self.rollouts[index])
        own = iter(self._marks([text for role, text in said if role == "assistant"]))
        return [block(role, text, next(own) if role == "assistant" else ()) for role, text in said]

    def raw(self, index: int) -> str:
        """One rollout as JSON."""
        item = self.rollouts[index]
        whole = {name: getattr(item, name) for name in item.__slots__}
        whole["messages"] = [{"role": m.role, "content": m.content, "tool_calls": list(m.tool_calls)} for m in item.messages]
        return json.dumps(whole, indent=2, ensure_ascii=False, default=str)

    def _marks(self, texts: list[str]) -> list[list[Span]]:
        """Spans per text: 4-grams that come again in this rollout, and those that rollouts of other prompts have too."""
        found = [locate(text) for text in texts]
        codes = [ngrams.codes_of(hashes, 4) >> np.uint64(ngrams.OWNER_BITS) for hashes, _ in found]
        every, counts = np.unique(np.concatenate(codes) if codes else np.empty(0, np.uint64), return_counts=True)
        again = every[counts > 1]
        marks: list[list[Span]] = []
        for text, (_, places), own in zip(texts, found, codes, strict=True):
            spans = [Span(places[k][0], places[k + 3][1], "shared") for k in np.flatnonzero(np.isin(own, self.scores.shared))]
            spans += [Span(places[k][0], places[k + 3][1], "repeat") for k in np.flatnonzero(np.isin(own, again))]
            spans += [Span(*match.span(), "repeat") for match in RUN_OF_ONE.finditer(text)]
            marks.append(spans)
        return marks


def steps_of(store: RolloutStore | None) -> tuple[int, ...]:
    """Steps that have rollouts: training ones, else evaluation ones."""
    return () if store is None else signals.Reader(store).steps


@st.cache_resource(max_entries=48, show_spinner="Reading the rollouts …")
def _measured(source: str, fingerprint: str | None, step: int, _run: Run, _store: RolloutStore) -> Scored:
    read, of = signals.Reader(_store, MOST_SHOWN).at(step)
    rollouts = tuple(read)
    scores = measure(rollouts, _start(source, _store))
    seen = scores.per_rollout
    table = pd.DataFrame(
        {
            "rollout": range(len(rollouts)),
            "group": [item.group if item.group is not None else "" for item in rollouts],
            "reward": [item.reward for item in rollouts],
            "repetition": seen["rep_4"],
            "shared": seen["cross_rollout_share"],
            "words": seen["words"].astype(int),
            "tags": [_tags(item, seen, index) for index, item in enumerate(rollouts)],
            "begins": [" ".join(item.text[:600].split())[:160] for item in scores.parsed],
        }
    )
    if not any(item.group for item in rollouts) or table["group"].str.len().max() > LONG_GROUP:
        table["group"] = [str(number) for number in scores.group]
    table["passed"] = _passed(rollouts)
    return Scored(step, rollouts, scores, table, tuple(_remarks(_run, _store, rollouts, of)))


@st.cache_resource(max_entries=48, show_spinner=False)
def _start(source: str, _store: RolloutStore) -> Start:
    return signals.start_of(_store)


def at(run: Run, store: RolloutStore, step: int) -> Scored:
    """The rollouts of one step, measured; kept until the step's rollouts change."""
    return _measured(run.source, store.fingerprint(step), step, run, store)


def companions(store: RolloutStore, scored: Scored, index: int, onset: int | None) -> list[Companion]:
    """What to read beside a rollout: the same prompt at earlier steps, else one from before the onset, then its own group."""
    item = scored.rollouts[index]
    reader = signals.Reader(store, MOST_SHOWN)
    earlier = [step for step in reader.steps if step < scored.step]
    calm = [step for step in earlier if onset is None or step < onset] or earlier
    tried = sorted({*calm[-4:], *calm[:2], *earlier[:: max(len(earlier) // 6, 1)]}, reverse=True)[:MOST_EARLIER]
    found = []
    for step in tried if item.prompt else ():
        same = next((k for k, other in enumerate(reader.at(step)[0]) if other.prompt == item.prompt), None)
        if same is not None:
            found.append(Companion("same prompt", step, same))
    if not found and calm:
        found = [Companion("earlier", step, index) for step in dict.fromkeys((calm[-1], calm[len(calm) // 2], calm[0]))]
    mates = [int(k) for k in np.flatnonzero(scored.scores.group == scored.scores.group[index]) if k != index]
    return [*found, *(Companion("same group", scored.step, k) for k in mates[:8])]


@st.cache_resource(max_entries=8, show_spinner="Grouping what the policy says …")
def _stories(source: str, fingerprint: str, _store: RolloutStore) -> Clusters | None:
    return stories_of(_store)


def stories(run: Run, store: RolloutStore) -> Clusters | None:
    """The few stories that the policy tells over the run, from a seeded sample of its rollouts."""
    steps = steps_of(store)
    return _stories(run.source, f"{len(steps)} {steps[-1] if steps else ''}", store)


def _passed(rollouts: Iterable[Rollout]) -> list[bool]:
    """Solved, where the log says so; else whether the reward lies in the upper half of the step's range."""
    said = [next((item.extra[key] for key in signals.SOLVED if key in item.extra), None) for item in rollouts]
    rewards = np.array([item.reward for item in rollouts], float)
    seen = rewards[np.isfinite(rewards)]
    middle = (seen.min() + seen.max()) / 2 if len(seen) and seen.max() > seen.min() else 0.0
    return [
        bool(word) if isinstance(word, bool | int | float) else bool(reward > middle)
        for word, reward in zip(said, rewards, strict=True)
    ]


def _tags(item: Rollout, seen: Any, index: int) -> list[str]:
    found = [TAG_WORDS.get(name, name) for name, limit in TAGS.items() if seen[name][index] > limit]
    return [*found, *(["cut"] if item.truncated else [])]


def _remarks(run: Run, store: RolloutStore, rollouts: tuple[Rollout, ...], of: int) -> Iterable[str]:
    """What one has to know about a dump before believing it."""
    if of > len(rollouts):
        yield f"A seeded sample of {len(rollouts):,} of the step's {of:,} rollouts is shown."
    if not store.steps():
        yield "These are evaluation rollouts; training rollouts were not logged."
    size, prompts = run.config.group_size, run.config.prompts_per_step
    if size and prompts and len(rollouts) < size * prompts:
        yield f"The dump holds {len(rollouts)} of the step's {size * prompts} rollouts; what a filter took out is not here."
    elif size and rollouts and len(rollouts) % size:
        yield f"{len(rollouts)} rollouts are no multiple of the group size {size}: the dump is incomplete or filtered."
    kept = run.metrics["filter_kept_frac"].get(rollouts[0].step) if rollouts and run.has("filter_kept_frac") else None
    if kept is not None and kept < 1:
        yield f"A filter kept {kept:.0%} of the prompt groups of this step; dumps usually hold only those."
    for note in store.notes:
        yield f"{note.message} ({note.count})" if note.count > 1 else note.message
