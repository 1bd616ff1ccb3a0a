"""Rollout dumps: JSON lines, JSON documents and parquet, one step or many in a file. Text is read one step at a time."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echotrap.errors import SourceError
from echotrap.rollouts import Rollout, RolloutStore
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row
from echotrap.sources.json_file import read_document
from echotrap.sources.jsonl import parse
from echotrap.sources.lines import Lines, open_bytes, read_head
from echotrap.sources.rollout_records import assign_groups, holds_rollouts, rollouts_of, step_of

__all__ = ["FORMAT", "FileRollouts", "is_rollout_file"]

MAX_DOCUMENT = 1 << 28
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin")
ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet", ".jsonl.gz", ".jsonl.zst", ".json.gz")
STEP_IN_PATH = (
    re.compile(r"global_step_(\d+)"),
    re.compile(r"(?:train|val|eval)_(?:data_)?step_?(\d+)"),
    re.compile(r"iteration_(\d+)"),
    re.compile(r"step[_-]?(\d+)"),
    re.compile(r"completions?_(\d+)\.parquet$"),
    re.compile(r"(?:^|/)(\d+)/\d+\.jsonl$"),
    re.compile(r"(?:^|/)(\d+)(?:\.[a-z]+)+$"),
    re.compile(r"_(\d+)_[0-9a-f]{16,}\.table\.json$"),
)
EVAL_IN_PATH = re.compile(r"(?:^|[/_.-])(?:eval|evals|val|valid|validation|test)(?:[/_.-]|$)")
AGGREGATES = re.compile(r"(?:^|/)(?:aggregated_results|batch_summary|metadata|config|checkpoints|timing_spans)[^/]*$")


@dataclass(slots=True)
class _Part:
    """A file that holds rollouts; ``step`` is ``None`` where only its records tell."""

    path: Path
    step: int | None
    split: str
    lines: Lines | None = None
    stamp: tuple[int, int] | None = None
    spans: dict[tuple[str, int], list[tuple[int, int, int]]] = field(default_factory=dict)


class FileRollouts(RolloutStore):
    """Rollouts in files below a folder, or in one file.

    Parameters
    ----------
    root : Path
        Where the files lie; looked through again by :meth:`refresh`.
    group_size : int, optional
        Rollouts per prompt, where a prompt may have been drawn twice in a step.
    """

    def __init__(self, root: Path, group_size: int | None = None) -> None:
        self.root, self.group_size = root, group_size
        self.notes: list[Note] = []
        self._parts: dict[Path, _Part] = {}
        self._index: dict[tuple[str, int], list[_Part]] = {}
        self._families: dict[tuple[str, str], bool] = {}
        self._broken: dict[str, int] = {}
        self._cut: dict[Path, str] = {}
        self._failure: SourceError | OSError | None = None
        self.refresh()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def check_readable(self) -> None:
        """Raise why nothing could be read, where nothing could."""
        if not self._index and self._failure is not None:
            raise self._failure

    def steps(self) -> tuple[int, ...]:  # noqa: D102 - documented in the base class
        return tuple(sorted(step for split, step in self._index if split == "train"))

    def eval_steps(self) -> tuple[int, ...]:  # noqa: D102
        return tuple(sorted(step for split, step in self._index if split == "eval"))

    def at(self, step: int) -> list[Rollout]:  # noqa: D102
        return self._read("train", step)

    def eval_at(self, step: int) -> list[Rollout]:  # noqa: D102
        return self._read("eval", step)

    def fingerprint(self, step: int) -> str | None:  # noqa: D102
        parts = self._index.get(("train", step), [])
        marks = []
        for part in parts:
            try:
                info = os.stat(part.path)
            except OSError:
                continue
            spans = part.spans.get(("train", step))
            if spans and part.stamp is None:  # lines are appended; a document is written anew as a whole
                marks.append(f"{part.path}:{len(spans)}")
            else:
                marks.append(f"{part.path}:{info.st_size}:{info.st_mtime_ns}")
        return "|".join(marks) or None

    def refresh(self) -> None:  # noqa: D102
        paths = [self.root] if self.root.is_file() else list(_files_below(self.root))
        for path in _without_doubles(paths):
            if path not in self._parts and self._is_rollouts(path):
                relative = path.relative_to(self.root).as_posix() if path != self.root else path.name
                step = next((int(match[1]) for rule in STEP_IN_PATH if (match := rule.search(relative))), None)
                split = "eval" if EVAL_IN_PATH.search(relative) else "train"
                self._parts[path] = _Part(path, step, split)
        index: dict[tuple[str, int], list[_Part]] = defaultdict(list)
        for part in self._parts.values():
            if part.step is None or part.path.name.endswith(".table.json"):
                try:
                    self._scan(part)
                except (SourceError, OSError) as error:
                    self._count_broken(error)
                for key in part.spans:
                    index[key].append(part)
            else:
                index[part.split, part.step].append(part)
        self._index = dict(index)
        self.notes = [Note("skipped", f"rollout files {why}", count) for why, count in self._broken.items()]
        self.notes += [Note("skipped", why) for why in self._cut.values()]
        pickles = [path for path in paths if path.suffix in PICKLES and re.search(r"rollout|dump|traj|sample", path.as_posix())]
        if pickles:
            self.notes.append(_pickle_note(len(pickles)))

    def _is_rollouts(self, path: Path) -> bool:
        """Look into one file of a family; ``17.jsonl`` is like ``16.jsonl``."""
        if not path.name.endswith(ENDINGS) or AGGREGATES.search(path.as_posix()):
            return False
        family = (
            str(path.parent.parent if path.suffix == ".json" else path.parent),
            re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", path.name),
        )
        if family not in self._families:
            try:
                self._families[family] = is_rollout_file(path)
            except SourceError:
                return False
        return self._families[family]

    # -- an index of files that hold several steps -----------------------------------------------------------------------------

    def _scan(self, part: _Part) -> None:
        """Note where each step's records lie; the text is parsed, looked at and let go."""
        if part.path.suffix == ".parquet":
            if not part.spans:
                for number, step in enumerate(_parquet_steps(part.path)):
                    part.spans.setdefault((part.split, step), []).append((number, number, number))
            return
        if not part.path.name.endswith((".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst")):
            info = os.stat(part.path)
            if part.stamp != (info.st_size, info.st_mtime_ns):  # new, or written on since
                part.stamp, part.spans = (info.st_size, info.st_mtime_ns), {}
                self._scan_document(part)
            return
        if part.lines is None:
            part.lines = Lines(part.path)
        at = part.lines.offset
        for block in part.lines.poll():
            if part.lines.rewound and part.lines.count == len(block):
                part.spans, at = {}, 0
            number = part.lines.count - len(block)
            for line in block:
                number += 1
                self._note(part, line, at, number)
                at += len(line) + 1
        if part.lines.rest.strip():
            rest, count = part.lines.rest, part.lines.count
            if self._note(part, rest, at, count + 1):
                part.lines.take_rest()

    def _note(self, part: _Part, line: bytes, at: int, number: int) -> bool:
        try:
            record = parse(line) if line.strip() else None
        except ValueError:
            record = None
        if not isinstance(record, dict):
            return False
        step = step_of(record)
        split = "eval" if record.get("split") in ("eval", "val", "test") else part.split
        part.spans.setdefault((split, step or 0), []).append((at, len(line), number))
        return True

    def _scan_document(self, part: _Part) -> None:
        for item in self._document(part):
            part.spans.setdefault((item.split, item.step), []).append((0, 0, 0))

    # -- reading -------------------------------------------------------------------------------------------------------------

    def _read(self, split: str, step: int) -> list[Rollout]:
        found: list[Rollout] = []
        for part in self._index.get((split, step), []):
            try:
                found.extend(item for item in self._rollouts(part, split, step))
            except (SourceError, OSError) as error:
                self._count_broken(error)
        return assign_groups(found, self.group_size)

    def _count_broken(self, error: SourceError | OSError) -> None:
        why = "could not be read: " + (error.message if isinstance(error, SourceError) else str(error.strerror))
        self._broken[why] = self._broken.get(why, 0) + 1
        self._failure = self._failure or error

    def _rollouts(self, part: _Part, split: str, step: int) -> Iterator[Rollout]:
        spans = part.spans.get((split, step))
        if part.path.suffix == ".parquet":
            wanted = None if spans is None else {number for number, _, _ in spans}
            for number, record in enumerate(_parquet_rows(part.path)):
                if wanted is None or number in wanted:
                    yield from rollouts_of(record, step=step, split=split, origin=f"{part.path.name}:{number + 1}")
        elif spans is not None and part.lines is not None:
            with open_bytes(part.path) as file:
                for at, length, number in spans:
                    file.seek(at)
                    record = parse(file.read(length))
                    yield from rollouts_of(record, step=step, split=split, origin=f"{part.path.name}:{number}")
        elif part.path.name.endswith((".json", ".json.gz")):
            yield from (item for item in self._document(part) if (item.split, item.step) == (split, step))
        else:
            for number, record in _records(part.path):
                yield from rollouts_of({**record, "step": step}, step=step, split=split, origin=f"{part.path.name}:{number}")

    def _document(self, part: _Part) -> list[Rollout]:
        document, notes = read_document(part.path, MAX_DOCUMENT)
        self._cut.pop(part.path, None)
        if notes:
            self._cut[part.path] = f"{part.path.name}: {notes[0].message}"
        records = document if isinstance(document, list) else [document]
        name = part.path.name
        return [
            item
            for number, record in enumerate(records, start=1)
            if isinstance(record, dict)
            for item in rollouts_of(record, step=part.step or 0, split=part.split, origin=f"{name}:{number}")
        ]


def is_rollout_file(path: Path) -> bool:
    """Whether the first record of a file is a rollout."""
    if path.suffix == ".parquet":
        try:
            names = set(_parquet_columns(path))
        except SourceError:
            return False
        if {"run_name", "timestamp"} <= names:
            return False  # Trackio's export: metrics of several runs, with tables inside
        return holds_rollouts(dict.fromkeys(names, ""))
    data = read_head(path, 1 << 18)
    return _head_holds_rollouts(data)


def _head_holds_rollouts(data: bytes) -> bool:
    line = data.lstrip().split(b"\n", 1)[0]
    try:
        record = parse(line)
    except ValueError:
        record = _opening(data)
    if isinstance(record, list):
        record = record[0] if record else None
    return holds_rollouts(record)


def _opening(data: bytes) -> Any:
    """What can be told of a first record that is longer than the head: its keys, and which of them hold text."""
    text = data.decode("utf-8", "replace")
    if text.lstrip().startswith("{") and (names := re.search(r'"columns"\s*:\s*(\[[^\]]*\])', text[:65536])):
        return {"columns": re.findall(r'"((?:[^"\\]|\\.)*)"', names[1]), "data": []}
    keys = re.findall(r'(?:^[\s\[]*\{|[,{]|\n)\s*"([A-Za-z_]\w{0,40})"\s*:\s*(\[\s*\{\s*"role"|\[\s*"|"|\[|\{)?', text)
    record: dict[str, Any] = {}
    for key, start in keys:
        value: Any = [{"role": ""}] if '"role"' in start else [""] if start.endswith('"') and start[0] == "[" else ""
        record.setdefault(key, value if start else 0.0)
    return record


def _files_below(root: Path) -> Iterator[Path]:
    from echotrap.sources import entries

    yield from entries(root)


def _without_doubles(paths: Sequence[Path]) -> list[Path]:
    """prime-rl writes every arrival under ``all`` and what was trained on once more under ``effective``."""
    have = {path.as_posix() for path in paths}
    return [
        path
        for path in paths
        if not ("/effective/" in path.as_posix() and path.as_posix().replace("/effective/", "/all/") in have)
    ]


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = Lines(path)
    number = 0
    for block in lines.poll():
        for line in block:
            number += 1
            try:
                record = parse(line) if line.strip() else None
            except ValueError:
                continue
            if isinstance(record, dict):
                yield number, record
    try:
        record = parse(lines.rest) if lines.rest.strip() else None
    except ValueError:
        return
    if isinstance(record, dict):
        yield number + 1, record


def _parquet(path: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise SourceError(f"is no readable parquet file: {' '.join(str(error).split())[:100]}", where=str(path)) from None


def _parquet_columns(path: Path) -> list[str]:
    with _parquet(path) as file:
        return list(file.schema_arrow.names)


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow

    with _parquet(path) as file:
        try:
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"is damaged: {' '.join(str(error).split())[:100]}", where=str(path)) from None


def _parquet_steps(path: Path) -> list[int]:
    with _parquet(path) as file:
        name = next((key for key in ("step", "global_step", "training_step") if key in file.schema_arrow.names), None)
        if name is None:
            return [0] * file.metadata.num_rows
        return [step_of({"step": value}) or 0 for value in file.read([name]).column(0).to_pylist()]


def _pickle_note(count: int) -> Note:
    cure = "save them as JSON lines (prompt, response, reward, group, step) from the training script"
    return Note("refused", f"rollouts stored as pickle (.pt, .pkl) are never loaded, because that runs code; {cure}", count)


class RolloutFile(Reader):
    """Rollouts without metrics beside them: nothing to poll, everything in the store."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.name.split(".")[0] or path.name)
        store = FileRollouts(path)
        store.check_readable()
        self.rollouts = store
        self.files = [str(path)]
        self.notes = list(store.notes)

    def poll(self) -> Iterator[Row]:
        yield from ()


def _sniff(head: Head) -> float:
    if head.is_folder or head.path is None or not head.data:
        return 0.0
    if head.data.startswith(b"PAR1"):
        return 0.9 if is_rollout_file(head.path) else 0.0
    if head.data.lstrip()[:1] not in (b"{", b"["):
        return 0.0
    return 0.96 if _head_holds_rollouts(head.data) else 0.0


def _open(location: str, options: Options) -> Reader:
    return RolloutFile(Path(location))


FORMAT = Format("rollouts", "sampled rollouts (JSON lines, JSON, parquet)", _sniff, _open)
