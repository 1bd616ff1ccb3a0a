"""What a source is: bytes in, raw rows out.

A source knows one format. It does not know what a key means, which rows belong together or what a repeated step is
(:mod:`echotrap.assemble` does). It reads, it counts what it had to skip, and it remembers how far it has read, so that a run that
still grows is followed by calling :meth:`Reader.poll` again.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from echotrap.errors import SourceError

if TYPE_CHECKING:
    from echotrap.rollouts import RolloutStore

__all__ = ["BATCH", "Batch", "Format", "Head", "Note", "Options", "Reader", "Row", "choose_run", "run_name"]

BATCH = 64
_GENERIC = re.compile(
    r"(?:metrics?|trainer_state|(?:train|training)?[-_]?(?:logs?|metrics|history)?|outputs?|std(?:out|err)|console|nohup|progress|"
    r"results?|scalars|all_results|log_history|wandb-history)",
    re.IGNORECASE,
)
_INNER = re.compile(r"(?:checkpoint-\d+|files|logs?|metrics)", re.IGNORECASE)


@dataclass(slots=True)
class Row:
    """One log call as it was written.

    Attributes
    ----------
    values : dict
        Raw key to raw value: numbers, booleans, strings, ``None``. Nested mappings are flattened with ``/`` later, lists ignored.
    step : int or None
        The step that the *container* gives (verl's outer ``step``, a TensorBoard step); ``None`` where the step, if any, is one
        of the values.
    line : int
        1-based line, record or offset inside the file: where a person would look.
    file : int
        Index into :attr:`Reader.files`.
    split : str
        ``"train"``, or ``"eval"`` where the container says so itself.
    """

    values: dict[str, Any]
    step: int | None = None
    line: int = 0
    file: int = 0
    split: str = "train"


class Batch(NamedTuple):
    """Consecutive rows, as columns of facts: many times cheaper than as many :class:`Row`.

    ``steps`` and ``splits`` are ``None`` where no container gives any.
    """

    records: list[dict[str, Any]]
    lines: Sequence[int]
    files: Sequence[int]
    steps: list[int | None] | None = None
    splits: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was renamed, dropped, skipped or assumed on the way, with how often."""

    kind: str
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Head:
    """What a format may look at to recognise its own: never the whole file.

    Attributes
    ----------
    path : Path or None
        ``None`` for standard input.
    data : bytes
        The first 64 KiB, after decompression. Empty for a folder.
    entries : tuple of Path
        What a folder holds (a few levels deep, bounded); empty for a file.
    """

    path: Path | None
    data: bytes = b""
    entries: tuple[Path, ...] = ()

    @property
    def text(self) -> str:
        """The head as text; bytes that are no UTF-8 are replaced."""
        return self.data.decode("utf-8", "replace")

    @property
    def is_folder(self) -> bool:
        """Whether a folder is looked at."""
        return self.path is not None and self.path.is_dir()


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may say about an input."""

    format: str | None = None
    run: str | None = None
    framework: str | None = None
    progress: Callable[[int, int | None], None] | None = None


class Reader(ABC):
    """Reads one run and can be asked again for what is new.

    Attributes
    ----------
    files : list of str
        What was read, in order; :attr:`Row.file` points into it.
    notes : list of Note
        What was skipped or assumed, with counts. Complete after each :meth:`poll`.
    framework, framework_version : str or None
        Where the container names them; key fingerprints decide otherwise.
    config : dict
        Configuration that the log itself holds (flat, raw keys).
    rollouts : RolloutStore or None
        Sampled rollouts that lie beside the metrics.
    name : str
        What a person would call the run.
    rewound : bool
        Set by :meth:`poll` when the log was truncated or replaced: rows seen before no longer count.
    finished : bool or None
        Whether the writer has said that it is done; ``None`` where the format cannot tell.
    other_runs : tuple of str
        Names of runs in the same place that were not read.
    named : bool
        The log itself says what the run is called.
    lossy : bool
        Lines may have been cut before they were read (console text), so an absent key says nothing.
    format, source : str
        Name of the format and the location as given; set by :func:`echotrap.sources.open_reader`.
    """

    named = False
    lossy = False
    format = ""
    source = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: list[str] = []
        self.notes: list[Note] = []
        self.framework: str | None = None
        self.framework_version: str | None = None
        self.config: dict[str, Any] = {}
        self.rollouts: RolloutStore | None = None
        self.rewound = False
        self.finished: bool | None = None
        self.other_runs: tuple[str, ...] = ()

    @abstractmethod
    def poll(self) -> Iterator[Row]:
        """Yield the rows that appeared since the last call; the first call yields all.

        Raises
        ------
        SourceError
            The input cannot be read at all. Rows that cannot be read are counted in :attr:`notes` instead.
        """

    def batches(self) -> Iterator[Batch]:
        """What :meth:`poll` gives, many rows at once. Few at a time, so that they stay in the processor's cache."""
        rows = self.poll()
        while part := list(itertools.islice(rows, BATCH)):
            yield Batch(
                [row.values for row in part],
                [row.line for row in part],
                [row.file for row in part],
                [row.step for row in part],
                [row.split for row in part],
            )

    def close(self) -> None:  # noqa: B027 - most readers hold nothing open
        """Release what the reader holds open."""


@dataclass(frozen=True)
class Format:
    """A format: how it is recognised, and who reads it. Each module of this package ends with ``FORMAT = Format(...)``.

    Attributes
    ----------
    name : str
        What ``--input-format`` takes.
    title : str
        What a person calls it.
    sniff : callable
        ``Head -> float``: 0 for "not mine", up to 1 for "surely mine".
    open : callable
        ``(location, options) -> Reader``; location is a path (standard input was copied to one) or a URL.
    schemes : tuple of str
        Beginnings of locations that are no path (``wandb://``, ``https://``).
    picks : str
        Which run is read where a place holds several and the user names none.
    """

    name: str
    title: str
    sniff: Callable[[Head], float]
    open: Callable[[str, Options], Reader]
    schemes: tuple[str, ...] = ()
    picks: str = ""


def run_name(path: Path) -> str:
    """What a person would call the run that a file logs: its name, or that of its folder where the name says nothing.

    Examples
    --------
    >>> run_name(Path("runs/qwen2.5-7b.jsonl.gz")), run_name(Path("runs/grpo-a/metrics.jsonl"))
    ('qwen2.5-7b', 'grpo-a')
    >>> run_name(Path("exp1/checkpoint-100/trainer_state.json"))
    'exp1'
    """
    bare = re.sub(r"\.(?:gz|zstd?)$", "", path.name)
    name = re.sub(r"\.[A-Za-z]\w{0,7}$", "", bare) or path.name
    if not _GENERIC.fullmatch(name):
        return name
    return next((place.name for place in path.absolute().parents if place.name and not _INNER.fullmatch(place.name)), name)


def choose_run(names: Sequence[str], wanted: str | None, where: str) -> tuple[int, tuple[str, ...]]:
    """Which of several runs in one place to read, and what the others are called.

    Parameters
    ----------
    names : sequence of str
        Runs in the order of preference; the first is read unless the user names one.
    wanted : str or None
        What the user asked for: a name, or an unambiguous part of one.
    where : str
        The place, for the message.

    Examples
    --------
    >>> choose_run(["grpo-b", "grpo-a"], None, "logs")
    (0, ('grpo-a',))
    >>> choose_run(["grpo-b", "grpo-a"], "grpo", "logs")
    Traceback (most recent call last):
    echotrap.errors.SourceError: logs: 'grpo' fits no single run (there are: grpo-b, grpo-a)
    >>> choose_run(["grpo-b", "grpo-a"], "-a", "logs")
    (1, ('grpo-b',))
    """
    chosen = 0
    if wanted is not None:
        fitting = [at for at, name in enumerate(names) if name == wanted] or [
            at for at, name in enumerate(names) if wanted in name
        ]
        if len(fitting) != 1:
            listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            raise SourceError(f"{wanted!r} fits no single run", where=where, cure=f"there are: {listed}")
        chosen = fitting[0]
    return chosen, tuple(name for at, name in enumerate(names) if at != chosen)
