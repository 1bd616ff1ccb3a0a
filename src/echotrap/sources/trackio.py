"""Trackio: a project's SQLite database, finished or live, and its parquet export.

Trackio's own ``step`` counts log calls unless the program gives it; it is passed on as ``_step``. Tables of completions lie in
the rows, traces in a table of their own.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from echotrap.errors import SourceError
from echotrap.fields import STEP_KEYS
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, choose_run
from echotrap.sources.jsonl import flatten, parse
from echotrap.sources.sqlite import MAGIC, columns, read_only
from echotrap.sources.tables import LoggedTable, Table, TableStore, reward_functions

__all__ = ["FORMAT", "TrackioReader"]

TABLE = "trackio.table"
BOOKKEEPING = {"id", "run_id", "run_name", "timestamp", "step", "log_id", "space_id", "created_at"}
NEEDED = {"run_name", "step", "metrics"}
PARQUET_MAGIC = b"PAR1"


class TrackioReader(Reader):
    """Reads one run of a project; a database is followed."""

    named = True

    def __init__(self, path: Path, run: str | None) -> None:
        super().__init__(path.stem)
        self.files = [str(path)]
        self._path = path
        self._database = not _is_parquet(path)
        self._key = "run_id"
        self._wanted = run
        self._begin()
        runs = self._runs()
        if not runs:
            raise SourceError("no run was logged to it yet", where=str(path))
        chosen, self.other_runs = choose_run([name for _, name in runs], run, str(path))
        self._run, self.name = runs[chosen]

    def _begin(self) -> None:
        self._last = 0
        self._rewards: set[str] = set()
        self._logged: list[LoggedTable] = []
        self._training_steps: list[tuple[int, int]] = []
        self._counts: Counter[str] = Counter()
        self._traced = -1
        self._tables = TableStore(lambda: self._logged, self.config, self._rewards)

    def poll(self) -> Iterator[Row]:
        """Yield one row a log call that holds numbers."""
        self.rewound = False
        newest = self._newest()
        if newest < self._last:
            self._begin()
            self.rewound, self.rollouts = True, None
        elif newest == self._last and self._last:
            return
        self._configure()
        for number, step, logged in self._rows():
            self._last = max(self._last, number)
            if logged is None:
                self._counts["rows that are no JSON object"] += 1
                continue
            values = flatten(logged)
            for key, value in logged.items():
                if isinstance(value, dict) and value.get("_type") == TABLE:
                    where = f"{self._path}:{number}:{key}"
                    at = self._training_step(step)
                    self._logged.append(LoggedTable(key, at, where, partial(self._table, number, key)))
            if values:
                self._remember_step(step, values)
                self._rewards |= reward_functions(values)
                yield Row({**values, "_step": step}, line=number)
        self._find_traces()
        if self.rollouts is None:
            self._tables.refresh()
            self.rollouts = self._tables or None
        self.notes = [Note("skipped", what, count) for what, count in self._counts.items()]

    # -- the two stores --------------------------------------------------------------------------------------------------------

    def _runs(self) -> list[tuple[str, str]]:
        """Key and name of each run, the one that was begun last first."""
        if self._database:
            known = columns(self._path).get("metrics", set())
            if not known >= NEEDED:
                raise SourceError("not a Trackio database", where=str(self._path))
            self._key = "run_id" if "run_id" in known else "run_name"
            with read_only(self._path) as database:
                rows = database.execute(f"SELECT {self._key}, run_name, MIN(id) FROM metrics GROUP BY {self._key}").fetchall()
        else:
            rows = []
            frame = _parquet(self._path, ["id", "run_id", "run_name"])
            self._key = "run_id" if frame and "run_id" in frame[0] else "run_name"
            first: dict[str, tuple[str, str, int]] = {}
            for row in frame:
                first.setdefault(str(row[self._key]), (str(row[self._key]), str(row["run_name"]), _whole(row.get("id"))))
            rows = list(first.values())
        rows.sort(key=lambda row: row[2], reverse=True)
        return [(str(key), str(name)) for key, name, _ in rows]

    def _newest(self) -> int:
        if not self._database:
            return max((_whole(row["id"]) for row in _parquet(self._path, ["id"])), default=0)
        with read_only(self._path) as database:
            query = f"SELECT MAX(id) FROM metrics WHERE {self._key} = ?"
            return int(database.execute(query, (self._run,)).fetchone()[0] or 0)

    def _rows(self) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
        """Number, Trackio's step and what was logged, of each row after the last."""
        if not self._database:
            for row in _parquet(self._path):
                if str(row.get(self._key)) == self._run and _whole(row.get("id")) > self._last:
                    logged = {key: value for key, value in row.items() if value is not None and key not in BOOKKEEPING}
                    yield _whole(row.get("id")), _whole(row.get("step")), logged
            return
        with read_only(self._path) as database:
            query = f"SELECT id, step, metrics FROM metrics WHERE {self._key} = ? AND id > ? ORDER BY id"
            for number, step, blob in database.execute(query, (self._run, self._last)):
                yield int(number), _whole(step), _json(blob)

    def _table(self, number: int, key: str) -> Table:
        """One logged table."""
        if self._database:
            with read_only(self._path) as database:
                found = database.execute("SELECT metrics FROM metrics WHERE id = ?", (number,)).fetchone()
            logged = _json(found[0]) if found else None
        else:
            logged = next((row for row in _parquet(self._path, ["id", key]) if _whole(row["id"]) == number), None)
        cell = (logged or {}).get(key)
        return _as_table(cell.get("_value") if isinstance(cell, dict) else None)

    def _configure(self) -> None:
        found: Any = None
        if self._database:
            if {"config", self._key} <= columns(self._path).get("configs", set()):
                with read_only(self._path) as database:
                    row = database.execute(f"SELECT config FROM configs WHERE {self._key} = ?", (self._run,)).fetchone()
                found = _json(row[0]) if row else None
        else:
            for place in (self._path.with_name(f"{self._path.stem}_configs.parquet"), self._path.parent / "aux/configs.parquet"):
                rows = _parquet(place) if place.is_file() else []
                mine = next((row for row in rows if str(row.get(self._key)) == self._run), {})
                found = found or {key: value for key, value in mine.items() if key not in BOOKKEEPING}
        for key, value in (found or {}).items():
            if not key.startswith("_") and value is not None:
                self.config.update(flatten({key: value}) if isinstance(value, dict) else {key: value})

    # -- rollouts --------------------------------------------------------------------------------------------------------------

    def _find_traces(self) -> None:
        """List the steps that have traces; they are read when somebody asks."""
        if not self._database or not {"messages", "metadata", self._key} <= columns(self._path).get("traces", set()):
            return
        with read_only(self._path) as database:
            query = f"SELECT DISTINCT step, key FROM traces WHERE {self._key} = ? AND step > ? ORDER BY step"
            found = database.execute(query, (self._run, self._traced)).fetchall()
        for step, key in found:
            self._traced = max(self._traced, _whole(step))
            where = f"{self._path}:traces:{step}:{key}"
            at = self._training_step(_whole(step))
            self._logged.append(LoggedTable(str(key), at, where, partial(self._trace_table, step, key)))

    def _trace_table(self, step: int, key: str) -> Table:
        with read_only(self._path) as database:
            query = f"SELECT messages, metadata FROM traces WHERE {self._key} = ? AND step = ? AND key = ? ORDER BY trace_index"
            found = database.execute(query, (self._run, step, key)).fetchall()
        return _as_table([{**(_json(about) or {}), "messages": _json(said)} for said, about in found])

    def _remember_step(self, step: int, values: Mapping[str, Any]) -> None:
        known = next((values[key] for key in STEP_KEYS if isinstance(values.get(key), int)), None)
        if known is not None:
            self._training_steps.append((step, known))

    def _training_step(self, step: int) -> int:
        """The training step at which Trackio's own step was written."""
        at = bisect.bisect_right(self._training_steps, step, key=lambda pair: pair[0])
        return self._training_steps[at - 1][1] if at else step


def _as_table(records: object) -> Table:
    rows = [row for row in records if isinstance(row, dict)] if isinstance(records, list) else []
    names = list(dict.fromkeys(key for row in rows for key in row))
    return {"columns": names, "data": [[row.get(name) for name in names] for row in rows]}


def _json(blob: object) -> Any:
    """A JSON object or list out of a cell, which may be text or bytes; ``None`` where it is none."""
    data = blob.encode() if isinstance(blob, str) else blob
    if not isinstance(data, bytes):
        return None
    try:
        found = parse(data)
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4) == PARQUET_MAGIC
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _parquet(path: Path, names: list[str] | None = None) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            known = file.schema_arrow.names
            rows: list[dict[str, Any]] = file.read([name for name in names or known if name in known]).to_pylist()
            return rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"cannot be read as parquet: {' '.join(str(error).split())[:200]}", where=str(path)) from error


def _parquet_names(path: Path) -> Iterable[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names: list[str] = pq.read_schema(path).names
        return names
    except (pa.ArrowException, OSError, ValueError):
        return ()


def _sniff(head: Head) -> float:
    if head.path is None:
        return 0.0
    if head.data.startswith(MAGIC):
        return 0.95 if columns(head.path).get("metrics", set()) >= NEEDED else 0.0
    if head.data.startswith(PARQUET_MAGIC):
        names = set(_parquet_names(head.path))
        return 0.95 if {"run_name", "step", "timestamp", "id"} < names and "messages" not in names else 0.0
    return 0.0


def _open(location: str, options: Options) -> TrackioReader:
    path = Path(location)
    if path.is_dir():
        raise SourceError("is a folder", where=location, cure="name the project's .db or .parquet file")
    return TrackioReader(path, options.run)


FORMAT = Format(
    name="trackio",
    title="Trackio database or parquet export",
    sniff=_sniff,
    open=_open,
    picks="the one that was begun last",
)
