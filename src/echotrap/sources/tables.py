"""Tables of rollouts that were logged beside the metrics (W&B, Trackio), as a rollout store.

Frameworks log one of four shapes, told apart by their columns, never by their name:

===========  ===========================================  =====================================================
shape        columns                                      written by
===========  ===========================================  =====================================================
long         a text, maybe a prompt, a step, rewards      TRL and ms-swift ``completions``, OpenRLHF
                                                          ``generated_samples``, SkyRL ``trajectories``, prime-rl
wide         ``step``, then ``input_1``, ``output_1``,    verl and RAGEN ``val/generations``
             ``score_1``, ``input_2``, ...
matrix       ``group_0``, ``group_1``, ...                RAGEN ``rollout/reward_table``: rewards without text
anything     none of these                                not rollouts
===========  ===========================================  =====================================================

A table is logged again and again under one key, either with new rows only or with all earlier rows repeated. Of a step that
several tables hold, the newest counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from echotrap.errors import SourceError
from echotrap.rollouts import Message, Rollout, RolloutStore
from echotrap.sources.base import Note

__all__ = ["LoggedTable", "Table", "TableStore", "decode_json", "matrix_signals", "read_table", "to_float"]

LARGEST = 1 << 29  # bytes of one table file
TEXT = ("completion", "output", "response", "completions", "trajectory", "text", "messages")
PROMPT = ("prompt", "input", "question", "prompts")
STEP = ("step", "global_step", "train/global_step", "training_step")
REWARD = ("reward", "score", "total_reward", "rewards")
GROUP = ("group", "group_id", "uid", "example_id", "prompt_idx")
NO_REWARD = {*STEP, "advantage", "advantages", "idx", "index", "num_turns", "epoch", "tokens"}
NO_EXTRA = {"advantage", "advantages"}
EVAL = re.compile(r"(?:^|/)(?:val|eval|test)(?:[/_-]|$)")
WIDE = re.compile(r"input_(\d+)$")
MATRIX = re.compile(r"group_\d+$")


@dataclass(frozen=True, slots=True)
class Table:
    """What a table holds."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @property
    def is_matrix(self) -> bool:
        """Whether the columns are prompt groups and the cells rewards."""
        return bool(self.columns) and all(MATRIX.match(str(name)) for name in self.columns)


@dataclass(frozen=True)
class LoggedTable:
    """One logging of a table: where it is, not what it holds.

    Attributes
    ----------
    key : str
        What it was logged as.
    order : int
        Later loggings of a key have a higher one.
    where : str
        For a person.
    load : callable
        Reads it.
    incremental : bool
        Its rows come on top of earlier ones.
    step : int or None
        Training step of rows that name none.
    """

    key: str
    order: int
    where: str
    load: Callable[[], Table] = field(compare=False, repr=False)
    incremental: bool = False
    step: int | None = None


class TableStore(RolloutStore):
    """Rollouts out of logged tables; a table is read when one of its steps is asked for.

    Parameters
    ----------
    discover : callable
        Lists the tables that are there now.
    config : Mapping
        Configuration of the run; ``reward_weights`` and ``num_generations`` matter.
    reward_names : set of str
        Columns known to be reward functions; empty where that is not known.
    """

    def __init__(self, discover: Callable[[], Iterable[LoggedTable]], config: Mapping[str, Any], reward_names: set[str]) -> None:
        self.notes: list[Note] = []
        self._discover, self._config, self._reward_names = discover, config, reward_names
        self._known: set[tuple[str, str]] = set()
        self._waiting: dict[str, list[LoggedTable]] = {}
        self._index: dict[str, dict[int, dict[str, list[LoggedTable]]]] = {"train": {}, "eval": {}}
        self._read: dict[str, tuple[LoggedTable, list[Rollout]]] = {}
        self._skipped: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether any table was logged."""
        return bool(self._known)

    def refresh(self) -> None:
        """Look for tables that were logged since."""
        for table in self._discover():
            if (table.key, table.where) not in self._known:
                self._known.add((table.key, table.where))
                self._waiting.setdefault(table.key, []).append(table)

    def steps(self) -> tuple[int, ...]:
        """Steps that have training rollouts, ascending."""
        return self._steps("train")

    def eval_steps(self) -> tuple[int, ...]:
        """Steps that have evaluation rollouts, ascending."""
        return self._steps("eval")

    def at(self, step: int) -> list[Rollout]:
        """The training rollouts of one step."""
        return self._at("train", step)

    def eval_at(self, step: int) -> list[Rollout]:
        """The evaluation rollouts of one step."""
        return self._at("eval", step)

    def fingerprint(self, step: int) -> str | None:
        """The names of the tables that hold the step; W&B's contain a digest of the content."""
        self._take_stock()
        tables = self._index["train"].get(step)
        return None if tables is None else "|".join(table.where for several in tables.values() for table in several)

    def _steps(self, split: str) -> tuple[int, ...]:
        self._take_stock()
        return tuple(sorted(self._index[split]))

    def _at(self, split: str, step: int) -> list[Rollout]:
        self._take_stock()
        found = [
            rollout
            for several in self._index[split].get(step, {}).values()
            for table in several
            for rollout in self._rollouts(table)
            if rollout.step == step and rollout.split == split
        ]
        return _grouped(found, self._config.get("num_generations"))

    def _take_stock(self) -> None:
        """Learn which steps the waiting tables hold: the newest first, until one repeats all earlier rows."""
        for key, waiting in self._waiting.items():
            covered: set[tuple[str, int]] = set()
            for table in sorted(waiting, key=lambda table: table.order, reverse=True):
                held = {(rollout.split, rollout.step) for rollout in self._rollouts(table)}
                for split, step in held:
                    holders = self._index[split].setdefault(step, {})
                    if table.incremental:
                        holders.setdefault(key, []).append(table)
                    elif (split, step) not in covered:
                        holders[key] = [table]
                covered |= held
                if len(held) > 1 and not table.incremental:
                    break
        self._waiting.clear()

    def _rollouts(self, table: LoggedTable) -> list[Rollout]:
        last = self._read.get(table.key)
        if last is None or last[0] != table:
            try:
                rollouts = list(_rollouts(table, table.load(), self._config, self._reward_names))
            except SourceError as error:
                self._skip(f"tables that cannot be read ({error.message})")
                rollouts = []
            last = self._read[table.key] = table, rollouts
        return last[1]

    def _skip(self, what: str) -> None:
        self._skipped[what] = self._skipped.get(what, 0) + 1
        self.notes = [Note("skipped", message, count) for message, count in self._skipped.items()]


def read_table(path: Path) -> Table:
    """Read a ``.table.json`` of W&B.

    Raises
    ------
    SourceError
        It is not there, too large, or no table.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise SourceError("the table is larger than 512 MB", where=str(path))
        content = decode_json(path.read_bytes())
    except OSError as error:
        raise SourceError(str(error.strerror).lower(), where=str(path)) from error
    except ValueError as error:
        raise SourceError("not JSON", where=str(path)) from error
    return as_table(content, str(path))


def as_table(content: object, where: str) -> Table:
    """Check the shape of a decoded table."""
    columns, rows = (content.get("columns"), content.get("data")) if isinstance(content, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(rows, list):
        raise SourceError("not a table", where=where)
    return Table([str(name) for name in columns], [row for row in rows if isinstance(row, list) and len(row) == len(columns)])


def decode_json(data: bytes | str) -> Any:
    """Decode JSON, fast; with the standard library where it holds a bare ``NaN``.

    Raises
    ------
    ValueError
        It is no JSON, or nested too deeply.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        try:
            return json.loads(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def to_float(value: object) -> float:
    """A number, however it is spelled; NaN where it is none."""
    if value is None or isinstance(value, list | dict):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def matrix_signals(table: Table) -> dict[str, float]:
    """Signals of a group x sample matrix of rewards, under their canonical names.

    Examples
    --------
    >>> table = Table(["group_0", "group_1"], [[1.0, -0.1], [0.0, -0.1], [1.0, -0.1]])
    >>> {name: round(value, 3) for name, value in matrix_signals(table).items()}
    {'group_reward_std': 0.289, 'zero_std_frac': 0.5, 'group_size': 3.0, 'group_count': 2.0}
    """
    rewards = np.array([[to_float(cell) for cell in row] for row in table.rows], dtype=np.float64)
    if len(rewards) < 2 or not np.isfinite(rewards).all():
        return {}
    spread = rewards.std(axis=0, ddof=1)
    return {
        "group_reward_std": float(spread.mean()),
        "zero_std_frac": float((spread < 1e-6).mean()),
        "group_size": float(rewards.shape[0]),
        "group_count": float(rewards.shape[1]),
    }


def _rollouts(logged: LoggedTable, table: Table, config: Mapping[str, Any], reward_names: set[str]) -> Iterator[Rollout]:
    split = "eval" if EVAL.search(logged.key) else "train"
    at = {name: position for position, name in enumerate(table.columns)}
    step_at = next((at[name] for name in STEP if name in at), None)
    wide = [match[1] for name in table.columns if (match := WIDE.match(name)) and f"output_{match[1]}" in at]
    text_at = next((at[name] for name in TEXT if name in at), None)
    if not wide and text_at is None:
        return
    for number, row in enumerate(table.rows):
        number_of_step = logged.step if step_at is None else to_float(row[step_at])
        if number_of_step is None or not math.isfinite(number_of_step) or abs(number_of_step) >= 1 << 62:
            continue
        step, origin = int(number_of_step), f"{logged.where}:{number + 1}"
        if wide:
            for sample in wide:
                score_at = at.get(f"score_{sample}")
                yield Rollout(
                    step=step,
                    text=_text(row[at[f"output_{sample}"]])[0],
                    prompt=_text(row[at[f"input_{sample}"]])[0] or None,
                    reward=math.nan if score_at is None else to_float(row[score_at]),
                    split=split,
                    origin=origin,
                )
        else:
            assert text_at is not None
            yield _long(
                dict(zip(table.columns, row, strict=True)), table.columns[text_at], step, split, origin, config, reward_names
            )


def _long(
    cells: dict[str, Any],
    text_name: str,
    step: int,
    split: str,
    origin: str,
    config: Mapping[str, Any],
    reward_names: set[str],
) -> Rollout:
    text, messages = _text(cells.pop(text_name))
    prompt_name = next((name for name in PROMPT if name in cells), None)
    prompt = None if prompt_name is None else _text(cells.pop(prompt_name))[0]
    if prompt is None and messages:
        prompt = "\n".join(message.content for message in _until_assistant(messages)) or None
    group_name = next((name for name in GROUP if name in cells), None)
    reward_name = next((name for name in REWARD if name in cells), None)
    components: dict[str, float] = {}
    if reward_name is None:  # one column a reward function, then others; the advantage comes last
        candidates = [name for name in cells if name not in NO_REWARD and name != group_name]
        known = [name for name in candidates if name in reward_names]
        components = {name: to_float(cells[name]) for name in known or candidates if _is_number(cells[name])}
    return Rollout(
        step=step,
        text=text,
        prompt=prompt,
        group=None if group_name is None else str(cells[group_name]),
        reward=_total(components, config.get("reward_weights")) if reward_name is None else to_float(cells[reward_name]),
        components=components,
        messages=messages,
        advantage=to_float(cells.get("advantage", cells.get("advantages"))),
        split=split,
        extra={name: value for name, value in cells.items() if name not in {*components, *STEP, *NO_EXTRA, reward_name}},
        origin=origin,
    )


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _total(components: Mapping[str, float], weights: object) -> float:
    """TRL's total: the weighted sum of the reward functions that returned something."""
    scores = list(components.values())
    if isinstance(weights, list) and len(weights) == len(scores):
        scores = [score * to_float(weight) for score, weight in zip(scores, weights, strict=True)]
    seen = [score for score in scores if not math.isnan(score)]
    return sum(seen) if seen else math.nan


def _text(value: object) -> tuple[str, tuple[Message, ...]]:
    """A text, or what the assistant says in a dialogue."""
    messages = _messages(value)
    if messages:
        said = [message.content for message in messages if message.role == "assistant"]
        return "\n".join(said or [message.content for message in messages]), messages
    return value if isinstance(value, str) else "" if value is None else str(value), ()


def _messages(value: object) -> tuple[Message, ...]:
    if isinstance(value, str) and value.startswith("[{") and '"role"' in value[:2000]:
        try:
            value = decode_json(value)
        except ValueError:
            return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) and "role" in item for item in value):
        return ()
    return tuple(Message(str(item["role"]), _content(item.get("content"))) for item in value)


def _content(value: object) -> str:
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else "" if value is None else str(value)


def _until_assistant(messages: Sequence[Message]) -> Iterator[Message]:
    for message in messages:
        if message.role == "assistant":
            return
        yield message


def _grouped(rollouts: list[Rollout], size: object) -> list[Rollout]:
    """Number the rollouts of a step, and group those without a group by their prompt.

    A prompt that was drawn more than once fills a group of ``size`` before it opens the next.
    """
    from dataclasses import replace

    names: dict[str, int] = {}
    seen: dict[str, int] = {}
    out = []
    for index, rollout in enumerate(rollouts):
        group = rollout.group
        if group is None and rollout.prompt is not None:
            drawn = seen[rollout.prompt] = seen.get(rollout.prompt, -1) + 1
            turn = drawn // size if isinstance(size, int) and size > 0 else 0
            group = str(names.setdefault(f"{turn}:{rollout.prompt}", len(names)))
        out.append(replace(rollout, index=index, group=group))
    return out
