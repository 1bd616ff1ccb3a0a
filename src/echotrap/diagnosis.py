"""Run in, report out: symptoms combined over time into one verdict."""

from __future__ import annotations

from echotrap.record import Run
from echotrap.report import Report

__all__ = ["diagnose"]


def diagnose(run: Run) -> Report:
    """Judge one run."""
    raise NotImplementedError
