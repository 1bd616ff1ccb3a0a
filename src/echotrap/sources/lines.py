"""Lines of a text log: plain, gzip or zstd, read in blocks and followed while the file grows."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from echotrap.errors import SourceError

__all__ = ["HEAD_BYTES", "MAX_LINE", "Lines", "open_bytes", "read_head"]

HEAD_BYTES = 1 << 16
BLOCK = 1 << 18
MAX_LINE = 1 << 26
"""Longer lines are skipped and counted; no metrics row is this long."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; gzip and zstd, told by their first bytes, are decompressed on the way."""
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise SourceError("no such file", where=str(path)) from None
    except IsADirectoryError:
        raise SourceError("is a folder, not a file", where=str(path)) from None
    except PermissionError:
        raise SourceError("no permission to read it", where=str(path), cure="check the owner and mode of the file") from None
    except OSError as error:
        raise SourceError(f"cannot be opened: {error.strerror or error}", where=str(path)) from None
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(GZIP):
        return cast(IO[bytes], gzip.open(raw))
    if magic.startswith(ZSTD):
        import zstandard

        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    return raw


def damage() -> tuple[type[Exception], ...]:
    """What a damaged compressed stream raises."""
    import zstandard

    return (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file after decompression, as far as they can be read."""
    with open_bytes(path) as file:
        parts: list[bytes] = []
        with contextlib.suppress(*damage()):
            while size > 0 and (part := file.read(size)):
                parts.append(part)
                size -= len(part)
        return b"".join(parts)


class Lines:
    """The lines of one file; asked again, only those that are new.

    Attributes
    ----------
    count : int
        Lines given so far.
    rest : bytes
        What follows the last line break: a line that is still being written, or was cut.
    rewound : bool
        The file was truncated or replaced since; everything is given again.
    too_long : int
        Lines that were skipped because of their length.
    damaged : bool
        The compressed stream broke off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rest = b""
        self.rewound = self.damaged = False
        self.count = self.too_long = 0
        self._start, self._size, self._offset = b"", -1, 0
        self._inode: tuple[int, int] | None = None

    @property
    def offset(self) -> int:
        """Bytes given so far, after decompression."""
        return self._offset

    def poll(self) -> Iterator[list[bytes]]:
        """Blocks of whole lines that were written since the last call."""
        self.rewound = self.damaged = False
        with open_bytes(self.path) as file:
            info = os.stat(self.path)
            start = file.read(len(self._start)) if self._start else b""
            replaced = self._inode not in (None, (info.st_dev, info.st_ino))
            if replaced or start != self._start or info.st_size < self._size:
                self.rewound = True
                self._start, self._offset, self.count = b"", 0, 0
            elif info.st_size == self._size:
                return
            self._inode, self._size = (info.st_dev, info.st_ino), info.st_size
            try:
                yield from self._blocks(file)
            except damage():
                self.damaged = True

    def take_rest(self) -> None:
        """Take the unfinished last line as whole; it is line ``count + 1``, and should it go on, a line of its own follows."""
        self._offset += len(self.rest)
        self.rest = b""

    def _blocks(self, file: IO[bytes]) -> Iterator[list[bytes]]:
        if not self._start:
            file.seek(0)
            self._start = file.read(512)
        file.seek(self._offset)
        self.rest = b""
        while block := file.read(BLOCK):
            size = len(block)
            if not block.endswith(b"\n"):
                more = file.readline(MAX_LINE)
                size += len(more)
                if len(more) == MAX_LINE and not more.endswith(b"\n"):
                    size += _skip_line(file)
                    block = block[: block.rfind(b"\n") + 1] + b"\n"  # an empty line in its place keeps the count right
                    self.too_long += 1
                else:
                    block += more
            block, newline, self.rest = block.rpartition(b"\n")
            self._offset += size - len(self.rest)
            if newline:
                lines = block.split(b"\n")
                self.count += len(lines)
                yield lines


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of a line and let it go; how long it was."""
    size = 0
    while more := file.readline(MAX_LINE):
        size += len(more)
        if more.endswith(b"\n"):
            break
    return size
