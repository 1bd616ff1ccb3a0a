"""Where the lab works: one folder that holds starting policies and raw runs, outside what is committed.

`enter` makes it the current directory, so that everything written into a log is a relative path and no
recorded run carries the machine it was made on.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

LAB = Path(__file__).resolve().parent
SAMPLE_RUNS = LAB.parent
ENVIRONMENT_VARIABLE = "ECHOTRAP_LAB"
NEEDED = "the lab needs PyTorch and TRL: pip install torch==2.13.0 && pip install -e '.[lab]'"
PACKAGES = ("torch", "trl", "transformers", "accelerate", "datasets", "tokenizers", "wandb", "tensorboard", "trackio")


def enter() -> Path:
    """Change into the workspace, ``$ECHOTRAP_LAB`` or ``lab_workspace`` in the current directory."""
    try:
        import torch
    except ModuleNotFoundError:
        raise SystemExit(NEEDED) from None
    torch.set_num_threads(1)
    place = root()
    place.mkdir(parents=True, exist_ok=True)
    os.environ[ENVIRONMENT_VARIABLE] = str(place)
    os.chdir(place)
    return place


def root() -> Path:
    """The workspace itself."""
    return Path(os.environ.get(ENVIRONMENT_VARIABLE, "lab_workspace")).resolve()


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run a script's main function; an interruption ends it in one line."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted; what is not finished will be made anew", file=sys.stderr)
        sys.exit(130)


def base_folder(task: str) -> Path:
    """Folder of a task's starting policy, relative to the workspace."""
    return Path("base") / task


def run_folder(name: str) -> Path:
    """Folder of a raw run, relative to the workspace."""
    return Path("runs") / name


def versions() -> dict[str, str]:
    """Versions of Python and of every package that a run depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        found[package] = importlib.metadata.version(package)
    return found


def write_facts(settings: Any, last_step: int, error: str | None, started: float) -> None:
    """Write ``run.json`` beside a finished raw run: its settings, where it ended, how long it took, and the versions."""
    facts = {
        "settings": dataclasses.asdict(settings),
        "last_step": last_step,
        "error": error,
        "wall_seconds": round(time.time() - started, 1),
        "versions": versions(),
    }
    (run_folder(settings.name) / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"done {settings.name}: step {last_step}, error {error}", flush=True)
