"""TensorBoard event files and logdirs.

An event file is a sequence of TFRecords: the length of the record (8 bytes), a checksum of the length (4), the record, a
checksum of the record (4); a record is a protobuf ``Event``. The readers that come with the ``tensorboard`` package compute the
checksums byte by byte in Python and cannot start in the middle of a file, so framing and checksums (CRC-32C, many records at
once) are here; the protobuf classes are theirs.

A *run* is a folder that holds event files. Several files in it are restarts or further writers of one run and are read in the
order of their creation. A value is a *scalar* in either of its two forms; other summaries are counted, not read.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap.errors import SourceError
from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, choose_run
from echotrap.sources.binary import RecordFile, unfinished
from echotrap.sources.points import Point, PointRows

__all__ = ["FORMAT", "TensorBoardReader"]

HEADER, FOOTER = 12, 4
CHUNK = 1 << 22
BATCH = 50_000  # points that are gathered into rows at a time
LARGEST_CHECKED = 4096  # bytes; longer records are images and texts, which are not read
ARGUMENTS = "args/text_summary"  # the Hugging Face callback writes the training arguments here, as JSON


class TensorBoardReader(Reader):
    """Follows the event files of one run."""

    def __init__(self, folder: Path, files: list[Path] | None, name: str) -> None:
        super().__init__(name)
        self._folder, self._fixed = folder, files
        self._open: dict[Path, _EventFile] = {}
        self._points = PointRows()
        self._counts: Counter[str] = Counter()

    def poll(self) -> Iterator[Row]:
        """Yield one row a step, over all tags."""
        self.rewound = False
        files = self._fixed or event_files(self._folder)
        if any(file.shrank() for file in self._open.values()):
            self._open, self._points, self.files, self.rewound = {}, PointRows(), [], True
            self._counts.clear()
        for path in files:
            if path not in self._open:
                self._open[path] = _EventFile(path, len(self.files))
                self.files.append(str(path))
        points = (point for path in files for point in self._scalars(self._open[path]))
        while batch := list(itertools.islice(points, BATCH)):
            yield from self._points.rows(batch)
        self._take_notes()

    def _scalars(self, file: _EventFile) -> Iterator[Point]:
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        parse = Event.FromString
        for record in file.records(self._counts):
            try:
                event = parse(record)
            except DecodeError:
                self._counts["damaged"] += 1
                continue
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                if kind == "simple_value":
                    yield Point(value.tag, event.step, value.simple_value, file.count, file.index)
                elif kind == "tensor":
                    number = _number(value.tensor)
                    if number is not None:
                        yield Point(value.tag, event.step, number, file.count, file.index)
                    elif value.tensor.string_val:
                        self._text(value.tag, value.tensor.string_val[0])
                    else:
                        self._counts["other"] += 1
                elif kind is not None:
                    self._counts["other"] += 1

    def _text(self, tag: str, text: bytes) -> None:
        self._counts["text"] += 1
        if tag == ARGUMENTS:
            try:
                arguments = json.loads(text)
            except (ValueError, RecursionError):
                return
            if isinstance(arguments, dict):
                self.config.update(arguments)

    def _take_notes(self) -> None:
        kinds = {
            "damaged": ("skipped", "records that fail their checksum or cannot be decoded"),
            "text": ("skipped", "text summaries"),
            "other": ("skipped", "summaries that are no scalar (images, histograms, graphs)"),
        }
        self.notes = [Note(*kinds[key], count) for key, count in sorted(self._counts.items()) if count]
        self.notes += unfinished(*self._open.values())


class _EventFile(RecordFile):
    """An event file; what is yielded is whole and undamaged."""

    __slots__ = ()

    def _scan(self, stream: BinaryIO, size: int, counts: Counter[str]) -> Iterator[bytes]:
        want = CHUNK
        while True:
            stream.seek(self.offset)
            data = stream.read(want)
            frames = _frames(data)
            for start, length, good in zip(frames.starts, frames.lengths, frames.good, strict=True):
                self.count += 1
                if good:
                    yield data[start : start + length]
                else:
                    counts["damaged"] += 1
            counts["damaged"] += frames.jumped
            self.offset += frames.end
            if frames.end:
                want = CHUNK
            elif len(data) < want or self.offset + frames.need > size:
                return  # a tail: the writer has not finished it
            elif frames.need:
                want = frames.need
            else:  # damaged, and no sound header in the whole buffer
                self.offset += len(data) - HEADER + 1


class _Frames(NamedTuple):
    """The whole records at the start of a buffer.

    Attributes
    ----------
    starts, lengths, good : list
        Where each record's content lies, and whether its checksum fits.
    end : int
        Where the first record that is not whole begins.
    need : int
        How long a buffer it takes to hold that one; 0 where its header is damaged.
    jumped : int
        Damaged stretches before ``end``.
    """

    starts: list[int]
    lengths: list[int]
    good: list[bool]
    end: int
    need: int = 0
    jumped: int = 0


def _frames(data: bytes) -> _Frames:
    starts: list[int] = []
    lengths: list[int] = []
    at, unpack = 0, struct.Struct("<Q").unpack_from
    while at + HEADER <= len(data):
        (length,) = unpack(data, at)
        starts.append(at)
        lengths.append(length)
        at += HEADER + length + FOOTER
    if not starts:
        return _Frames([], [], [], 0)
    octets = np.frombuffer(data, np.uint8)
    sound = _is_sound(octets, np.array(starts))
    end, need, jumped = at, 0, 0
    if not sound.all():  # the chain of lengths is broken here
        count = int(np.argmin(sound))
        at = starts[count]
        del starts[count:], lengths[count:]
        end, need, jumped = _salvage(octets, at, starts, lengths)
    elif at > len(data):
        end, need = starts.pop(), HEADER + lengths.pop() + FOOTER
    begin, extent = np.array(starts, dtype=np.int64) + HEADER, np.array(lengths, dtype=np.int64)
    good = np.ones(len(begin), dtype=bool)
    short = extent <= LARGEST_CHECKED
    good[short] = _stored(octets, (begin + extent)[short]) == _masked_crc(octets, begin[short], extent[short])
    return _Frames(begin.tolist(), lengths, good.tolist(), end, need, jumped)


def _salvage(octets: NDArray[np.uint8], at: int, starts: list[int], lengths: list[int]) -> tuple[int, int, int]:
    """Add the records behind a damaged place, found by headers that fit their checksums; as in :class:`_Frames` otherwise."""
    candidates = np.arange(at, len(octets) - HEADER + 1)
    for shift in (5, 6, 7):  # no record is longer than a terabyte
        candidates = candidates[octets[candidates + shift] == 0]
    jumped = 0
    for start in candidates[_is_sound(octets, candidates)].tolist():
        if start < at:
            continue  # inside of a record that was taken
        length = int.from_bytes(octets[start : start + 8].tobytes(), "little")
        jumped += start > at
        at = start + HEADER + length + FOOTER
        if at > len(octets):
            return start, at - start, jumped
        starts.append(start)
        lengths.append(length)
    return at, 0, jumped


def _is_sound(octets: NDArray[np.uint8], headers: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the lengths at the given offsets fit their checksums."""
    fits: NDArray[np.bool_] = _stored(octets, headers + 8) == _masked_crc(octets, headers, np.full(len(headers), 8))
    return fits


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0x82F63B78) ^ (table >> 1), table >> 1).astype(np.uint32)
    return table


_TABLE = _crc_table()


def _masked_crc(octets: NDArray[np.uint8], starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.uint32]:
    """TFRecord's masked CRC-32C of many stretches of a buffer at once, one byte of each at a time."""
    order = np.argsort(-lengths, kind="stable")
    begin, crc = starts[order], np.full(len(order), 0xFFFFFFFF, dtype=np.uint32)
    longer = np.searchsorted(-lengths[order], -np.arange(int(lengths.max(initial=0))), side="left")
    for offset, count in enumerate(longer):  # ``count`` stretches are longer than ``offset``
        active = crc[:count]
        crc[:count] = _TABLE[(active ^ octets[begin[:count] + offset]) & 0xFF] ^ (active >> 8)
    crc ^= 0xFFFFFFFF
    out = np.empty_like(crc)
    out[order] = ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)
    return out


def _stored(octets: NDArray[np.uint8], at: NDArray[Any]) -> NDArray[np.uint32]:
    """Little-endian 32-bit numbers at the given offsets."""
    return octets[at[:, None] + np.arange(4)].copy().view("<u4").ravel()


def _number(tensor: Any) -> float | None:
    """The value of a tensor with one numeric element; larger ones are never expanded."""
    if tensor.string_val or any(dim.size != 1 for dim in tensor.tensor_shape.dim):
        return None
    for values in (tensor.float_val, tensor.double_val, tensor.int64_val, tensor.int_val, tensor.bool_val):
        if len(values) == 1:
            return float(values[0])
    if tensor.tensor_content and tensor.dtype in _NUMPY_OF_TENSOR:
        dtype = np.dtype(_NUMPY_OF_TENSOR[tensor.dtype])
        if len(tensor.tensor_content) == dtype.itemsize:
            return float(np.frombuffer(tensor.tensor_content, dtype)[0])
    if len(tensor.half_val) == 1 and 0 <= tensor.half_val[0] < 1 << 16:
        bits = np.array(tensor.half_val, dtype=np.uint16)
        bfloat = tensor.dtype == 14
        return float((bits.astype(np.uint32) << 16).view(np.float32)[0] if bfloat else bits.view(np.float16)[0])
    return None


_NUMPY_OF_TENSOR = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 19: "<f2", 22: "<u4", 23: "<u8"}


def event_files(folder: Path) -> list[Path]:
    """The event files directly in a folder, oldest first."""
    try:
        return sorted((path for path in folder.iterdir() if "tfevents" in path.name and path.is_file()), key=_created)
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=str(folder)) from error


def _created(path: Path) -> tuple[float, str]:
    stamp = re.search(r"tfevents\.(\d+(?:\.\d+)?)", path.name)
    return (float(stamp[1].split(".")[0]) if stamp else path.stat().st_mtime, path.name)


def _runs(logdir: Path) -> list[Path]:
    """Folders with event files, most recent run first; folders inside of a run (hyper-parameters, ``add_scalars``) come last."""
    found: list[tuple[bool, float, str]] = []
    inside: list[str] = []
    for folder, subfolders, names in os.walk(logdir):
        subfolders.sort()
        files = [Path(folder, name) for name in names if "tfevents" in name]
        if files:
            nested = any(folder.startswith(outer + os.sep) for outer in inside)
            found.append((nested, -max(_created(file)[0] for file in files), folder))
            inside.append(folder)
    return [Path(folder) for _, _, folder in sorted(found)]


def _sniff(head: Head) -> float:
    if any("tfevents" in entry.name for entry in head.entries):
        return 0.6
    return 0.95 if len(head.data) > HEADER and b"brain.Event:" in head.data[:80] else 0.0


def _open(location: str, options: Options) -> TensorBoardReader:
    path = Path(location)
    if not path.is_dir():
        return TensorBoardReader(path.parent, [path], path.absolute().parent.name)
    runs = _runs(path)
    if not runs:
        raise SourceError("no event files in it", where=location)
    names = [run.relative_to(path).as_posix() for run in runs]
    names = [path.absolute().name if name == "." else name for name in names]
    chosen, others = choose_run(names, options.run, location)
    reader = TensorBoardReader(runs[chosen], None, names[chosen])
    reader.other_runs = others
    return reader


FORMAT = Format(
    name="tensorboard",
    title="TensorBoard event files",
    sniff=_sniff,
    open=_open,
    picks="the one that was begun last",
)
