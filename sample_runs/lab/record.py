"""Re-make a sample run from its seed, or pack a finished raw run into ``sample_runs``.

    python sample_runs/lab/record.py NAME [NAME ...]      make what is missing: policy, run, sample folder
    python sample_runs/lab/record.py --pack-only NAME     only rewrite the sample folder
    python sample_runs/lab/record.py --list

Raw runs that are finished are not made again: delete ``runs/NAME`` in the workspace first. What goes into
the sample folder is copied, renamed, thinned or compressed, never edited.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import measures
import pictures
import recipes
import workspace

TRAINERS = {"trl": "grpo.py", "multiturn": "multiturn.py"}
FILES_OF_A_WANDB_RUN = ("*.wandb", "files/output.log", "files/media/table/**/*.json")
TRUTH_KEYS = ("main", "about", "format", "class", "onset_first", "onset_last", "expect", "echo_trap", "why", "how_seen")


# --------------------------------------------------------------------------- making


def make(name: str) -> None:
    """Train the starting policy and the run, as far as they are not there yet."""
    recipe = recipes.load()[name]
    _run("pretrain.py", recipe["settings"].get("task", "lake"))
    if _finished(name):
        return
    folder = workspace.run_folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    script = TRAINERS[recipe["trainer"]]
    cut = "stop_at" in recipe["settings"]
    with (folder / "console.log").open("w", encoding="utf-8") as console:
        _run(script, name, console=console, may_die=cut)
        if recipe.get("resumed"):
            _run(script, name, "--resume", console=console)
    if not _finished(name):
        raise SystemExit(f"{name} ended before its recipe's last step; see {folder.resolve() / 'console.log'}")


def _finished(name: str) -> bool:
    """Whether the raw run came as far as its recipe says."""
    path, recipe = workspace.run_folder(name) / "run.json", recipes.load()[name]
    if not path.is_file():
        return False
    facts, settings = json.loads(path.read_text(encoding="utf-8")), recipe["settings"]
    cut = settings.get("stop_at") if not recipe.get("resumed") else None
    return bool(facts["error"]) or facts["last_step"] >= (cut or settings["steps"])


def _run(script: str, *arguments: str, console: IO[str] | None = None, may_die: bool = False) -> None:
    """Run one of the lab's scripts in a process of its own, as the metric writers are set up per process."""
    finished = subprocess.run([sys.executable, str(workspace.LAB / script), *arguments], stdout=console, check=False)
    if finished.returncode != 0 and not may_die:
        raise SystemExit(f"{script} {' '.join(arguments)} failed")


# --------------------------------------------------------------------------- packing


def copy_trainer_state(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy TRL's ``trainer_state.json``, compressed if it is long."""
    _copy(raw / "output" / "trainer_state.json", sample, compress=recipe.get("compress", True))


def copy_completions(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy every k-th completions parquet."""
    for path in sorted(raw.glob("output/completions/completions_*.parquet")):
        if _kept(int(path.stem.rsplit("_", 1)[1]), recipe):
            _copy(path, sample / "completions")


def copy_verl_log(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy the log of verl's file logger."""
    _copy(next(raw.glob("*.jsonl")), sample, compress=recipe.get("compress", True))


def copy_rollouts(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy every k-th rollout dump."""
    for path in sorted(raw.glob("rollout_data/*.jsonl"), key=lambda path: int(path.stem)):
        if _kept(int(path.stem), recipe):
            _copy(path, sample / "rollout_data", compress=recipe.get("compress", True))


def copy_wandb(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy the offline run folders of W&B, without its debug logs."""
    for run in sorted(raw.glob("wandb/offline-run-*")):
        for pattern in FILES_OF_A_WANDB_RUN:
            for path in run.glob(pattern):
                _copy(path, sample / "wandb" / path.parent.relative_to(raw / "wandb"))


def copy_tensorboard(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy the event files; the host name in their file names is replaced."""
    for path in sorted(raw.glob("tensorboard/events.out.tfevents.*")):
        start = path.name.split(".")[:4]
        process, count = path.name.split(".")[-2:]
        _copy(path, sample / "tensorboard", name=".".join([*start, "lab", process, count]))


def copy_trackio(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy Trackio's database, after folding its write-ahead log into it."""
    import sqlite3

    for path in sorted(raw.glob("trackio/*.db")):
        with sqlite3.connect(path) as database:
            database.execute("pragma wal_checkpoint(truncate)")
        database.close()
        _copy(path, sample / "trackio")


def copy_console(raw: Path, sample: Path, recipe: dict[str, Any]) -> None:
    """Copy what the trainer printed."""
    _copy(raw / "console.log", sample)


COPIERS: dict[str, Callable[[Path, Path, dict[str, Any]], None]] = {
    "trainer_state": copy_trainer_state,
    "completions": copy_completions,
    "verl_log": copy_verl_log,
    "rollouts": copy_rollouts,
    "wandb": copy_wandb,
    "tensorboard": copy_tensorboard,
    "trackio": copy_trackio,
    "console": copy_console,
}


def _kept(step: int, recipe: dict[str, Any]) -> bool:
    return step == 1 or step % recipe.get("rollouts_every", 1) == 0


def _copy(source: Path, folder: Path, name: str | None = None, compress: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / (name or source.name)
    if not compress:
        shutil.copyfile(source, target)
        return
    content = gzip.compress(source.read_bytes(), 9, mtime=0)
    target.with_name(target.name + ".gz").write_bytes(content)


def pack(name: str, into: Path = workspace.SAMPLE_RUNS) -> Path:
    """Write the sample folder of a finished raw run below `into`; returns it."""
    recipe = recipes.load()[name]
    raw, target = workspace.run_folder(name), into / name
    if not _finished(name):
        raise SystemExit(f"{raw} in {workspace.root()} holds no finished run: leave out --pack-only to make it")
    sample = target.with_name(f".{name}")  # beside it, until it is whole
    shutil.rmtree(sample, ignore_errors=True)
    sample.mkdir(parents=True)
    for part in recipe["keep"]:
        COPIERS[part](raw, sample, recipe)
    measured = measures.series(raw, recipe["settings"].get("group_size", 8))
    (sample / "truth.toml").write_text(truth_text(name, recipe, raw, measured), encoding="utf-8")
    (sample / "picture.svg").write_text(pictures.run_picture(name, measured), encoding="utf-8")
    size = sum(path.stat().st_size for path in sample.rglob("*") if path.is_file())
    shutil.rmtree(target, ignore_errors=True)
    sample.rename(target)
    print(f"{name}: {size / 1024:.0f} KiB", flush=True)
    return target


# --------------------------------------------------------------------------- truth


def truth_text(name: str, recipe: dict[str, Any], raw: Path, measured: dict[str, dict[int, float]]) -> str:
    """Truth of a run: the label, how it was made, and what was measured early and late."""
    facts = json.loads((raw / "run.json").read_text(encoding="utf-8"))
    lines = [f"case = {_toml(name)}"]
    for key in TRUTH_KEYS:
        if key in recipe["truth"]:
            lines.append(f"{key} = {_toml(recipe['truth'][key])}")
    every = recipe.get("rollouts_every", 1)
    if {"completions", "rollouts"} & set(recipe["keep"]) and every > 1:
        lines.append(f"rollouts_kept = {_toml(f'step 1 and every {every}th step')}")
    lines += [
        f"recipe = {_toml(f'python sample_runs/lab/record.py {name}')}",
        f"seed = {facts['settings']['seed']}",
        f"steps = {facts['last_step']}",
        f"wall_seconds = {facts['wall_seconds']}",
    ]
    if facts["error"]:
        lines.append(f"ended_with = {_toml(facts['error'])}")
    lines += ["", "[settings]"]
    lines += [f"{key} = {_toml(value)}" for key, value in facts["settings"].items() if key != "name"]
    lines += ["", "[versions]"]
    lines += [f"{key} = {_toml(value)}" for key, value in facts["versions"].items()]
    for title, (first, last) in _windows(facts["last_step"]).items():
        lines += ["", f"[measured.{title}]", f"steps = [{first}, {last}]"]
        means = {key: measures.window_mean(values, first, last) for key, values in measured.items()}
        lines += [f"{key} = {mean:.4g}" for key, mean in means.items() if math.isfinite(mean)]
    return "\n".join(lines) + "\n"


def _windows(last: int) -> dict[str, tuple[int, int]]:
    width = max(1, last // 10)
    return {"early": (1, width), "late": (last - width + 1, last)}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def main() -> None:
    """Read the command line, make and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", type=recipes.sample)
    parser.add_argument("--list", action="store_true", help="print the names of all sample runs")
    parser.add_argument("--pack-only", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(recipes.samples()))
        return
    if not arguments.names:
        parser.error("name a run, or --list")
    workspace.enter()
    for name in arguments.names:
        if not arguments.pack_only:
            make(name)
        pack(name)


if __name__ == "__main__":
    workspace.run_main(main)
