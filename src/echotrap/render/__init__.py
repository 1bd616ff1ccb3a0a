"""Reports in the formats people and pipelines read: one module a format, each with one function ``render``.

Renderers never compute: what they show is in the report.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from echotrap.config import FailOn
from echotrap.report import Report, RunError

__all__ = ["FORMATS", "Format", "Result", "View", "render"]

Format = Literal["text", "json", "markdown", "junit", "sarif", "github", "html"]
FORMATS: dict[Format, str] = {
    "text": ".txt",
    "json": ".json",
    "markdown": ".md",
    "junit": ".xml",
    "sarif": ".sarif",
    "github": ".log",
    "html": ".html",
}
"""Every format, with the file extension that stands for it."""

Result: TypeAlias = Report | RunError


@dataclass(frozen=True)
class View:
    """How results are to be shown.

    Attributes
    ----------
    fail_on : str
        Severity from which a finding counts as a failure (JUnit).
    width, color, unicode, verbose
        Terminal facts, and whether everything is wanted (text).
    """

    fail_on: FailOn = "critical"
    width: int = 80
    color: bool = False
    unicode: bool = True
    verbose: bool = False


def render(results: Sequence[Result], format: Format, view: View | None = None) -> str:
    """Results of one or several runs as text of the given format, ending with a line break."""
    module = importlib.import_module(f"echotrap.render.{format}")
    text: str = module.render(tuple(results), view or View())
    return text if text.endswith("\n") or not text else text + "\n"
