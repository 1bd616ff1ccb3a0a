"""Runs with labels in, scores out: folders of recorded runs, the simulator, RAGEN's curves."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from echotrap.config import Settings
from echotrap.detector import Sensitivity
from echotrap.errors import EchotrapError, SourceError
from echotrap.evaluation import peers
from echotrap.evaluation.judges import BASELINES, Alarm, echotrap_judge, random_judge
from echotrap.evaluation.score import Case, Judged, Scores, judge_case, score
from echotrap.evaluation.simulate import CONFOUNDERS, FAILURES, simulate
from echotrap.record import Run, RunConfig

__all__ = ["Labelled", "Result", "bench", "curves", "dial", "labelled", "simulated"]

Judge = Callable[[Run], Alarm]
Progress = Callable[[str], None]


class Labelled(NamedTuple):
    """A run that is yet to be opened, and its truth."""

    case: Case
    open: Callable[[], Run]


class Result(NamedTuple):
    """What every judge said of every run of one set."""

    name: str
    judged: dict[str, tuple[Judged, ...]]
    scores: tuple[Scores, ...]


def labelled(folder: Path) -> list[Labelled]:
    """Runs of a folder: rows of its ``labels.tsv``, or the sub-folders that hold a ``truth.toml``.

    Raises
    ------
    SourceError
        There is neither, or a label is malformed.
    """
    table = folder / "labels.tsv"
    if table.is_file():
        with table.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, object]] = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    else:
        rows = []
        for truth in sorted(folder.glob("*/truth.toml")):
            try:
                rows.append({"case": truth.parent.name, **tomllib.loads(truth.read_text(encoding="utf-8"))})
            except tomllib.TOMLDecodeError as error:
                raise SourceError(f"not valid TOML: {error}", where=str(truth)) from None
    if not rows:
        raise SourceError("no labels here", where=str(folder), cure="a labels.tsv, or a truth.toml in each run's folder")
    return [_recorded(folder, row) for row in rows]


def _recorded(folder: Path, row: dict[str, object]) -> Labelled:
    case = Case(
        case=str(row.get("case")),
        label=str(row.get("class") or "unknown"),
        expect=str(row.get("expect") or "any"),
        onset_first=_number(row.get("onset_first")),
        onset_last=_number(row.get("onset_last")),
        main=str(row.get("main") or ""),
        echo_trap=str(row.get("echo_trap") or ""),
        why=str(row.get("why") or ""),
    )
    place = folder / case.case
    alone = (place / case.main).is_file() and not (place / "truth.toml").exists()  # else rollouts lie beside the metrics

    def read() -> Run:
        from echotrap import pipeline

        return pipeline.load(str(place / case.main if alone else place), Settings())

    return Labelled(case, read)


def _number(value: object) -> int | None:
    return int(str(value)) if str(value or "").strip() else None


def _same(run: Run) -> Run:
    return run


def simulated(seeds: Sequence[int], *, steps: int = 500, text: bool | None = None) -> Iterator[Labelled]:
    """Every confounder and every failure, once a seed."""
    for kind in (*CONFOUNDERS, *FAILURES):
        for seed in seeds:
            drawn = simulate(kind, seed, steps=steps, text=text)
            first, last = drawn.onset if drawn.onset else (None, None)
            case = Case(
                case=drawn.run.name,
                label=kind,
                expect="warning+" if drawn.onset else "quiet",
                onset_first=first,
                onset_last=last,
            )
            yield Labelled(case, partial(_same, drawn.run))


CURVES: dict[str, tuple[str, int | None]] = {
    "Bandit-PPO": ("critical", 110),
    "Bandit-GRPO": ("critical", 30),
    "Sokoban-PPO": ("critical", 80),
    "Sokoban-GRPO": ("critical", 10),
    "FrozenLake-PPO": ("critical", 70),
    "FrozenLake-GRPO": ("quiet", None),
}
"""RAGEN's published runs: what a good tool says, and the step at which success has halved."""


def curves(folder: Path, suffix: str = "") -> list[Labelled]:
    """RAGEN's published curves as runs.

    Parameters
    ----------
    folder : Path
        Holds ``ragen_v1_<Env>-<Algorithm>.csv``.
    suffix : str
        ``""`` for the recovered samples, ``"_s5"`` for the trailing means as published.
    """
    return [
        Labelled(
            Case(case=f"{name}{suffix}", label="healthy" if expect == "quiet" else "collapsed", expect=expect, onset_first=None),
            partial(_curve, folder / f"ragen_v1_{name}.csv", suffix),
        )
        for name, (expect, _) in CURVES.items()
    ]


def _curve(file: Path, suffix: str) -> Run:
    table = pd.read_csv(file, index_col="step")
    names = {"reward_mean": "reward_mean", "group_reward_std": "in_group_reward_std", "grad_norm": "grad_norm",
             "entropy": "entropy", "eval_score": "val_success"}  # fmt: skip
    frame = pd.DataFrame({name: table[f"{column}{suffix}"] for name, column in names.items()}).astype(float)
    frame.index = frame.index.astype("int64")
    turns = 1 if "Bandit" in file.name else 5
    smoothed = frozenset(names) if suffix else frozenset()
    config = RunConfig(max_turns=turns, format_penalty=-0.1, group_size=16, prompts_per_step=8)
    return Run(file.stem, str(file), "csv", frame, framework="RAGEN", config=config, smoothed=smoothed)


def bench(
    name: str,
    runs: Sequence[Labelled] | Iterator[Labelled],
    settings: Settings | None = None,
    *,
    baselines: bool = True,
    others: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Let every judge see every run.

    A run that cannot be opened counts as an abstention of every judge, with its error.
    """
    judges: dict[str, Judge] = {"echotrap": echotrap_judge(settings)}
    if baselines:
        judges |= BASELINES
    if others:
        judges |= peers.installed()
    judged: dict[str, list[Judged]] = {judge: [] for judge in judges}
    opened: list[tuple[Case, Run]] = []
    for item in runs:
        if progress:
            progress(item.case.case)
        try:
            run = item.open()
        except EchotrapError as error:
            for said in judged.values():
                said.append(_unread(item.case, str(error)))
            continue
        opened.append((item.case, run))
        for judge_name, judge in judges.items():
            judged[judge_name].append(judge_case(item.case, run, judge(run)))
    if baselines and opened:
        alarms = [item.first_step is not None for item in judged["echotrap"]]
        at_random = random_judge(sum(alarms) / len(alarms))
        judged["random, as often"] = [judge_case(case, run, at_random(run)) for case, run in opened]
    whole = {judge: tuple(said) for judge, said in judged.items()}
    return Result(name, whole, tuple(score(judge, said) for judge, said in whole.items()))


def dial(runs: Sequence[Labelled], settings: Settings | None = None) -> dict[Sensitivity, Scores]:
    """The trade between false alarms and delay: the same runs at the three working points of ``--sensitivity``."""
    points: tuple[Sensitivity, ...] = ("low", "default", "high")
    base = settings or Settings()
    found: dict[Sensitivity, Scores] = {}
    for point in points:
        [scores] = bench(point, runs, base.model_copy(update={"sensitivity": point}), baselines=False).scores
        found[point] = scores
    return found


def _unread(case: Case, error: str) -> Judged:
    met = {"insufficient": True, "any": None}.get(case.expect, False)
    return Judged(
        case=case, severity="insufficient", label="unreadable", first_step=None, critical_step=None, onset_step=None,
        last_step=None,
        points=0, no_return_step=None, met=met, timely=None, error=error,
    )  # fmt: skip
