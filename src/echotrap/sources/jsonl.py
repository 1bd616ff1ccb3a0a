"""JSON lines: one object per log call, flat, nested or in verl's ``{"step": .., "data": {..}}`` envelope."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from echotrap.errors import SourceError
from echotrap.sources.base import BATCH, Batch, Format, Head, Note, Options, Reader, Row, run_name
from echotrap.sources.lines import Lines

__all__ = ["FORMAT", "NAMES", "JsonLines", "flatten", "parse", "row_of"]

MAX_DEPTH = 8
NAMES = ("metric", "tag", "key", "name", "signal", "variable")
"""Keys that hold the name of a value, where a log has one value a line."""
LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # pairs are no trouble to the fast parser


def parse(line: bytes) -> Any:
    """One JSON value; a bare ``NaN`` or broken UTF-8, which the fast parser refuses, costs only the line that has it.

    Raises
    ------
    ValueError
        It is no JSON.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            return json.loads(LONE_SURROGATE.sub(r"\\ufffd", line.decode("utf-8", "replace")))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def flatten(values: dict[str, Any]) -> dict[str, Any]:
    """Nested mappings become ``outer/inner``; lists and typed media (tables, histograms) are left out.

    Examples
    --------
    >>> flatten({"reward": {"mean": 1.0, "per_group": [0, 2]}, "loss": 0.5})
    {'reward/mean': 1.0, 'loss': 0.5}
    """
    flat: dict[str, Any] = {}

    def walk(prefix: str, mapping: dict[str, Any], depth: int) -> None:
        for key, value in mapping.items():
            if isinstance(value, dict):
                if depth < MAX_DEPTH and "_type" not in value:
                    walk(f"{prefix}{key}/", value, depth + 1)
            elif not isinstance(value, list):
                flat[f"{prefix}{key}"] = value

    walk("", values, 0)
    return flat


def row_of(record: dict[str, Any], line: int, file: int = 0) -> Row:
    """A row from one parsed object."""
    data = record.get("data")
    if isinstance(data, dict) and isinstance(step := record.get("step"), int):
        rest = {key: value for key, value in record.items() if key not in ("step", "data")}
        return Row({**rest, **data} if rest else data, step, line, file)
    if isinstance(value := record.get("value"), int | float):
        name = next((record[key] for key in NAMES if isinstance(record.get(key), str)), None)
        if name is not None:  # one value a line
            rest = {key: cell for key, cell in record.items() if key != "value" and key not in NAMES}
            return Row({**rest, name: value}, None, line, file)
    return Row(record, None, line, file)


class JsonLines(Reader):
    """Reads JSON lines and follows them."""

    def __init__(self, path: Path) -> None:
        super().__init__(run_name(path))
        self.lines = Lines(path)
        self.files = [str(path)]
        self._skipped: Counter[str] = Counter()

    def poll(self) -> Iterator[Row]:  # noqa: D102 - documented in the base class
        for batch in self.batches():
            steps = batch.steps or itertools.repeat(None)
            for record, line, step in zip(batch.records, batch.lines, steps, strict=False):
                yield Row(record, step, line)

    def batches(self) -> Iterator[Batch]:  # noqa: D102
        lines = self.lines
        for block in lines.poll():
            if lines.rewound and lines.count == len(block):
                self.rewound, self._skipped = True, Counter()
            first = lines.count - len(block) + 1
            for start in range(0, len(block), BATCH):
                yield self._batch(block[start : start + BATCH], first + start)
        if rest := lines.rest.strip():
            record = self._rescue(rest)
            if isinstance(record, dict):
                lines.take_rest()
                yield self._batch([rest], lines.count + 1)
        self.notes = [Note("skipped", f"{what} were skipped", count) for what, count in self._skipped.items() if count]
        if lines.rest.strip():
            self.notes.append(Note("skipped", "the last line is incomplete and was left out"))
        if lines.too_long:
            self.notes.append(Note("skipped", "lines over 64 MiB were skipped", lines.too_long))
        if lines.damaged:
            self.notes.append(Note("skipped", "the compressed stream breaks off; what came before was read"))

    def _batch(self, lines: list[bytes], first: int) -> Batch:
        numbers: Sequence[int] = range(first, first + len(lines))
        try:
            records = list(map(orjson.loads, lines))
        except orjson.JSONDecodeError:
            records = list(map(self._rescue, lines))
        if set(map(type, records)) != {dict}:
            kept = [at for at, record in enumerate(records) if isinstance(record, dict)]
            self._skipped["lines that are no JSON object"] += sum(map(bool, map(bytes.strip, lines))) - len(kept)
            records, numbers = [records[at] for at in kept], [numbers[at] for at in kept]
        files = bytes(len(records))  # all of them 0
        if not any("data" in record or "value" in record for record in records):
            return Batch(records, numbers, files)
        if set(map(len, records)) == {2}:  # verl's envelope and nothing else
            inner, steps = [record.get("data") for record in records], [record.get("step") for record in records]
            if set(map(type, inner)) == {dict} and set(map(type, steps)) == {int}:
                return Batch(inner, numbers, files, steps)
        rows = [row_of(record, number) for record, number in zip(records, numbers, strict=True)]
        return Batch([row.values for row in rows], numbers, files, [row.step for row in rows])

    @staticmethod
    def _rescue(line: bytes) -> Any:
        try:
            return parse(line)
        except ValueError:
            return None


def _sniff(head: Head) -> float:
    if not head.data:
        return 0.0
    lines = head.data.split(b"\n")
    whole = lines[:-1] or lines  # the last one may be cut
    seen = [line for line in whole[:40] if line.strip()]
    good = 0
    for line in seen:
        try:
            record = parse(line)
        except ValueError:
            continue
        good += isinstance(record, dict) and (len(seen) > 1 or _is_row(record))
    return 0.9 * min(1.0, 1.25 * good / len(seen)) if seen else 0.0


def _is_row(record: dict[str, Any]) -> bool:
    """Whether a file's only line is a row, rather than a document."""
    row = row_of(record, 1)
    return "log_history" not in record and any(isinstance(value, int | float) for value in row.values.values())


def _open(location: str, options: Options) -> Reader:
    path = Path(location)
    if path.is_dir():
        raise SourceError("is a folder, not a file of JSON lines", where=location)
    return JsonLines(path)


FORMAT = Format("jsonl", "JSON lines", _sniff, _open)
