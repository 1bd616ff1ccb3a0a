"""``echotrap watch`` as a process: what it prints, runs and sends, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from echotrap.cli import main

SECRET = "T0K3N"


def row(step: int, *, bad: bool = False) -> str:
    rng = random.Random(step)
    values = {"step": step, "reward": 0.4 + 0.1 * rng.random(), "entropy": 1 + 0.05 * rng.random()}
    return json.dumps({**values, "grad_norm": float("nan") if bad else 0.5 + 0.05 * rng.random()}) + "\n"


def log(first: int, last: int, bad_from: int = 10**9) -> str:
    return "".join(row(step, bad=step >= bad_from) for step in range(first, last + 1))


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder and a working directory of the test's own."""
    monkeypatch.setenv("ECHOTRAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["watch", *arguments])
    return int(ended.value.code or 0)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "echotrap", "watch", "--interval", "0.1", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for(what: Any, patience_s: float = 60.0) -> None:
    end = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize(("text", "code"), [(log(1, 30), 0), (log(1, 30, 20), 1), (log(1, 3), 3)])
def test_once_ends_with_the_exit_code_of_check(text: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.jsonl").write_text(text)
    assert run("r.jsonl", "--once") == code
    assert len(capsys.readouterr().out.splitlines()) == (2 if code == 1 else 1)


def test_once_on_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nothing.jsonl", "--once") == 2
    assert "error: nothing.jsonl: no such file" in capsys.readouterr().err


def test_a_second_look_tells_no_alarm_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.jsonl").write_text(log(1, 30, 20))
    run("r.jsonl", "--once")
    assert "alarm  step 20  opened  numerical-failure · critical" in capsys.readouterr().out
    run("r.jsonl", "--once")
    assert "alarm " not in capsys.readouterr().out.replace("first alarm", "")


@pytest.mark.parametrize("channel", ["nowhere", f"https://example.invalid/{SECRET}"])
def test_a_channel_is_named_and_must_exist(channel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("r.jsonl", "--notify", channel) == 2
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err


def test_it_waits_follows_runs_a_command_and_stops_at_a_critical(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    program = tmp_path / "program.py"
    program.write_text(f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())")
    watcher = start("r.jsonl", "--stop-on", "critical", "--exec", f"{sys.executable} {program}")
    assert watcher.stdout is not None
    assert "waiting  r.jsonl: no such file" in watcher.stdout.readline()
    for at in range(1, 31, 6):
        with (tmp_path / "r.jsonl").open("a") as file:
            file.write(log(at, at + 5, 20))
        time.sleep(0.2)
    rest, errors = watcher.communicate(timeout=60)
    assert watcher.returncode == 1, errors
    lines = rest.splitlines()
    assert any("alarm  step 20  opened" in line for line in lines)
    assert "NUMERICAL FAILURE · critical" in lines[-1]
    assert len(lines) <= 6  # a line per change, not per look
    assert json.loads(out.read_text())["verdict"]["label"] == "numerical-failure"


def test_sigterm_ends_it_with_the_exit_code_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(log(1, 30, 20))
    watcher = start("r.jsonl")
    assert watcher.stdout is not None
    watcher.stdout.readline()
    watcher.send_signal(signal.SIGTERM)
    _, errors = watcher.communicate(timeout=60)
    assert watcher.returncode == 1, errors
    assert "Traceback" not in errors


def test_on_a_terminal_there_is_one_view(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(log(1, 30, 20))
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    watcher = subprocess.Popen(
        [sys.executable, "-m", "echotrap", "watch", "r.jsonl", "--stop-on", "critical"],
        stdout=follower, stderr=follower, stdin=follower, env=environment,
    )  # fmt: skip
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(leader)
    assert watcher.wait(60) == 1
    text = seen.decode()
    assert "NUMERICAL FAILURE" in text
    assert "last step" in text
    assert "gradient norm" in text
    assert "opened" in text


class Receiver:
    """Keeps the ids it was sent; is slow, and refuses the first attempts."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            tries = 0

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                time.sleep(0.05)
                Handler.tries += 1
                refused = Handler.tries in (1, 2)
                self.send_response(500 if refused else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if not refused:
                    outer.ids.append(f"{message['kind']} {message['label']} {message['alarm_step']} {message['id']}")

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_killed_watchers_neither_lose_nor_repeat_a_message(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "echotrap.toml").write_text('[notify.team]\ntype = "webhook"\nurl_env = "TEAM_HOOK"\n')
    environment = {**os.environ, "TEAM_HOOK": f"http://127.0.0.1:{receiver.server.server_port}/{SECRET}"}
    file = tmp_path / "r.jsonl"
    file.write_text(log(1, 15))
    said = ""
    for first, last in ((16, 25), (26, 27), (28, 29)):  # the alarm is at step 20
        watcher = start("r.jsonl", "--notify", "team", env=environment)
        assert watcher.stdout is not None
        said += watcher.stdout.readline()
        with file.open("a") as out:
            out.write(log(first, last, 20))
        if receiver.ids or first == 16:
            wait_for(lambda: receiver.ids)
        time.sleep(0.3)
        watcher.kill()
        said += "".join(watcher.communicate(timeout=60))
    assert [line.rpartition(" ")[0] for line in receiver.ids] == ["opened numerical-failure 20"]
    assert SECRET not in said
    assert SECRET not in (tmp_path / "state" / "alarms.sqlite3").read_bytes().decode(errors="replace")
