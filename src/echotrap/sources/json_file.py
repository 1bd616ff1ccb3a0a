"""A JSON document: ``trainer_state.json``, a list of rows, or columns of numbers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from echotrap.errors import SourceError
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, run_name
from echotrap.sources.jsonl import JsonLines, flatten, parse, row_of
from echotrap.sources.lines import damage, open_bytes, read_head

__all__ = ["FORMAT", "JsonFile", "read_document"]

MAX_BYTES = 1 << 30
_TABLE_START = re.compile(r'^\s*\{\s*"columns"\s*:\s*(\[[^\]]*\])\s*,[^{]*?"data"\s*:\s*\[')  # what the W&B client writes
_LIST_START = re.compile(r'^\s*\[|"(?:log_history|history|metrics|logs|rows|records)"\s*:\s*\[')


class JsonFile(Reader):
    """Reads a JSON document; a document that was written anew is read again, and only its new rows are given."""

    def __init__(self, path: Path) -> None:
        super().__init__(run_name(path))
        self.path = path
        self.files = [str(path)]
        self._stamp: tuple[int, int] | None = None
        self._given: list[dict[str, Any]] = []
        self._count = 0
        self._last: dict[str, Any] | None = None

    def poll(self) -> Iterator[Row]:  # noqa: D102 - documented in the base class
        info = _stat(self.path)
        if info == self._stamp:
            return
        document, self.notes = read_document(self.path)
        self._stamp = info
        records = _records(document)
        if isinstance(document, dict) and "log_history" in document:
            self.config = {key: value for key, value in document.items() if isinstance(value, int | float | str)}
            self.finished = bool(document.get("max_steps")) and document.get("global_step") == document.get("max_steps")
        elif not records:
            raise SourceError("holds no rows of metrics", where=str(self.path))
        start = self._count
        if start > len(records) or (start and records[start - 1] != self._last):
            self.rewound, start = True, 0
        for number, record in enumerate(records[start:], start=start + 1):
            yield row_of(record, number)
        self._count, self._last = len(records), records[-1] if records else None


def read_document(path: Path, most_bytes: int = MAX_BYTES) -> tuple[Any, list[Note]]:
    """A whole document, and what had to be left out.

    Of a document that breaks off, the whole records of its first list are kept: objects, or the rows of a table.

    Raises
    ------
    SourceError
        It is too large, or no JSON even in parts.
    """
    parts: list[bytes] = []
    size, notes = 0, list[Note]()
    with open_bytes(path) as file:
        read = getattr(file, "read1", file.read)  # what a broken stream still gives
        try:
            while part := read(1 << 22):
                parts.append(part)
                size += len(part)
                if size > most_bytes:
                    why = f"the JSON document is over {most_bytes >> 20} MiB"
                    raise SourceError(why, where=str(path), cure="write JSON lines instead")
        except damage():
            notes.append(Note("skipped", "the compressed stream breaks off; what came before was read"))
    data = b"".join(parts)
    try:
        return parse(data), notes
    except ValueError as error:
        rows = _salvage(data.decode("utf-8", "replace"))
        if not rows:
            cure = "was it copied while it was written?"
            raise SourceError(f"is no JSON: {_one_line(error)}", where=str(path), cure=cure) from None
        notes.append(Note("skipped", "the document breaks off or is damaged; the records before that were read"))
        return rows, notes


def _salvage(text: str) -> Any:
    """Whole records at the beginning of the first list of records; as a table where they are rows of one."""
    if table := _TABLE_START.match(text):
        try:
            names = json.loads(table[1])
        except (ValueError, RecursionError):
            return None
        rows = [row for row in _leading_values(text, table.end()) if isinstance(row, list)]
        return {"columns": names, "data": rows} if rows else None
    start = _LIST_START.search(text)
    return [row for row in _leading_values(text, start.end()) if isinstance(row, dict)] if start else None


def _leading_values(text: str, at: int) -> Iterator[Any]:
    """The values of a list, up to the first that is not whole."""
    decoder, skip = json.JSONDecoder(), re.compile(r"[\s,]*")
    while True:
        at = skip.match(text, at).end()  # type: ignore[union-attr]
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value


def _records(document: Any) -> list[dict[str, Any]]:
    """The rows of a document: its longest list of objects, its columns, or itself."""
    if isinstance(document, dict) and isinstance(history := document.get("log_history"), list):
        return [record for record in history if isinstance(record, dict)]
    best: list[dict[str, Any]] = []
    todo: list[tuple[Any, int]] = [(document, 0)]
    while todo:
        item, depth = todo.pop(0)
        if isinstance(item, list):
            rows = [record for record in item if isinstance(record, dict)]
            best = rows if len(rows) > len(best) else best
        elif isinstance(item, dict):
            for found in (_columns(item), _steps(item)):
                best = found if len(found) > len(best) else best
            if depth < 3:
                todo.extend((value, depth + 1) for value in list(item.values())[:200] if isinstance(value, dict | list))
    if not best and isinstance(document, dict) and any(isinstance(v, int | float) for v in flatten(document).values()):
        best = [document]
    return best


def _columns(item: dict[str, Any]) -> list[dict[str, Any]]:
    """``{"step": [1, 2], "reward": [0.1, 0.2]}``: columns of one length, the commonest."""
    if isinstance(names := item.get("columns"), list) and isinstance(data := item.get("data"), list):
        return [dict(zip(map(str, names), cells, strict=False)) for cells in data if isinstance(cells, list)]
    columns = {
        key: value
        for key, value in item.items()
        if isinstance(value, list) and value and not any(isinstance(cell, dict | list) for cell in value[:5])
    }
    if not columns:
        return []
    lengths = [len(value) for value in columns.values()]
    length = max(lengths, key=lambda count: (lengths.count(count), count))
    kept = {key: value for key, value in columns.items() if len(value) == length}
    return [{key: value[at] for key, value in kept.items()} for at in range(length)]


def _steps(item: dict[str, Any]) -> list[dict[str, Any]]:
    """``{"1": {"reward": 0.1}, "2": {..}}``: objects by step."""
    if len(item) < 2 or not all(key.lstrip("-").isdigit() and isinstance(value, dict) for key, value in item.items()):
        return []
    return [{"step": int(key), **value} for key, value in item.items() if len(key) < 18]


def _stat(path: Path) -> tuple[int, int]:
    try:
        info = os.stat(path)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return info.st_mtime_ns, info.st_size


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _sniff(head: Head) -> float:
    text = head.data.lstrip()
    if text[:1] not in (b"{", b"["):
        return 0.0
    if b'"log_history"' in text:
        return 0.95
    if b"\n" not in text:
        try:
            whole = parse(text)
        except ValueError:
            return 0.6  # one long line, or the head of one: the reader finds out
        return 0.95 if isinstance(whole, list) else 0.85
    return 0.7 if text[:1] == b"[" else 0.6


def _open(location: str, options: Options) -> Reader:
    path = Path(location)
    first, _, more = read_head(path, 1 << 20).partition(b"\n")
    try:
        lines = isinstance(parse(first), dict) and bool(more.strip())
    except ValueError:
        lines = False
    return JsonLines(path) if lines and options.format is None else JsonFile(path)


FORMAT = Format("json", "a JSON document (trainer_state.json, rows, columns)", _sniff, _open)
