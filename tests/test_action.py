"""The GitHub Action: its shell is run here with the environment that a runner would give it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


def rows(values: list[float | None]) -> str:
    return "".join(json.dumps({"step": step, "reward": 0.4, "grad_norm": value}) + "\n" for step, value in enumerate(values))


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """Run the shell of the check step with some inputs; gives the exit code, the outputs and standard output."""
    (tmp_path / "calm one.jsonl").write_text(rows([0.5] * 40))
    (tmp_path / "broken.jsonl").write_text(rows([0.5] * 20 + [float("nan")] * 20))
    (tmp_path / ".git").mkdir()

    def check(**inputs: str) -> tuple[int, dict[str, str], str]:
        step = STEPS["Check the runs"]
        given = {name: value.get("default", "") for name, value in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()} | {"python": sys.executable}
        env = dict(os.environ)
        for name, value in step["env"].items():
            env[name] = given[value.removeprefix("${{ inputs.").removesuffix(" }}")]
        env |= {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as a runner starts it
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
        return done.returncode, outputs, done.stdout + done.stderr

    return check


def test_a_failing_run_fails_the_step_and_leaves_every_file(check, tmp_path: Path) -> None:
    code, outputs, said = check(runs="calm one.jsonl\n  broken.jsonl  \n", fail_on="critical")
    assert (code, outputs) == (1, {"exit-code": "1", "verdict": "numerical-failure"})
    assert "::error file=broken.jsonl" in said
    names = {path.name for path in (tmp_path / "echotrap-results").iterdir()}
    assert names == {"report.json", "junit.xml", "echotrap.sarif", "summary.md", "report.html"}
    assert "broken" in (tmp_path / "summary").read_text()


def test_inputs_are_data_and_never_shell(check, tmp_path: Path) -> None:
    hostile = "$(touch pwned)\n`touch pwned`\n; touch pwned"
    code, outputs, _ = check(runs=hostile, arguments="--only\nnon-finite", summary="false")
    assert (code, outputs["verdict"]) == (2, "unknown")
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "summary").exists()
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


def test_options_reach_the_check(check) -> None:
    assert check(runs="broken.jsonl", fail_on="never")[0] == 0
    assert check(runs="broken.jsonl", baseline="broken.jsonl")[0] == 0
    assert check(runs="broken.jsonl", config="gone.toml")[0] == 2
    assert check(runs="*.jsonl", arguments="--skip\nnon-finite", allow_insufficient="true")[1]["exit-code"] == "0"


def test_every_input_and_output_is_described_and_used() -> None:
    text = (ROOT / "action.yml").read_text()
    for name, value in ACTION["inputs"].items():
        assert value["description"]
        assert f"inputs.{name}" in text
    for value in ACTION["outputs"].values():
        assert value["value"].startswith("${{ steps.check.outputs.")
