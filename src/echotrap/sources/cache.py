"""A folder of files by name, bounded in size: what was longest unused goes first."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

__all__ = ["DiskCache"]


class DiskCache:
    """Keep bytes under a name. Nothing fails when the folder cannot be used; nothing is kept then.

    Parameters
    ----------
    folder : Path
        Made when something is first kept, readable by its owner only.
    limit : int
        Bytes that it may hold.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit

    def get(self, name: str) -> bytes | None:
        """What was kept under a name."""
        path = self._path(name)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep bytes under a name, whole or not at all."""
        if len(data) > self.limit:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".", delete=False) as stream:
                stream.write(data)
            Path(stream.name).replace(self._path(name))
            self._prune()
        except OSError:
            return

    def _path(self, name: str) -> Path:
        return self.folder / hashlib.sha256(name.encode()).hexdigest()

    def _prune(self) -> None:
        files = sorted(((path.stat(), path) for path in self.folder.iterdir()), key=lambda item: item[0].st_mtime_ns)
        total = sum(stat.st_size for stat, _ in files)
        for stat, path in files:
            if total <= self.limit:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size
