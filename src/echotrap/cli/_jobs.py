"""Check many runs: patterns to locations, locations to results, with as many processes as there is work for."""

from __future__ import annotations

import glob
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from echotrap.errors import EchotrapError

if TYPE_CHECKING:
    from echotrap.config import Settings
    from echotrap.report import Report, RunError

    Result = Report | RunError

__all__ = ["check_all", "check_one", "expand"]

SERIAL_RUNS = 3  # a second process takes about as long to start as a usual run takes to check


def expand(patterns: list[str]) -> list[str]:
    """Locations that patterns stand for, each once; a pattern without a match stays as it is and fails with a clear line."""
    found: dict[str, None] = {}
    for pattern in patterns:
        literal = pattern == "-" or "://" in pattern or Path(pattern).exists() or not glob.has_magic(pattern)
        matches = [] if literal else sorted(glob.glob(pattern, recursive=True))
        found.update(dict.fromkeys(matches or [pattern]))
    return list(found)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_one(
    location: str,
    settings: Settings,
    format: str | None = None,
    run: str | None = None,
    workers: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
) -> Result:
    """One run's report, or what kept it from being judged; never raises."""
    from echotrap.pipeline import check
    from echotrap.report import RunError

    try:
        return check(location, settings, format=format, run=run, workers=workers, progress=progress)
    except EchotrapError as error:
        return RunError(source=location, kind=error.kind, message=error.message, where=error.where, cure=error.cure)
    except Exception as error:
        from echotrap.cli._console import HINT

        if os.environ.get("ECHOTRAP_DEBUG"):
            traceback.print_exc()
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return RunError(source=location, kind="internal", message=line, cure=HINT)


def check_all(
    locations: list[str],
    settings: Settings,
    format: str | None = None,
    run: str | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> list[Result]:
    """Results in the order of the locations; ``done`` hears how many are finished."""
    processes = settings.jobs or cores()
    jobs = min(processes, len(locations))
    if jobs <= 1 or len(locations) <= SERIAL_RUNS:
        found: list[Result] = []
        for location in locations:
            found.append(check_one(location, settings, format, run, processes, measured))
            done(len(found))
        return found
    results: dict[int, Result] = {}
    for index, result in _parallel(dict(enumerate(locations)), jobs, settings, format, run):
        results[index] = result
        done(len(results))
    return [results[index] for index in range(len(locations))]


def _parallel(
    locations: dict[int, str], jobs: int, settings: Settings, format: str | None, run: str | None
) -> Iterator[tuple[int, Result]]:
    """Finished results as they come. A run that takes its process down is tried once more alone, then given up."""
    lost: dict[int, str] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures: dict[Future[Result], int] = {
            pool.submit(check_one, location, settings, format, run): index for index, location in locations.items()
        }
        try:
            for future in as_completed(futures):
                index = futures[future]
                try:
                    yield index, future.result()
                except BrokenProcessPool:
                    lost[index] = locations[index]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for index, location in lost.items():
        if len(locations) == 1:
            from echotrap.report import RunError

            message = "the process that checked it was ended from outside, perhaps for lack of memory"
            yield index, RunError(source=location, kind="internal", message=message, cure="check it alone")
        else:
            yield from _parallel({index: location}, 1, settings, format, run)


def measured(count: int, total: int | None) -> None:
    """Say on a terminal's standard error how far the rollouts of a long run have been looked at."""
    if sys.stderr.isatty() and total and total > 1:
        end = "\r\x1b[K" if count == total else ""
        print(f"\rlooked at the rollouts of {count} of {total} steps{end}", end="", file=sys.stderr, flush=True)


def progress(total: int) -> Callable[[int], None]:
    """A counter on a terminal's standard error, silent elsewhere."""
    if total < 2 or not sys.stderr.isatty():
        return lambda count: None

    def show(count: int) -> None:
        end = "\r\x1b[K" if count == total else ""
        print(f"\rchecked {count} of {total} runs{end}", end="", file=sys.stderr, flush=True)

    return show
