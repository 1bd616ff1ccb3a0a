"""Lines of a text log: UTF-8 or UTF-16, plain, gzip or zstd, read in blocks and followed while the file grows."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from echotrap.errors import SourceError

__all__ = ["HEAD_BYTES", "MAX_LINE", "Lines", "open_bytes", "read_head"]

HEAD_BYTES = 1 << 16
BLOCK = 1 << 18
MAX_LINE = 1 << 26
"""Longer lines are skipped and counted; no metrics row is this long."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; gzip, zstd and UTF-16, told by their first bytes, are decoded on the way."""
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
        raw.close()
        return cast(IO[bytes], gzip.open(path))
    if magic.startswith(ZSTD):
        import zstandard

        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    if magic.startswith(UTF16):
        return io.BufferedReader(_Utf8(raw), BLOCK)
    return raw


class _Utf8(io.RawIOBase):
    """UTF-16 text, as PowerShell redirects it, given as UTF-8."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = b"more"
        while not self._ready and block:
            block = self._raw.read(BLOCK)
            self._ready = self._decoder.decode(block, final=not block).encode("utf-8", "replace")
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


def damage() -> tuple[type[Exception], ...]:
    """What a damaged compressed stream raises."""
    import zstandard

    return (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file after decompression, as far as they can be read."""
    with open_bytes(path) as file:
        parts: list[bytes] = []
        read = getattr(file, "read1", file.read)  # what a broken stream still gives
        with contextlib.suppress(*damage()):
            while size > 0 and (part := read(size)):
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
        start = read_head(self.path, 512)
        info = os.stat(self.path)
        replaced = self._inode not in (None, (info.st_dev, info.st_ino))
        if replaced or not start.startswith(self._start) or info.st_size < self._size:
            self.rewound = True
            self._offset, self.count = 0, 0
        elif info.st_size == self._size:
            return
        self._start, self._inode, self._size = start, (info.st_dev, info.st_ino), info.st_size
        with open_bytes(self.path) as file:
            try:
                _forward(file, self._offset)
                yield from self._blocks(file)
            except damage():
                self.damaged = True

    def take_rest(self) -> None:
        """Take the unfinished last line as whole; it is line ``count + 1``, and should it go on, a line of its own follows."""
        self._offset += len(self.rest)
        self.rest = b""

    def _blocks(self, file: IO[bytes]) -> Iterator[list[bytes]]:
        read = getattr(file, "read1", file.read)  # what a broken stream still gives
        parts, size, overlong = list[bytes](), 0, False
        self.rest = b""
        while block := read(BLOCK):
            cut = block.rfind(b"\n")
            if cut < 0:
                size += len(block)
                overlong = overlong or size > MAX_LINE
                parts = [] if overlong else [*parts, block]
                continue
            lines = b"".join((*parts, block[:cut])).split(b"\n")
            if overlong:
                lines[0], overlong, self.too_long = b"", False, self.too_long + 1
            self._offset += size + cut + 1
            self.count += len(lines)
            parts, size = [block[cut + 1 :]], len(block) - cut - 1
            self.rest = parts[0]
            yield lines
        self.rest = b"".join(parts)


def _forward(file: IO[bytes], offset: int) -> None:
    """Go to an offset, by reading where the stream cannot jump."""
    if file.seekable():
        file.seek(offset)
        return
    while offset > 0 and (part := file.read(min(offset, BLOCK))):
        offset -= len(part)
