"""A binary log of records, read on from where the last reading ended; what frames a record is up to the format."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from echotrap.errors import SourceError
from echotrap.sources.base import Note

__all__ = ["RecordFile", "unfinished"]


@dataclass(slots=True)
class RecordFile(ABC):
    """How far one file has been read.

    Attributes
    ----------
    path : Path
        Where it lies.
    index : int
        Its place in :attr:`echotrap.sources.base.Reader.files`.
    offset : int
        Bytes that have been read: the end of the last whole record.
    count : int
        Records so far.
    unread : int
        Bytes at the end that are no whole record yet.
    """

    path: Path
    index: int
    offset: int = 0
    count: int = 0
    unread: int = 0

    def shrank(self) -> bool:
        """Whether the file is shorter than what was read of it, or gone."""
        try:
            return self.path.stat().st_size < self.offset
        except FileNotFoundError:
            return True

    def records(self, counts: Counter[str]) -> Iterator[bytes]:
        """Yield the whole records after ``offset`` and move it behind them; what is damaged is counted."""
        try:
            with self.path.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                yield from self._scan(stream, size, counts)
                self.unread = max(size - self.offset, 0)
        except OSError as error:
            raise SourceError(f"cannot be read: {error.strerror}", where=str(self.path)) from error

    @abstractmethod
    def _scan(self, stream: BinaryIO, size: int, counts: Counter[str]) -> Iterator[bytes]:
        """Yield the whole records of a stream of ``size`` bytes after ``offset``, and keep ``offset`` and ``count``."""


def unfinished(*files: RecordFile) -> list[Note]:
    """What to say about the tails of files that are still being written."""
    tail = sum(file.unread for file in files)
    return [Note("incomplete", "bytes at the end that are no whole record yet", tail)] if tail else []
