"""Score a tool call against an expected one, coarsely and finely.

What a binary reward ties, a fine-grained one ranks: a call with one wrong value and a call of the wrong tool both get 0 from
exact match, and group-relative advantages cannot tell them apart (ToolRL, arXiv 2504.13958).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Parts", "ToolCall", "binary", "fine_grained", "matched", "multiplicative", "parts"]


@dataclass(frozen=True)
class ToolCall:
    """A call: the tool's name and its arguments by parameter name."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Parts(NamedTuple):
    """What a call got right, each 0..1."""

    tool_name: float
    parameter_names: float
    parameter_values: float


def parts(call: ToolCall, expected: ToolCall) -> Parts:
    """Decompose the match as ToolRL does: tool name, parameter names, parameter values.

    Parameter names score the shared names over the expected names, parameter values the expected values that were given over all
    expected ones. An expected call without parameters scores 1 on both.
    """
    wanted = expected.arguments
    if not wanted:
        return Parts(float(call.name == expected.name), 1.0, 1.0)
    shared = sum(name in call.arguments for name in wanted)
    equal = sum(name in call.arguments and call.arguments[name] == value for name, value in wanted.items())
    return Parts(float(call.name == expected.name), shared / len(wanted), equal / len(wanted))


def binary(call: ToolCall, expected: ToolCall) -> float:
    """1 for the same call, 0 for any other.

    Examples
    --------
    >>> expected = ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 30})
    >>> late = ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 15})
    >>> other = ToolCall("create_reminder", {"title": "Team Sync", "remind_at": "2026-10-05"})
    >>> [binary(call, expected) for call in (expected, late, other)]
    [1.0, 0.0, 0.0]
    """
    return float(call.name == expected.name and dict(call.arguments) == dict(expected.arguments))


def fine_grained(call: ToolCall, expected: ToolCall) -> float:
    """Mean of the three parts (ToolRL).

    Examples
    --------
    >>> expected = ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 30})
    >>> late = ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 15})
    >>> other = ToolCall("create_reminder", {"title": "Team Sync", "remind_at": "2026-10-05"})
    >>> [round(fine_grained(call, expected), 4) for call in (expected, late, other)]
    [1.0, 0.8889, 0.2222]
    """
    return sum(parts(call, expected)) / 3


def multiplicative(call: ToolCall, expected: ToolCall) -> float:
    """Product of the three parts (ToolRLA): a wrong tool is worth nothing, however well its arguments fit."""
    tool_name, parameter_names, parameter_values = parts(call, expected)
    return tool_name * parameter_names * parameter_values


def matched(calls: Sequence[ToolCall], expected: Sequence[ToolCall], score: Callable[[ToolCall, ToolCall], float]) -> float:
    """Score several calls: each expected one takes the best call that is left; calls too many or too few cost their share.

    Examples
    --------
    >>> wanted = [ToolCall("search", {"query": "falcon"}), ToolCall("open", {"page": 1})]
    >>> matched([ToolCall("open", {"page": 1}), ToolCall("search", {"query": "hawk"})], wanted, fine_grained)
    0.8333333333333333
    >>> matched(wanted[:1], wanted, binary)
    0.5
    """
    left, total = list(calls), 0.0
    for item in expected:
        if left:
            best = max(left, key=lambda call: score(call, item))
            total += score(best, item)
            left.remove(best)
    return total / max(len(calls), len(expected), 1)
