"""Comma-, semicolon- or tab-separated values with a header: one row per log call, or one value per row (long form)."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from echotrap.errors import SourceError
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, run_name
from echotrap.sources.jsonl import NAMES
from echotrap.sources.lines import Lines

__all__ = ["FORMAT", "CsvFile"]

DELIMITERS = ",\t;"
STEPS = ("step", "Step", "global_step", "iteration")
SERIES = ("run", "run_name", "series", "run_id", "experiment")


class CsvFile(Reader):
    """Reads separated values and follows them."""

    def __init__(self, path: Path, run: str | None = None) -> None:
        super().__init__(run_name(path))
        self.lines = Lines(path)
        self.files = [str(path)]
        self._wanted = run
        self._begin()

    def _begin(self) -> None:
        self._header: list[str] = []
        self._delimiter = ","
        self._skipped: Counter[str] = Counter()
        self._series: dict[str, None] = {}
        self._picked = self._wanted

    def poll(self) -> Iterator[Row]:  # noqa: D102 - documented in the base class
        lines = self.lines
        for block in lines.poll():
            if lines.rewound and lines.count == len(block):
                self.rewound = True
                self._begin()
            yield from self._rows(block, lines.count - len(block))
        if lines.rest.strip() and self._header and len(self._split(lines.rest)) == len(self._header):
            rest = lines.rest
            lines.take_rest()
            yield from self._rows([rest], lines.count)
        self.notes = [Note("skipped", f"{what} were skipped", count) for what, count in self._skipped.items()]
        self.other_runs = tuple(name for name in self._series if name != self._picked)

    def _split(self, line: bytes) -> list[str]:
        text = line.decode("utf-8", "replace").strip("\r\n\ufeff")
        try:
            return next(csv.reader([text], delimiter=self._delimiter), [])
        except csv.Error:
            return []

    def _rows(self, block: list[bytes], number: int) -> Iterator[Row]:
        for line in block:
            number += 1
            if not line.strip() or line.startswith(b"#"):
                continue
            if not self._header:
                text = line.decode("utf-8", "replace")
                self._delimiter = max(DELIMITERS, key=text.count)
                self._header = [cell.strip() for cell in self._split(line)]
                self._long = _long_form(self._header)
                continue
            cells = self._split(line)
            if len(cells) != len(self._header):
                self._skipped["lines with another number of cells"] += 1
                continue
            row = self._long_row(cells, number) if self._long else self._wide_row(cells, number)
            if row is not None:
                yield row

    def _wide_row(self, cells: list[str], number: int) -> Row:
        values = {}
        for key, cell in zip(self._header, cells, strict=True):
            if cell:
                try:
                    values[key] = float(cell)
                except ValueError:
                    continue
        return Row(values, None, number)

    def _long_row(self, cells: list[str], number: int) -> Row | None:
        assert self._long is not None
        name, step, value, series = self._long
        if series is not None:
            label = cells[series]
            self._series[label] = None
            self._picked = self._picked or label
            if label != self._picked:
                return None
        try:
            return Row({cells[name]: float(cells[value])}, int(float(cells[step])), number)
        except (ValueError, OverflowError):
            self._skipped["values that are no numbers"] += 1
            return None


def _long_form(header: list[str]) -> tuple[int, int, int, int | None] | None:
    """Positions of name, step, value and series, where each line holds one value."""
    lower = [cell.lower() for cell in header]
    name = next((lower.index(word) for word in NAMES if word in lower), None)
    step = next((lower.index(word.lower()) for word in STEPS if word.lower() in lower), None)
    if name is None or step is None or "value" not in lower:
        return None
    series = next((lower.index(word) for word in SERIES if word in lower), None)
    return name, step, lower.index("value"), series


def _sniff(head: Head) -> float:
    if not head.data or b"\0" in head.data:
        return 0.0
    lines = [line for line in head.text.splitlines() if line.strip() and not line.startswith("#")][:20]
    if not lines or lines[0].lstrip()[:1] in "{[":
        return 0.0
    delimiter = max(DELIMITERS, key=lines[0].count)
    header = lines[0].split(delimiter)
    if len(header) < 2 or any(_is_number(cell) for cell in header) or not all(cell.strip() for cell in header[1:]):
        return 0.0
    if len(lines) == 1:
        return 0.3
    body = lines[1:-1] or lines[1:]
    rows = [next(csv.reader([line], delimiter=delimiter), []) for line in body]
    width = len(next(csv.reader([lines[0]], delimiter=delimiter)))
    good = sum(len(row) == width and sum(map(_is_number, row)) >= 1 for row in rows)
    return 0.85 * good / len(rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _open(location: str, options: Options) -> Reader:
    path = Path(location)
    if path.is_dir():
        raise SourceError("is a folder, not a file of separated values", where=location)
    return CsvFile(path, options.run)


FORMAT = Format("csv", "separated values (CSV, TSV)", _sniff, _open)
