"""What the README promises is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.S)
SETUP, TEST, TOUR = BLOCKS
COMMANDS = [line.split("#")[0].strip() for line in TOUR.splitlines() if line.strip()]
CODES = {"sample_runs/grid-nan": 1}
LONG_RUNNING = ("dashboard", "watch")


def _echotrap(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)[1:]
    words = [str(ROOT / word) if word.startswith("sample_runs/") else word for word in words]
    return subprocess.run([sys.executable, "-m", "echotrap", *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.split()[1] not in LONG_RUNNING])
def test_the_tour(command: str, tmp_path: Path) -> None:
    done = _echotrap(command, tmp_path)
    expected = next((code for path, code in CODES.items() if path in command), 0)
    assert done.returncode == expected, done.stderr
    assert "Traceback" not in done.stderr
    if " -o " in command:
        assert (tmp_path / command.split()[-1]).stat().st_size > 1000
    else:
        assert done.stdout.strip()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.split()[1] in LONG_RUNNING])
def test_what_does_not_end_by_itself_has_its_options(command: str) -> None:
    name, *rest = command.split()[1:]
    done = _echotrap(f"echotrap {name} --help", ROOT)
    assert done.returncode == 0
    for option in rest:
        if option.startswith("--"):
            assert option in done.stdout


def test_the_first_command_judges_a_bundled_run() -> None:
    command = SETUP.split("&&")[-1].strip().removeprefix(".venv/bin/")
    done = _echotrap(command, ROOT)
    assert done.returncode == 0, done.stderr
    assert "ECHO TRAP" in done.stdout
    assert ".venv/bin/pytest" in TEST


def test_the_python_example() -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("numerical-failure critical")


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_tree_is_the_tree() -> None:
    [tree] = re.findall(r"## The tree\n\n```\n(.*?)```", README, re.S)
    for line in tree.splitlines():
        inside = line.startswith("  ")
        names = re.split(r"\s{2,}", line.strip())[0].split()
        for name in names:
            assert (ROOT / ("src/echotrap" if inside else "") / name).exists(), name
