"""A run that is watched while it grows, breaks, moves and comes back."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from echotrap import alerts, pipeline
from echotrap.alerts import Alarm, Message, Store
from echotrap.config import Settings, Suppression
from echotrap.diagnosis import examine
from echotrap.errors import Unreachable
from echotrap.live import Follower, Scene, Watcher
from echotrap.notify import Channel
from echotrap.sources import open_reader, open_run
from echotrap.sources.base import Batch, Reader, Row

SETTINGS = Settings()


def row(step: int, *, bad: bool = False, seed: int = 0) -> bytes:
    """A healthy step, or one whose gradient is gone."""
    rng = random.Random(f"{seed} {step}")
    values = {
        "step": step,
        "reward": 0.4 + 0.1 * rng.random(),
        "entropy": 1 + 0.05 * rng.random(),
        "grad_norm": float("nan") if bad else 0.5 + 0.05 * rng.random(),
        "loss": float("nan") if bad else 0.1,
    }
    return json.dumps(values).encode() + b"\n"


def log(steps: int, *bad: range, seed: int = 0) -> list[bytes]:
    return [row(step, bad=any(step in span for span in bad), seed=seed) for step in range(1, steps + 1)]


LONG = log(150, range(20, 26), range(130, 140))
"""Two numerical failures with a recovery between them."""


class Clock:
    def __init__(self) -> None:
        self.now = 4e9

    def __call__(self) -> float:
        return self.now


class Inbox(Channel):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.got: list[Message] = []

    def send(self, message: Message) -> None:
        self.got.append(message)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run" / "metrics.jsonl"


@pytest.fixture
def watch(file: Path, tmp_path: Path) -> Iterator[Callable[..., Watcher]]:
    """Start a watcher; all of one test share a memory, as all of one user do."""
    file.parent.mkdir()
    started: list[Watcher] = []

    def start(**options: Any) -> Watcher:
        options = {"store": Store(tmp_path / "alarms.sqlite3"), **options}
        started.append(Watcher(str(options.pop("location", file)), options.pop("settings", SETTINGS), **options))
        return started[-1]

    yield start
    for watcher in started:
        watcher.close(0.0)


def kinds(scenes: list[Scene]) -> list[tuple[str, int]]:
    return [(alarm.kind, alarm.step) for scene in scenes for alarm in scene.news]


def grow(file: Path, watcher: Watcher, lines: list[bytes], chunk: int) -> list[Scene]:
    scenes = []
    for at in range(0, len(lines), chunk):
        with file.open("ab") as out:
            out.write(b"".join(lines[at : at + chunk]))
        scenes.append(watcher.tick())
    return scenes


TOLD = [("opened", 20), ("recovered", 85), ("opened", 130)]


@pytest.mark.parametrize("chunk", [5, 30])
def test_alarms_of_a_growing_file_are_those_of_a_check(chunk: int, file: Path, watch: Callable[..., Watcher]) -> None:
    scenes = grow(file, watch(), LONG, chunk)
    checked = alerts.alarms(examine(open_run(file), SETTINGS))
    assert kinds(scenes) == [(alarm.kind, alarm.step) for alarm in checked]
    assert kinds(scenes) == TOLD


@hypothesis_settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, sum(map(len, LONG))), max_size=5))
def test_bytes_arrive_in_any_pieces(cuts: list[int], tmp_path: Path) -> None:
    file = tmp_path / "pieces.jsonl"
    file.write_bytes(b"")
    told: list[Alarm] = []
    data, watcher = b"".join(LONG), Watcher(str(file), SETTINGS)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        with file.open("ab") as out:
            out.write(data[begin:end])
        told += watcher.tick().news
    assert {alarm.incident for alarm in told} <= {20, 130}
    assert watcher.look is not None
    assert watcher.look.alarms == alerts.alarms(examine(open_run(file), SETTINGS))


def test_only_new_bytes_are_read(file: Path, watch: Callable[..., Watcher], monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"".join(LONG[:100]))
    watcher = watch()
    watcher.tick()
    rows: list[dict[str, Any]] = []
    assert watcher._follower is not None
    reader = watcher._follower._builder.reader
    batches = reader.batches

    def counted() -> Iterator[Batch]:
        for batch in batches():
            rows.extend(batch.records)
            yield batch

    monkeypatch.setattr(reader, "batches", counted)
    grow(file, watcher, LONG[100:103], 3)
    assert len(rows) == 3


def test_nothing_is_judged_when_nothing_is_new(file: Path, watch: Callable[..., Watcher]) -> None:
    file.write_bytes(b"".join(LONG[:50]))
    watcher = watch()
    first = watcher.tick().look
    assert first is not None
    assert watcher.tick().look is first


def test_a_file_that_does_not_exist_yet_is_waited_for(file: Path, watch: Callable[..., Watcher]) -> None:
    watcher = watch()
    waiting = watcher.tick()
    assert (waiting.status, waiting.look) == ("waiting", None)
    assert "no such file" in waiting.trouble
    file.write_bytes(b"")
    assert watcher.tick().status == "waiting"
    file.write_bytes(LONG[0][:20])
    assert watcher.tick().status == "waiting"
    file.write_bytes(b"".join(LONG[:50]))
    scene = watcher.tick()
    assert scene.status == "live"
    assert scene.trouble == ""
    assert kinds([scene]) == [("opened", 20)]


def test_a_watcher_that_is_started_again_repeats_nothing(file: Path, watch: Callable[..., Watcher]) -> None:
    assert kinds(grow(file, watch(), LONG[:40], 10)) == [("opened", 20)]
    assert kinds(grow(file, watch(), LONG[40:50], 10)) == []


def test_what_happened_while_nobody_watched_is_told(file: Path, watch: Callable[..., Watcher]) -> None:
    grow(file, watch(), LONG[:10], 10)
    with file.open("ab") as out:
        out.write(b"".join(LONG[10:120]))
    (news,) = watch().tick().news
    assert (news.kind, news.severity, news.incident) == ("recovered", "critical", 20)


def test_the_past_of_a_run_met_for_the_first_time_is_not_told(file: Path, watch: Callable[..., Watcher]) -> None:
    file.write_bytes(b"".join(LONG[:120]))
    assert watch().tick().news == ()


def test_truncation_begins_a_new_run(file: Path, watch: Callable[..., Watcher]) -> None:
    watcher = watch()
    grow(file, watcher, LONG[:30], 30)
    file.write_bytes(b"".join(log(50, range(20, 26), seed=1)))
    scene = watcher.tick()
    assert scene.look is not None
    assert len(scene.look.run.steps) == 50
    assert kinds([scene]) == [("opened", 20)]


def test_a_file_that_is_replaced_or_gone_for_a_moment_is_followed(file: Path, watch: Callable[..., Watcher]) -> None:
    clock = Clock()
    watcher = watch(clock=clock)
    grow(file, watcher, LONG[:30], 30)
    file.rename(file.with_suffix(".1"))
    away = watcher.tick()
    assert (away.status, away.look is not None) == ("away", True)
    clock.now += 2
    file.write_bytes(b"".join(LONG[:40]))
    clock.now += 2
    scene = watcher.tick()
    assert scene.status == "live"
    assert kinds([scene]) == []


def test_a_resumed_run_tells_again_what_happens_again(file: Path, watch: Callable[..., Watcher]) -> None:
    watcher = watch()
    grow(file, watcher, LONG[:25], 25)
    again = [row(step, bad=step >= 20, seed=7) for step in range(15, 26)]
    told = kinds(grow(file, watcher, again, 4))
    assert told == [("opened", 20)]


def test_a_memory_that_fails_costs_at_most_a_repetition(file: Path, watch: Callable[..., Watcher], tmp_path: Path) -> None:
    said: list[str] = []
    store = Store(tmp_path / "failing.sqlite3")
    watcher = watch(store=store, say=said.append)
    grow(file, watcher, LONG[:10], 10)
    store.close()
    assert kinds(grow(file, watcher, LONG[10:30], 20)) == [("opened", 20)]
    assert kinds(grow(file, watcher, LONG[30:32], 2)) == []
    assert len(said) == 1


def test_a_read_only_folder_is_enough(file: Path, watch: Callable[..., Watcher]) -> None:
    file.write_bytes(b"".join(LONG[:60]))
    file.chmod(0o444)
    file.parent.chmod(0o555)
    try:
        assert kinds([watch().tick()]) == [("opened", 20)]
        assert os.listdir(file.parent) == [file.name]
    finally:
        file.parent.chmod(0o755)


class Outage(Reader):
    """A server that comes and goes."""

    def __init__(self) -> None:
        super().__init__("remote")
        self.files, self.down, self.asked = ["wandb://e/p/r"], False, 0
        self.rows = [Row({"reward": 0.5, "grad_norm": 1.0}, step, step) for step in range(20)]

    def poll(self) -> Iterator[Row]:
        self.asked += 1
        if self.down:
            raise Unreachable("does not answer", where="api.example")
        rows, self.rows = self.rows, []
        yield from rows


def test_an_outage_is_one_line_and_asked_less_and_less_often(
    watch: Callable[..., Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, clock = Outage(), Clock()
    monkeypatch.setattr("echotrap.live.open_reader", lambda location, options: reader)
    watcher = watch(location="wandb://e/p/r", clock=clock)
    assert watcher.tick().status == "live"
    reader.down, reader.asked = True, 0
    lines = set()
    for _ in range(100):
        clock.now += 1
        scene = watcher.tick()
        assert scene.status == "away"
        lines.add(scene.trouble)
    assert lines == {"api.example: does not answer"}
    assert reader.asked <= 7
    reader.down = False
    clock.now += 300
    reader.rows = [Row({"reward": 0.5, "grad_norm": 1.0}, 20, 20)]
    back = watcher.tick()
    assert back.look is not None
    assert (back.status, back.trouble, back.look.run.steps[-1]) == ("live", "", 20)


def test_a_run_that_stops_writing_is_stalled_until_it_writes_again(file: Path, watch: Callable[..., Watcher]) -> None:
    clock, inbox = Clock(), Inbox()
    watcher = watch(clock=clock, channels={"here": inbox})
    for line in LONG[:8]:
        clock.now += 30
        assert grow(file, watcher, [line], 1)[0].status == "live"
    clock.now += 299
    assert watcher.tick().status == "live"
    clock.now += 2
    stalled = watcher.tick()
    assert (stalled.status, kinds([stalled])) == ("stalled", [("stalled", 8)])
    clock.now += 500
    assert kinds([watcher.tick()]) == []
    again = watch(clock=clock)
    assert kinds([again.tick()]) == []  # a restart does not repeat it
    (resumed,) = grow(file, again, LONG[8:9], 1)
    assert kinds([resumed]) == [("resumed", 9)]
    watcher.close()
    assert [message.title for message in inbox.got] == ["[stalled] run"]


def test_a_finished_log_that_nobody_saw_grow_is_not_told_as_stalled(file: Path, watch: Callable[..., Watcher]) -> None:
    file.write_bytes(b"".join(LONG[:15]))
    os.utime(file, (0, 0))
    watcher = watch()
    scene = watcher.tick()
    assert (scene.status, scene.news) == ("live", ())
    assert scene.age_s is not None
    assert scene.age_s > 1e6


def test_what_the_user_has_accepted_is_not_told(file: Path, watch: Callable[..., Watcher]) -> None:
    accepted = Settings(suppress=(Suppression(detector="non-finite", reason="known"),))
    assert kinds(grow(file, watch(settings=accepted), LONG[:30], 10)) == []


def test_a_message_says_what_since_when_why_and_what_to_do(file: Path, watch: Callable[..., Watcher]) -> None:
    inbox = Inbox()
    watcher = watch(channels={"here": inbox})
    grow(file, watcher, LONG[:25], 25)
    watcher.close()
    (message,) = inbox.got
    assert message.title == "[critical] numerical-failure in run"
    assert "began at step 20, alarm at 20, now 25" in message.body
    assert message.why
    assert "do: " in message.body


def test_killing_and_starting_watchers_and_writers_in_any_order_tells_each_alarm_once(
    file: Path, watch: Callable[..., Watcher]
) -> None:
    rng = random.Random(5)
    told: list[Alarm] = []
    watcher, at = watch(), 0
    while at < len(LONG):
        match rng.choice(["write", "write", "torn", "watch", "look", "look"]):
            case "write":
                with file.open("ab") as out:
                    out.write(b"".join(LONG[at : at + 9]))
                at += 9
            case "torn":  # the writer is killed inside a line and, started again, writes the step once more
                with file.open("ab") as out:
                    out.write(LONG[at][:30] + b"\n")
            case "watch":
                watcher = watch()
            case "look":
                told += watcher.tick().news
    told += watcher.tick().news
    assert [alarm.incident for alarm in told if alarm.kind != "recovered"] in ([20, 130], [130])
    assert len({(alarm.kind, alarm.incident) for alarm in told}) == len(told)


def test_a_follower_gives_what_opening_gives(file: Path, watch: Callable[..., Watcher]) -> None:
    file.write_bytes(LONG[0])
    follower = Follower(open_reader(str(file)), SETTINGS)
    follower.look()
    for line in LONG[1:20]:
        with file.open("ab") as out:
            out.write(line)
        look = follower.look()
    assert look is not None
    assert look.run.metrics.equals(open_run(file).metrics)


def test_a_folder_may_get_its_log_after_its_rollouts(file: Path, watch: Callable[..., Watcher]) -> None:
    clock = Clock()
    watcher = watch(location=file.parent, clock=clock)
    (file.parent / "rollouts").mkdir()
    dump = json.dumps({"input": "p", "output": "a b c d e", "score": 1.0, "step": 1}) + "\n"
    (file.parent / "rollouts" / "1.jsonl").write_text(dump * 4)
    watcher.tick()
    file.write_bytes(b"".join(LONG[:30]))
    clock.now += 31
    scene = watcher.tick()
    assert scene.look is not None
    assert scene.look.run.has("grad_norm")
    assert scene.look.run.rollouts is not None


def test_the_state_of_each_new_checkpoint_is_read(file: Path, watch: Callable[..., Watcher]) -> None:
    clock = Clock()
    watcher = watch(location=file.parent, clock=clock)
    history = [json.loads(line) for line in LONG[:40]]
    told = []
    for saved in (10, 20, 30):
        folder = file.parent / f"checkpoint-{saved}"
        folder.mkdir()
        state = {"global_step": saved, "log_history": history[:saved]}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        clock.now += 31
        scene = watcher.tick()
        assert scene.look is not None
        assert scene.look.run.steps[-1] == saved
        told += scene.news
    assert [(alarm.kind, alarm.step) for alarm in told] == [("opened", 20)]


# ------------------------------------------------------------------------------- real logs

SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / ".." / "shared")) / "real_logs"
SAMPLES = Path(__file__).parents[1] / "sample_runs"
GROWING = (".jsonl", ".log", ".csv")
REAL = [
    "agentmem-stage2-dups/train_metrics.with_duplicates.jsonl",
    "countdown-custom-entropy-const0/metrics.jsonl",
    "hflog-gsm8k-rho1-strnum/gate2_rho1.00_seed42.log",
    "hotpotqa-grpo-v1-kl-blowup/grpo.log",
    "searchr1-entropy-then-reward-collapse/search-r1-grpo-qwen2.5-1.5b-verl-tool-agent.log",
    "tfevents-wordle4070-entropy-dead",
    "tinker-distill-entropy-collapse/distillation_on_metrics.jsonl",
    "verl-opd-len1-collapse/output.log",
]


def recorded() -> list[Path]:
    """Logs that grow line by line, or record by record."""
    shared = [next(path.glob("*tfevents*")) if path.is_dir() else path for name in REAL if (path := SHARED / name).exists()]
    samples = [path for path in sorted(SAMPLES.glob("*/*")) if path.name.removesuffix(".gz").endswith(GROWING)]
    return [*shared, *samples]


def states() -> list[Path]:
    """Logs that are written anew at each checkpoint."""
    return sorted(SAMPLES.glob("*/trainer_state.json*"))


def prefixes(path: Path) -> Iterator[bytes]:
    """What the file held at six moments."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    state = json.loads(data) if path in states() else None
    for piece in range(1, 7):
        if state is None:
            yield data[: len(data) * piece // 6]
        else:
            history = state["log_history"]
            yield json.dumps({**state, "log_history": history[: len(history) * piece // 6]}).encode()


@pytest.mark.parametrize("path", [*recorded(), *states()], ids=lambda path: f"{path.parent.name}/{path.name}"[:60])
def test_a_recorded_run_that_grows_again_gives_the_alarms_of_check_on_its_prefixes(path: Path, tmp_path: Path) -> None:
    file = tmp_path / path.name.removesuffix(".gz")
    watcher, told = Watcher(str(file), SETTINGS), set()
    for data in prefixes(path):
        if path in states():
            file.write_bytes(data)
        else:
            with file.open("ab") as out:
                out.write(data[out.tell() :])
        scene = watcher.tick()
        if scene.look is not None:
            assert scene.look.alarms == alerts.alarms(examine(pipeline.load(str(file), SETTINGS), SETTINGS))
            told |= {(alarm.label, alarm.severity, alarm.step) for alarm in scene.news}
    assert watcher.look is not None
    assert told <= {(alarm.label, alarm.severity, alarm.step) for alarm in watcher.look.alarms}


@pytest.mark.skipif(not (SAMPLES / "grid-echo-trap").is_dir(), reason="the sample run is not there")
def test_a_recorded_run_with_rollouts_that_grows_again_gives_the_alarms_of_check(tmp_path: Path) -> None:
    sample = SAMPLES / "grid-echo-trap"
    lines = gzip.decompress((sample / "grid-echo-trap.jsonl.gz").read_bytes()).splitlines(keepends=True)
    dumps = {int(path.name.split(".")[0]): path for path in (sample / "rollout_data").iterdir()}
    (tmp_path / "rollout_data").mkdir()
    watcher, told = Watcher(str(tmp_path), SETTINGS), list[Alarm]()
    for first in range(0, len(lines), 20):
        for step in range(first, first + 21):
            if step in dumps:
                shutil.copy(dumps[step], tmp_path / "rollout_data")
        with (tmp_path / "grid.jsonl").open("ab") as out:
            out.writelines(lines[first : first + 20])
        scene = watcher.tick()
        assert scene.look is not None
        assert scene.look.alarms == alerts.alarms(examine(pipeline.load(str(tmp_path), SETTINGS), SETTINGS))
        told += scene.news
    assert watcher.look is not None
    assert watcher.look.run.provenance["cross_rollout_share"] == "derived"
    assert {(alarm.label, alarm.severity) for alarm in watcher.look.alarms} == {(alarm.label, alarm.severity) for alarm in told}
