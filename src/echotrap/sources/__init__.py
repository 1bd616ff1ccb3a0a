"""Open a log, whatever it is: sniff, pick a format, read."""

from __future__ import annotations

from echotrap.record import Run

__all__ = ["open_run"]


def open_run(location: str, *, format: str | None = None, run: str | None = None) -> Run:
    """Read one run."""
    raise NotImplementedError
