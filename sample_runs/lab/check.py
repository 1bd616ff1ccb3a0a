"""Make sample runs again from their seeds and compare them with what is committed.

    python sample_runs/lab/check.py NAME [NAME ...]      or --all

Every run is trained again, in a workspace of its own (``anew`` in the lab's); nothing committed changes but
``lab/remade.csv``, which gets a row per run: the verdict on the recorded and on the re-made run, and how far their
logged numbers agree.
Ends with 1 if a re-made run gets another class of verdict.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import recipes
import record
import workspace

from echotrap import Run, diagnose, open_run, signals

TABLE = workspace.LAB / "remade.csv"
CLOCKS = ("time", "timing", "per_second", "tokens_per_sec")


@dataclass(frozen=True)
class Comparison:
    """A recorded run beside its re-made twin.

    Attributes
    ----------
    recorded, remade
        Severity and label of the verdict.
    numbers, equal
        Logged figures in both runs, clock readings left out, and how many of them are equal to the last bit.
    """

    run: str
    recorded: str
    remade: str
    numbers: int
    equal: int

    @property
    def same_class(self) -> bool:
        """Same severity and same label."""
        return self.recorded == self.remade


def compare(name: str, again: Path) -> Comparison:
    """Diagnose both and count equal figures."""
    pair = [open_run(folder) for folder in (workspace.SAMPLE_RUNS / name, again)]
    numbers, equal = equal_numbers(*pair)
    recorded, remade = (verdict_class(signals.derive(run, cache=False)) for run in pair)
    return Comparison(name, recorded, remade, numbers, equal)


def verdict_class(run: Run) -> str:
    """Severity and label."""
    verdict = diagnose(run).verdict
    return f"{verdict.severity} {verdict.label}"


def equal_numbers(one: Run, other: Run) -> tuple[int, int]:
    """Figures that both runs log, and how many are equal; clock readings are nobody's promise."""
    shared = one.metrics.columns.intersection(other.metrics.columns)
    columns = [key for key in shared if not any(word in key.lower() for word in CLOCKS)]
    steps = one.metrics.index.union(other.metrics.index)
    left, right = (run.metrics.reindex(index=steps, columns=columns).to_numpy(float) for run in (one, other))
    logged = ~(np.isnan(left) & np.isnan(right))
    return int(logged.sum()), int((left == right)[logged].sum())


def write(rows: list[Comparison]) -> None:
    """Put the rows into the table; rows of other runs stay."""
    kept = {}
    if TABLE.is_file():
        with TABLE.open(newline="", encoding="utf-8") as file:
            kept = {row["run"]: row for row in csv.DictReader(file)}
    kept |= {row.run: asdict(row) for row in rows}
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Comparison)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept[name] for name in recipes.samples() if name in kept)


def main() -> int:
    """Read the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", type=recipes.sample)
    parser.add_argument("--all", action="store_true", help="every sample run")
    parser.add_argument("--compare-only", action="store_true", help="train nothing: judge once more what was made before")
    arguments = parser.parse_args()
    if not (arguments.names or arguments.all):
        parser.error("name a run, or --all")
    os.environ[workspace.ENVIRONMENT_VARIABLE] = str(workspace.root() / "anew")  # nothing that was made before is used
    workspace.enter()
    rows = []
    for name in recipes.samples() if arguments.all else arguments.names:
        if not arguments.compare_only:
            shutil.rmtree(workspace.run_folder(name), ignore_errors=True)
            record.make(name)
        rows.append(compare(name, record.pack(name, Path("remade"))))
        write(rows[-1:])
        print(rows[-1], flush=True)
    return int(not all(row.same_class for row in rows))


if __name__ == "__main__":
    workspace.run_main(main)
