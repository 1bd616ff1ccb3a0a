"""Open a log, whatever it is: sniff, pick a format, read.

A module of this package that has a ``FORMAT`` is a format; there is no list to edit.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echotrap.errors import SourceError, UnknownFormat
from echotrap.sources.base import Format, Head, Options, Reader

if TYPE_CHECKING:
    from echotrap.record import Run, RunConfig

__all__ = ["entries", "formats", "look", "open_reader", "open_run", "sniff"]

MAX_ENTRIES = 20_000
MAX_FOLDERS_DEEP = 6


@functools.cache
def formats() -> dict[str, Format]:
    """All formats by name."""
    found: dict[str, Format] = {}
    for module in pkgutil.iter_modules(__path__, __name__ + "."):
        item = getattr(importlib.import_module(module.name), "FORMAT", None)
        if isinstance(item, Format):
            found[item.name] = item
    return found


def open_run(
    location: str | Path,
    *,
    format: str | None = None,
    run: str | None = None,
    framework: str | None = None,
    config: Mapping[str, Any] | RunConfig | None = None,
    keys: Mapping[str, str] | None = None,
) -> Run:
    """Read one run.

    Parameters
    ----------
    location : str or Path
        A file, a folder, a URL, or ``-`` for standard input.
    format : str, optional
        Name of the format; recognised from the content otherwise.
    run : str, optional
        Which one, where there are several.
    framework : str, optional
        Name of the training framework, where its keys do not tell.
    config : mapping or RunConfig, optional
        Facts that the log does not hold (:class:`echotrap.record.RunConfig`); they win over those that it does.
    keys : mapping, optional
        Raw key to signal (or ``"step"``), where the names in the log are of your own.

    Raises
    ------
    SourceError
        It cannot be read.
    """
    from echotrap.assemble import RunBuilder

    reader = open_reader(str(location), Options(format=format, run=run, framework=framework))
    try:
        return RunBuilder(reader, config=config, framework=framework, keys=keys).refresh()
    finally:
        reader.close()


def open_reader(location: str, options: Options | None = None) -> Reader:
    """A reader for the location; nothing but its head has been read.

    Raises
    ------
    UnknownFormat
        Nothing in it looks like a log.
    SourceError
        It does not exist, cannot be read, or is empty.
    """
    options = options or Options()
    known = formats()
    if options.format is not None and options.format not in known:
        names = ", ".join(sorted(known))
        raise UnknownFormat(f"no format is called {options.format!r}", where="--input-format", cure=f"there are: {names}")
    by_scheme = next((item for item in known.values() if item.schemes and location.startswith(item.schemes)), None)
    path = location
    if location == "-":
        path = _standard_input()
    if by_scheme is not None:
        chosen = by_scheme
    else:
        head = look(Path(path))
        chosen = known[options.format] if options.format is not None else sniff(head)
    reader = chosen.open(path, options)
    reader.format = reader.format or chosen.name
    reader.source = location
    if location == "-":
        reader.name, reader.files = "stdin", ["<stdin>"]
    return reader


def look(path: Path) -> Head:
    """What a format may see of a path before it is chosen."""
    from echotrap.sources.lines import read_head

    if path.is_dir():
        return Head(path, entries=tuple(entries(path)))
    if path.exists() and not path.is_file():
        raise SourceError("is neither a file nor a folder", where=str(path))
    data = read_head(path)
    if not data and path.stat().st_size:
        raise SourceError("the compressed stream breaks off before anything can be read", where=str(path))
    if not data.strip():
        raise SourceError("the file is empty", where=str(path), cure="is the run writing somewhere else?")
    return Head(path, data)


def sniff(head: Head) -> Format:
    """The format that recognises the head best."""
    scores = {item.name: item.sniff(head) for item in formats().values()}
    best = max(scores, key=lambda name: scores[name])
    if scores[best] <= 0:
        what = "this is no log that echotrap knows"
        cure = "name the format with --input-format, echotrap formats lists them"
        if head.is_folder:
            what = "no log was found in this folder" if head.entries else "the folder is empty"
            cure = "name the file that the run logs to" if head.entries else "is the run writing somewhere else?"
        if head.data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")) or b"/data.pkl" in head.data:
            what = "this is a pickle, which is never loaded, because loading runs what is in it"
            cure = "save the rollouts as JSON lines (prompt, response, reward, group, step) from the training script"
        elif b"\0" in head.data:
            what = "this is a binary file that echotrap does not know"
        raise UnknownFormat(what, where=str(head.path), cure=cure)
    return formats()[best]


def entries(folder: Path) -> list[Path]:
    """Files below a folder, nearest first; bounded, and blind to links that lead out."""
    found: list[Path] = []
    level = [folder]
    for _ in range(MAX_FOLDERS_DEEP):
        deeper: list[Path] = []
        for place in level:
            try:
                names = sorted(place.iterdir())
            except OSError as error:
                if place is folder:
                    raise SourceError(f"cannot be listed: {error.strerror}", where=str(folder)) from None
                continue
            for item in names:
                if item.is_dir():
                    if not item.is_symlink() and not item.name.startswith("."):
                        deeper.append(item)
                elif item.is_file():
                    found.append(item)
                if len(found) >= MAX_ENTRIES:
                    return found
        level = deeper
    return found


def _standard_input() -> str:
    """Copy standard input to a file, because a format wants to look at its head first."""
    with tempfile.NamedTemporaryFile(prefix="echotrap-", delete=False) as file:
        while block := sys.stdin.buffer.read(1 << 20):
            file.write(block)
    import atexit

    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name
