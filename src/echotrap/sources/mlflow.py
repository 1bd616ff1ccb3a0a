"""MLflow: the SQLite database (``mlflow.db``, verl's ``mlruns.db``) and the ``mlruns/`` file store.

SQLite holds a NaN as 0 with a flag and an infinity as the largest double. Names are mangled by the writers: what verl logs as
``mean@8`` is ``mean_at_8`` here, and is given its name back.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from echotrap.errors import SourceError
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, choose_run
from echotrap.sources.points import Point, PointRows
from echotrap.sources.sqlite import MAGIC, columns, read_only

__all__ = ["FORMAT", "FileStoreReader", "SqliteReader"]

NEEDED = {"metrics": {"key", "value", "step", "is_nan", "run_uuid"}, "runs": {"run_uuid", "name", "status", "start_time"}}
MANGLED = re.compile(r"(?<=[a-z])_at_(?=\d+(?:/|$))")
LARGEST = sys.float_info.max
STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
OVER = {"FINISHED", "FAILED", "KILLED"}
META_LINE = re.compile(r"^(\w+): *'?(.*?)'?$", re.MULTILINE)
DEEPEST = 4


class _Run(NamedTuple):
    key: str
    name: str
    started: int


class SqliteReader(Reader):
    """Follows one run in a database."""

    named = True

    def __init__(self, path: Path, wanted: str | None) -> None:
        super().__init__(path.stem)
        self.files = [str(path)]
        self._path = path
        known = columns(path)
        if any(not known.get(table, set()) >= needed for table, needed in NEEDED.items()):
            raise SourceError("not an MLflow database", where=str(path))
        self._has_params = {"key", "value", "run_uuid"} <= known.get("params", set())
        active = "WHERE lifecycle_stage = 'active'" if "lifecycle_stage" in known["runs"] else ""
        with read_only(path) as database:
            found = database.execute(f"SELECT run_uuid, name, start_time FROM runs {active}").fetchall()
        self._run, self.other_runs = _choose([_Run(str(a), str(b or a), _whole(c)) for a, b, c in found], wanted, path)
        self.name = self._run.name
        self._begin()

    def _begin(self) -> None:
        self._last = 0
        self._points = PointRows()

    def poll(self) -> Iterator[Row]:
        """Yield one row a step."""
        self.rewound = False
        run = (self._run.key,)
        with read_only(self._path) as database:
            newest = database.execute("SELECT MAX(rowid) FROM metrics WHERE run_uuid = ?", run).fetchone()[0] or 0
            if newest < self._last:
                self._begin()
                self.rewound = True
            if self._has_params:
                self.config.update(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", run).fetchall())
            status = database.execute("SELECT status FROM runs WHERE run_uuid = ?", run).fetchone()
            query = "SELECT rowid, key, step, value, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? ORDER BY rowid"
            found = database.execute(query, (*run, self._last)).fetchall()
        self.finished, self.notes = _status(str(status[0]) if status else "")
        points, bad = [], 0
        for row, key, step, value, is_nan in found:
            if isinstance(key, str) and isinstance(step, int) and isinstance(value, int | float):
                points.append(Point(_unmangled(key), step, _number(float(value), bool(is_nan)), row))
            else:
                bad += 1
            self._last = row
        if bad:
            self.notes.append(Note("skipped", "points that are no numbers", bad))
        yield from self._points.rows(points)


class FileStoreReader(Reader):
    """Follows one run in a file store: a file a metric, ``{time in ms} {value} {step}`` a line."""

    named = True

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(name)
        self._folder = folder
        self._begin()

    def _begin(self) -> None:
        self.files: list[str] = []
        self._offsets: dict[Path, tuple[int, int]] = {}  # bytes and lines that were read
        self._points = PointRows()
        self._bad: Counter[str] = Counter()

    def poll(self) -> Iterator[Row]:
        """Yield one row a step."""
        try:
            self.rewound = any(not path.is_file() or path.stat().st_size < at for path, (at, _) in self._offsets.items())
            if self.rewound:
                self._begin()
            self.config.update(_params(self._folder / "params"))
            timed = [
                point for path in sorted((self._folder / "metrics").rglob("*")) if path.is_file() for point in self._read(path)
            ]
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}", where=str(self._folder)) from error
        timed.sort(key=lambda pair: pair[0])  # as they were written, whatever file they are in
        yield from self._points.rows(point for _, point in timed)
        self.finished, self.notes = _status(STATUS.get(_meta(self._folder).get("status", ""), ""))
        self.notes += [Note("skipped", what, count) for what, count in self._bad.items()]

    def _read(self, path: Path) -> Iterator[tuple[int, Point]]:
        key = _unmangled(path.relative_to(self._folder / "metrics").as_posix())
        offset, line = self._offsets.get(path, (0, 0))
        if not offset:
            self.files.append(str(path))
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        for text in whole.splitlines():
            line += 1
            try:
                time, value, step = text.split()[:3]
                yield int(time), Point(key, int(step), _number(float(value)), line, self.files.index(str(path)))
            except (ValueError, OverflowError):
                self._bad["lines that are no point"] += 1
        self._offsets[path] = offset + len(whole), line


def _number(value: float, is_nan: bool = False) -> float:
    """The value that was logged."""
    if is_nan:
        return math.nan
    return math.copysign(math.inf, value) if abs(value) >= LARGEST * (1 - 1e-12) else value


def _unmangled(key: str) -> str:
    """The name that was logged.

    Examples
    --------
    >>> _unmangled("val-core/gsm8k/acc/mean_at_8"), _unmangled("look_at_me")
    ('val-core/gsm8k/acc/mean@8', 'look_at_me')
    """
    return MANGLED.sub("@", key)


def _status(status: str) -> tuple[bool | None, list[Note]]:
    notes = [Note("exit", f"MLflow says that the run is {status}")] if status in OVER - {"FINISHED"} else []
    return (status in OVER if status else None), notes


def _choose(runs: list[_Run], wanted: str | None, where: Path) -> tuple[_Run, tuple[str, ...]]:
    """The run that was begun last, or the one that is wanted by name or id."""
    if not runs:
        raise SourceError("no run was logged to it yet", where=str(where))
    runs = sorted(runs, key=lambda run: run.started, reverse=True)
    if (by_id := next((run for run in runs if run.key == wanted), None)) is not None:
        return by_id, tuple(run.name for run in runs if run is not by_id)
    chosen, others = choose_run([run.name for run in runs], wanted, str(where))
    return runs[chosen], others


def _whole(value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return 0


def _meta(folder: Path) -> dict[str, str]:
    """The flat part of a run's ``meta.yaml``."""
    try:
        with (folder / "meta.yaml").open(encoding="utf-8", errors="replace") as stream:
            return dict(META_LINE.findall(stream.read(1 << 16)))
    except OSError:
        return {}


def _params(folder: Path) -> Iterator[tuple[str, str]]:
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path.read_text("utf-8", "replace")[:8000]


def _run_folders(folder: Path, deep: int = DEEPEST) -> Iterator[Path]:
    """Folders of runs in a store, in an experiment of it, or the folder itself."""
    try:
        if (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir():
            yield folder
        elif deep:
            for inner in sorted(folder.iterdir()):
                if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith("."):
                    yield from _run_folders(inner, deep - 1)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=str(folder)) from error


def _sniff(head: Head) -> float:
    if head.data.startswith(MAGIC) and head.path is not None:
        known = columns(head.path)
        return 0.95 if all(known.get(table, set()) >= needed for table, needed in NEEDED.items()) else 0.0
    names = {entry.parent for entry in head.entries if entry.name == "meta.yaml"}
    return 0.7 if any(parent in names for entry in head.entries for parent in entry.parents if "metrics" in entry.parts) else 0.0


def _open(location: str, options: Options) -> Reader:
    path = Path(location)
    if not path.is_dir():
        return SqliteReader(path, options.run)
    runs = []
    for folder in _run_folders(path):
        meta = _meta(folder)
        if meta.get("lifecycle_stage", "active") == "active":
            runs.append(_Run(str(folder), meta.get("run_name") or folder.name, _whole(meta.get("start_time"))))
    run, others = _choose(runs, options.run, path)
    reader = FileStoreReader(Path(run.key), run.name)
    reader.other_runs = others
    return reader


FORMAT = Format(
    name="mlflow",
    title="MLflow database or file store",
    sniff=_sniff,
    open=_open,
    picks="the one that was begun last",
)
