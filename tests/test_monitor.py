"""Diagnostics inside a training loop: light, harmless, and of one mind with those from outside."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from echotrap import Monitor, alerts
from echotrap.alerts import Alarm
from echotrap.config import Settings
from echotrap.diagnosis import examine
from echotrap.pipeline import load
from echotrap.report import Report

SETTINGS = Settings()


def steps(
    count: int, *, bad_from: int = 10**9, text: bool = False
) -> Iterator[tuple[int, dict[str, float], list[dict[str, Any]]]]:
    """A loop that goes well until a step, then loses its gradient."""
    rng = np.random.default_rng(3)
    words = np.array([f"word{i}" for i in range(300)])
    for step in range(1, count + 1):
        bad = step >= bad_from
        metrics = {
            "reward": 0.4 + 0.1 * rng.random(),
            "entropy": 1 + 0.05 * rng.random(),
            "grad_norm": math.nan if bad else 0.5 + 0.05 * rng.random(),
        }
        rollouts = [
            {"prompt": f"task {i // 4}", "completion": " ".join(rng.choice(words, 40)), "reward": float(rng.random())}
            for i in range(16 if text else 0)
        ]
        yield step, metrics, rollouts


def told(monitor: Monitor) -> list[tuple[str, str, int]]:
    return [(alarm.label, alarm.severity, alarm.step) for alarm in monitor.alarms]


def test_importing_and_logging_load_nothing_heavy() -> None:
    code = (
        "import sys, echotrap\n"
        "monitor = echotrap.Monitor(every=100)\n"
        "monitor.log({'reward': 1.0}, 1)\n"
        "heavy = {'numpy', 'pandas', 'pydantic', 'streamlit', 'plotly', 'wandb', 'sklearn'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_an_alarm_is_told_and_asks_to_stop() -> None:
    heard: list[tuple[Alarm, Report]] = []
    monitor = Monitor(every=5, stop_on="critical", settings=SETTINGS, on_alarm=lambda *it: heard.append(it), budget_share=1.0)
    for step, metrics, _ in steps(60, bad_from=23):
        monitor.log(metrics, step)
        if monitor.should_stop:
            break
    assert step == 25
    assert told(monitor) == [("numerical-failure", "critical", 23)]
    ((alarm, report),) = heard
    assert (alarm, report.verdict.label) == (monitor.alarms[0], "numerical-failure")


def test_a_healthy_loop_is_left_alone() -> None:
    monitor = Monitor(every=10, stop_on="warning", settings=SETTINGS, budget_share=1.0)
    for step, metrics, rollouts in steps(40, text=True):
        monitor.log(metrics, step, rollouts)
    monitor.close()
    assert (monitor.alarms, monitor.should_stop) == ((), False)
    assert monitor.report is not None
    assert monitor.report.coverage.signals["cross_rollout_share"] == "derived"


def test_what_it_writes_is_judged_alike_from_outside(tmp_path: Path) -> None:
    monitor = Monitor(every=10, settings=SETTINGS, jsonl=tmp_path / "run" / "metrics.jsonl", budget_share=1.0)
    for step, metrics, rollouts in steps(30, bad_from=20, text=True):
        monitor.log(metrics, step, rollouts)
    monitor.close()
    outside = load(str(tmp_path / "run"), SETTINGS)
    assert [alarm.step for alarm in alerts.alarms(examine(outside, SETTINGS))] == [alarm.step for alarm in monitor.alarms] == [20]
    assert len(outside.steps) == 30
    assert outside.provenance["cross_rollout_share"] == "derived"


def test_the_callers_faults_stay_outside_of_training(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("mine")

    monitor = Monitor(every=1, settings=SETTINGS, on_alarm=breaks, budget_share=1.0)
    with caplog.at_level(logging.WARNING, "echotrap"):
        for step, metrics, _ in steps(30, bad_from=10):
            monitor.log(metrics, step)
    monitor.log({"x": 1}, 99)
    monitor.close()
    assert [record.getMessage() for record in caplog.records] == ["echotrap.Monitor is off, training goes on: RuntimeError: mine"]


class Strange:
    """Neither a number nor a text."""

    def item(self) -> float:
        raise ValueError


@pytest.mark.parametrize(
    ("metrics", "rollouts"),
    [
        ({"a": Strange(), "b": [1, 2], "c": None, "d": "0.5", "e": np.float32(1), "f": np.zeros(3), "g": 10**400}, None),
        ({}, ["a text", {"text": "b"}, {"completion": [{"role": "assistant", "content": "c"}], "reward": None}]),
        ({"a": 1.0}, [{}]),
        ({"a": 1.0}, [3]),
        (None, None),
    ],
)
def test_strange_input_never_raises(metrics: Mapping[str, Any], rollouts: list[Any] | None, tmp_path: Path) -> None:
    monitor = Monitor(every=1, settings=SETTINGS, jsonl=tmp_path / "m.jsonl")
    for step in range(5):
        monitor.log(metrics, step, rollouts)
    monitor.close()


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Monitor(jsonl=tmp_path / "file" / "metrics.jsonl")


def test_steps_are_counted_where_they_are_not_given() -> None:
    monitor = Monitor(every=10**9, settings=SETTINGS)
    for _, metrics, _ in steps(15):
        monitor.log(metrics)
    report = monitor.evaluate()
    assert report is not None
    assert (report.run.steps, report.run.last_step) == (15, 14)


def test_evaluations_keep_to_their_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("echotrap.monitor.time.perf_counter", lambda: now[0])
    looks = []

    class Slow:
        look = None

        def news(self) -> tuple[Alarm, ...]:
            looks.append(now[0])
            now[0] += 2.0  # seconds
            return ()

        def close(self) -> None: ...

    monitor = Monitor(every=1, budget_share=0.02, settings=SETTINGS)
    monitor._judge = Slow()  # type: ignore[assignment]
    for step in range(1, 400):
        now[0] += 1.0
        monitor.log({"reward": 1.0}, step)
    assert monitor.spent_s == 2.0 * len(looks)
    assert monitor.spent_s / now[0] <= 0.03
    assert len(looks) >= 4


def test_old_texts_are_let_go_and_what_they_said_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echotrap.monitor.KEPT_CHARACTERS", 10_000)
    small, whole = Monitor(every=5, settings=SETTINGS, budget_share=1.0), Monitor(every=10**9, settings=SETTINGS)
    for step, metrics, rollouts in steps(30, text=True):
        small.log(metrics, step, rollouts)
        whole.log(metrics, step, rollouts)
    few, all_ = small.evaluate(), whole.evaluate()
    assert few is not None
    assert all_ is not None
    assert sum(len(item.text) for step in range(1, 31) for item in small._reader.rollouts.at(step)) < 40_000  # type: ignore[union-attr]
    assert few.signals == all_.signals


# ---------------------------------------------------------------------------- Hugging Face


class FakeTrainer:
    """Calls a callback as transformers' loop does."""

    def __init__(self, folder: Path, callback: Any, *, completions: bool = True) -> None:
        from transformers import TrainerControl, TrainerState, TrainingArguments

        self.args = TrainingArguments(output_dir=str(folder), report_to="none", use_cpu=True, max_steps=60)
        self.state, self.control = TrainerState(max_steps=60), TrainerControl()
        self.callback, self.saved = callback, []
        self._logs: dict[str, Any] = {"prompt": [], "completion": [], "rewards": {"r": []}} if completions else {}
        callback._trainer = self

    def train(self) -> None:
        self.callback.on_train_begin(self.args, self.state, self.control)
        for step, metrics, rollouts in steps(60, bad_from=23, text=True):
            self.state.global_step = step
            if self._logs:
                self._logs["prompt"] = [item["prompt"] for item in rollouts]
                self._logs["completion"] = [[{"role": "assistant", "content": item["completion"]}] for item in rollouts]
                self._logs["rewards"]["r"] = [item["reward"] for item in rollouts]
            self.callback.on_log(self.args, self.state, self.control, logs=metrics)
            if self.control.should_save:
                self.saved.append(step)
                self.control.should_save = False
            if self.control.should_training_stop:
                break
        self.callback.on_train_end(self.args, self.state, self.control)


@pytest.mark.parametrize("completions", [True, False])
def test_the_callback_stops_the_trainer_its_own_way_with_a_checkpoint(completions: bool, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from echotrap.integrations.trl import EchoTrapCallback

    callback = EchoTrapCallback(stop_on="critical", every=5, settings=SETTINGS, budget_share=1.0)
    trainer = FakeTrainer(tmp_path, callback, completions=completions)
    trainer.train()
    assert trainer.state.global_step == 25
    assert trainer.saved == [25]
    assert callback.monitor is not None
    assert told(callback.monitor) == [("numerical-failure", "critical", 23)]
    report = callback.monitor.report
    assert report is not None
    assert ("cross_rollout_share" in report.coverage.signals) == completions


# ------------------------------------------------------------------------------------ verl


def test_verl_tracks_and_ends_after_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tracking:
        """As verl's: backends by name."""

        def __init__(self, project: str) -> None:
            self.logger: dict[str, Any] = {}

        def log(self, data: Mapping[str, Any], step: int) -> None:
            for backend in self.logger.values():
                backend.log(data=data, step=step)

    module = types.ModuleType("verl.utils.tracking")
    module.Tracking = Tracking  # type: ignore[attr-defined]
    for name in ("verl", "verl.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "verl.utils.tracking", module)
    from echotrap.integrations.verl import install

    trainer = types.SimpleNamespace(total_training_steps=60)
    install(trainer, stop_on="critical", every=5, settings=SETTINGS, budget_share=1.0)
    tracking = Tracking("p")
    done = 0
    for step, metrics, _ in steps(60, bad_from=23):
        last = step >= trainer.total_training_steps
        tracking.log({"critic/score/mean": metrics["reward"], "actor/grad_norm": metrics["grad_norm"]}, step)
        done = step
        if last:
            break
    assert done == 26
    assert told(tracking.logger["echotrap"].monitor) == [("numerical-failure", "critical", 23)]


def test_the_json_lines_keep_what_is_not_finite(tmp_path: Path) -> None:
    monitor = Monitor(jsonl=tmp_path / "m.jsonl", settings=SETTINGS)
    monitor.log({"grad_norm": np.float32("nan"), "reward": np.int64(3), "kl": None, "histogram": [1, 2]}, 7)
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 7, "grad_norm": NaN, "reward": 3, "kl": null}\n'
