"""The rollouts that prove a finding, with the repeated passages located."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from echotrap.record import Run
from echotrap.report import RolloutRef, Span
from echotrap.rollouts import Rollout
from echotrap.signals import Reader
from echotrap.text import chars, ngrams
from echotrap.text.measure import Scores, Start, measure
from echotrap.text.parse import RESULT
from echotrap.text.words import locate, tokenize

__all__ = ["examples"]

Floats = NDArray[np.float64]
Marker = Callable[[str, "_Step"], list[tuple[int, int]]]

EXCERPT = 2000
MOST_ROLLOUTS = 512
DURING, BEFORE = 4, 3
STEPS = 3
_RUN = re.compile(r"(\S)(?:\s*\1){7,}|(<\w+>)(?:\s*\2){4,}")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


@dataclass(frozen=True)
class _Step:
    """One step's rollouts and their scores."""

    step: int
    rollouts: Sequence[Rollout]
    scores: Scores
    start: Start


@dataclass(frozen=True)
class _Kind:
    """How a finding is shown: which rollouts are the worst, and what to mark in them."""

    score: Callable[[_Step], Floats]
    mark: Marker
    raw: bool = False
    other_prompts: bool = False


def examples(run: Run, detector: str, onset_step: int, alarm_step: int) -> tuple[RolloutRef, ...]:
    """Up to four rollouts between onset and alarm that show a finding best, and three from before the onset.

    Parameters
    ----------
    run : Run
        With rollouts.
    detector : str
        Id of the detector that found it.
    onset_step, alarm_step : int
        When it began, and when it was seen.

    Returns
    -------
    tuple of RolloutRef
        Worst first, then the earlier ones; empty where there are no rollouts, or none that could show it.

    Examples
    --------
    >>> import pandas as pd
    >>> from echotrap.rollouts import MemoryStore
    >>> rollouts = [Rollout(step, "go left " * 9 * step + f"for {i}", prompt=str(i)) for step in (1, 5) for i in range(4)]
    >>> run = Run("example", "-", "frame", pd.DataFrame(), rollouts=MemoryStore(rollouts))
    >>> found = examples(run, "within-rollout-repetition", 5, 5)
    >>> [(ref.when, ref.step) for ref in found].count(("during", 5)), found[0].text[found[0].spans[0].start :][:7]
    (4, 'go left')
    """
    kind = _KINDS.get(detector)
    if run.rollouts is None or kind is None:
        return ()
    reader = Reader(run.rollouts, MOST_ROLLOUTS)
    if not reader.steps:
        return ()
    start = reader.start()
    during = [step for step in reader.steps if onset_step <= step <= alarm_step][-STEPS:]
    if not during:
        during = [step for step in reader.steps if step > alarm_step][:1]
    shown = [_read(reader, step, start) for step in during]
    refs: list[RolloutRef] = []
    picked = _worst([(item, index, score) for item in shown for index, score in enumerate(kind.score(item).tolist())], kind)
    for item, index, score in picked:
        refs.append(_reference(item, index, score, "during", kind))
    earlier = [step for step in reader.steps if step < onset_step]
    if refs and earlier:
        item = _read(reader, earlier[len(earlier) // 2], start)
        asked = {item.rollouts[index].prompt for item, index, _ in picked}
        scores = np.nan_to_num(kind.score(item))
        # The usual, not the best: nearest to the median, the same prompts first.
        order = sorted(
            range(len(scores)), key=lambda i: (item.rollouts[i].prompt not in asked, abs(scores[i] - np.median(scores)), i)
        )
        refs += [_reference(item, index, float(scores[index]), "before", kind) for index in order[:BEFORE]]
    return tuple(refs)


def _read(reader: Reader, step: int, start: Start) -> _Step:
    rollouts, _ = reader.at(step)
    scores = measure(rollouts, start)
    return _Step(step, rollouts, scores, start)


def _worst(scored: Iterable[tuple[_Step, int, float]], kind: _Kind) -> list[tuple[_Step, int, float]]:
    """The highest scores; of one prompt, or one text, only the first as long as there are others."""
    ranked = sorted((item for item in scored if np.isfinite(item[2]) and item[2] > 0), key=lambda item: -item[2])
    seen: set[object] = set()
    first: list[tuple[_Step, int, float]] = []
    rest: list[tuple[_Step, int, float]] = []
    for item, index, score in ranked:
        key = int(item.scores.group[index]) if kind.other_prompts else item.scores.parsed[index].text
        (rest if key in seen else first).append((item, index, score))
        seen.add(key)
        if len(first) == DURING:
            break
    return (first + rest)[:DURING]


def _reference(item: _Step, index: int, score: float, when: str, kind: _Kind) -> RolloutRef:
    rollout = item.rollouts[index]
    parsed = item.scores.parsed[index]
    text = (rollout.text or "\n".join(m.content for m in rollout.messages if m.role == "assistant")) if kind.raw else parsed.text
    spans = _joined(kind.mark(text, item), text)
    if not spans and kind.mark is _shared and item.scores.per_rollout["copy"][index] == 1:
        spans = [(0, len(text))]  # too short for 4-grams: the whole is what its group shares
    begin = _window(spans, len(text))
    excerpt = text[begin : begin + EXCERPT]
    kept = [(max(a - begin, 0), min(b - begin, len(excerpt))) for a, b in spans if b > begin and a < begin + EXCERPT]
    return RolloutRef(
        step=item.step,
        index=rollout.index,
        when="during" if when == "during" else "before",
        group=rollout.group,
        reward=rollout.reward if np.isfinite(rollout.reward) else None,
        text=excerpt,
        spans=tuple(Span(start=a, end=b) for a, b in kept),
        score=round(score, 4),
        origin=rollout.origin,
    )


def _window(spans: Sequence[tuple[int, int]], length: int) -> int:
    """Where the excerpt begins: at the span from which the most marked characters fit."""
    if length <= EXCERPT or not spans:
        return 0
    best, begin = -1, 0
    for a, _ in spans:
        first = min(a, length - EXCERPT)
        marked = sum(
            min(stop, first + EXCERPT) - max(start, first) for start, stop in spans if stop > first and start < first + EXCERPT
        )
        if marked > best:
            best, begin = marked, first
    return begin


def _joined(spans: Iterable[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Spans that overlap, or have only spaces and punctuation between them, become one."""
    out: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if out and (a <= out[-1][1] or not any(map(str.isalnum, text[out[-1][1] : a]))):
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return out


def _repeated(text: str, item: _Step) -> list[tuple[int, int]]:
    """Word 4-grams that occur twice or more; the repeated characters where there are no words."""
    hashes, places = locate(text)
    codes = ngrams.codes_of(hashes, 4)
    ordered = np.sort(codes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    spans = [(places[i][0], places[i + 3][1]) for i in np.flatnonzero(ngrams.member(codes, again)).tolist()]
    return spans or _one_symbol(text, item)


def _shared(text: str, item: _Step) -> list[tuple[int, int]]:
    """Word 4-grams that rollouts of other prompts have too."""
    hashes, places = locate(text)
    codes = ngrams.codes_of(hashes, 4) >> np.uint64(ngrams.OWNER_BITS)
    return [(places[i][0], places[i + 3][1]) for i in np.flatnonzero(ngrams.member(codes, item.scores.shared)).tolist()]


def _one_symbol(text: str, item: _Step) -> list[tuple[int, int]]:
    return [match.span() for match in _RUN.finditer(text[: 10 * EXCERPT])]


def _noise(text: str, item: _Step) -> list[tuple[int, int]]:
    _, places = locate(text)
    odd = [places[i] for i in np.flatnonzero(chars.noise_words(tokenize([text]))).tolist()]
    if item.start.script == "latin":
        odd += [match.span() for match in _NOT_ASCII.finditer(text) if chars.off_script(match.group(), "latin")[0] > 0.5]
    return odd


def _nothing(text: str, item: _Step) -> list[tuple[int, int]]:
    return []


def _of(*names: str) -> Callable[[_Step], Floats]:
    """The highest of some scores, per rollout."""

    def score(item: _Step) -> Floats:
        return np.asarray(np.nan_to_num(np.max([np.nan_to_num(item.scores.per_rollout[name]) for name in names], axis=0)))

    return score


def _malformed(item: _Step) -> Floats:
    empty = np.array([not any(turn.acts for turn in parsed.turns) for parsed in item.scores.parsed], float)
    return np.asarray(item.scores.per_rollout["malformed"] + empty)


def _tied(item: _Step) -> Floats:
    """Share of the differing rollouts of its own group that got the same reward."""
    out = np.zeros(len(item.rollouts))
    for name in np.unique(item.scores.group):
        mine = np.flatnonzero(item.scores.group == name).tolist()
        for index in mine:
            others = [k for k in mine if item.scores.uses[k].signature != item.scores.uses[index].signature]
            same = [k for k in others if abs(item.rollouts[k].reward - item.rollouts[index].reward) < 1e-9]
            out[index] = len(same) / len(others) if others else 0.0
    return out


def _unfounded(item: _Step) -> Floats:
    return np.asarray(item.scores.per_rollout["evidenced"] == 0, dtype=np.float64)


def _made_up(text: str, item: _Step) -> list[tuple[int, int]]:
    return [match.span() for match in RESULT.finditer(text)]


def _unjustified(item: _Step) -> Floats:
    scores = item.scores.per_rollout
    return np.asarray((scores["justified"] == 0) * (1 + scores["thinking_words"] / 1e6))  # the longest of them tell the most


def _short(item: _Step) -> Floats:
    return np.asarray(1 / (1 + item.scores.per_rollout["thinking_words"]))


def _cut(item: _Step) -> Floats:
    return np.array([float(bool(rollout.truncated)) for rollout in item.rollouts])


def _dead(item: _Step) -> Floats:
    """1 for rollouts of a group whose rewards are the same, a little more for copies."""
    reward = np.array([rollout.reward for rollout in item.rollouts], float)
    out = np.zeros(len(reward))
    for name in np.unique(item.scores.group):
        mine = item.scores.group == name
        values = reward[mine]
        if len(values) > 1 and np.isfinite(values).all() and values.std() <= 1e-6 * np.abs(values).max():
            out[mine] = 1
    return np.asarray(out * (1 + np.nan_to_num(item.scores.per_rollout["copy"])))


_ECHO = _Kind(_of("cross_rollout_share", "copy"), _shared, other_prompts=True)
_KINDS = {
    "within-rollout-repetition": _Kind(_of("rep_4", "loop_coverage"), _repeated),
    "cross-rollout-repetition": _ECHO,
    "template-collapse": _ECHO,
    "echo-trap": _ECHO,
    "reward-variance-collapse": _Kind(_dead, _shared),
    "zero-variance-groups": _Kind(_dead, _shared, other_prompts=True),
    "token-zero-output": _Kind(_of("one_symbol"), _one_symbol, raw=True),
    "unjustified-thoughts": _Kind(_unjustified, _nothing),
    "tool-format-collapse": _Kind(_malformed, _nothing, raw=True),
    "coarse-reward-ties": _Kind(_tied, _nothing, raw=True),
    "void-turns": _Kind(_of("void_turns"), _nothing, raw=True),
    "fabricated-observations": _Kind(_of("fabricated"), _made_up, raw=True),
    "action-loops": _Kind(_of("repeated_calls"), _repeated, raw=True),
    "decorative-tool-calls": _Kind(_unfounded, _nothing, raw=True),
    "gibberish-output": _Kind(_of("gibberish", "off_script", "noise_words"), _noise),
    "length-collapse": _Kind(_short, _nothing, raw=True),
    "length-explosion": _Kind(_of("words"), _repeated),
    "truncation": _Kind(_cut, _repeated),
    "entropy-eruption": _Kind(_of("gibberish", "off_script", "noise_words", "rep_4"), _noise),
    "entropy-collapse": _ECHO,
}
