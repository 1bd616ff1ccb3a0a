"""One step's rollouts in, scores per rollout and signals of the step out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from echotrap.rollouts import Rollout
from echotrap.text import chars, ngrams, rewards, templates, tools
from echotrap.text.parse import Parsed, parse
from echotrap.text.words import Hashes, Words, specifics, tokenize

__all__ = ["Scores", "Start", "groups_of", "measure", "word_scores"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

REP_3, REP_4 = 0.20, 0.15  # failure catalogue B4
GOPHER_FROM = 0.05  # below this rep-4 no limit of Gopher is reached
GOPHER_WORDS = 50  # Gopher's filter drops shorter documents; its limits were not made for them
OPENING_WORDS = 20
LOOPING = 0.5  # share of a rollout that a loop must cover
SKETCH = 256
TEMPLATE = 0.9  # document frequency from which a phrase is part of the format
LEAST_FOR_TEMPLATE = 8


@dataclass(frozen=True)
class Start:
    """What the run's first rollouts looked like, to tell format from echo.

    Attributes
    ----------
    template : (k,) uint64
        4-grams (48-bit codes, ascending) that more than 90 % of them have: fixed wording of the task's format.
    thinks, acts, calls : bool
        At least half have a think block; a call or an answer; any has a call.
    script : str
        Script of most letters.
    """

    template: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    thinks: bool = False
    acts: bool = False
    calls: bool = False
    script: str = "latin"

    @classmethod
    def of(cls, rollouts: Sequence[Rollout]) -> Start:
        """Learn from the rollouts of the first step."""
        parsed = [item for item in map(parse, rollouts) if item.text]
        if not parsed:
            return cls()
        template = np.empty(0, np.uint64)
        if len(parsed) >= LEAST_FOR_TEMPLATE:
            words = tokenize([item.text for item in parsed])
            codes, owner = _four_grams(words)
            found = ngrams.overlap(codes, owner, np.arange(len(parsed)))
            template = found.grams[found.rollouts_with > TEMPLATE * len(parsed)]
        half = len(parsed) / 2
        return cls(
            template,
            thinks=sum(any(turn.think for turn in item.turns) for item in parsed) >= half,
            acts=sum(any(turn.acts for turn in item.turns) for item in parsed) >= half,
            calls=any(turn.calls for item in parsed for turn in item.turns),
            script=Counter(chars.script_of(item.text[:2000]) for item in parsed).most_common(1)[0][0],
        )

    @property
    def digest(self) -> str:
        """Changes when any of it does."""
        facts = f"{self.thinks} {self.acts} {self.calls} {self.script}".encode()
        return hashlib.blake2b(self.template.tobytes() + facts, digest_size=8).hexdigest()


@dataclass(frozen=True)
class Scores:
    """What one step's rollouts look like.

    Attributes
    ----------
    parsed : tuple of Parsed
        The rollouts, taken apart.
    group : (n,) int64
        Prompt group of each; without group ids every rollout is its own.
    per_rollout : Mapping
        Score name to one value a rollout; NaN where it is not defined.
    signals : Mapping
        Signal name to the step's value; absent where it is not defined.
    sketch : (<= 256,) uint64
        The step's smallest 4-gram codes, to compare steps with one another.
    shared : (k,) uint64
        4-gram codes that occur under two prompts or more, format and prompt left out.
    uses : tuple of Use
        How each rollout used its tools.
    """

    parsed: tuple[Parsed, ...]
    group: Ints
    per_rollout: Mapping[str, Floats]
    signals: Mapping[str, float]
    sketch: Hashes
    shared: Hashes
    uses: tuple[tools.Use, ...] = ()


@dataclass(frozen=True)
class WordScores:
    """The word-level part of :class:`Scores`."""

    rep: Mapping[int, Floats]
    rep_free: Mapping[int, Floats]
    longest: Ints
    looping: Floats
    period: Floats
    overlap: ngrams.Overlap
    copies: Flags
    compression: Floats


def groups_of(rollouts: Sequence[Rollout]) -> tuple[Ints, bool]:
    """Prompt group of each rollout as a number, and whether groups are known (by id, else by prompt)."""
    keys = [rollout.group if rollout.group is not None else rollout.prompt for rollout in rollouts]
    names: dict[str, int] = {}
    known = all(key is not None for key in keys) and bool(keys)
    if not known:
        return np.arange(len(rollouts)), False
    return np.array([names.setdefault(str(key), len(names)) for key in keys], np.int64), True


def word_scores(
    reasoning: Sequence[str], remainder: Sequence[str], group: Ints, words: Words, start: Start, known: Hashes
) -> WordScores:
    """Repetition inside rollouts and overlap between them, by word.

    Parameters
    ----------
    reasoning, remainder : sequence of str
        The two parts of what each rollout's policy wrote.
    group : (n,) int64
        Prompt group of each.
    words : Words
        ``tokenize`` of reasoning and remainder, alternating.
    start : Start
        Format of the run.
    known : (k,) uint64
        4-grams that do not count as shared.
    """
    n = len(group)
    piece = words.owner
    owner = piece >> 1
    found = {size: ngrams.repeats(words.hashes, owner, n, size, piece) for size in (1, 2, 3, 4)}
    rep = {size: item.share(owner) for size, item in found.items()}
    codes = ngrams.codes_of(words.hashes, 4)
    rep_free = rep
    if len(start.template) and len(codes):
        fixed = np.zeros(len(words.hashes), bool)
        begins = np.flatnonzero(ngrams.member(codes >> np.uint64(ngrams.OWNER_BITS), start.template))
        for offset in range(4):
            fixed[begins + offset] = True
        rep_free = {size: found[size].share(owner, fixed) for size in (3, 4)}
    rounds = ngrams.loops(found[4], owner)
    counts = words.counts[0::2] + words.counts[1::2]
    period = np.full(n, np.nan)
    period[owner[rounds.start]] = rounds.period
    reasons = piece[: len(codes)] & 1 == 0
    inside = reasons & (piece[: len(codes)] == piece[3:]) if len(codes) else np.empty(0, bool)
    codes, whose = codes[inside], owner[: len(inside)][inside]
    over = ngrams.overlap(codes, whose, group, known)
    bounds = np.searchsorted(whose, np.arange(n + 1))
    per_rollout = [codes[bounds[i] : bounds[i + 1]] for i in range(n)]
    texts = [f"{a}\n{b}" if b else a for a, b in zip(reasoning, remainder, strict=True)]
    ends = words.starts[0::2]
    alike = [words.hashes[ends[i] : ends[i + 1]].tobytes() or texts[i].encode("utf-8", "replace") for i in range(n)]
    return WordScores(
        rep,
        rep_free,
        rounds.longest,
        ngrams.coverage(rounds, owner, counts),
        period,
        over,
        ngrams.near_copies(alike, per_rollout, group, over.own_group),
        chars.compression(texts),
    )


def measure(rollouts: Sequence[Rollout], start: Start | None = None, *, seed: int = 0) -> Scores:
    """Score the rollouts of one step.

    Parameters
    ----------
    rollouts : sequence of Rollout
        All of one step, at most 65,536.
    start : Start, optional
        Format of the run; learned from these rollouts where not given.
    seed : int
        Draws the rollouts for the retrieval measure.

    Examples
    --------
    >>> same = [Rollout(1, "I will go for arm A because it is best", group=g) for g in "aabb"]
    >>> scores = measure(same, Start())
    >>> scores.signals["copies_frac"], scores.signals["cross_rollout_share"], scores.signals["rep_4"]
    (1.0, 1.0, 0.0)
    """
    start = Start.of(rollouts) if start is None else start
    parsed = tuple(map(parse, rollouts))
    group, grouped = groups_of(rollouts)
    n = len(parsed)
    reasoning, remainder = [item.reasoning for item in parsed], [item.remainder for item in parsed]
    words = tokenize([part for pair in zip(reasoning, remainder, strict=True) for part in pair])
    thoughts = words.counts[0::2]
    asked = [rollout.prompt or item.prompt for rollout, item in zip(rollouts, parsed, strict=True)]
    prompts = list(dict.fromkeys(filter(None, asked)))
    known = start.template
    if prompts:
        known = np.union1d(known, _four_grams(tokenize(prompts))[0] >> np.uint64(ngrams.OWNER_BITS))
    by_word = word_scores(reasoning, remainder, group, words, start, known)
    texts = [f"{a}\n{b}".strip() for a, b in zip(reasoning, remainder, strict=True)]
    written = thoughts + words.counts[1::2]
    empty = np.array([not text for text in texts], bool)
    symbol = chars.one_symbol(texts)
    units, whose = chars.character_units(texts)
    eights = ngrams.repeats(units, whose, n, 8)
    char_loop = ngrams.coverage(ngrams.loops(eights, whose, least=40), whose, np.bincount(whose, minlength=n))
    off = [chars.off_script(text, start.script) for text in texts]
    off_share = np.array([share for share, _ in off])
    noise = np.bincount(words.owner[chars.noise_words(words)] >> 1, minlength=n) / np.maximum(written, 1)
    gibberish = ((noise > 0.2) & (written >= 10)) | ((off_share > 0.1) & (np.array([k for _, k in off]) >= 3))
    rep_3, rep_4 = by_word.rep_free[3], by_word.rep_free[4]
    looping = np.maximum(by_word.looping, char_loop)
    repetitive = (rep_3 > REP_3) | (rep_4 > REP_4) | (looping > LOOPING) | symbol
    for index in np.flatnonzero(~repetitive & (rep_4 > GOPHER_FROM) & (written >= GOPHER_WORDS)):
        repetitive[index] = ngrams.gopher_exceeded(texts[index])
    justified = _justified(parsed, asked, words)
    uses = tuple(map(tools.use_of, rollouts, parsed))
    evidence = [tools.evidenced(use, prompt) for use, prompt in zip(uses, asked, strict=True)]
    per_rollout: dict[str, Floats] = {
        **{f"rep_{size}": values for size, values in by_word.rep.items()},
        "char_rep": eights.share(whose),
        "longest_repeat": by_word.longest.astype(float),
        "loop_coverage": looping,
        "loop_period": by_word.period,
        "repetitive": repetitive.astype(float),
        "one_symbol": symbol.astype(float),
        "cross_rollout_share": by_word.overlap.other_prompts,
        "cross_group_share": by_word.overlap.own_group if grouped else np.full(n, np.nan),
        "copy": np.where(np.bincount(group)[group] > 1, by_word.copies, np.nan),
        "compression_ratio": by_word.compression,
        "words": written.astype(float),
        "thinking_words": thoughts.astype(float),
        "empty": empty.astype(float),
        "off_script": off_share,
        "noise_words": noise,
        "gibberish": gibberish.astype(float),
        "justified": justified,
        "turns": np.array([float(len(item.turns)) for item in parsed]),
        "tool_calls": np.array([float(sum(turn.calls for turn in item.turns)) for item in parsed]),
        "malformed": np.array([float(sum(turn.malformed for turn in item.turns)) for item in parsed]),
        "repeated_turns": np.array([_repeated_turns(item) for item in parsed]),
        "repeated_calls": np.array([tools.repeated(use.acts) for use in uses]),
        "void_turns": np.array([float(use.void) for use in uses]),
        "fabricated": np.array([float(use.fabricated) for use in uses]),
        "evidenced": np.array(evidence, float),
    }
    signals = _signals(per_rollout, parsed, start, grouped) | _distinct(words) | _opening(words)
    signals |= tools.behaviour(rollouts, parsed, uses, evidence) | rewards.reward_signals(rollouts, uses, group, grouped=grouped)
    if grouped:
        signals |= _retrieval(words, group, seed)
    shared = by_word.overlap.grams[by_word.overlap.elsewhere]
    return Scores(parsed, group, per_rollout, signals, by_word.overlap.grams[:SKETCH], shared, uses)


def _four_grams(words: Words) -> tuple[Hashes, Ints]:
    codes, owner = ngrams.codes_of(words.hashes, 4), words.owner
    inside = owner[: len(codes)] == owner[3:] if len(codes) else np.empty(0, bool)
    return codes[inside], owner[: len(codes)][inside]


def _distinct(words: Words) -> dict[str, float]:
    """distinct-n over the step's reasonings (Li et al., 1510.03055)."""
    out = {}
    reasons = words.owner & 1 == 0
    for n in (1, 2, 4):
        codes = words.hashes if n == 1 else ngrams.codes_of(words.hashes, n)
        inside = reasons[: len(codes)] & (words.owner[: len(codes)] == words.owner[n - 1 :]) if len(codes) else reasons[:0]
        codes = np.sort(codes[inside])
        if len(codes):
            out[f"distinct_{n}"] = (1 + int(np.count_nonzero(codes[1:] != codes[:-1]))) / len(codes)
    return out


def _opening(words: Words) -> dict[str, float]:
    """Share of the most common opening: the first 20 words of a reasoning, or all of a shorter one."""
    openings = [words.of(index)[:OPENING_WORDS] for index in range(0, len(words.counts), 2)]
    counts = Counter(opening.tobytes() for opening in openings if len(opening) >= 4)
    return {"opening_share": counts.most_common(1)[0][1] / len(openings)} if counts and len(openings) > 1 else {}


def _retrieval(words: Words, group: Ints, seed: int) -> dict[str, float]:
    """How well the reasonings can be told apart by prompt."""
    found = templates.retrieval([words.of(2 * index) for index in range(len(group))], group, seed=seed)
    if found is None:
        return {}
    return {
        "retrieval_acc": found.accuracy,
        "retrieval_chance": found.chance,
        "mi_zscore": found.zscore,
        "within_similarity": found.within,
        "across_similarity": found.across,
    }


def _justified(parsed: Sequence[Parsed], asked: Sequence[str], words: Words) -> Floats:
    """1 where the reasoning names something particular to its own prompt or state, 0 where not, NaN where there is none."""
    out = np.full(len(parsed), np.nan)
    contexts = [f"{prompt}\n{item.observed[:2000]}".rstrip() for prompt, item in zip(asked, parsed, strict=True)]
    distinct = {text: index for index, text in enumerate(dict.fromkeys(contexts))}
    if len(distinct) < 2 or not any(asked):
        return out
    particular = list(specifics(list(distinct)))
    for index, context in enumerate(contexts):
        own, reasoning = particular[distinct[context]], words.of(2 * index)
        if len(own) and len(reasoning):
            out[index] = bool(ngrams.member(reasoning, own).any())
    return out


def _repeated_turns(parsed: Parsed) -> float:
    """Share of turns that say what an earlier turn of the rollout said."""
    turns = [" ".join(part for part in turn[:3] if part).strip() for turn in parsed.turns]
    turns = [turn for turn in turns if turn]
    return 1 - len(set(turns)) / len(turns) if len(turns) > 1 else float("nan")


_MEANS = {
    "rep_1": "rep_1",
    "rep_2": "rep_2",
    "rep_3": "rep_3",
    "rep_4": "rep_4",
    "char_rep": "char_rep",
    "longest_repeat": "longest_repeat",
    "loop_coverage": "loop_coverage",
    "repetitive": "repetitive_frac",
    "one_symbol": "single_symbol_frac",
    "cross_rollout_share": "cross_rollout_share",
    "cross_group_share": "cross_group_share",
    "compression_ratio": "compression_ratio",
    "thinking_words": "thinking_length",
    "empty": "silent_frac",
    "off_script": "off_script_frac",
    "gibberish": "gibberish_frac",
    "repeated_turns": "repeated_turns_frac",
    "turns": "num_turns",
}


def _signals(per_rollout: Mapping[str, Floats], parsed: Sequence[Parsed], start: Start, grouped: bool) -> dict[str, float]:
    out = {signal: _mean(per_rollout[name]) for name, signal in _MEANS.items()}
    out["rollout_count"] = float(np.count_nonzero(per_rollout["empty"] == 0))
    out["single_symbol_count"] = float(np.count_nonzero(per_rollout["one_symbol"]))
    out["loop_frac"] = float(np.mean(per_rollout["loop_coverage"] > LOOPING)) if len(parsed) else np.nan
    written = per_rollout["words"].sum()
    if written:
        out["thinking_share"] = float(per_rollout["thinking_words"].sum() / written)
    if grouped:
        out["copies_frac"] = _mean(per_rollout["copy"])
    out["unjustified_frac"] = 1 - _mean(per_rollout["justified"])
    turns = [turn for item in parsed for turn in item.turns]
    if start.thinks and turns:
        out["valid_thinking_frac"] = sum(bool(turn.think) for turn in turns) / len(turns)
    if start.acts and turns:
        valid = [
            not turn.malformed and bool(turn.acts or (turn is item.turns[-1] and len(item.turns) > 1 and turn.said))
            for item in parsed
            for turn in item.turns
        ]
        out["valid_action_frac"] = sum(valid) / len(valid)
    if start.calls:
        out["tool_calls"] = _mean(per_rollout["tool_calls"])
    return {name: value for name, value in out.items() if np.isfinite(value)}


def _mean(values: Floats) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("nan")
