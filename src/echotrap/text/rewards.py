"""What a reward cannot tell apart: completions of one prompt that differ and are paid the same.

Where a dump holds the expected calls (``gts``, ``ground_truth``, ``answer``, ``expected``), each completion is also scored by
:mod:`echotrap.tool_rewards`, coarsely and finely, to show which ties a fine-grained reward would have ranked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from echotrap.rollouts import Rollout, solved
from echotrap.text.tools import ACTION, Use, calls_in_json, spelled
from echotrap.tool_rewards import ToolCall, binary, fine_grained, matched, multiplicative, parts

__all__ = [
    "Side",
    "Tie",
    "Ties",
    "components_of",
    "differing_pairs",
    "expected_calls",
    "outcome",
    "pass_at",
    "reward_signals",
    "ties_of",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXPECTED = ("gts", "ground_truth", "expected", "expected_calls", "answer", "answers", "label", "target")
TOTAL = frozenset(("score", "reward", "total_reward", "scores", "rewards", "final_reward", "public_reward"))
OUTCOME = re.compile(r"correct|accura|(?:^|_)(?:acc|em|pass|solve|success|outcome|answer|exact)(?:_|$)|success", re.IGNORECASE)
COMPONENT = re.compile(r"reward|score|format|bonus|penalty|correct", re.IGNORECASE)
MOST_COMPONENTS = 12
MOST_KINDS = 40  # of different completions in a group that are compared as pairs: the best and the worst
MOST_CALLS = 64  # of a rollout that are scored
SAME = 0.95  # a component that correlates so with the outcome is the outcome
DIGITS = 9  # rewards that agree to nine digits are equal
ERRORS = ("malformed", "name", "parameter_name", "parameter_value", "order")
"""What can be wrong with a rollout's calls, the coarsest first."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two tied completions.

    Attributes
    ----------
    index : int
        Its position inside the step.
    does : str
        Its calls in one line, then its answer.
    binary, fine_grained, multiplicative : float or None
        Scores against the expected calls; ``None`` where none are known.
    """

    index: int
    does: str
    binary: float | None = None
    fine_grained: float | None = None
    multiplicative: float | None = None


@dataclass(frozen=True, slots=True)
class Tie:
    """Two completions of one prompt that differ and got the same reward.

    Attributes
    ----------
    group : str
        Their prompt group.
    reward : float
        What both got.
    differ_in : str
        ``"tool name"``, ``"parameter names"``, ``"parameter values"``, ``"number of calls"``, ``"order"`` or ``"answer"``.
    better, worse : Side
        By the fine-grained score, where it is known and differs; else as logged.
    gap : float or None
        Difference of the fine-grained scores.
    """

    group: str
    reward: float
    differ_in: str
    better: Side
    worse: Side
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class Ties:
    """The ties of one step.

    Attributes
    ----------
    step : int
        Which.
    differing, tied : int
        Pairs of one group that differ, and those of them with equal reward.
    scored, ranked : int
        Tied pairs with expected calls, and those of them that a fine-grained reward tells apart.
    pairs : tuple of Tie
        The clearest ones, one for each two kinds of completion.
    """

    step: int
    differing: int
    tied: int
    scored: int
    ranked: int
    pairs: tuple[Tie, ...]

    @property
    def share(self) -> float:
        """Share of the differing pairs that the reward ties; NaN where no two differ."""
        return self.tied / self.differing if self.differing else float("nan")


def expected_calls(rollout: Rollout) -> list[ToolCall]:
    """The calls that a rollout should have made, where the dump holds them.

    Examples
    --------
    >>> expected_calls(Rollout(1, "", extra={"gts": '[{"name": "now", "arguments": {"zone": "UTC"}}]'}))
    [ToolCall(name='now', arguments={'zone': 'UTC'})]
    """
    for key in EXPECTED:
        value = rollout.extra.get(key)
        if value is not None and (found := calls_in_json(value)):
            return found[:MOST_CALLS]
    model = rollout.extra.get("reward_model")
    return calls_in_json(model.get("ground_truth"))[:MOST_CALLS] if isinstance(model, Mapping) else []


def differing_pairs(signatures: Sequence[tuple[str, ...]], rewards: Sequence[float]) -> tuple[int, int]:
    """Pairs that differ, and those of them with the same reward.

    Examples
    --------
    >>> differing_pairs([("a",), ("b",), ("b",)], [0.0, 0.0, 1.0])
    (2, 1)
    """
    return _unequal(signatures, [()] * len(signatures)), _unequal(
        signatures, [(round(float(reward), DIGITS),) for reward in rewards]
    )


def _unequal(signatures: Sequence[tuple[str, ...]], classes: Sequence[tuple[float, ...]]) -> int:
    """Pairs of one class whose signatures differ."""
    both = Counter(zip(classes, signatures, strict=True)).values()
    return sum(n * (n - 1) // 2 for n in Counter(classes).values()) - sum(n * (n - 1) // 2 for n in both)


def ties_of(rollouts: Sequence[Rollout], uses: Sequence[Use], group: Ints, *, most: int = 20) -> Ties:
    """The ties of one step's rollouts.

    Parameters
    ----------
    rollouts, uses : sequence
        The step's rollouts, and how each used its tools.
    group : (n,) int64
        Prompt group of each.
    most : int
        Pairs to show.
    """
    differing = tied = scored = ranked = 0
    found: list[Tie] = []
    for members in _groups(rollouts, group):
        signatures = [uses[index].signature for index in members]
        rewards = [round(float(rollouts[index].reward), DIGITS) for index in members]
        more, same = differing_pairs(signatures, rewards)
        differing, tied = differing + more, tied + same
        expected = next(filter(None, (expected_calls(rollouts[index]) for index in members)), [])
        if not same or not (expected or most):
            continue
        first: dict[tuple[float, tuple[str, ...]], int] = {}
        for index, reward, signature in zip(members, rewards, signatures, strict=True):
            first.setdefault((reward, signature), index)
        sides = {kind: _side(index, uses[index], expected) for kind, index in first.items()}
        if expected:
            fine = [str(sides[kind].fine_grained) for kind in zip(rewards, signatures, strict=True)]
            scored, ranked = scored + same, ranked + differing_pairs([(item,) for item in fine], rewards)[1]
        kinds = sorted(first, key=lambda kind: -(sides[kind].fine_grained or 0.0))
        kinds = kinds if len(kinds) <= MOST_KINDS else kinds[: MOST_KINDS // 2] + kinds[-MOST_KINDS // 2 :]
        for one, other in combinations(kinds, 2) if most else ():
            if one[0] == other[0]:
                found.append(_tie(rollouts[first[one]], sides[one], sides[other], uses[first[one]], uses[first[other]]))
    found.sort(key=lambda tie: (-(tie.gap or 0.0), tie.differ_in == "answer"))
    return Ties(rollouts[0].step if rollouts else 0, differing, tied, scored, ranked, tuple(found[:most]))


def _groups(rollouts: Sequence[Rollout], group: Ints) -> Iterator[list[int]]:
    """Members with a reward, of each group that has two or more."""
    for name in np.unique(group):
        members = [index for index in np.flatnonzero(group == name).tolist() if np.isfinite(rollouts[index].reward)]
        if len(members) > 1:
            yield members


def _side(index: int, use: Use, expected: Sequence[ToolCall]) -> Side:
    calls = [act.call for act in use.calls]
    does = "; ".join(filter(None, (*map(spelled, calls), use.answer and f"answer: {' '.join(use.answer.split())}"))) or "nothing"
    if not expected:
        return Side(index, does[:400])
    scores = [round(matched(calls[:MOST_CALLS], expected, score), 4) for score in (binary, fine_grained, multiplicative)]
    return Side(index, does[:400], *scores)


def _tie(rollout: Rollout, one: Side, other: Side, use: Use, other_use: Use) -> Tie:
    gap = None
    if one.fine_grained is not None and other.fine_grained is not None:
        gap = round(abs(one.fine_grained - other.fine_grained), 4)
        if other.fine_grained > one.fine_grained:
            one, other = other, one
    words = _difference([act.call for act in use.acts], [act.call for act in other_use.acts])
    return Tie(str(rollout.group if rollout.group is not None else ""), rollout.reward, words, one, other, gap)


def _difference(one: Sequence[ToolCall], other: Sequence[ToolCall]) -> str:
    """The coarsest thing in which two sequences of calls differ."""
    if len(one) != len(other):
        return "number of calls"
    pairs = list(zip(one, other, strict=True))
    if any(a.name != b.name for a, b in pairs):
        return "order" if sorted(map(spelled, one)) == sorted(map(spelled, other)) else "tool name"
    if any(a.arguments.keys() != b.arguments.keys() for a, b in pairs):
        return "parameter names"
    if any(spelled(a) != spelled(b) for a, b in pairs):
        return "order" if sorted(map(spelled, one)) == sorted(map(spelled, other)) else "parameter values"
    return "answer"


def error_of(use: Use, expected: Sequence[ToolCall]) -> str | None:
    """What is wrong with a rollout's calls, the coarsest first; ``None`` where nothing is.

    Examples
    --------
    >>> from echotrap.text.tools import Done
    >>> use = Use(acts=(Done(ToolCall("now", {"zone": "CET"})),))
    >>> error_of(use, [ToolCall("now", {"zone": "UTC"})]), error_of(use, [ToolCall("later")])
    ('parameter_value', 'name')
    """
    calls = [act.call for act in use.calls]
    if use.malformed and len(calls) < len(expected):
        return "malformed"
    if Counter(call.name for call in calls) != Counter(call.name for call in expected):
        return "name"
    left, worst = list(calls), (1.0, 1.0)
    for item in expected:
        best = max(left, key=lambda call: fine_grained(call, item))
        left.remove(best)
        _, names, values = parts(best, item)
        exact = names == 1 and best.arguments.keys() <= item.arguments.keys()
        worst = min(worst[0], float(exact)), min(worst[1], values)
    if worst[0] < 1:
        return "parameter_name"
    if worst[1] < 1:
        return "parameter_value"
    return None if [call.name for call in calls] == [call.name for call in expected] else "order"


def components_of(rollout: Rollout) -> dict[str, float]:
    """Reward per reward function: logged as components, or among what else a verl dump holds."""
    if rollout.components:
        return {name: float(value) for name, value in list(rollout.components.items())[:MOST_COMPONENTS]}
    found = {
        name: float(value)
        for name, value in rollout.extra.items()
        if name not in TOTAL and isinstance(value, bool | int | float) and COMPONENT.search(name)
    }
    return dict(list(found.items())[:MOST_COMPONENTS])


def outcome(rollout: Rollout, components: Mapping[str, float]) -> tuple[str, float]:
    """The number that says whether the task was solved and its name; NaN where there is none."""
    told = solved(rollout)
    if told is not None:
        return "", told
    name = next((name for name in components if OUTCOME.search(name)), "")
    return name, components.get(name, float("nan"))


def pass_at(right: Sequence[bool], turns: Sequence[int], group: Ints) -> dict[tuple[int, int], float]:
    """pass@(k, T): the chance that one of ``k`` tries solves a prompt within ``T`` turns, unbiased, mean over prompts.

    Parameters
    ----------
    right, turns : sequence
        Whether each try solved its prompt, and the turns it took.
    group : (n,) int64
        Its prompt. Prompts with fewer than ``k`` tries are left out of pass@k.

    Returns
    -------
    dict
        By ``(k, T)``, for ``k`` of 1, 2, 4, ... and ``T`` of the quartiles of the turns.

    Examples
    --------
    >>> found = pass_at([True, False, True, False], [1, 1, 3, 3], np.array([0, 0, 0, 0]))
    >>> {key: round(value, 3) for key, value in found.items()}
    {(1, 1): 0.25, (1, 3): 0.5, (2, 1): 0.5, (2, 3): 0.833, (4, 1): 1.0, (4, 3): 1.0}
    """
    if not len(right):
        return {}
    solved_, taken = np.asarray(right, bool), np.asarray(turns)
    sizes = np.bincount(group)
    budgets = np.unique(np.quantile(taken, (0.25, 0.5, 0.75, 1.0), method="higher").astype(int)).tolist()
    found: dict[tuple[int, int], float] = {}
    for k in (2**power for power in range(int(sizes.max()).bit_length())):
        for budget in budgets:
            hits = np.bincount(group, solved_ & (taken <= budget))
            chances = [1 - comb(int(n - c), k) / comb(int(n), k) for n, c in zip(sizes, hits, strict=True) if n >= k]
            found[k, budget] = float(np.mean(chances))
    return found


def reward_signals(rollouts: Sequence[Rollout], uses: Sequence[Use], group: Ints, *, grouped: bool) -> dict[str, float]:
    """What one step's rewards and components tell beyond their mean and spread."""
    out: dict[str, float] = {}
    rewards = [round(float(item.reward), DIGITS) for item in rollouts if np.isfinite(item.reward)]
    if rewards:
        out["reward_levels"] = float(len(set(rewards)))
    expected = [expected_calls(item) for item in rollouts]
    known = [(use, calls) for use, calls in zip(uses, expected, strict=True) if calls]
    if known:
        errors = Counter(error_of(use, calls) for use, calls in known)
        out |= {f"{name}_error_frac": errors[name] / len(known) for name in ERRORS}
        for name, score in (("binary", binary), ("fine_grained", fine_grained), ("multiplicative", multiplicative)):
            out[f"call_score_{name}"] = float(
                np.mean([matched([a.call for a in u.calls[:MOST_CALLS]], c, score) for u, c in known])
            )
    if not grouped or not rewards:
        return out
    if any(use.acts or use.answer for use in uses):
        found = ties_of(rollouts, uses, group, most=0)
        if found.differing:
            out["tie_frac"] = found.share
        if found.scored:
            out["ranked_ties_frac"] = found.ranked / found.scored
    out |= _copies(rollouts, uses, group)
    return out | _components(rollouts, group)


def _copies(rollouts: Sequence[Rollout], uses: Sequence[Use], group: Ints) -> dict[str, float]:
    """Of the rollouts that say exactly what another of their group says, the share whose copies were paid otherwise.

    What an environment says to a last action is not in the dump, so steps in which one is acted on are left out.
    """
    if any(act.call.name == ACTION for use in uses for act in use.acts):
        return {}
    seen: dict[tuple[int, str, tuple[str, ...]], list[float]] = {}
    for name, item in zip(group.tolist(), rollouts, strict=True):
        if np.isfinite(item.reward) and (item.text or item.messages):
            said = (name, item.text, tuple(message.content for message in item.messages))
            seen.setdefault(said, []).append(round(float(item.reward), DIGITS))
    copies = [values for values in seen.values() if len(values) > 1]
    count = sum(map(len, copies))
    return {"unequal_copies_frac": sum(len(v) for v in copies if len(set(v)) > 1) / count} if count else {}


def _components(rollouts: Sequence[Rollout], group: Ints) -> dict[str, float]:
    """Per component its mean, its share of the variance within groups, and its correlation with the outcome there."""
    rows = [components_of(item) for item in rollouts]
    names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    if not names:
        return {}
    named = [outcome(item, row) for item, row in zip(rollouts, rows, strict=True)]
    own, result = named[0][0], np.array([value for _, value in named])
    values = {name: np.array([row[name] for row in rows]) for name in names}
    out = {f"components/{name}": float(np.nanmean(v)) for name, v in values.items() if np.isfinite(v).any()}
    within = {name: _centred(v, group) for name, v in values.items()}
    spread = {name: float(np.nansum(v**2)) for name, v in within.items()}
    total = sum(spread.values())
    target = _centred(result, group)
    seen = np.isfinite(target)
    correlations = {name: _correlation(within[name][seen], target[seen]) for name in names if name != own}
    others = [name for name, value in correlations.items() if not value >= SAME]
    if total > 0 and len(names) > 1 and (own or seen.any()):
        out |= {f"components/{name}/share": spread[name] / total for name in names}
        out["component_share_max"] = max((spread[name] / total for name in others), default=np.nan)
    known = {name: correlations[name] for name in others if np.isfinite(correlations[name])}
    out |= {f"components/{name}/corr": value for name, value in known.items()}
    if known:
        out["component_corr_min"] = min(known.values())
        out["component_rollouts"] = float(seen.sum())
    return {name: value for name, value in out.items() if np.isfinite(value)}


def _centred(values: Floats, group: Ints) -> Floats:
    """Deviations from the group's mean; NaN in groups of one or with a missing value."""
    size = np.bincount(group)
    mean = np.bincount(group, values) / np.maximum(size, 1)
    return np.asarray(np.where(size[group] > 1, values - mean[group], np.nan))


def _correlation(one: Floats, other: Floats) -> float:
    both = np.isfinite(one) & np.isfinite(other)
    one, other = one[both], other[both]
    scale = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / scale) if scale > 1e-12 and len(one) > 3 else float("nan")
