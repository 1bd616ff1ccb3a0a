"""What a policy does with its tools: its calls, what they returned, and what became of it.

A call is compared after its arguments are put in order. An environment's action (an answer tag that the environment answers, as
in RAGEN) is an act too, of the name ``action``; it counts as loops do, not as a tool.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from echotrap.rollouts import Rollout, solved
from echotrap.text.parse import XML_CALL, Parsed, acts_in, dialogue, fabricates
from echotrap.tool_rewards import ToolCall

__all__ = [
    "ACTION",
    "Done",
    "Use",
    "behaviour",
    "calls_in_json",
    "evidenced",
    "loops",
    "repeated",
    "sequences",
    "spelled",
    "use_of",
]

ACTION = "action"
ARGUMENTS = ("arguments", "parameters", "args", "input", "params", "kwargs")
SEARCH = re.compile(r"search|retriev|query|lookup|wiki|browse", re.IGNORECASE)
NEAR = 0.8  # Jaccard similarity of words from which two queries are nearly the same
LOOP = 3  # the same act this many times in a row is a loop
EVIDENCE = 0.5  # share of an answer's own words that results must hold
DEEPEST = 20  # nested lists in which calls are looked for
MOST_QUERIES = 100  # of a rollout that are compared with one another
LONGEST_ANSWER = 25  # own words of an answer that can be traced: programs and essays cannot
SHORT_RESULT = 500  # characters: in longer results a word like "failed" says nothing

_BROKEN = re.compile(
    r"Traceback \(most recent call last\)|^[ \t]*\w*(?:Error|Exception)\b\s*[:(]"
    r"|\"(?:error|exception)\"\s*:\s*(?!null|false|\"\"|0)",
    re.MULTILINE,
)
_COMPLAINT = re.compile(
    r"\A\W*(?:error|exception|invalid|failed|failure|fatal|unknown (?:tool|function))\b|\btimed? ?out\b|command not found",
    re.IGNORECASE,
)
_XML = re.compile(
    r"<parameter=(?P<name>[^<>]+)>(?P<value>(?:(?!<parameter=).)*?)</parameter>"
    r"|<arg_key>(?P<key>[^<]*)</arg_key>\s*<arg_value>(?P<given>(?:(?!<arg_key>).)*?)</arg_value>",
    re.DOTALL,
)
_BOXED = re.compile(r"\\boxed\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_FINAL = re.compile(r"^(?:Final Answer|Answer):\s*(\S.*)", re.MULTILINE)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Done:
    """One call and what it returned; ``None`` where the rollout ends before."""

    call: ToolCall
    result: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the result is an error."""
        return self.result is not None and _failed(self.result)


@dataclass(frozen=True, slots=True)
class Use:
    """How one rollout used its tools.

    Attributes
    ----------
    acts : tuple of Done
        Calls and environment actions in order.
    malformed : int
        Calls that cannot be parsed.
    answer : str
        The final answer; empty where there is none.
    void : int
        Turns with neither a complete call nor an answer.
    fabricated : bool
        The policy wrote a result itself.
    """

    acts: tuple[Done, ...] = ()
    malformed: int = 0
    answer: str = ""
    void: int = 0
    fabricated: bool = False

    @property
    def calls(self) -> tuple[Done, ...]:
        """Tool calls only."""
        return tuple(act for act in self.acts if act.call.name != ACTION)

    @property
    def signature(self) -> tuple[str, ...]:
        """What tells two completions apart: calls in order, then the answer."""
        return (*(spelled(act.call) for act in self.acts), " ".join(self.answer.split()))


def spelled(call: ToolCall) -> str:
    """A call in one canonical line.

    Examples
    --------
    >>> spelled(ToolCall("add", {"b": 2, "a": " 1"}))
    'add(a="1", b=2)'
    """
    return f"{call.name}({', '.join(f'{name}={_value(call.arguments[name])}' for name in sorted(call.arguments))})"


def _value(value: Any) -> str:
    value = " ".join(value.split()) if isinstance(value, str) else value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def calls_in_json(value: Any, *, depth: int = 0) -> list[ToolCall]:
    """Calls in a JSON value: an OpenAI call, ``{"name": ..., "arguments": ...}``, a list or a string of them.

    Examples
    --------
    >>> calls_in_json('[{"name": "add", "parameters": {"a": 1}}]')
    [ToolCall(name='add', arguments={'a': 1})]
    >>> calls_in_json("42")
    []
    """
    if depth > DEEPEST:
        return []
    if isinstance(value, str):
        if "{" not in value:
            return []
        marked = [act.body for act in acts_in(value) if act.tag in ("tool_call", "function_call")]
        return [
            call for text in marked or [value] for item in _json_values(text) for call in calls_in_json(item, depth=depth + 1)
        ]
    if isinstance(value, list | tuple):
        return [call for item in value for call in calls_in_json(item, depth=depth + 1)]
    if not isinstance(value, Mapping):
        return []
    inner = value.get("function")
    value = inner if isinstance(inner, Mapping) else value
    name = value.get("name", value.get("tool", value.get("tool_name")))
    if not isinstance(name, str):
        wrapped = next((value[key] for key in ("tool_calls", "calls", "ground_truth", "target") if key in value), None)
        return calls_in_json(wrapped, depth=depth + 1) if wrapped is not None else []
    given = next((value[key] for key in ARGUMENTS if key in value), None)
    if isinstance(given, str):
        given = next(iter(_json_values(given)), None)
    if given is None and not any(key in value for key in ARGUMENTS):
        return [ToolCall(name)] if set(value) <= {"name", "type", "id", "tool", "tool_name"} else []
    return [ToolCall(name, dict(given) if isinstance(given, Mapping) else {})]


def _json_values(text: str) -> list[Any]:
    """JSON objects and lists that stand in a text, one after the other."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while (begin := min((k for k in (text.find("{", at), text.find("[", at)) if k >= 0), default=-1)) >= 0:
        try:
            value, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found


def use_of(rollout: Rollout, parsed: Parsed) -> Use:
    r"""Read how a rollout used its tools.

    Examples
    --------
    >>> from echotrap.text.parse import parse
    >>> item = Rollout(1, "<search>falcon</search><information>a bird</information><answer>a bird</answer>")
    >>> use = use_of(item, parse(item))
    >>> [(spelled(act.call), act.result) for act in use.acts], use.answer
    ([('search(query="falcon")', 'a bird')], 'a bird')
    """
    if parsed.markup == "plain":
        return Use(answer=_last_words(rollout.text, spoken=False))
    acts: list[Done] = []
    pending: list[ToolCall] = []
    answers: list[str] = []
    malformed = void = 0
    answer, result, cut, wrote = "", "", False, False
    said_by = dialogue(rollout)
    for role, text in said_by:
        if role == "assistant":
            acts += [Done(call, result) for call in pending]  # one result for several calls
            pending, result = [], ""
            found = acts_in(text)
            calls: list[ToolCall] = []
            for act in found:
                own = [] if act.is_answer or not act.complete or not act.body else _calls(act.tag, act.body)
                calls += own
                malformed += not own and not act.is_answer
            answers = [act.body for act in found if act.is_answer and act.complete and act.body]
            pending, wrote = list(calls), True
            said = "" if calls else _last_words(text, spoken=not found)
            answer = _last_words(answers[-1], spoken=True) if answers else said
            cut = bool(text.strip()) and not calls and not answers
            void += cut
        elif wrote:
            result = _plain(text)
            if pending:
                acts.append(Done(pending.pop(0), result))
            elif answers:  # an answer that the environment answers is an action
                acts.append(Done(ToolCall(ACTION, {"action": answers[-1]}), result))
                answers, answer = [], ""
    if pending and not result and all(call.name == "code" for call in pending):  # code that nothing ran is the answer
        pending, answer = [], answer or str(pending[-1].arguments["code"])
    acts += [Done(call, result or None) for call in pending]
    if cut and answer and not rollout.truncated:  # words at the end are an answer, unless they were cut off
        void -= 1
    return Use(tuple(acts), malformed, answer, void, fabricates(rollout, said_by))


def _calls(tag: str, body: str) -> list[ToolCall]:
    if tag in ("tool_call", "function_call"):
        xml = XML_CALL.match(body)
        return [_xml_call(xml["name"] or xml["word"], body)] if xml else calls_in_json(body)
    if tag == "tool" and body.startswith("{"):
        return calls_in_json(body)
    return [ToolCall("search", {"query": body})] if tag == "search" else [ToolCall("code", {"code": body})]


def _xml_call(name: str, body: str) -> ToolCall:
    found = {
        match["name"] or match["key"].strip(): _typed(match["value"] or match["given"] or "") for match in _XML.finditer(body)
    }
    return ToolCall(name, found)


def _typed(text: str) -> Any:
    """A value that was written without quotes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()


def _plain(text: str) -> str:
    return re.sub(r"</?\w+>", "", text).strip()


def _last_words(text: str, *, spoken: bool) -> str:
    """The answer that a text ends with: boxed, announced, or all of it where the policy just speaks."""
    boxed, final = _BOXED.findall(text), _FINAL.findall(text)
    if boxed or final:
        return str((boxed or final)[-1]).strip()
    return re.sub(r"(?s)\A.*</think>", "", text).strip() if spoken else ""


def _failed(result: str) -> bool:
    return bool(_BROKEN.search(result) or (len(result) <= SHORT_RESULT and _COMPLAINT.search(result)))


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if len(word) > 2 or word.isdigit()}


def repeated(acts: Sequence[Done]) -> float:
    """Share of acts that were done before in the rollout and returned the same; NaN for fewer than two."""
    if len(acts) < 2:
        return float("nan")
    seen = [(spelled(act.call), act.result) for act in acts]
    return 1 - len(set(seen)) / len(seen)


def loops(acts: Sequence[Done]) -> bool:
    """Whether the same act with the same result stands three times in a row."""
    seen = [(spelled(act.call), act.result) for act in acts]
    return any(len(set(seen[at : at + LOOP])) == 1 for at in range(len(seen) - LOOP + 1))


def evidenced(use: Use, prompt: str) -> float:
    """1 where the answer's own words stand in the results, 0 where not, NaN where that cannot be told."""
    results = [act.result for act in use.calls if act.result and not act.failed]
    own = _words(use.answer) - _words(prompt)
    if not results or not 0 < len(own) <= LONGEST_ANSWER:
        return float("nan")
    shown = set().union(*map(_words, results))
    return float(len(own & shown) >= EVIDENCE * len(own))


def _near_duplicates(queries: Sequence[str]) -> int:
    """Queries that nearly repeat an earlier one."""
    sets = [set(_WORD.findall(query.lower())) for query in queries[:MOST_QUERIES]]
    alike = (
        any(len(own & other) >= NEAR * len(own | other) for other in sets[:at] if own | other) for at, own in enumerate(sets)
    )
    return sum(alike)


def behaviour(
    rollouts: Sequence[Rollout], parsed: Sequence[Parsed], uses: Sequence[Use], evidence: Sequence[float]
) -> dict[str, float]:
    """Signals of one step's tool use; empty where no tool is used. ``evidence`` is :func:`evidenced` of each rollout."""
    out: dict[str, float] = {}
    acts = [act for use in uses for act in use.acts]
    if acts:
        out["repeated_calls_frac"] = _mean(repeated(use.acts) for use in uses)
        out["call_loops_frac"] = _mean(float(loops(use.acts)) for use in uses)
        out["void_turns_frac"] = _mean(float(use.void > 0) for use in uses)
        out["fabricated_frac"] = _mean(float(use.fabricated) for use in uses)
    calls = [act for use in uses for act in use.calls]
    malformed = sum(use.malformed for use in uses)
    if not calls and not malformed:
        return _finite(out)
    out["zero_call_frac"] = _mean(float(not use.calls) for use in uses)
    out["valid_call_frac"] = len(calls) / (len(calls) + malformed)
    turns = sum(sum(any(turn[:3]) for turn in item.turns) for item in parsed)
    out["calls_per_turn"] = len(calls) / turns if turns else float("nan")
    names = Counter(act.call.name for act in calls)
    shares = np.array(list(names.values()), float) / max(len(calls), 1)
    if len(calls):
        out |= {"tool_count": float(len(names)), "top_tool_share": float(shares.max())}
        out["tool_mix_entropy"] = abs(float(-(shares * np.log(shares)).sum()))
    sequences = [tuple(act.call.name for act in use.calls) for use in uses if use.calls]
    out["call_sequences_frac"] = len(set(sequences)) / len(sequences) if sequences else float("nan")
    steps = Counter(pair for sequence in sequences for pair in pairwise(sequence))
    moves = np.array(list(steps.values()), float) / max(sum(steps.values()), 1)
    out["tool_transition_entropy"] = abs(float(-(moves * np.log(moves)).sum())) if len(moves) else float("nan")
    first = [next(at for at, turn in enumerate(i.turns, 1) if turn.calls) for i in parsed if any(turn.calls for turn in i.turns)]
    out["first_call_turn"] = _mean(map(float, first))
    shown, written = (sum(map(len, texts)) for texts in ((i.observed for i in parsed), (i.text for i in parsed)))
    out["result_share"] = shown / (shown + written) if shown + written else float("nan")
    answered = [act for act in calls if act.result is not None]
    out["error_result_frac"] = _mean(float(act.failed) for act in answered)
    out["corrected_frac"] = _mean(value for use in uses for value in _corrected(use.calls))
    told = [solved(rollout) for rollout in rollouts]
    out["evidence_frac"] = _mean(found for found, right in zip(evidence, told, strict=True) if right != 0)
    for name, wanted in (("success_with_calls", True), ("success_without_calls", False)):
        out[name] = _mean(r for r, use in zip(told, uses, strict=True) if r is not None and bool(use.calls) is wanted)
    queries = [[_query(act.call) for act in use.calls if SEARCH.search(act.call.name)] for use in uses]
    count = sum(map(len, queries))
    if count:
        out["queries_per_question"] = count / len(uses)
        out["near_duplicate_queries_frac"] = sum(map(_near_duplicates, queries)) / count
    return _finite(out)


def sequences(uses: Iterable[Use]) -> list[tuple[str, int]]:
    """Sequences of tools with how many rollouts have each, the most common first.

    Examples
    --------
    >>> search = Done(ToolCall("search"))
    >>> sequences([Use((search,)), Use((search, search)), Use((search,)), Use()])
    [('search', 2), ('search → search', 1), ('no call', 1)]
    """
    found = Counter(" → ".join(act.call.name for act in use.calls) or "no call" for use in uses)
    return found.most_common()


def _corrected(calls: Sequence[Done]) -> Iterable[float]:
    """After each error that is followed by a call: whether that call is another one and works."""
    for first, second in pairwise(calls):
        if first.failed and second.result is not None:
            yield float(not second.failed and spelled(first.call) != spelled(second.call))


def _query(call: ToolCall) -> str:
    return " ".join(str(value) for value in call.arguments.values() if isinstance(value, str))


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if value == value]
    return float(np.mean(known)) if known else float("nan")


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if np.isfinite(value)}
