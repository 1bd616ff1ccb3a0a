"""What the policy wrote, and what it did not.

A logged rollout mixes the policy's tokens with prompts, tool results and environment states that repeat by design. Only the
first are ever measured. Understood are chat messages, chat templates (ChatML, Llama, ``[user]`` blocks, bare role lines as verl
decodes them), ``<think>`` and its relatives, and the tool markup of Qwen/Hermes, Search-R1, ReTool and RAGEN. Anything else is
plain text, all of it the policy's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from echotrap.rollouts import Rollout

__all__ = ["Act", "Parsed", "Turn", "acts_in", "dialogue", "fabricates", "parse"]

THINK = r"think|thinking|thought|reasoning|reason"
ANSWER = r"answer|ans|action|final_answer"
CALL = r"tool_call|search|code|python|function_call|tool"
OBSERVATION = r"information|tool_response|tool_result|interpreter|observation|output|result|state"

_ROLES = r"system|user|assistant|tool|environment|ipython"
_HEADER = re.compile(
    rf"<\|im_start\|>\s*(?P<chatml>{_ROLES})\n?"
    rf"|<\|start_header_id\|>\s*(?P<llama>{_ROLES})\s*<\|end_header_id\|>\n*"
    rf"|^\[(?P<block>{_ROLES})\][ \t]*\n?"
    rf"|(?:^|(?<=>))(?P<line>{_ROLES})[ \t]*\n",
    re.MULTILINE,
)
_MARKUP = ("<", "```", "assistant", "Observation:", "]\n")  # one of these is in every rollout that is more than plain text
_SPECIAL = re.compile(r"<\|[^|<>\n]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|(?:<pad>|</s>|<eos>|<s>)")
_OBSERVED = re.compile(
    rf"<(?P<tag>{OBSERVATION})>.*?(?:</(?P=tag)>|\Z)|```output\n.*?(?:```|\Z)"
    r"|^Observation:.*?(?=^(?:Thought|Action|Final Answer):|\Z)",
    re.DOTALL | re.MULTILINE,
)
_THINK = re.compile(rf"<(?P<tag>{THINK})>(?P<body>.*?)(?:</(?P=tag)>|(?=<(?:{ANSWER}|{CALL})>)|\Z)", re.DOTALL)
_THINK_END = re.compile(rf"</(?:{THINK})>")
_ACT = re.compile(
    rf"<(?P<tag>{ANSWER}|{CALL})>(?P<body>.*?)(?P<end></(?P=tag)>|\Z)|```(?:python|py|tool_code)\n(?P<code>.*?)(?P<fence>```|\Z)",
    re.DOTALL,
)
_TAG = re.compile(rf"</?(?:{THINK}|{ANSWER}|{CALL}|{OBSERVATION})>")
RESULT = re.compile(r"<(information|tool_response|tool_result|interpreter|observation)>\s*[^\s<](?:(?!<\1>).)*?</\1>", re.DOTALL)
"""A closed block of results that holds something."""
XML_CALL = re.compile(r"\s*(?:<function=(?P<name>[\w.-]+)>|(?P<word>[\w.-]+)\s*<arg_key>)")
"""A call in the XML of Qwen3-Coder, and that of GLM."""
_SEARCHER = {"query": "search", "documents": "information"}
_BEGIN_END = re.compile(r"<\|(begin|end)_of_(query|documents)\|>")
_CALLED = re.compile(rf"(?:</(?:{CALL}|{ANSWER})>|```)\s*\Z")
_ANSWERS = frozenset(ANSWER.split("|"))
_JSON_CALLS = frozenset(("tool_call", "function_call"))


class Act(NamedTuple):
    """A call or an answer as the policy wrote it: its tag, what it holds, and whether it was closed."""

    tag: str
    body: str
    complete: bool

    @property
    def is_answer(self) -> bool:
        """Whether the tag is one of an answer."""
        return self.tag in _ANSWERS


class Turn(NamedTuple):
    """One stretch that the policy wrote between two things that it did not write.

    Attributes
    ----------
    think : str
        What the think block holds.
    said : str
        Everything else but calls and answers: the reasoning of a policy without think blocks.
    acts : str
        Calls and answers.
    calls, malformed : int
        Tool calls, and calls or answers that cannot be parsed (unclosed, empty, or JSON that is none).
    """

    think: str
    said: str
    acts: str = ""
    calls: int = 0
    malformed: int = 0


@dataclass(frozen=True, slots=True)
class Parsed:
    """A rollout taken apart.

    Attributes
    ----------
    turns : tuple of Turn
        The policy's turns in order; empty turns included.
    observed : str
        What environment and tools said.
    prompt : str
        What the policy was asked.
    markup : str
        ``"messages"``, ``"roles"``, ``"tags"`` or ``"plain"``: how it was recognised.
    """

    turns: tuple[Turn, ...]
    observed: str
    prompt: str
    markup: str

    @property
    def text(self) -> str:
        """Everything that the policy wrote, turn by turn, without markup."""
        return _joined(part for turn in self.turns for part in turn[:3])

    @property
    def reasoning(self) -> str:
        """Think blocks of all turns; what it said besides calls and answers where there are none; else all of it."""
        return _joined(turn.think for turn in self.turns) or _joined(turn.said for turn in self.turns) or self.acts

    @property
    def acts(self) -> str:
        """Calls and answers of all turns."""
        return _joined(turn.acts for turn in self.turns)

    @property
    def remainder(self) -> str:
        """What the policy wrote besides its reasoning."""
        if any(turn.think for turn in self.turns):
            return _joined(part for turn in self.turns for part in (turn.said, turn.acts))
        return self.acts if any(turn.said for turn in self.turns) else ""


def _joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)


def parse(rollout: Rollout) -> Parsed:
    r"""Take a rollout apart into what the policy wrote and what it was shown.

    Examples
    --------
    >>> parsed = parse(Rollout(1, "<think>Falcon is fast.</think><answer>Falcon</answer>user\nReward: 1\nassistant\nDone."))
    >>> parsed.reasoning, parsed.acts, parsed.observed
    ('Falcon is fast.', 'Falcon', 'Reward: 1')
    """
    if rollout.messages:
        written: list[str] = []
        observed: list[str] = []
        asked: list[str] = []
        for message in rollout.messages:
            if message.role == "assistant":
                written.append("\n".join((message.content, *map(_spelled, message.tool_calls))))
            else:
                (observed if written else asked).append(message.content)
        turns = tuple(_turn(_SPECIAL.sub("", text)) for text in written)
        return Parsed(turns, "\n".join(observed), rollout.prompt or "\n".join(asked), "messages")
    text = _searcher(rollout.text)
    if not any(map(text.__contains__, _MARKUP)):
        plain = text.strip()  # nothing to take apart: most single-turn mathematics
        return Parsed((Turn("", plain),), "", rollout.prompt or "", "plain")
    blocks = _blocks(text)
    by_role = len(blocks) > 1 or blocks[0][0] != "assistant"
    written, observed, asked = [], [], []
    for role, block in blocks:
        if role == "assistant":
            written.append(_OBSERVED.sub(lambda match: _keep(match.group(), observed), block))
        elif written:
            observed.append(block.strip())
        else:
            asked.append(block.strip())
    turns = tuple(_turn(part) for block in written for part in block.split("\0"))
    markup = "roles" if by_role else "tags" if any(turn.think or turn.acts for turn in turns) else "plain"
    return Parsed(turns, "\n".join(observed), rollout.prompt or "\n".join(asked), markup)


def dialogue(rollout: Rollout) -> list[tuple[str, str]]:
    """A rollout as a person reads it: who says what, in order, markup kept.

    Examples
    --------
    >>> dialogue(Rollout(1, "<search>falcon</search><information>a bird</information>A bird.", prompt="What is a falcon?"))
    [('prompt', 'What is a falcon?'), ('assistant', '<search>falcon</search>'), \
('environment', '<information>a bird</information>'), ('assistant', 'A bird.')]
    """
    if rollout.messages:
        said = [(m.role, "\n".join(filter(None, (m.content, *map(_spelled, m.tool_calls))))) for m in rollout.messages]
        asked = bool(rollout.prompt) and all(role in ("assistant", "tool") for role, _ in said)
        return [("prompt", rollout.prompt or ""), *said] if asked else said
    said = [("prompt", rollout.prompt)] if rollout.prompt else []
    for role, text in _blocks(_searcher(rollout.text)):
        if role != "assistant":
            said.append((role, text.strip()))
            continue
        at = 0
        for match in _OBSERVED.finditer(text):
            said += [("assistant", text[at : match.start()]), ("environment", match.group())]
            at = match.end()
        said.append(("assistant", text[at:]))
    return [(role, text) for role, text in said if text.strip()] or [("assistant", "")]


def _searcher(text: str) -> str:
    """R1-Searcher's special tokens as the tags that the rest of the parser knows."""
    if "_of_query|>" not in text and "_of_documents|>" not in text:
        return text
    return _BEGIN_END.sub(lambda match: f"<{'/' * (match[1] == 'end')}{_SEARCHER[match[2]]}>", text)


def _keep(text: str, into: list[str]) -> str:
    into.append(_TAG.sub("", text).strip())
    return "\0"  # a turn ends where the environment speaks


def _blocks(text: str) -> list[tuple[str, str]]:
    """Split at role headers; what stands before the first one is the policy's."""
    headers = [(match, match.lastgroup or "", match.group(match.lastgroup or 0)) for match in _HEADER.finditer(text)]
    # A line that says "user" is a role only in a text that also has an assistant's line, or begins with one.
    if not any(role == "assistant" for _, _, role in headers):
        headers = [header for header in headers if header[1] in ("chatml", "llama")]
    blocks, start, role = [], 0, "assistant"
    for match, _, name in headers:
        if start or match.start():
            blocks.append((role, _SPECIAL.sub("", text[start : match.start()])))
        start, role = match.end(), name
    blocks.append((role, _SPECIAL.sub("", text[start:])))
    if blocks[0][0] == "assistant" and not blocks[0][1].strip() and len(blocks) > 1:
        del blocks[0]
    return blocks


def acts_in(text: str) -> list[Act]:
    """Calls and answers that one stretch of the policy's text holds, in order; what it only thinks about is none.

    Examples
    --------
    >>> [(act.tag, act.body) for act in acts_in("<think>A <b>search</b>?</think><search>falcon</search>")]
    [('search', 'falcon')]
    """
    if "<" not in text and "```" not in text:
        return []
    found = _ACT.finditer(_thoughts(text)[1])
    return [Act(m["tag"] or "code", (m["body"] if m["tag"] else m["code"]).strip(), bool(m["end"] or m["fence"])) for m in found]


def fabricates(rollout: Rollout, said: Sequence[tuple[str, str]] | None = None) -> bool:
    """Whether the policy wrote a tool's result itself.

    Where tools speak under their own role, any closed block of results in the policy's turns is its own. Where they speak in
    between, a block is the policy's when no call stands right before it.

    Examples
    --------
    >>> fabricates(Rollout(1, "<search>falcon</search><information>a bird</information>"))
    False
    >>> fabricates(Rollout(1, "So <information>a bird</information> it is."))
    True
    """
    said = dialogue(rollout) if said is None else said
    roles = [role for role, _ in said]
    first = roles.index("assistant") if "assistant" in roles else len(roles)
    if any(role in ("user", "tool", "ipython") for role in roles[first:]):
        if rollout.messages:
            own: Iterable[str] = (text for role, text in said if role == "assistant")
        else:
            own = (text for role, text in _blocks(rollout.text) if role == "assistant")
        return any(RESULT.search(text) for text in own)
    if rollout.messages:
        return False
    for (before, text), (role, block) in pairwise(said):
        if role == "environment" and before == "assistant" and not _CALLED.search(text[-200:]) and RESULT.search(block):
            return True
    return False


def _thoughts(text: str) -> tuple[list[str], str]:
    """Think blocks, and the text without them."""
    thoughts: list[str] = []
    end = _THINK_END.search(text)
    if end and not re.search(rf"<(?:{THINK})>", text[: end.start()]):  # the opening tag was part of the prompt
        thoughts.append(text[: end.start()])
        rest = text[end.end() :]
    else:
        rest = text

    def think(match: re.Match[str]) -> str:
        thoughts.append(match["body"])
        return "\n"

    rest = _THINK.sub(think, rest)
    return thoughts, rest


def _turn(text: str) -> Turn:
    if "<" not in text and "```" not in text:
        return Turn("", text.strip())
    thoughts, rest = _thoughts(text)
    acts: list[str] = []
    calls = malformed = 0

    def act(match: re.Match[str]) -> str:
        nonlocal calls, malformed
        tag, body = match["tag"], match["body"] if match["tag"] else match["code"]
        acts.append(body.strip())
        well = bool(match["end"] if tag else match["fence"]) and bool(body.strip()) and (tag not in _JSON_CALLS or _is_call(body))
        if not well:
            malformed += 1
        elif tag not in _ANSWERS:
            calls += 1
        return "\n"

    rest = _TAG.sub("", _ACT.sub(act, rest)).strip()
    return Turn(_joined(part.strip() for part in thoughts), rest, _joined(acts), calls, malformed)


def _is_call(body: str) -> bool:
    if XML_CALL.match(body):
        return True
    try:
        value, _ = json.JSONDecoder().raw_decode(body.strip())  # what follows the object is ignored, as most parsers do
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value)


def _spelled(call: Mapping[str, Any]) -> str:
    """An OpenAI tool call in the one spelling that the rest of the parser knows."""
    function = call.get("function", call)
    if not isinstance(function, Mapping):
        return ""
    name, arguments = json.dumps(function.get("name", "")), function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>{{"name": {name}, "arguments": {arguments}}}</tool_call>'
