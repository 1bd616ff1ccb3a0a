"""Training-stability diagnostics for LLM-agent reinforcement learning.

>>> import echotrap
>>> run = echotrap.open_run("run.jsonl")  # doctest: +SKIP
>>> report = echotrap.diagnose(run)  # doctest: +SKIP
>>> report.verdict.label  # doctest: +SKIP
'echo-trap'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from echotrap._version import __version__
from echotrap.errors import ConfigError, DetectorError, EchotrapError, SourceError, UnknownFormat, Unreachable

if TYPE_CHECKING:
    from echotrap.diagnosis import diagnose
    from echotrap.monitor import Monitor
    from echotrap.record import Run
    from echotrap.report import Report
    from echotrap.sources import open_run

__all__ = [
    "ConfigError",
    "DetectorError",
    "EchotrapError",
    "Monitor",
    "Report",
    "Run",
    "SourceError",
    "UnknownFormat",
    "Unreachable",
    "__version__",
    "diagnose",
    "open_run",
]

_LAZY = {
    "Monitor": "echotrap.monitor",
    "Report": "echotrap.report",
    "Run": "echotrap.record",
    "diagnose": "echotrap.diagnosis",
    "open_run": "echotrap.sources",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'echotrap' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
