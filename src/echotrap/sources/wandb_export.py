"""CSV files that W&B's pages export.

=============  ====================================  ================================================================
what           columns                               read as
=============  ====================================  ================================================================
run history    ``_step``, ``_runtime``, metrics      one row a line
chart          an x axis, then ``RUN - METRIC`` with  the run with most points; its ``__MIN`` and ``__MAX`` are left
               ``__MIN`` and ``__MAX`` beside it     out; a folder of charts is one run
table of runs  ``Name``, ``State``, ``Created``, ...  refused: one line a run and no steps
=============  ====================================  ================================================================
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from echotrap.errors import SourceError
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, choose_run

__all__ = ["FORMAT", "WandbExportReader"]

SEPARATOR = " - "
EXTREMES = ("__MIN", "__MAX")
HISTORY = {"_step", "_runtime", "_timestamp"}
TABLE_OF_RUNS = {"Name", "State"}
TABLE_ALSO = {"Created", "Runtime", "User", "Tags", "Notes", "Sweep", "ID"}
LONGEST = 1000  # characters of a cell; longer ones are tables and texts


class WandbExportReader(Reader):
    """Reads one run out of one export, or out of a folder of charts."""

    def __init__(self, files: list[Path], run: str | None, where: str) -> None:
        super().__init__(Path(where).stem)
        self._paths, self._run = files, run
        self.files = [str(file) for file in files]
        self._seen: list[tuple[int, int]] = []
        runs: Counter[str] = Counter()
        for file in files:
            runs.update(_points(file))
        if runs:
            names = [name for name, _ in runs.most_common()]
            chosen, self.other_runs = choose_run(names, run, where)
            self.name = self._run = names[chosen]

    def poll(self) -> Iterator[Row]:
        """Yield all rows; again only when a file was exported anew."""
        now = [(stat.st_size, stat.st_mtime_ns) for stat in (_reachable(path) for path in self._paths)]
        if now == self._seen:
            self.rewound = False
            return
        self.rewound, self._seen = bool(self._seen), now
        counts: Counter[str] = Counter()
        for index, path in enumerate(self._paths):
            for line, header, cells in _lines(path, counts):
                values = _chart_row(header, cells, self._run) if is_chart(header) else _history_row(header, cells)
                if values:
                    yield Row(values, line=line, file=index)
        self.notes = [Note("skipped", f"lines that are {kind}", count) for kind, count in sorted(counts.items())]


def is_chart(header: list[str]) -> bool:
    """Whether a header is that of an exported chart."""
    return len(header) > 1 and all(SEPARATOR in name for name in header[1:] if name) and not HISTORY & set(header)


def is_table_of_runs(header: list[str]) -> bool:
    """Whether a header is that of the table of a project's runs."""
    return set(header) >= TABLE_OF_RUNS and bool(TABLE_ALSO & set(header))


def _history_row(header: list[str], cells: list[str]) -> dict[str, Any]:
    return {name: _value(cell) for name, cell in zip(header, cells, strict=False) if name and cell and len(cell) < LONGEST}


def _chart_row(header: list[str], cells: list[str], run: str | None) -> dict[str, Any]:
    values = {
        metric: _value(cell)
        for (name, metric), cell in zip(map(_split, header[1:]), cells[1:], strict=False)
        if name == run and cell and not metric.endswith(EXTREMES)
    }
    axis = "_step" if header[0] == "Step" else header[0]
    return {axis: _value(cells[0]), **values} if values else {}


def _split(column: str) -> tuple[str, str]:
    run, _, metric = column.rpartition(SEPARATOR)
    return run, metric


def _value(cell: str) -> float | int | str:
    """A number as one; every other spelling (``NaN`` too) as it is written."""
    try:
        return int(cell) if len(cell) < 20 else float(cell)
    except ValueError:
        if cell.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            return cell
    try:
        return float(cell)
    except ValueError:
        return cell


def _points(path: Path) -> Counter[str]:
    """How many values each run of a chart has; empty for other exports."""
    counts: Counter[str] = Counter()
    for _, header, cells in _lines(path, Counter()):
        if not is_chart(header):
            break
        counts.update(run for (run, metric), cell in zip(map(_split, header[1:]), cells[1:], strict=False)
                      if cell and not metric.endswith(EXTREMES))  # fmt: skip
    return counts


def _lines(path: Path, counts: Counter[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield line number, header and cells of each line that has as many cells as the header."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            reader = csv.reader(stream)
            header: list[str] | None = None
            while True:
                try:
                    cells = next(reader, None)
                except csv.Error:
                    counts["no CSV"] += 1
                    continue
                if cells is None:
                    return
                if header is None:
                    header = [name.strip() for name in cells]
                    if is_table_of_runs(header):
                        raise SourceError(
                            "the table of a project's runs has one line a run and no steps",
                            where=str(path),
                            cure="export the history of one run, or name it: wandb://ENTITY/PROJECT/RUN",
                        )
                elif len(cells) == len(header):
                    yield reader.line_num, header, cells
                elif cells:
                    counts["too short or too long"] += 1
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _reachable(path: Path) -> Any:
    try:
        return path.stat()
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _header(path: Path) -> list[str]:
    """The header of a CSV file, or nothing."""
    try:
        with path.open("rb") as stream:
            return _header_of(stream.read(1 << 16).decode("utf-8-sig", "replace"))
    except OSError:
        return []


def _header_of(text: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader(text.splitlines()[:1]), [])]
    except csv.Error:
        return []


def _is_export(header: list[str]) -> bool:
    columns = set(header)
    return len(columns & HISTORY) > 1 or is_table_of_runs(header) or is_chart(header)


def _sniff(head: Head) -> float:
    if head.is_folder:
        charts = [entry for entry in head.entries[:200] if entry.suffix == ".csv" and is_chart(_header(entry))]
        return 0.5 if charts else 0.0
    return 0.9 if head.data and _is_export(_header_of(head.text.removeprefix("\ufeff"))) else 0.0


def _open(location: str, options: Options) -> WandbExportReader:
    path = Path(location)
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.glob("*.csv")) if is_chart(_header(file))]
        if not files:
            raise SourceError("no exported charts in it", where=location)
    return WandbExportReader(files, options.run, location)


FORMAT = Format(
    name="wandb-export",
    title="CSV exported from W&B",
    sniff=_sniff,
    open=_open,
    picks="the one with most points",
)
