"""Where the lab works: one folder that holds starting policies and raw runs, outside what is committed.

`enter` makes it the current directory, so that everything written into a log is a relative path and no
recorded run carries the machine it was made on.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

LAB = Path(__file__).resolve().parent
SAMPLE_RUNS = LAB.parent
ENVIRONMENT_VARIABLE = "ECHOTRAP_LAB"
PACKAGES = ("torch", "trl", "transformers", "accelerate", "datasets", "tokenizers", "wandb", "tensorboard", "trackio")


def enter() -> Path:
    """Change into the workspace, ``$ECHOTRAP_LAB`` or ``lab_workspace`` in the current directory."""
    import torch

    torch.set_num_threads(1)
    root = Path(os.environ.get(ENVIRONMENT_VARIABLE, "lab_workspace")).resolve()
    root.mkdir(parents=True, exist_ok=True)
    os.environ[ENVIRONMENT_VARIABLE] = str(root)
    os.chdir(root)
    return root


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
