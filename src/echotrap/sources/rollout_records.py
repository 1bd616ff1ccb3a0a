"""One logged record in, its rollouts out, whichever framework wrote it. Told by the keys, which are data below."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from echotrap.rollouts import Message, Rollout

__all__ = ["assign_groups", "holds_rollouts", "rollouts_of", "step_of"]

TEXT = (
    "output", "completion", "response", "responses", "completions", "output_response", "raw_generation", "generation",
    "generated_text", "output_text", "model_output", "model_response", "completion_text", "generated", "text",
)  # fmt: skip
PROMPT = ("input", "prompt", "input_prompt", "question", "query", "problem", "instruction")
MESSAGES = ("messages", "conversation", "rollouts", "trajectory", "trajectory_data", "chat_completions", "dialogue", "history")
TOTAL = ("score", "reward", "total_reward", "scores", "rewards", "final_reward", "public_reward")
REWARD = (*TOTAL, "correct", "is_correct", "acc", "success")
GROUP = ("group_id", "group", "group_index", "group_idx", "prompt_id", "prompt_idx", "problem_id", "example_id", "task_id",
         "task_hash", "id")  # fmt: skip
STEP = ("step", "global_step", "training_step", "iteration", "rollout_id", "gen_step")
ADVANTAGE = ("advantage", "advantages")
TOKENS = ("response_length", "generated_tokens", "completion_tokens", "num_tokens", "output_tokens")
FINISH = ("finish_reason", "stop_reason", "stop_condition", "status", "termination_reason")
CUT = frozenset({"length", "truncated", "max_tokens", "max_length", "max_response_length_exceeded", "max_prompt_length_exceeded"})
NESTED = ("samples", "rollouts", "trajectories", "examples", "generations", "episodes", "items", "data")
OPTIMISER = frozenset({"loss", "grad_norm", "learning_rate", "lr", "entropy", "kl", "train_loss"})
"""A record that has one of these is a metrics row, whatever text it carries."""

_UID = re.compile(r"(.+)_(\d+)_(\d+)")


def holds_rollouts(record: Any) -> bool:
    """Whether a record is one or several rollouts rather than a row of metrics."""
    if not isinstance(record, dict) or OPTIMISER & record.keys():
        return False
    if "columns" in record and "data" in record:
        return _is_table_of_rollouts(record)
    if {"traces", "run"} <= record.keys() or "traj_idx" in record or "response_tokens" in record:
        return True
    if any(_is_dialogue(record.get(key)) for key in MESSAGES):
        return True
    if "content" in record and "rewards" in record:
        return True
    return any(_textual(record.get(key)) for key in TEXT) or bool(_nested(record))


def rollouts_of(record: Mapping[str, Any], *, step: int = 0, split: str = "train", origin: str = "") -> list[Rollout]:
    """The rollouts of one record; ``step`` and ``split`` apply where the record does not say."""
    known = step_of(record)
    step = step if known is None else known
    if record.get("split") in ("eval", "val", "test"):
        split = "eval"
    if "columns" in record and "data" in record:
        return _table(record, step, split, origin)
    if isinstance(traces := record.get("traces"), list):
        return _episode(record, traces, step, split, origin)
    if "traj_idx" in record:
        return [_summary(record, step, split, origin)]
    if "task_hash" in record and isinstance(trajectories := record.get("trajectories"), list):
        return [_trajectory(record, item, step, split, origin) for item in trajectories if isinstance(item, dict)]
    if isinstance(about := record.get("metadata"), dict) and {"group_id", "total_reward"} <= about.keys():
        return [_evaluated(record, about, step, split, origin)]
    if inner := _nested(record):
        return [one for item in inner for one in rollouts_of({**item, "step": step}, step=step, split=split, origin=origin)]
    if isinstance(content := record.get("content"), list) and "rewards" in record:
        return _contents(record, content, step, split, origin)
    if rows := _exploded(record):
        return [one for row in rows for one in rollouts_of(row, step=step, split=split, origin=origin)]
    return [_plain(record, step, split, origin)]


def assign_groups(rollouts: Sequence[Rollout], group_size: int | None = None) -> list[Rollout]:
    """Give each rollout of a step its prompt group and its position.

    A logged group id wins; verl's ``uid`` is the group's id, the session and the output. Without one, rollouts with the same
    prompt (and the same ground truth) are a group; where a prompt was drawn twice, ``group_size`` splits it.
    """
    rollouts = _joined_sessions(rollouts)
    logged = [item.group for item in rollouts]
    by_prompt = [_prompt_key(item) for item in rollouts]
    distinct = len(set(logged)) == len(logged)
    if all(group is None for group in logged) or (distinct and len(set(by_prompt)) < len(by_prompt)):
        numbers: dict[str, int] = {}
        seen: dict[str, int] = {}
        groups: list[str | None] = []
        for key in by_prompt:
            if key is None:
                groups.append(None)
                continue
            number = numbers.setdefault(key, len(numbers))
            count = seen[key] = seen.get(key, -1) + 1
            part = f".{count // group_size}" if group_size and count >= group_size else ""
            groups.append(f"{number}{part}")
    else:
        groups = logged
    return [replace(item, group=group, index=at) for at, (item, group) in enumerate(zip(rollouts, groups, strict=True))]


def step_of(record: Mapping[str, Any]) -> int | None:
    """The step that a record names; ``None`` where it names none."""
    for key in STEP:
        value = record.get(key)
        if isinstance(value, list):
            value = value[0] if value else None
        number = _number(value)
        if abs(number) < 2**53 and number == int(number):
            return int(number)
    run = record.get("run")
    work = run.get("work") if isinstance(run, dict) else None
    if isinstance(work, dict) and isinstance(work.get("step"), int):
        return int(work["step"])
    return None


# -- shapes ------------------------------------------------------------------------------------------------------------------


def _plain(record: Mapping[str, Any], step: int, split: str, origin: str) -> Rollout:
    """One rollout, flat: verl, TRL, SkyRL, AReaL, OpenRLHF, open-instruct and most home-made dumps."""
    text, said = _text_of(_first(record, TEXT))
    prompt, asked = _text_of(_first(record, PROMPT))
    dialogue = next((record[key] for key in MESSAGES if _is_dialogue(record.get(key))), None)
    messages = (*asked, *said) if said else ()
    if dialogue is not None and not text:
        messages = _messages(dialogue)
        first = next((at for at, one in enumerate(messages) if one.role == "assistant"), len(messages))
        text = _said(messages)
        prompt = prompt or "\n".join(one.content for one in messages[:first])
    if not text and not messages:  # a dialogue that was logged as one string
        text = next((record[key] for key in MESSAGES if isinstance(record.get(key), str)), "")
    nested = record.get("metrics")
    metrics = nested if isinstance(nested, Mapping) else {}
    advantage = _number(_scalar(_first(record, ADVANTAGE)))
    tabled = any(key in record for key in ADVANTAGE)
    components = _components(record) if tabled else {}
    reward = _number(_total(_first(record, TOTAL if tabled else REWARD)))
    if math.isnan(reward):
        reward = _number(_first(metrics, REWARD))
    if math.isnan(reward) and components:
        known = [value for value in components.values() if value == value]
        reward = sum(known) if known else math.nan
    tokens = _number(_first(record, TOKENS))
    if isinstance(ids := record.get("response_tokens"), list):
        tokens = float(len(ids))
    elif math.isnan(tokens) and {"seqlen", "prompt_len"} <= record.keys():
        tokens = _number(record["seqlen"]) - _number(record["prompt_len"])
    group = record["uid"] if isinstance(record.get("uid"), str) else _first(record, GROUP)
    used = {*TEXT, *PROMPT, *MESSAGES, *ADVANTAGE, *STEP, *components, "response_tokens", "prompt_tokens", "logprobs"}
    return Rollout(
        step=step,
        text=text,
        prompt=prompt or None,
        group=None if group is None or isinstance(group, dict | list) else str(group),
        reward=reward,
        components=components,
        messages=messages,
        advantage=advantage,
        truncated=_truncated(record),
        tokens=int(tokens) if tokens == tokens and abs(tokens) < 2**53 else None,
        split=split,
        extra={key: value for key, value in record.items() if key not in used},
        origin=origin,
    )


def _evaluated(record: Mapping[str, Any], about: Mapping[str, Any], step: int, split: str, origin: str) -> Rollout:
    """A rollout of RAGEN's evaluation, whose own ``success`` is never set: that of its environment is."""
    solved = next((value for key, value in about.items() if key.endswith("/success")), about.get("success"))
    return _plain({**record, **about, "success": solved}, step, split, origin)


def _table(record: Mapping[str, Any], step: int, split: str, origin: str) -> list[Rollout]:
    """A W&B table: one rollout a row, or verl's wide form (``input_1``, ``output_1``, ...), or RAGEN's reward matrix."""
    names = [str(name) for name in record["columns"]]
    found: list[Rollout] = []
    for at, cells in enumerate(record["data"]):
        if not isinstance(cells, list):
            continue
        row = dict(zip(names, cells, strict=False))
        where = f"{origin}:{at + 1}"
        if names and all(re.fullmatch(r"group_\d+", name) for name in names):
            found += [
                Rollout(step, "", group=name[6:], reward=_number(cell), split=split, origin=where) for name, cell in row.items()
            ]
            continue
        wide = sorted({name.rpartition("_")[2] for name in names if re.fullmatch(r"(?:input|output|score)_\d+", name)}, key=int)
        if wide:
            known = step_of(row)
            parts = [{part: row.get(f"{part}_{number}") for part in ("input", "output", "score")} for number in wide]
            found += [_plain(part, step if known is None else known, "eval", where) for part in parts]  # val/generations
        else:
            found += rollouts_of(row, step=step, split=split, origin=where)
    return found


def _episode(record: Mapping[str, Any], traces: list[Any], step: int, split: str, origin: str) -> list[Rollout]:
    """prime-rl: messages form a tree, walked from its last leaf; the total reward is not written, so it is summed."""
    group = record.get("group")
    found: list[Rollout] = []
    for trace in traces:
        if not isinstance(trace, dict):
            continue
        nodes = [node for node in trace.get("nodes") or [] if isinstance(node, dict)]
        path: list[dict[str, Any]] = []
        at: Any = len(nodes) - 1
        while isinstance(at, int) and 0 <= at < len(nodes) and len(path) <= len(nodes):
            path.append(nodes[at])
            at = nodes[at].get("parent")
        path = [node for node in reversed(path) if _is_dialogue([node.get("message")])]
        messages = _messages([node["message"] for node in path])
        sampled = [bool(node.get("sampled")) for node in path]
        said = [_with_calls(one) for one, own in zip(messages, sampled, strict=True) if own]
        first = sampled.index(True) if True in sampled else len(messages)
        rewards = trace.get("rewards")
        components = {
            name: _number(item.get("score")) for name, item in (rewards or {}).items() if isinstance(item, dict)
        }  # fmt: skip
        weights = {name: _number(item.get("weight", 1.0)) for name, item in (rewards or {}).items() if isinstance(item, dict)}
        total = sum(components[name] * weights[name] for name in components) if components else math.nan
        found.append(
            Rollout(
                step=step,
                text="\n".join(said),
                prompt="\n".join(one.content for one in messages[:first]) or None,
                group=str(group["id"]) if isinstance(group, dict) and "id" in group else None,
                reward=total,
                components=components,
                messages=messages,
                truncated=_truncated(trace),
                split=split,
                extra={key: trace[key] for key in ("stop_condition", "metrics", "errors", "ok") if key in trace},
                origin=origin,
            )
        )
    return found


def _summary(record: Mapping[str, Any], step: int, split: str, origin: str) -> Rollout:
    """Tinker: rewards and lengths of a trajectory, no text."""
    turns = [turn for turn in record.get("steps") or [] if isinstance(turn, dict)]
    lengths = [_number(turn.get("ac_len")) for turn in turns]
    tokens = sum(length for length in lengths if length == length)
    return Rollout(
        step=step,
        text="",
        group=str(record.get("group_idx")),
        reward=_number(record.get("total_reward")),
        tokens=int(tokens) if turns else None,
        split=split,
        extra={"turns": len(turns), "tags": record.get("tags")},
        origin=origin,
    )


def _trajectory(record: Mapping[str, Any], item: Mapping[str, Any], step: int, split: str, origin: str) -> Rollout:
    """rLLM: an episode of one or several trajectories of steps."""
    turns = [turn for turn in item.get("steps") or [] if isinstance(turn, dict)]
    messages: list[Message] = []
    for turn in turns:
        said = turn.get("model_response") or turn.get("action") or ""
        messages.append(Message("user", _string(turn.get("observation"))))
        messages.append(Message("assistant", _string(said)))
    task = record.get("task")
    return Rollout(
        step=step,
        text=_said(messages),
        prompt=_string(task.get("question", task) if isinstance(task, dict) else task) or None,
        group=None if record.get("task_hash") is None else str(record["task_hash"]),
        reward=_number(item.get("reward")),
        messages=tuple(messages),
        truncated=_truncated(record),
        split=split,
        extra={key: record[key] for key in ("episode_id", "is_correct", "termination_reason", "metrics") if key in record},
        origin=origin,
    )


def _contents(record: Mapping[str, Any], content: list[Any], step: int, split: str, origin: str) -> list[Rollout]:
    """NeMo-RL: each value is a list of one; ``content`` is the message texts, in validation the messages."""
    found: list[Rollout] = []
    rewards = record["rewards"] if isinstance(record["rewards"], list) else [record["rewards"]]
    for at, dialogue in enumerate(content):
        if not isinstance(dialogue, list):
            continue
        messages = _messages(dialogue)
        if not messages:
            messages = tuple(
                Message("user" if turn % 2 == 0 else "assistant", _string(text)) for turn, text in enumerate(dialogue)
            )
        advantages = record.get("advantages")
        tokens = advantages[at] if isinstance(advantages, list) and at < len(advantages) else None
        nonzero = [value for value in tokens if value] if isinstance(tokens, list) else []
        found.append(
            Rollout(
                step=step,
                text=_said(messages),
                prompt=messages[0].content if messages else None,
                reward=_number(rewards[at]) if at < len(rewards) else math.nan,
                messages=messages,
                advantage=_number(nonzero[0]) if nonzero else math.nan,
                split=split,
                extra={"idx": record.get("idx")},
                origin=origin,
            )
        )
    return found


def _nested(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rollouts that a step's record lists (``{"step": 3, "samples": [{"completion": ..}, ..]}``)."""
    for key in NESTED:
        items = record.get(key)
        if isinstance(items, list) and items and isinstance(items[0], dict) and "role" not in items[0]:
            found = [item for item in items if isinstance(item, dict)]
            if "task_hash" in record or any(_textual(found[0].get(name)) for name in (*TEXT, *MESSAGES)):
                return found
    return []


def _exploded(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a record that holds columns (ms-swift, ROLL)."""
    key = next((key for key in TEXT if isinstance(record.get(key), list) and not _is_dialogue(record[key])), None)
    if key is None:
        return []
    length = len(record[key])
    return [
        {name: value[at] if isinstance(value, list) and len(value) == length else value for name, value in record.items()}
        for at in range(length)
    ]


# -- small things --------------------------------------------------------------------------------------------------------------


def _first(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _number(value: Any) -> float:
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.nan
    if isinstance(value, str) and len(value) < 64:
        try:
            return float(value)
        except ValueError:
            return math.nan
    return math.nan


def _scalar(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _total(value: Any) -> Any:
    """A reward: a number, or one per token."""
    if isinstance(value, list):
        numbers = [_number(item) for item in value]
        return sum(number for number in numbers if number == number) if numbers else math.nan
    return value


def _string(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _textual(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and (isinstance(value[0], str) or _is_dialogue(value) or _is_dialogue(value[0]))
    return isinstance(value, str)


def _is_dialogue(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "role" in value[0]


def _messages(items: Any) -> tuple[Message, ...]:
    found = []
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and "role" in item:
            content = item.get("content")
            if isinstance(content, list):  # parts of a multi-modal message
                content = "".join(_string(part.get("text")) for part in content if isinstance(part, dict))
            calls = item.get("tool_calls")
            tools = tuple(call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
            found.append(Message(_string(item["role"]), _string(content), tools))
    return tuple(found)


def _said(messages: Iterable[Message]) -> str:
    """What the policy generated of a dialogue."""
    return "\n".join(_with_calls(one) for one in messages if one.role == "assistant")


def _with_calls(message: Message) -> str:
    """A message with its tool calls, which the policy generated just as well."""
    calls = [json.dumps(call.get("function", call), ensure_ascii=False, default=str) for call in message.tool_calls]
    return "\n".join(filter(None, (message.content, *calls)))


def _text_of(value: Any) -> tuple[str, tuple[Message, ...]]:
    if _is_dialogue(value):
        messages = _messages(value)
        return _said(messages) or "\n".join(one.content for one in messages), messages
    if isinstance(value, list):
        return "\n".join(_string(item) for item in value), ()
    return _string(value), ()


def _components(record: Mapping[str, Any]) -> dict[str, float]:
    """Reward functions have a column each in tables that also hold the advantage (TRL, ms-swift)."""
    known = {*TEXT, *PROMPT, *ADVANTAGE, *STEP, *GROUP, *TOKENS, *FINISH, *TOTAL, "sample_idx", "dataset"}
    return {
        key: _number(value)
        for key, value in record.items()
        if key not in known and (value is None or (isinstance(value, int | float) and not isinstance(value, bool)))
    }


def _truncated(record: Mapping[str, Any]) -> bool | None:
    flag = record.get("truncated", record.get("is_truncated"))
    if isinstance(flag, bool | int):
        return bool(flag)
    reason = _first(record, FINISH)
    return str(reason).lower() in CUT if isinstance(reason, str) else None


def _prompt_key(item: Rollout) -> str | None:
    return None if item.prompt is None else f"{item.prompt}\0{item.extra.get('gts', '')}"


def _joined_sessions(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """verl: ``{prompt}_{session}_{output}``; several outputs of a session are one rollout, judged by the last."""
    sessions: dict[str, list[tuple[int, Rollout]]] = {}
    for at, item in enumerate(rollouts):
        uid = item.extra.get("uid")
        match = _UID.fullmatch(uid) if isinstance(uid, str) else None
        if match is None:
            sessions[f"\0{at}"] = [(0, item)]
        else:
            sessions.setdefault(f"{match[1]}_{match[2]}", []).append((int(match[3]), replace(item, group=match[1])))
    joined: list[Rollout] = []
    for parts in sessions.values():
        if len(parts) == 1:
            joined.append(parts[0][1])
            continue
        ordered = [item for _, item in sorted(parts, key=lambda part: part[0])]
        joined.append(replace(ordered[-1], text="\n".join(item.text for item in ordered), prompt=ordered[0].prompt))
    return joined


def _is_table_of_rollouts(record: Mapping[str, Any]) -> bool:
    names = record["columns"]
    if not isinstance(names, list) or not isinstance(record["data"], list):
        return False
    words = {str(name) for name in names}
    wide = any(re.fullmatch(r"output_\d+|group_\d+", name) for name in words)
    return wide or bool(words & {*TEXT, *MESSAGES})
