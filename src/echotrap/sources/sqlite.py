"""Read-only access to SQLite databases that others write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from echotrap.errors import SourceError

__all__ = ["MAGIC", "columns", "read_only"]

MAGIC = b"SQLite format 3\0"
PATIENCE_SECONDS = 5


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write, with what is still in the write-ahead log beside the file.

    Raises
    ------
    SourceError
        It is no database, or damaged; also for what goes wrong in the body.
    """
    if not path.is_file():
        raise SourceError("no such file", where=str(path))
    try:
        connection = _connect(path)
        try:
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a message about a damaged name may be no UTF-8
        why = error if isinstance(error, sqlite3.Error) else "damaged"
        raise SourceError(f"cannot be read as SQLite: {why}", where=str(path)) from error


def columns(path: Path) -> dict[str, set[str]]:
    """Tables of a database with their columns; nothing where it cannot be read."""
    try:
        with read_only(path) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return {
                str(name): {str(row[0]) for row in database.execute("SELECT name FROM pragma_table_info(?)", (name,))}
                for (name,) in tables
            }
    except SourceError:
        return {}


def _connect(path: Path) -> sqlite3.Connection:
    """In a folder that cannot be written, SQLite opens a database with a write-ahead log only when told that it is immutable."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=PATIENCE_SECONDS)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            connection.close()
            if "immutable" in mode or not isinstance(error, sqlite3.OperationalError):
                raise
        else:
            return connection
    raise AssertionError("unreachable")
