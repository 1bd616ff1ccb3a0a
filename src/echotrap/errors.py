"""Every error that echotrap raises on purpose.

::

    EchotrapError                 one line: what, where, cure -> exit code 2
     ├── SourceError              a log could not be read
     │    ├── UnknownFormat       nothing in it looks like a log we know
     │    └── Unreachable         a server did not answer
     ├── ConfigError              echotrap.toml or an option is wrong
     └── DetectorError            a detector is malformed, or its id is unknown
"""

from __future__ import annotations

__all__ = ["ConfigError", "DetectorError", "EchotrapError", "SourceError", "UnknownFormat", "Unreachable"]


class EchotrapError(Exception):
    """An error with a cause the user can act on.

    Parameters
    ----------
    message : str
        What went wrong, in one line, without a trailing full stop.
    where : str, optional
        File and place (``run.jsonl:12``), or the option.
    cure : str, optional
        What the user can do about it.
    """

    kind = "error"

    def __init__(self, message: str, *, where: str | None = None, cure: str | None = None) -> None:
        self.message, self.where, self.cure = message, where, cure
        super().__init__(message)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        cure = f" ({self.cure})" if self.cure else ""
        return f"{place}{self.message}{cure}"


class SourceError(EchotrapError):
    """A log could not be read."""

    kind = "unreadable"


class UnknownFormat(SourceError):
    """Nothing in the input looks like a log that echotrap knows."""

    kind = "unknown-format"


class Unreachable(SourceError):
    """A server did not answer, or refused."""

    kind = "unreachable"


class ConfigError(EchotrapError):
    """A configuration file or an option is wrong."""

    kind = "configuration"


class DetectorError(EchotrapError):
    """A detector is malformed, or no detector has the id that was asked for."""

    kind = "detector"
