"""W&B runs on disk: ``run-*.wandb`` transaction logs with their tables, finished, growing or cut short by a kill.

The file begins with ``:W&B``, two magic bytes and a version. Then come chunks inside of 32 KiB blocks that are aligned to the
start of the file: checksum (CRC-32 over type and payload), length, type (whole, first, middle, last), payload. Reassembled
payloads are protobuf ``Record`` messages. The writer fills a block before it writes it, so a live file lags by up to 32 KiB; a
tail that does not check is unfinished, not damaged, until something lies behind its block.

The ``wandb`` package no longer ships a reader for its files; its protobuf classes are used here.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from echotrap.errors import SourceError
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, choose_run
from echotrap.sources.binary import RecordFile, unfinished
from echotrap.sources.console import Console
from echotrap.sources.jsonl import parse
from echotrap.sources.tables import LoggedTable, TableStore, reward_functions, wandb_table

__all__ = ["FORMAT", "TABLE_TYPES", "WandbFileReader", "flatten", "leaves"]

MAGIC = b":W&B\xe1\xbe"
FILE_HEADER, HEADER, BLOCK = 7, 7, 32768
WINDOW = 128 * BLOCK
FRAMEWORKS = (
    "trl", "verl", "openrlhf", "skyrl", "skyrl-train", "slime", "areal", "nemo-rl", "prime-rl", "open-instruct", "ms-swift",
)  # fmt: skip
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
UNUSED = {3, 6, 7, 8, 11}  # summary, files, system statistics, artifacts, telemetry: not worth decoding
TABLE_TYPES = {"table-file": False, "incremental-table-file": True}
TABLE_NAME = re.compile(r"(.+)_(\d+)_[0-9a-f]{20}\.table\.json$")


class WandbFileReader(Reader):
    """Follows the transaction log of one run; a resumed run has several.

    Attributes
    ----------
    console : deque of str
        The last lines that the run printed.
    packages : dict
        Versions of the packages that were installed, where ``files/requirements.txt`` lists them.
    """

    named = True

    def __init__(self, logs: list[Path], name: str) -> None:
        super().__init__(name)
        self.console: deque[str] = deque(maxlen=200)
        self.packages = _requirements(logs[-1].parent / "files" / "requirements.txt")
        self.framework_version = _framework_version(self.packages)
        self._paths = logs
        self._begin()

    def _begin(self) -> None:
        self._logs = [_TransactionLog(path, index) for index, path in enumerate(self._paths)]
        self.files = [str(path) for path in self._paths]
        self.finished, self.rollouts = False, None
        self.config.clear()
        self._counts: Counter[str] = Counter()
        self._exit_code: int | None = None
        self._incremental: set[str] = set()
        self._newest: int | None = None  # training step, where W&B's step is the same
        self._output: Console | None = None
        self._ahead: set[int] = set()  # steps that were taken from the printed lines
        self._rewards: set[str] = set()
        self._tables = TableStore(self._discover, self.config, self._rewards)

    def poll(self) -> Iterator[Row]:
        """Yield one row a history record. Table references and nested values are resolved; media are left out."""
        from google.protobuf.message import DecodeError
        from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined] # chosen at import time

        self.rewound = any(log.shrank() for log in self._logs)
        if self.rewound:
            self._begin()
        decode = Record.FromString
        for log in self._logs:
            for payload in log.records(self._counts):
                if _field(payload) in UNUSED:
                    continue
                try:
                    record = decode(payload)
                except DecodeError:
                    self._counts["undecodable"] += 1
                    continue
                kind = record.WhichOneof("record_type")
                if kind == "history":
                    row = self._row(record.history, log)
                    if row.values.get("_step") not in self._ahead:
                        yield row
                elif kind == "config":
                    self._configure(record.config)
                elif kind == "output_raw":
                    self.console.append(record.output_raw.line)
                elif kind == "run":
                    self.name = record.run.display_name or record.run.run_id or self.name
                    self._configure(record.run.config)
                    self._exit_code, self.finished = None, False
                elif kind == "exit":
                    self._exit_code, self.finished = record.exit.exit_code, True
        if not self.finished:
            yield from self._printed_rows()
        if self.rollouts is None:
            self._tables.refresh()
            self.rollouts = self._tables or None
        self._take_notes()

    def _row(self, history: Any, log: _TransactionLog) -> Row:
        tree: dict[str, Any] = {}
        for item in history.item:
            value, path = self._decoded(item.value_json), item.nested_key
            if value is _BAD:
                continue
            if len(path) == 1:
                tree[path[0]] = value
            else:
                _graft(tree, list(path) or [item.key], value)
        values, media = flatten(tree)
        for key, facts in media.items():
            kind = facts.get("_type")
            if kind not in TABLE_TYPES:
                self._counts["media"] += 1
            elif TABLE_TYPES[kind]:
                self._incremental.add(key)
        self._rewards |= reward_functions(values)
        if isinstance(step := values.get("training/global_step"), int):
            self._newest = step if step == values.get("_step") else None
        return Row(values, line=log.count, file=log.index)

    def _printed_rows(self) -> Iterator[Row]:
        """What verl printed of the steps that have not reached the log: all, where the run was killed.

        Only where W&B's step has been the training step so far; the rows are left out of the log when they arrive there.
        """
        if self._newest is None:
            return
        if self._output is None:
            path = self._paths[-1].parent / "files" / "output.log"
            if not path.is_file():
                return
            self._output = Console(path)
            self.files.append(str(path))
        for row in self._output.poll():
            if row.step is not None and row.step > self._newest:
                self._newest = row.step
                self._ahead.add(row.step)
                yield Row(row.values, row.step, row.line, len(self.files) - 1)

    def _configure(self, config: Any) -> None:
        for item in config.update:
            value = self._decoded(item.value_json)
            name = ".".join(item.nested_key) or item.key
            if value is not _BAD and not name.startswith("_wandb"):
                self.config.update(leaves(name, value))

    def _decoded(self, text: str) -> Any:
        try:
            return orjson.loads(text)
        except ValueError:
            pass
        try:
            return parse(text.encode())  # a bare NaN
        except ValueError:
            self._counts["value"] += 1
            return _BAD

    def _discover(self) -> Iterable[LoggedTable]:
        for path in self._paths:
            folder = path.parent / "files" / "media" / "table"
            for file in folder.rglob("*.table.json"):
                match = TABLE_NAME.match(file.relative_to(folder).as_posix())
                if match:
                    incremental = match[1] in self._incremental
                    yield LoggedTable(match[1], int(match[2]), str(file), partial(wandb_table, file), incremental)

    def _take_notes(self) -> None:
        kinds = {
            "damaged": ("skipped", "damaged stretches of the transaction log"),
            "undecodable": ("skipped", "records that are no protobuf message"),
            "value": ("skipped", "values that are no JSON"),
            "media": ("skipped", "logged media that are no table (images, histograms)"),
        }
        self.notes = [Note(*kinds[key], count) for key, count in sorted(self._counts.items()) if count]
        self.notes += unfinished(*self._logs)
        if self._ahead:
            self.notes.append(Note("supplemented", "steps that the log lacks were read from output.log", len(self._ahead)))
        if self._exit_code:
            self.notes.append(Note("exit", f"the run ended with exit code {self._exit_code}"))


_BAD = object()


class _TransactionLog(RecordFile):
    """A ``.wandb`` file."""

    __slots__ = ()

    def _scan(self, stream: BinaryIO, size: int, counts: Counter[str]) -> Iterator[bytes]:
        if not self.offset:
            head = stream.read(FILE_HEADER)
            if not (MAGIC + b"\0").startswith(head):
                raise SourceError("not a W&B transaction log", where=str(self.path))
            if len(head) < FILE_HEADER:
                return
            self.offset = FILE_HEADER
        unpack, position = struct.Struct("<IHB").unpack_from, self.offset
        parts: list[bytes] | None = None  # of a record that has begun
        while True:
            base = position - position % BLOCK
            stream.seek(base)
            data = stream.read(WINDOW)
            at = position - base
            while at + HEADER <= len(data):
                left = BLOCK - at % BLOCK
                if left < HEADER:
                    at += left
                    continue
                checksum, length, kind = unpack(data, at)
                end = at + HEADER + length
                inside = FULL <= kind <= LAST and HEADER + length <= left
                if inside and end > len(data):
                    break
                if not inside or _checksum(data, at) != checksum:
                    if base + at + left >= size:
                        return  # the writer may not have finished this block
                    counts["damaged"] += 1
                    at = end if inside and _is_sound(data, end) else at + left
                    parts, self.offset = None, base + at
                    continue
                payload = data[at + HEADER : end]
                at = end
                if kind in (FULL, FIRST):
                    counts["damaged"] += parts is not None  # its end never came
                    parts = [payload]
                elif parts is not None:
                    parts.append(payload)
                if parts is None:
                    self.offset = base + at  # the rest of a record whose beginning was damaged
                elif kind in (FULL, LAST):
                    self.count += 1
                    self.offset = base + at
                    record, parts = b"".join(parts), None
                    yield record
            position = base + at
            if len(data) < WINDOW:
                return


def _field(payload: bytes) -> int:
    """Number of the field of a ``Record`` that says what it is; its ``num`` may come first. 0 where that is not plain to see."""
    at = 0
    if payload[:1] == b"\x08":
        at = 1
        while at < len(payload) and payload[at] & 0x80:
            at += 1
        at += 1
    return payload[at] >> 3 if at < len(payload) and not payload[at] & 0x80 else 0


def _checksum(data: bytes, at: int) -> int:
    """CRC-32 over the type and the payload of the chunk that begins at ``at``."""
    (length,) = struct.unpack_from("<H", data, at + 4)
    return zlib.crc32(memoryview(data)[at + 6 : at + HEADER + length])


def _is_sound(data: bytes, at: int) -> bool:
    """Whether a chunk that checks begins at ``at``."""
    if at + HEADER > len(data):
        return False
    checksum, length = struct.unpack_from("<IH", data, at)
    return at + HEADER + length <= len(data) and bool(checksum == _checksum(data, at))


def _graft(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        branch = tree.setdefault(name, {})
        if not isinstance(branch, dict):
            branch = tree[name] = {}
        tree = branch
    tree[path[-1]] = value


def flatten(tree: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split a history row into flat values (nested names joined by a dot, as W&B shows them) and media.

    Examples
    --------
    >>> flatten({"train/reward": 0.5, "env": {"done": 1}, "completions": {"_type": "table-file", "nrows": 4}, "bins": [1, 2]})
    ({'train/reward': 0.5, 'env.done': 1}, {'completions': {'_type': 'table-file', 'nrows': 4}})
    """
    values: dict[str, Any] = {}
    media: dict[str, dict[str, Any]] = {}
    todo = [("", tree)]
    while todo:
        prefix, branch = todo.pop()
        for name, value in branch.items():
            if not isinstance(value, dict):
                if not isinstance(value, list):
                    values[prefix + name] = value
            elif "_type" in value:
                media[prefix + name] = value
            else:
                todo.append((f"{prefix}{name}.", value))
    return values, media


def leaves(name: str, value: Any) -> dict[str, Any]:
    """A configuration entry with dotted names, lists left whole."""
    out: dict[str, Any] = {}
    todo = [(name, value)]
    while todo:
        name, value = todo.pop()
        if isinstance(value, dict) and value:
            todo += [(f"{name}.{key}", inner) for key, inner in value.items()]
        else:
            out[name] = value
    return out


def _requirements(path: Path) -> dict[str, str]:
    """Package versions out of a ``requirements.txt`` of pinned lines."""
    try:
        lines = path.read_text("utf-8", "replace")[: 1 << 20].splitlines()
    except OSError:
        return {}
    return dict(line.strip().split("==", 1) for line in lines if line.count("==") == 1)


def _framework_version(packages: dict[str, str]) -> str | None:
    """The version of the training framework, where exactly one is installed: only the keys tell which of several was used.

    Examples
    --------
    >>> _framework_version({"trl": "0.26.2", "torch": "2.9.0"}), _framework_version({"trl": "0.26.2", "verl": "0.7.0"})
    ('0.26.2', None)
    """
    versions = [packages[name] for name in FRAMEWORKS if name in packages]
    return versions[0] if len(versions) == 1 else None


def _find(folder: Path, depth: int = 3) -> list[Path]:
    """Transaction logs in a folder and a few levels below; the link ``latest-run`` is not followed."""
    found = []
    for here, subfolders, names in os.walk(folder):
        level = len(Path(here).relative_to(folder).parts)
        subfolders[:] = [] if level >= depth else sorted(name for name in subfolders if name not in ("files", "logs", "tmp"))
        found += [Path(here, name) for name in names if name.endswith(".wandb")]
    return found


def _sniff(head: Head) -> float:
    if any(entry.suffix == ".wandb" for entry in head.entries):
        return 0.8
    return 1.0 if head.data.startswith(MAGIC) else 0.0


def _open(location: str, options: Options) -> WandbFileReader:
    path = Path(location)
    if not path.is_dir():
        return WandbFileReader([path], _run_id(path))
    resumed: dict[str, list[Path]] = {}
    for file in sorted(_find(path), key=_begun):
        resumed.setdefault(_run_id(file), []).append(file)
    if not resumed:
        raise SourceError("no run-*.wandb in it", where=location)
    runs = sorted(resumed, key=lambda run: _begun(resumed[run][-1]), reverse=True)
    chosen, others = choose_run(runs, options.run, location)
    reader = WandbFileReader(resumed[runs[chosen]], runs[chosen])
    reader.other_runs = others
    return reader


def _run_id(path: Path) -> str:
    return path.stem.removeprefix("run-")


def _begun(path: Path) -> tuple[str, float]:
    """Order of the folders ``[offline-]run-DATE_TIME-ID``."""
    stamp = re.search(r"run-(\d{8}_\d{6})-", path.parent.name)
    return (stamp[1] if stamp else "", path.stat().st_mtime)


FORMAT = Format(
    name="wandb",
    title="W&B run on disk",
    sniff=_sniff,
    open=_open,
    picks="the one that was begun last",
)
