"""Where two runs part, on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def _write(path: Path, changed_at: int | None) -> None:
    rng = np.random.default_rng(5)
    with path.open("w") as file:
        for step in range(1, 201):
            entropy = 1.0 + 0.02 * rng.normal() - (0.4 if changed_at is not None and step >= changed_at else 0.0)
            reward = 0.5 + 0.02 * rng.normal()
            file.write(json.dumps({"step": step, "entropy": entropy, "reward": reward}) + "\n")


def _compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "echotrap", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[str, str, str]:
    paths = [tmp_path / f"{name}.jsonl" for name in ("plain", "same", "changed")]
    for path, changed_at in zip(paths, (None, None, 120), strict=True):
        _write(path, changed_at)
    return tuple(map(str, paths))  # type: ignore[return-value]


def test_the_step_at_which_a_setting_was_changed(logs: tuple[str, str, str]) -> None:
    done = _compare(*logs, "--format", "json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["partings"]["same"] == []
    [parting] = data["partings"]["changed"]
    assert parting["signal"] == "entropy"
    assert 118 <= parting["step"] <= 124


def test_text_says_who_left_whom(logs: tuple[str, str, str]) -> None:
    done = _compare(*logs)
    assert "same stays inside the noise of plain" in done.stdout
    assert "changed leaves plain" in done.stdout


def test_one_run_is_not_enough(logs: tuple[str, str, str]) -> None:
    done = _compare(logs[0])
    assert done.returncode == 2
    assert "two runs or more" in done.stderr
