"""The lab's study: the same task and seeds under settings that differ in one thing.

    python sample_runs/lab/study.py run QUESTION [QUESTION ...]     train every arm and seed (resumable)
    python sample_runs/lab/study.py report                          rewrite lab/study, and the tables in docs/lab.md

The raw runs stay in the workspace; what is committed are the tables and figures in ``lab/study``. The text
around them is ``docs/lab.md``.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import measures
import pictures
import workspace

from echotrap import diagnose, open_run, signals

OUTPUT = workspace.LAB / "study"
TEXT = workspace.SAMPLE_RUNS.parent / "docs" / "lab.md"
SEEDS = (1, 2, 3)
WINDOW = 10
EARLY = LATE = 20


@dataclass(frozen=True)
class Arm:
    """One setting of a question: a recipe and what is changed in it."""

    script: str
    recipe: str
    changes: tuple[str, ...]


# What StarPO-S adds to StarPO (RAGEN); the critic is kept apart to see what it does.
STABILISERS = ("kl=0.0", "clip_high=0.28", "keep_share=0.5")
CRITIC = ("estimator=ppo",)
STARPO = {
    "StarPO": (),
    "StarPO + critic": CRITIC,
    "StarPO + filter, no KL, clip-higher": STABILISERS,
    "StarPO-S": STABILISERS + CRITIC,
}


def starpo_arms(learning_rate: str) -> dict[str, Arm]:
    """The four arms of the StarPO question at one learning rate."""
    return {name: Arm("multiturn.py", "lake-study", (f"learning_rate={learning_rate}", *more)) for name, more in STARPO.items()}


QUESTIONS: dict[str, dict[str, Arm]] = {
    "tool-reward-calm": {
        reward: Arm("grpo.py", "tool-study", (f"reward={reward}", "learning_rate=1e-4", "beta=0.01"))
        for reward in ("binary", "fine", "multiplicative")
    },
    "tool-reward-hot": {
        reward: Arm("grpo.py", "tool-study", (f"reward={reward}", "learning_rate=3e-4", "beta=0.0"))
        for reward in ("binary", "fine", "multiplicative")
    },
    "tool-reward-long": {
        reward: Arm("grpo.py", "tool-study", (f"reward={reward}", "learning_rate=1e-4", "beta=0.01", "steps=240"))
        for reward in ("binary", "fine", "multiplicative")
    },
    "bandit-rate-and-kl": {
        f"lr {rate}, KL {beta}": Arm("grpo.py", "bandit-study", (f"learning_rate={rate}", f"beta={beta}"))
        for rate in ("3e-5", "3e-4")
        for beta in ("0.1", "0.0")
    },
    "own-words": {
        "bandit reward": Arm("grpo.py", "own-words-study", ("reward=bandit",)),
        "with own-words bonus": Arm("grpo.py", "own-words-study", ("reward=bandit_and_own_words",)),
    },
    "lake-starpo-hot": starpo_arms("6e-4"),
    "lake-starpo-calm": starpo_arms("2e-4"),
}
# Sample runs drawn beside each other.
PAIRS = {
    "pair-bandit": ("bandit-healthy", "bandit-echo-trap"),
    "pair-grid": ("grid-healthy", "grid-echo-trap"),
}
SHOWN = tuple(pictures.LABELS)


def raw_name(question: str, arm: str, seed: int) -> str:
    """Name of the raw run of one arm and seed."""
    plain = "".join(character if character.isalnum() or character in ".-" else "-" for character in arm)
    return f"study-{question}-{plain}-s{seed}"


def run(question: str) -> None:
    """Train what is missing, seed by seed, so that an interrupted study has complete seeds."""
    for seed in SEEDS:
        for name, arm in QUESTIONS[question].items():
            raw = raw_name(question, name, seed)
            if (workspace.run_folder(raw) / "run.json").is_file():
                continue
            command = [sys.executable, str(workspace.LAB / arm.script), arm.recipe, "--as", raw]
            subprocess.run([*command, "--set", *arm.changes, f"seed={seed}"], check=True, stdout=subprocess.DEVNULL)
            print(f"{raw} done", flush=True)


def exact_success(folder: Path) -> dict[int, float]:
    """Share of entirely right answers per step, whatever reward the run was trained on."""
    if list(folder.glob("rollout_data/*.jsonl")):
        return {step: row["lake/success"] for step, row in measures.log_rows(folder).items()}
    return measures.exact_tool_success(folder)


def read(question: str) -> dict[str, dict[int, dict[str, dict[int, float]]]]:
    """Series of every finished run of a question: arm -> seed -> measure -> step -> value."""
    found: dict[str, dict[int, dict[str, dict[int, float]]]] = {}
    for name in QUESTIONS[question]:
        for seed in SEEDS:
            folder = workspace.run_folder(raw_name(question, name, seed))
            if (folder / "run.json").is_file():
                series = measures.series(folder, 8)
                series["exact"] = exact_success(folder)
                found.setdefault(name, {})[seed] = series
    return found


def verdict(raw: str) -> str:
    """What echotrap says of a raw run at its end: the label, and the step of its alarm or of the recovery from an earlier one."""
    folder = workspace.run_folder(raw)
    said = diagnose(signals.derive(open_run(next(folder.glob("output"), folder)), cache=False)).verdict
    if said.alarm_step is not None:
        return f"{said.label} ({said.severity} at {said.alarm_step})"
    return said.label if said.recovered_step is None else f"{said.label} (recovered at {said.recovered_step})"


def windowed(series: dict[int, float]) -> dict[int, float]:
    """Means of stretches of `WINDOW` steps, named by their last step."""
    last = max(series, default=0)
    means = {end: measures.window_mean(series, end - WINDOW + 1, end) for end in range(WINDOW, last + 1, WINDOW)}
    return {step: value for step, value in means.items() if math.isfinite(value)}


def write_tables(question: str, found: dict[str, dict[int, dict[str, dict[int, float]]]]) -> None:
    """Write the curves and the early-and-late summary of a question."""
    with (OUTPUT / f"{question}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["arm", "seed", "last_step", *SHOWN])
        for arm, seeds in found.items():
            for seed, series in seeds.items():
                columns = {key: windowed(series.get(key, {})) for key in SHOWN}
                for step in sorted(set().union(*columns.values())):
                    cells = (columns[key].get(step) for key in SHOWN)
                    writer.writerow([arm, seed, step, *("" if cell is None else f"{cell:.4g}" for cell in cells)])
    with (OUTPUT / f"{question}-summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["arm", "seed", *(f"{key}_{when}" for key in SHOWN for when in ("early", "late"))])
        for arm, seeds in found.items():
            for seed, series in seeds.items():
                writer.writerow([arm, seed, *_early_and_late(series)])


def _early_and_late(series: dict[str, dict[int, float]]) -> list[str]:
    last = max(series["reward"])
    cells = []
    for key in SHOWN:
        for first, end in ((1, EARLY), (last - LATE + 1, last)):
            mean = measures.window_mean(series.get(key, {}), first, end)
            cells.append(f"{mean:.4g}" if math.isfinite(mean) else "")
    return cells


def mean_over_seeds(seeds: dict[int, dict[str, dict[int, float]]], key: str) -> dict[int, float]:
    """Windowed mean over the seeds of an arm."""
    columns = [windowed(series[key]) for series in seeds.values() if series.get(key)]
    steps = sorted(set().union(*columns)) if columns else []
    return {step: statistics.fmean(column[step] for column in columns if step in column) for step in steps}


def write_figure(question: str, found: dict[str, dict[int, dict[str, dict[int, float]]]]) -> None:
    """Draw the mean over the seeds, all arms side by side."""
    panels = {}
    for key in SHOWN:
        lines = {f"{arm} ({len(seeds)})": mean_over_seeds(seeds, key) for arm, seeds in found.items()}
        if lines := {arm: line for arm, line in lines.items() if line}:
            panels[key] = lines
    title = f"{question}: mean over the seeds, windows of {WINDOW} steps"
    (OUTPUT / f"{question}.svg").write_text(pictures.picture(title, panels), encoding="utf-8")


def write_pair(name: str) -> None:
    """Draw two sample runs side by side."""
    runs = {run: measures.series(workspace.run_folder(run), 8) for run in PAIRS[name]}
    lines = {key: {run: series[key] for run, series in runs.items() if series.get(key)} for key in SHOWN}
    panels = {key: found for key, found in lines.items() if found}
    (OUTPUT / f"{name}.svg").write_text(pictures.picture(" and ".join(runs), panels), encoding="utf-8")


def report() -> None:
    """Rewrite every table and figure."""
    OUTPUT.mkdir(exist_ok=True)
    for name, runs in PAIRS.items():
        if all((workspace.run_folder(run) / "run.json").is_file() for run in runs):
            write_pair(name)
    for question in QUESTIONS:
        found = read(question)
        if not found:
            print(f"{question}: no finished runs in {workspace.root()}")
            continue
        write_tables(question, found)
        write_figure(question, found)
        said = {arm: [verdict(raw_name(question, arm, seed)) for seed in seeds] for arm, seeds in found.items()}
        put_table(question, f"{summary_table(found)}\n{verdict_row(said)}\n")


def put_table(question: str, table: str) -> None:
    """Write a table beside the curves, and into its place in ``docs/lab.md``."""
    (OUTPUT / f"{question}.md").write_text(table, encoding="utf-8")
    text = TEXT.read_text(encoding="utf-8")
    begin, end = f"<!-- table {question} -->\n", "<!-- end of table -->"
    if begin in text:
        before, after = text.split(begin)
        TEXT.write_text(before + begin + table + after[after.index(end) :], encoding="utf-8")


def summary_table(found: dict[str, dict[int, dict[str, dict[int, float]]]]) -> str:
    """Markdown table: every measure of every arm, first and last steps, mean over the seeds and range of the last."""
    heads = [f"{arm}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}" for arm, seeds in found.items()]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for key in SHOWN:
        if any(series.get(key) for seeds in found.values() for series in seeds.values()):
            cells = [_early_to_late([series.get(key, {}) for series in seeds.values()]) for seeds in found.values()]
            lines.append(f"| {pictures.LABELS[key].removesuffix(' (log)')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict_row(said: dict[str, list[str]]) -> str:
    """Last line of a summary: what echotrap says of each run, seed by seed."""
    return "| echotrap, by seed | " + " | ".join("; ".join(verdicts) for verdicts in said.values()) + " |"


def _early_to_late(runs: list[dict[int, float]]) -> str:
    early = [measures.window_mean(run, 1, EARLY) for run in runs]
    late = [measures.window_mean(run, max(run, default=0) - LATE + 1, max(run, default=0)) for run in runs]
    cell = f"{_short(statistics.fmean(early))} to {_short(statistics.fmean(late))}"
    return f"{cell} ({_short(min(late))} .. {_short(max(late))})" if len(runs) > 1 else cell


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run").add_argument("questions", nargs="+", choices=sorted(QUESTIONS))
    commands.add_parser("report")
    arguments = parser.parse_args()
    workspace.enter()
    if arguments.command == "report":
        report()
        return
    for question in arguments.questions:
        run(question)


if __name__ == "__main__":
    workspace.run_main(main)
