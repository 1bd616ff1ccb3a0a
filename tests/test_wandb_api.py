"""W&B online: the real client against a server on the loopback interface."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wandb_server import KEY, ServedRun, WandbServer

from echotrap.errors import SourceError, Unreachable
from echotrap.sources import open_run
from echotrap.sources.base import Options, Reader, Row
from echotrap.sources.cache import DiskCache
from echotrap.sources.wandb_api import FORMAT

Serve = Callable[..., WandbServer]


def rows(count: int) -> list[dict[str, Any]]:
    """As TRL logs: scalars on even W&B steps, other things on odd ones; no key is in every row."""
    return [
        {"_step": step, "_timestamp": 1.7e9 + step, **(
            {"train/global_step": step // 2, "train/reward": step / 10} if step % 2 == 0 else {"profiling/time": 0.5}
        )}
        for step in range(count)
    ]  # fmt: skip


def table(step: int) -> tuple[str, bytes]:
    content = {"columns": ["step", "prompt", "completion", "advantage", "acc"],
               "data": [[step, "p", f"text {step}", 0.5, 1.0], [step, "p", f"other {step}", -0.5, 0.0]]}  # fmt: skip
    return f"media/table/completions_{2 * step + 1}_{step:020x}.table.json", json.dumps(content).encode()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    servers: list[WandbServer] = []

    def start(**runs: ServedRun) -> WandbServer:
        servers.append(WandbServer(runs))
        monkeypatch.setenv("WANDB_BASE_URL", servers[-1].url)
        return servers[-1]

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield start
    for server in servers:
        server.stop()


def read(run: str = "a", location: str = "wandb://team/project/") -> tuple[Reader, list[Row]]:
    reader = FORMAT.open(location + run, Options())
    return reader, list(reader.poll())


def steps(found: list[Row]) -> list[int]:
    return [row.values["_step"] for row in found]


def test_all_rows_of_a_run_that_is_over(serve: Serve) -> None:
    serve(a=ServedRun(rows(2500), {"beta": 0.04, "actor": {"n": 8}}, exported=2500))
    reader, found = read()
    assert steps(found) == list(range(2500))
    assert found[20].values["train/reward"] == 2.0
    assert set(found[21].values) == {"_step", "_timestamp", "profiling/time"}  # the padding of an export is no value
    assert (reader.name, reader.finished, reader.config) == ("grpo-served", True, {"beta": 0.04, "actor.n": 8})


def test_the_parts_that_are_exported_and_live_are_joined_over_pages(serve: Serve) -> None:
    server = serve(a=ServedRun(rows(2500), state="running", exported=1000))
    reader, found = read()
    assert steps(found) == list(range(2500))
    assert server.count("HistoryPage") == 2
    assert reader.finished is False


def test_only_new_rows_of_a_run_that_goes_on(serve: Serve) -> None:
    run = ServedRun([], state="running")
    server = serve(a=run)
    reader, found = read()
    assert found == []  # an active run that has logged nothing
    run.history += rows(30)
    assert steps(list(reader.poll())) == list(range(30))
    run.history += rows(50)[30:]
    run.exported = 20
    assert steps(list(reader.poll())) == list(range(30, 50))
    assert [asked["minStep"] for name, asked in server.asked if name == "HistoryPage"][-1] == 30
    run.state = "crashed"
    assert list(reader.poll()) == []
    assert reader.finished
    assert [note.message for note in reader.notes] == ["W&B says that the run crashed"]


def test_a_run_that_is_over_is_asked_for_once(serve: Serve) -> None:
    server = serve(a=ServedRun(rows(100), exported=100))
    _, first = read()
    asked = server.count("RunParquetHistory")
    _, again = read()
    assert [row.values for row in again] == [row.values for row in first]
    assert server.count("RunParquetHistory") == asked == 1


def test_tables_become_rollouts(serve: Serve) -> None:
    history = rows(20)
    files = dict(table(step) for step in range(10))
    for step, path in enumerate(files):
        history[2 * step + 1]["completions"] = {"_type": "table-file", "path": path, "nrows": 2}
    server = serve(a=ServedRun(history, state="running", files=files))
    reader, _ = read()
    assert reader.rollouts is not None
    assert server.count("GET files") == 0  # not before somebody asks
    assert reader.rollouts.steps() == tuple(range(10))
    assert [rollout.text for rollout in reader.rollouts.at(3)] == ["text 3", "other 3"]
    assert server.count("GET files") == 10
    again, _ = read()
    assert again.rollouts is not None
    assert [rollout.reward for rollout in again.rollouts.at(4)] == [1.0, 0.0]
    assert server.count("GET files") == 10


@pytest.mark.parametrize("where", ["Run", "HistoryPage", "RunHistoryKeys"])
@pytest.mark.parametrize("fault", [429, "drop"])
def test_a_busy_server_and_a_dropped_connection_cost_time_only(serve: Serve, where: str, fault: int | str) -> None:
    server = serve(a=ServedRun(rows(40), state="running"))
    server.faults[where].append(fault)
    assert steps(read()[1]) == list(range(40))


def test_a_dead_server_is_named_within_seconds(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("WANDB_BASE_URL", f"http://{host}")
    began = time.monotonic()
    with pytest.raises(Unreachable, match=f"{host} does not answer") as caught:
        read()
    assert time.monotonic() - began < 8
    assert "\n" not in str(caught.value)


def test_what_the_server_refuses_is_said_in_one_line_without_the_key(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(a=ServedRun(rows(3)))
    messages = []
    with pytest.raises(SourceError, match="no such run") as caught:
        read("nobody")
    messages.append(str(caught.value))
    server.faults["Run"].append(403)
    with pytest.raises(SourceError, match="no permission") as caught:
        read()
    messages.append(str(caught.value))
    wrong = "f" * 40
    monkeypatch.setenv("WANDB_API_KEY", wrong)
    with pytest.raises(SourceError, match="does not accept the API key") as caught:
        read()
    messages.append(str(caught.value))
    for message in messages:
        assert "\n" not in message
        assert KEY not in message
        assert wrong not in message


def test_without_a_key_it_says_how_to_get_one(serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    serve(a=ServedRun(rows(3)))
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceError, match=r"no API key for .*wandb login"):
        read()


def test_a_project_gives_its_newest_run_and_names_the_others(serve: Serve) -> None:
    serve(a=ServedRun(rows(3)), b=ServedRun(rows(5), name="ppo"))
    reader, found = read("", "wandb://team/project")
    assert (reader.name, len(found), reader.other_runs) == ("grpo-served", 3, ("ppo (b)",))
    assert len(list(FORMAT.open("wandb://team/project", Options(run="ppo")).poll())) == 5


@pytest.mark.parametrize("location", ["wandb://team", "wandb://", "wandb://a/b;rm/c"])
def test_a_location_that_names_no_run(location: str) -> None:
    with pytest.raises(SourceError, match="wandb://ENTITY/PROJECT/RUN"):
        FORMAT.open(location, Options())


def test_the_page_of_a_run_names_it_and_strange_servers_never_see_the_key(serve: Serve) -> None:
    server = serve(a=ServedRun(rows(3)))
    assert len(read("a?nw=me", f"{server.url}/team/project/runs/")[1]) == 3
    with pytest.raises(SourceError, match="no page of your W&B server"):
        read("a", "https://wandb.ai.example.org/team/project/runs/")


def test_the_whole_way(serve: Serve) -> None:
    serve(a=ServedRun(rows(40), exported=40))
    run = open_run("wandb://team/project/a")
    assert run.series("reward_mean").steps.tolist() == list(range(20))
    assert run.series("reward_mean").values[10] == pytest.approx(2.0)


def test_the_cache_keeps_what_was_used_last_within_its_limit(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", limit=250)
    for name in ("a", "b"):
        cache.put(name, name.encode() * 100)
        time.sleep(0.01)
    assert cache.get("a") == b"a" * 100
    time.sleep(0.01)
    cache.put("c", b"c" * 100)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"a" * 100, None, b"c" * 100)
    cache.put("huge", bytes(1000))
    assert cache.get("huge") is None
    (tmp_path / "file").touch()
    DiskCache(tmp_path / "file" / "x", 10).put("a", b"a")  # cannot be made: nothing is kept, nothing fails
