"""The runs that the dashboard may open, and one shared reader for each that is open."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from echotrap import config
from echotrap.config import Settings
from echotrap.live import Scene, Watcher

__all__ = ["MAX_UPLOAD_MB", "Entry", "Watched", "library", "samples", "watched"]

MAX_UPLOAD_MB = 200
REST = 2.0
"""After a look, this many times its cost passes before the next: a huge run must not starve the trainer beside it."""
REMOTE_S = 15.0
"""A server is asked no more often than this."""

LOG_SUFFIXES = {".jsonl", ".ndjson", ".json", ".csv", ".log", ".txt", ".out", ".wandb", ".parquet", ".gz", ".zst"}
METRIC_NAMES = ("trainer_state.json", "trainer_state.json.gz", "metrics.jsonl", "metrics.json", "metrics.csv")


@dataclass(frozen=True)
class Entry:
    """One run that can be chosen: a short key for links, a name for people, where it lies."""

    key: str
    name: str
    location: str


class Watched:
    """One follower of one run, shared by all viewers; a look is as old as allowed, and reads only what is new."""

    def __init__(self, location: str, settings: Settings) -> None:
        self.remote = "://" in location
        self._watcher = Watcher(location, settings)
        self._lock = threading.Lock()
        self._scene: Scene | None = None
        self._looked = self._cost_s = 0.0

    def look(self, max_age_s: float = 1.0) -> Scene:
        """What there is to see; looks again when the last look is older than ``max_age_s``."""
        with self._lock:
            began = time.monotonic()
            rest = max(max_age_s, REST * self._cost_s, REMOTE_S if self.remote else 0)
            if self._scene is None or began - self._looked >= rest:
                self._scene = self._watcher.tick()
                self._looked = time.monotonic()
                self._cost_s = self._looked - began
            return self._scene


@st.cache_resource(max_entries=64, show_spinner="Reading the log …")
def watched(location: str) -> Watched:
    """The one follower of a location, whoever looks at it."""
    watcher = Watched(location, config.load())
    watcher.look()
    return watcher


@st.cache_resource(show_spinner=False)
def library(locations: tuple[str, ...]) -> tuple[Entry, ...]:
    """Every run at the given locations, in order; keys are unique and stable."""
    found = [path for location in locations for path in _runs_at(location)]
    names = [_name(path) for path in found]
    return tuple(
        Entry(name if names.count(name) == 1 else f"{name}~{_digest(path)}", name, path)
        for name, path in zip(names, found, strict=True)
    )


def samples() -> tuple[str, ...]:
    """Folders of the bundled runs."""
    import echotrap.sample_runs

    home = Path(next(iter(echotrap.sample_runs.__path__)))
    return tuple(sorted(str(path) for path in home.iterdir() if (path / "truth.toml").is_file()))


def _runs_at(location: str) -> Iterator[str]:
    if "://" in location or location == "-":
        yield location
        return
    path = Path(location)
    if not path.is_dir() or _holds_one_run(path):  # what is not there yet is waited for
        yield str(path)
        return
    inside = sorted(child for child in path.iterdir() if not child.name.startswith((".", "_")))
    runs = [child for child in inside if (child.is_dir() and _has_logs(child)) or (child.is_file() and _is_log(child))]
    yield from (str(child) for child in runs) if runs else [str(path)]


def _holds_one_run(folder: Path) -> bool:
    """A folder with one metrics log of its own is a run; a folder of runs, or of many logs, is a collection."""
    if _named(folder):
        return True
    children = list(folder.iterdir())
    if any(child.is_dir() and _named(child) for child in children):
        return False
    logs = [child for child in children if _is_log(child)]
    return len(logs) == 1 or any("tfevents" in child.name or child.suffix == ".wandb" for child in logs)


def _named(folder: Path) -> bool:
    """Whether a folder holds a log under one of the names that trainers use."""
    return any((folder / name).is_file() for name in (*METRIC_NAMES, "truth.toml"))


def _is_log(path: Path) -> bool:
    return path.is_file() and (path.suffix in LOG_SUFFIXES or "tfevents" in path.name) and path.stat().st_size > 0


def _has_logs(folder: Path, depth: int = 2) -> bool:
    try:
        children = list(folder.iterdir())
    except OSError:
        return False
    return any(map(_is_log, children)) or (depth > 0 and any(_has_logs(c, depth - 1) for c in children if c.is_dir()))


def _name(location: str) -> str:
    path = Path(location)
    return path.parent.name or path.stem if path.name in METRIC_NAMES else path.name.split(".")[0] or location


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
