"""Tables of rollouts that were logged beside the metrics (W&B, Trackio), as a rollout store.

A table is logged again and again under one key: with the rows of one step (TRL), with new rows only (incremental tables), or with
all earlier rows repeated (verl, OpenRLHF, SkyRL). Of a step that several tables hold, the newest counts, unless they are
increments. What a row means is told by its columns (:mod:`echotrap.sources.rollout_records`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from echotrap.errors import SourceError
from echotrap.rollouts import Rollout, RolloutStore
from echotrap.sources.base import Note
from echotrap.sources.jsonl import parse
from echotrap.sources.rollout_records import assign_groups, rollouts_of

__all__ = ["LoggedTable", "TableStore", "reward_functions", "wandb_table"]

LARGEST = 1 << 29  # bytes of one table file
EVAL = re.compile(r"(?:^|/)(?:val|eval|test)(?:[/_-]|$)")
REWARD_KEY = re.compile(r"(?:train/)?rewards/(.+?)(?:/mean)?$")

Table = Mapping[str, Any]
"""``{"columns": [...], "data": [[...], ...]}``"""


@dataclass(frozen=True)
class LoggedTable:
    """One logging of a table: where it is, not what it holds.

    Attributes
    ----------
    key : str
        What it was logged as.
    order : int
        Later loggings of a key have a higher one. Also the step of rows that name none.
    where : str
        For a person; different for each logging.
    load : callable
        Reads it.
    incremental : bool
        Its rows come on top of earlier ones.
    """

    key: str
    order: int
    where: str
    load: Callable[[], Table] = field(compare=False, repr=False)
    incremental: bool = False


class TableStore(RolloutStore):
    """Rollouts out of logged tables; a table is read when one of its steps is asked for.

    Parameters
    ----------
    discover : callable
        Lists the tables that are there now.
    config : Mapping
        Configuration of the run; ``reward_weights`` and ``num_generations`` matter.
    rewards : set of str
        Columns that are known to be reward functions; empty where that is not known.
    prefetch : callable
        Told which tables will all be read soon.
    """

    def __init__(
        self,
        discover: Callable[[], Iterable[LoggedTable]],
        config: Mapping[str, Any],
        rewards: set[str],
        prefetch: Callable[[Sequence[LoggedTable]], object] = len,
    ) -> None:
        self.notes: list[Note] = []
        self._discover, self._config, self._rewards, self._prefetch = discover, config, rewards, prefetch
        self._known: set[tuple[str, str]] = set()
        self._waiting: dict[str, list[LoggedTable]] = {}
        self._index: dict[str, dict[int, dict[str, list[LoggedTable]]]] = {"train": {}, "eval": {}}
        self._read: dict[str, tuple[LoggedTable, list[Rollout]]] = {}
        self._unread: Counter[str] = Counter()

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
        self._take_stock()
        return tuple(sorted(self._index["train"]))

    def eval_steps(self) -> tuple[int, ...]:
        """Steps that have evaluation rollouts, ascending."""
        self._take_stock()
        return tuple(sorted(self._index["eval"]))

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

    def _at(self, split: str, step: int) -> list[Rollout]:
        self._take_stock()
        size = self._config.get("num_generations")
        found: list[Rollout] = []
        for several in self._index[split].get(step, {}).values():
            rows = [rollout for table in several for rollout in self._rollouts(table)]
            mine = [rollout for rollout in rows if rollout.step == step and rollout.split == split]
            found += assign_groups(mine, size if isinstance(size, int) else None)
        return [replace(rollout, index=index) for index, rollout in enumerate(found)]

    def _take_stock(self) -> None:
        """Learn which steps the waiting tables hold: the newest first, until one repeats all earlier rows."""
        for key, waiting in self._waiting.items():
            covered: set[tuple[str, int]] = set()
            waiting.sort(key=lambda table: table.order, reverse=True)
            for at, table in enumerate(waiting):
                held = {(rollout.split, rollout.step) for rollout in self._rollouts(table)}
                for split, step in held:
                    holders = self._index[split].setdefault(step, {})
                    if table.incremental:
                        holders.setdefault(key, []).insert(0, table)
                    elif (split, step) not in covered:
                        holders[key] = [table]
                covered |= held
                if len(held) > 1 and not table.incremental:
                    break
                if at == 0:
                    self._prefetch(waiting[1:])
        self._waiting.clear()

    def _rollouts(self, table: LoggedTable) -> list[Rollout]:
        last = self._read.get(table.key)
        if last is None or last[0] != table:
            split = "eval" if EVAL.search(table.key) else "train"
            try:
                rollouts = rollouts_of(_spelled_out(table.load()), step=table.order, split=split, origin=table.where)
            except SourceError as error:
                self._unread[error.message] += 1
                self.notes = [Note("skipped", f"tables of rollouts: {why}", count) for why, count in self._unread.items()]
                rollouts = []
            last = self._read[table.key] = table, [self._judged(rollout) for rollout in rollouts]
        return last[1]

    def _judged(self, rollout: Rollout) -> Rollout:
        """With the reward as TRL adds it up: reward functions only, by their weights."""
        components = {name: score for name, score in rollout.components.items() if name in self._rewards}
        if not components:
            return rollout
        weights = self._config.get("reward_weights")
        if not isinstance(weights, list) or len(weights) != len(components):
            weights = [1.0] * len(components)
        seen = [
            weight * score
            for weight, score in zip(weights, components.values(), strict=True)
            if not math.isnan(score) and isinstance(weight, int | float)
        ]
        others = {name: score for name, score in rollout.components.items() if name not in components}
        total = sum(seen) if seen else math.nan
        return replace(rollout, reward=total, components=components, extra={**rollout.extra, **others})


def reward_functions(keys: Iterable[str]) -> set[str]:
    """Names of TRL's reward functions, out of the keys of a row.

    Examples
    --------
    >>> sorted(reward_functions(["train/rewards/accuracy/mean", "rewards/format", "train/reward"]))
    ['accuracy', 'format']
    """
    return {match[1] for key in keys if "rewards/" in key and (match := REWARD_KEY.match(key))}


def _spelled_out(table: Table) -> Table:
    """With dialogues as such, where a cell holds one as JSON."""

    def cell(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("[{") and '"role"' in value:
            try:
                return parse(value.encode())
            except ValueError:
                return value
        return value

    rows = [[cell(value) for value in row] for row in table["data"] if isinstance(row, list)]
    return {**table, "data": rows}


def wandb_table(path: Path) -> Table:
    """Read a ``.table.json``.

    Raises
    ------
    SourceError
        It is not there, too large, or no table.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise SourceError("larger than 512 MB", where=str(path))
        content = parse(path.read_bytes())
    except OSError as error:
        raise SourceError(str(error.strerror).lower(), where=str(path)) from error
    except ValueError as error:
        raise SourceError("not JSON", where=str(path)) from error
    if not isinstance(content, dict) or not all(isinstance(content.get(part), list) for part in ("columns", "data")):
        raise SourceError("not a table", where=str(path))
    return content
