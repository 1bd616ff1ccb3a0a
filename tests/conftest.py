"""Fixtures that several test files share."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from echotrap.report import (
    Coverage,
    EventMark,
    Evidence,
    Failure,
    Finding,
    Incident,
    Lever,
    NoteLine,
    Report,
    RolloutRef,
    RunFacts,
    Signal,
    SignalCoverage,
    Skipped,
    Span,
    Verdict,
)

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = '<script>alert("x")</script> <img src=x onerror=alert(1)> | `code` **bold** \x1b[31mred\x1b[0m'


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what the program says now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a file of tests/golden, or rewrite the file under ``--update-golden``."""

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), f"{name} changed; read the diff after pytest --update-golden"

    return compare


def _series(name: str, title: str, unit: str, curve: Callable[[int], float | None], **facts: object) -> Signal:
    steps = tuple(range(1, 401, 4))
    return Signal(name=name, title=title, unit=unit, steps=steps, values=tuple(map(curve, steps)), **facts)  # type: ignore[arg-type]


def _fall(high: float, low: float, begin: int, end: int) -> Callable[[int], float]:
    def curve(step: int) -> float:
        share = min(max((step - begin) / (end - begin), 0.0), 1.0)
        return high + (low - high) * share + 0.03 * abs(high - low) * math.sin(step)

    return curve


@pytest.fixture
def trap_report() -> Report:
    """A confirmed Echo Trap with everything a report can hold, texts of others being hostile."""
    lever = Lever(
        action="Train on the prompts with the most in-group reward spread (top 25-50 %)",
        key="algorithm.filter_groups.enable=True algorithm.filter_groups.metric=acc",
        cost="fewer groups per step",
    )
    echo = Lever(action="Clip higher", key="actor_rollout_ref.actor.clip_ratio_high=0.28")
    rollouts = (
        RolloutRef(
            step=90,
            index=3,
            when="before",
            group="g3",
            reward=1.0,
            text="<think>Arm A suggests strength, arm B speed, so I compare them first.</think>",
            origin="90.jsonl:4",
        ),
        RolloutRef(
            step=300,
            index=1,
            when="during",
            group="g3",
            reward=0.0,
            text=f"My first action is to go. My first action is to go. {HOSTILE}",
            spans=(Span(start=0, end=25), Span(start=26, end=51)),
            score=0.83,
            origin="300.jsonl:2",
        ),
    )
    return Report(
        tool_version="0.1.0",
        run=RunFacts(
            name="grpo-qwen7b",
            source="runs/grpo qwen.jsonl",
            format="verl-file",
            framework="verl",
            framework_version="0.7",
            steps=400,
            first_step=1,
            last_step=397,
            finished=False,
            config={"group_size": 8, "length_limit": 1024, "save_interval": 50},
        ),
        verdict=Verdict(
            label="echo-trap",
            severity="critical",
            stage=3,
            onset_step=180,
            alarm_step=195,
            headline="Rewards inside groups have become the same, the text repeats itself and the gradient spikes",
            why=("in-group reward std 0.41 -> 0.03", "80 % of prompt groups are constant, most of them copies"),
            against=("the reward still rises by 0.4 % per 100 steps",),
            confidence="high",
        ),
        findings=(
            Finding(
                detector="entropy-collapse",
                title="the policy has become deterministic",
                family="entropy",
                severity="warning",
                onset_step=188,
                alarm_step=201,
                message="entropy fell to 0.2, 11 % of its baseline 1.9",
                evidence=(Evidence(name="value", value=0.2, unit="nats/token"), Evidence(name="ratio", value=0.11, unit="0..1")),
                suppressed_by="echo-trap",
                references=("arXiv 2505.22617",),
            ),
            Finding(
                detector="echo-trap",
                title="the policy echoes itself",
                family="composite",
                severity="critical",
                onset_step=180,
                alarm_step=195,
                message=f"stage 3 since step 195 {HOSTILE}",
                evidence=(Evidence(name="stage", value=3.0, unit="count"), Evidence(name="signal", value=None, text="rw_ratio")),
                counter_evidence=("the reward still rises",),
                remedy=(lever, echo),
                references=("arXiv 2504.20073 sec. 4",),
                rollouts=rollouts,
                origin="runs/grpo qwen.jsonl:195",
            ),
            Finding(
                detector="length-collapse",
                title="responses became short",
                family="length",
                severity="info",
                onset_step=40,
                alarm_step=44,
                cleared_step=60,
                message="response length fell to 120 tokens",
                waived="curriculum change (until 2099-01-01)",
            ),
        ),
        clear=("dead-gradient", "non-finite"),
        coverage=Coverage(
            signature=(
                SignalCoverage(part="dispersion", signal="group_reward_std", provenance="derived"),
                SignalCoverage(part="entropy", signal="entropy", key="actor/entropy", provenance="logged"),
                SignalCoverage(part="gradient", signal="grad_norm", key="actor/grad_norm", provenance="logged"),
                SignalCoverage(part="text", signal=None, provenance="absent"),
                SignalCoverage(part="outcome", signal="reward_mean", key="critic/score/mean", provenance="logged"),
            ),
            present=4,
            of=5,
            highest_stage=3,
            signals={"group_reward_std": "derived", "entropy": "logged", "grad_norm": "logged", "reward_mean": "logged"},
            unknown_keys=("my/metric",),
        ),
        not_evaluated=(
            Skipped(detector="critic-failure", reason="not in the log: explained_variance"),
            Skipped(detector="within-rollout-repetition", reason="no rollouts"),
            Skipped(detector="cross-rollout-repetition", reason="no rollouts"),
        ),
        failed=(Failure(detector="my-detector", error="ZeroDivisionError: division by zero"),),
        story=("step 180: the spread inside groups began to fall", "step 195: the gradient spiked"),
        incidents=(
            Incident(detector="echo-trap", severity="critical", onset_step=180, alarm_step=195),
            Incident(detector="length-collapse", severity="info", onset_step=40, alarm_step=44, cleared_step=60),
        ),
        events=(EventMark(step=120, kind="resume", label="resume"),),
        signals=(
            _series(
                "group_reward_std", "in-group reward std", "reward", _fall(0.41, 0.03, 180, 260), baseline=0.4, band=(0.35, 0.45)
            ),
            _series("entropy", "policy entropy", "nats/token", _fall(1.9, 0.2, 188, 280)),
            _series("grad_norm", "gradient norm", "L2", lambda step: 40.0 if step == 197 else 0.5, log_axis=True),
            _series("reward_mean", "reward", "reward", lambda step: None if 200 < step < 240 else 0.3 + step / 1000),
        ),
        notes=(
            NoteLine(kind="alias", message="actor/entropy read as policy entropy", count=1),
            NoteLine(kind="skipped", message="lines that are no JSON were skipped", count=3),
        ),
        last_good_step=150,
        seconds_since_onset=40_000.0,
        settings={"sensitivity": "default"},
    )


@pytest.fixture
def healthy_report() -> Report:
    """A run about which there is nothing to say."""
    return Report(
        tool_version="0.1.0",
        run=RunFacts(
            name="calm", source="runs/calm.jsonl", format="jsonl", steps=400, first_step=1, last_step=397, finished=True
        ),
        verdict=Verdict(label="healthy", severity="ok", headline="Nothing known is wrong with this run"),
        clear=("dead-gradient", "echo-trap", "non-finite"),
        coverage=Coverage(
            signature=(SignalCoverage(part="outcome", signal="reward_mean", key="reward", provenance="logged"),),
            present=1,
            of=5,
            highest_stage=1,
        ),
        signals=(_series("reward_mean", "reward", "reward", lambda step: step / 400),),
    )


@pytest.fixture
def scant_report() -> Report:
    """A run that is too short to be judged."""
    return Report(
        tool_version="0.1.0",
        run=RunFacts(name="short", source="runs/short.jsonl", format="jsonl", steps=1, first_step=7, last_step=7),
        verdict=Verdict(label="insufficient-data", severity="insufficient", headline="1 step is too few to judge"),
        coverage=Coverage(signature=(), present=0, of=5, highest_stage=0),
        not_evaluated=(Skipped(detector="echo-trap", reason="1 step; 12 are needed"),),
    )


HOSTILE_ROLLOUT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'> [link](https://example.com)"


@pytest.fixture
def metrics_line() -> Callable[[int, int], str]:
    """One line of verl's file logger for a step of a run that falls into the Echo Trap at a given step."""
    return _metrics_line


def _metrics_line(step: int, fall: int) -> str:
    gone = (1 + math.tanh((step - fall) / 10)) / 2
    noise = random.Random(step)
    spike = 60 if fall + 15 <= step <= fall + 22 else 1
    data = {
        "critic/score/mean": 0.4 - 0.3 * gone + noise.gauss(0, 0.02),
        "actor/entropy": 1.9 - 1.8 * gone + noise.gauss(0, 0.03),
        "actor/grad_norm": math.exp(noise.gauss(-1, 0.15)) * spike,
        "response_length/mean": 200 - 60 * gone + noise.gauss(0, 5),
    }
    return json.dumps({"step": step, "data": data}) + "\n"


@pytest.fixture
def write_trap() -> Callable[..., Path]:
    """Write a run that falls into the Echo Trap: verl metrics, and rollouts whose text becomes one hostile phrase."""

    def write(folder: Path, steps: int = 200, fall: int = 120) -> Path:
        (folder / "rollouts").mkdir(parents=True)
        lines = [_metrics_line(step, fall) for step in range(1, steps + 1)]
        (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
        for step in range(10, steps + 1, 10):
            rows = "".join(json.dumps(row) + "\n" for row in _rollout_rows(step, step > fall))
            (folder / "rollouts" / f"{step}.jsonl").write_text(rows, encoding="utf-8")
        return folder

    return write


def _rollout_rows(step: int, fallen: bool) -> Iterator[dict[str, object]]:
    noise = random.Random(step)
    for prompt, _ in itertools.product(range(6), range(4)):
        words = " ".join(f"w{noise.randrange(5000)}" for _ in range(40))
        thought = f"{'I should move right now because ' * 8}{HOSTILE_ROLLOUT}" if fallen else words
        score = 0.1 if fallen else float(noise.random() < 0.5)
        yield {"input": f"board {prompt}", "output": f"<think>{thought}</think>", "score": score, "step": step}
