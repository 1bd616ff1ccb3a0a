"""Other tools as judges, where they are installed: rl-doctor and trainspotter, each given the same run as a JSON-lines file.

The keys are TRL's, which both know. A value that was logged as not finite is written as the literal ``NaN``. They name no alarm
step that is causal, so their first alarm is the end of the run.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from echotrap.evaluation.judges import Alarm
from echotrap.record import Run

__all__ = ["installed"]

KEYS = {
    "reward_mean": "reward", "reward_std": "reward_std", "zero_std_frac": "frac_reward_zero_std", "entropy": "entropy",
    "kl_ref": "kl", "grad_norm": "grad_norm", "learning_rate": "learning_rate", "loss": "loss",
    "response_length": "completions/mean_length", "truncated_frac": "completions/clipped_ratio",
    "clip_frac": "clip_ratio/region_mean", "eval_score": "eval/reward",
    "reward_max": "critic/score/max", "reward_min": "critic/score/min",
}  # fmt: skip
MEMORY_BYTES = 6 << 30
SECONDS = 120
SEVERITIES = {"ok": "ok", "info": "info", "warning": "warning", "warn": "warning", "error": "critical", "critical": "critical"}


def installed() -> dict[str, Callable[[Run], Alarm]]:
    """Judges of the peers that are on the path."""
    known = {"rl-doctor": _rl_doctor, "trainspotter": _trainspotter}
    return {name: judge for name, judge in known.items() if shutil.which(name)}


def _rl_doctor(run: Run) -> Alarm:
    said = _ask(run, ["rl-doctor", "diagnose", "{log}", "--format", "json"])
    if said is None:
        return Alarm("insufficient", "rl-doctor failed")
    return _alarm(run, "rl-doctor", [str(said.get("worst_severity", "ok"))])


def _trainspotter(run: Run) -> Alarm:
    said = _ask(run, ["trainspotter", "analyze", "{log}", "--output", "json"])
    if said is None:
        return Alarm("insufficient", "trainspotter failed")
    return _alarm(run, "trainspotter", [str(finding.get("severity", "ok")) for finding in said.get("findings", [])])


def _alarm(run: Run, name: str, severities: list[str]) -> Alarm:
    order = ["ok", "info", "warning", "critical"]
    severity = max((SEVERITIES.get(item.lower(), "ok") for item in severities), key=order.index, default="ok")
    last = int(run.steps[-1]) if len(run.steps) else None
    return Alarm(
        severity,
        name,
        last if severity in ("warning", "critical") else None,
        last if severity == "critical" else None,
    )


def _ask(run: Run, command: list[str]) -> dict[str, list[dict[str, str]]] | None:
    import resource  # where there is none there are no limits to set, and no peers to ask

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        _export(run, log)
        try:
            done = subprocess.run(
                [part.format(log=log) for part in command],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
            )
            found = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, json.JSONDecodeError):
            return None
    return found if isinstance(found, dict) else None


def _export(run: Run, log: Path) -> None:
    broken = {(item.step, item.field) for item in run.nonfinite if item.certain}
    names = [name for name in KEYS if name in run.metrics.columns]
    with log.open("w") as file:
        for step, row in zip(run.steps, run.metrics[names].to_numpy(), strict=True):
            values = {KEYS[name]: float(value) for name, value in zip(names, row, strict=True) if math.isfinite(value)}
            values |= {KEYS[name]: float("nan") for name in KEYS if (int(step), name) in broken}
            file.write(json.dumps({"step": int(step), **values}) + "\n")
