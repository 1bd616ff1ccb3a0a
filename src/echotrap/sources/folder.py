"""A folder: the log of one run is picked, its rollouts are found, everything else that looks like a run is listed.

Which log is picked
-------------------
Each candidate's first rows are read; the one with the most known signals wins, on a tie the larger, then the later written. A
``checkpoint-N/trainer_state.json`` counts once, at its newest checkpoint. ``--run`` takes the name of another.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echotrap.assemble.naming import name_keys
from echotrap.errors import SourceError, UnknownFormat
from echotrap.fields import FIELDS
from echotrap.sources.base import Batch, Format, Head, Note, Options, Reader, Row
from echotrap.sources.jsonl import flatten, parse
from echotrap.sources.rollout_files import FileRollouts

__all__ = ["FORMAT", "Folder"]

MAX_PROBED = 40
PROBED_ROWS = 60
NOT_LOGS = re.compile(
    r"(?:^|/)(?:requirements\.txt|wandb-(?:metadata|summary)\.json|config\.(?:json|yaml)|args\.json|generation_config\.json|"
    r"tokenizer[^/]*|vocab[^/]*|special_tokens_map\.json|added_tokens\.json|adapter_config\.json|merges\.txt|README[^/]*|"
    r"debug[^/]*\.log|.*\.(?:safetensors|bin|pt|pth|pkl|py|md|html|png|svg|toml|yaml|yml|lock|diff|tsv\.lock))$"
)
CONFIGS = ("config.json", "args.json", "training_args.json", "hyperparameters.json", "run_config.json")
MAX_CONFIG = 1 << 20


@dataclass(frozen=True)
class _Candidate:
    """Something in the folder that may be the log of a run."""

    name: str
    path: Path
    format: Format
    signals: int
    size: int
    written: float


class Folder(Reader):
    """Reads the log that was picked, with the rollouts beside it."""

    def __init__(self, folder: Path, inner: Reader, rollouts: FileRollouts, others: tuple[str, ...], said: list[Note]) -> None:
        super().__init__(inner.name)
        self._said = said
        self.inner, self.folder = inner, folder
        self.format, self.lossy = inner.format, inner.lossy
        self._beside, self._others = rollouts, others
        self._facts = _config_of(folder)
        self._mirror()

    def poll(self) -> Iterator[Row]:  # noqa: D102 - documented in the base class
        for batch in self.batches():
            steps, splits = batch.steps or itertools.repeat(None), batch.splits or itertools.repeat("train")
            yield from map(Row, batch.records, steps, batch.lines, batch.files, splits)

    def batches(self) -> Iterator[Batch]:  # noqa: D102
        for batch in self.inner.batches():
            self.rewound, self.inner.rewound = self.rewound or self.inner.rewound, False
            yield batch
        if not self._beside:
            self._beside.refresh()  # the first dump may come later
        self._mirror()

    def close(self) -> None:  # noqa: D102
        self.inner.close()

    def _mirror(self) -> None:
        inner = self.inner
        if inner.named:
            self.name = inner.name
        self.files, self.finished = inner.files, inner.finished
        self.framework, self.framework_version = inner.framework, inner.framework_version
        self.config = {**self._facts, **inner.config}
        self.rollouts = inner.rollouts if inner.rollouts is not None else self._beside or None
        self.other_runs = tuple(dict.fromkeys((*inner.other_runs, *self._others)))
        self.notes = [*inner.notes, *self._beside.notes, *self._said]


class OnlyRollouts(Reader):
    """A folder of rollouts without any metrics."""

    def __init__(self, folder: Path, rollouts: FileRollouts) -> None:
        super().__init__(folder.resolve().name)
        self.rollouts, self.files, self.notes = rollouts, [str(folder)], list(rollouts.notes)
        self.format = "rollouts"

    def poll(self) -> Iterator[Row]:
        yield from ()


def _open(location: str, options: Options) -> Reader:
    folder = Path(location)
    if not folder.is_dir():
        raise SourceError("is not a folder", where=location)
    from echotrap.sources import look

    head = look(folder)
    candidates = sorted(_candidates(head, options), key=lambda item: (-item.signals, -item.size, -item.written, item.name))
    wanted = [item for item in candidates if options.run and options.run in (item.name, item.path.stem, str(item.path))]
    picked = next(iter(wanted or candidates), None)
    if picked is None:
        rollouts = FileRollouts(folder)
        if not rollouts:
            why = "".join(f": {note.message}" for note in rollouts.notes[:1])
            raise UnknownFormat(f"no log was found in this folder{why}", where=location, cure="name the log file itself")
        rollouts.check_readable()
        return OnlyRollouts(folder, rollouts)
    if options.run and not wanted and picked.path != folder:
        names = ", ".join(item.name for item in candidates)
        raise SourceError(f"no run is called {options.run!r}", where=location, cure=f"there are: {names}")
    place = folder if picked.path == folder else _home(picked.path, folder)
    beside = FileRollouts(place)
    if not beside and place != folder:
        beside = FileRollouts(folder)
    inner = picked.format.open(str(picked.path), replace(options, format=None, run=None if wanted else options.run))
    inner.format = inner.format or picked.format.name
    others = tuple(item.name for item in candidates if item is not picked)
    said = (
        [Note("picked", f"{picked.name} was read; of {len(candidates)} logs it holds the most known signals")] if others else []
    )
    reader = Folder(folder, inner, beside, others, said)
    if not inner.named and (picked.path == folder or picked.path.parent == folder):
        reader.name = folder.resolve().name
    return reader


def _candidates(head: Head, options: Options) -> Iterator[_Candidate]:
    from echotrap.sources import formats, look

    assert head.path is not None
    folder = head.path
    known = [item for item in formats().values() if item.name not in ("folder", "rollouts")]
    whole: set[str] = set()  # formats that read the folder as a whole; their files are no runs of their own
    for item in known:
        if item.sniff(head) > 0 and (candidate := _probe(item, folder, folder, options)) is not None:
            whole.add(item.name)
            yield candidate
    probed = 0
    for path in _logs(head.entries, folder):
        if probed >= MAX_PROBED:
            return
        try:
            inside = look(path)
            scores = {item.name: item.sniff(inside) for item in formats().values() if item.name != "folder"}
        except SourceError:
            continue
        best = max(scores, key=lambda name: scores[name])
        if scores[best] <= 0 or best == "rollouts" or best in whole:
            continue
        probed += 1
        if (candidate := _probe(formats()[best], path, folder, options)) is not None:
            yield candidate


def _logs(entries: Iterable[Path], folder: Path) -> Iterator[Path]:
    """Files that may be logs: one per family, and of trainer states only that of the newest checkpoint."""
    states: dict[Path, tuple[int, Path]] = {}
    families: dict[tuple[Path, str], int] = {}
    for path in entries:
        relative = path.relative_to(folder).as_posix()
        if NOT_LOGS.search(relative):
            continue
        if path.name == "trainer_state.json":
            number = re.search(r"checkpoint-(\d+)$", path.parent.name)
            home = path.parent.parent if number else path.parent
            rank = int(number[1]) if number else 1 << 62
            if rank > states.get(home, (-1, path))[0]:
                states[home] = rank, path
            continue
        family = path.parent, re.sub(r"\d+", "#", path.name)
        families[family] = families.get(family, 0) + 1
        if families[family] <= 8:  # steps of a dump look alike; runs that are numbered are few
            yield path
    yield from (path for _, path in states.values())


def _probe(item: Format, path: Path, folder: Path, options: Options) -> _Candidate | None:
    """Read the first rows and count the signals in them."""
    try:
        reader = item.open(str(path), replace(options, format=None, run=None))
        rows = list(itertools.islice(reader.poll(), PROBED_ROWS))
        reader.close()
        info = path.stat()
    except (SourceError, OSError):
        return None
    keys = dict.fromkeys(
        key for row in rows for key, value in flatten(row.values).items() if isinstance(value, int | float | str)
    )
    signals = len(name_keys(list(keys)).signals.keys() & FIELDS.keys()) if keys else 0
    if not signals and path != folder:  # a whole folder of one format is a run, even before its first known signal
        return None
    name = path.relative_to(folder).as_posix() if path != folder else f"{item.name} files"
    return _Candidate(name, path, item, signals, info.st_size, info.st_mtime)


def _home(path: Path, folder: Path) -> Path:
    """The folder of the run that a log belongs to."""
    place = path.parent
    while place != folder and re.fullmatch(r"checkpoint-\d+|files|logs?|metrics", place.name):
        place = place.parent
    return place


def _config_of(folder: Path) -> dict[str, Any]:
    for name in CONFIGS:
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= MAX_CONFIG:
                found = parse(path.read_bytes())
                return flatten(found) if isinstance(found, dict) else {}
        except (OSError, ValueError):
            continue
    return {}


def _sniff(head: Head) -> float:
    return 0.99 if head.is_folder and head.entries else 0.0


FORMAT = Format(
    "folder", "a folder with the files of one run, or of several", _sniff, _open, picks="the one with the most known signals"
)
