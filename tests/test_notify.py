"""Channels against a receiver on loopback that is slow, fails or lies; secrets that never show."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from echotrap import config
from echotrap.alerts import Alarm, Message, Store, compose
from echotrap.errors import ConfigError
from echotrap.notify import Channel, DeliveryError, Dispatcher, open_channels
from echotrap.notify.command import Command

SECRET = "T0K3N"
ALARM = Alarm("opened", "echo-trap", "critical", 180, 195, 195)


def words(alarm: Alarm) -> Message:
    return compose(alarm, None, run="<!channel> run & co", key="r")


MESSAGE = words(ALARM)


class Receiver:
    """Answers with the given statuses in turn, then 200."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.delay_s = 0.0
        self.headers: dict[str, str] = {}
        self.got: list[dict[str, Any]] = []
        self.keys: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append(json.loads(data))
                outer.keys.append(self.headers["Idempotency-Key"])
                time.sleep(outer.delay_s)
                self.send_response(outer.statuses.pop(0) if outer.statuses else 200)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


def settings(text: str, folder: Path) -> config.Settings:
    (folder / "echotrap.toml").write_text(text)
    return config.load(folder / "echotrap.toml", env={})


def open_one(kind: str, url: str, folder: Path, **more: object) -> Channel:
    extra = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    known = settings(f'[notify.here]\ntype = "{kind}"\nurl_env = "HOOK"\n{extra}', folder).notify
    return open_channels(("here",), known, {"HOOK": url})["here"]


def deliver(store: Store, channel: Channel, patience_s: float = 5.0) -> list[str]:
    said: list[str] = []
    Dispatcher(store, "r", {"here": channel}, said.append, first_pause_s=0.01).close(patience_s)
    return said


def loaded() -> Store:
    store = Store()
    store.take("r", [ALARM], ["here"], words)
    return store


def test_webhook_gets_every_field_and_a_stable_key(receiver: Receiver, tmp_path: Path) -> None:
    assert deliver(loaded(), open_one("webhook", receiver.url, tmp_path)) == []
    (got,) = receiver.got
    assert (got["label"], got["stage"], got["onset_step"], got["alarm_step"]) == ("echo-trap", 3, 180, 195)
    assert got["title"] == MESSAGE.title
    assert receiver.keys == [got["id"]] == [MESSAGE.id]


def test_slack_markup_in_a_run_name_is_dead(receiver: Receiver, tmp_path: Path) -> None:
    deliver(loaded(), open_one("slack", receiver.url, tmp_path, link="http://127.0.0.1/?run={run}"))
    assert "&lt;!channel&gt; run &amp; co" in receiver.got[0]["text"]
    assert "http://127.0.0.1/?run=%3C%21channel%3E" in receiver.got[0]["attachments"][0]["text"]


def test_discord_mentions_nobody_and_keeps_its_limits(receiver: Receiver, tmp_path: Path) -> None:
    channel = open_one("discord", receiver.url, tmp_path)
    channel.send(MESSAGE._replace(headline="x" * 9000))
    assert receiver.got[0]["allowed_mentions"] == {"parse": []}
    assert len(receiver.got[0]["embeds"][0]["description"]) == 4096


@pytest.mark.parametrize("statuses", [[500], [503, 500, 502], [429], [408]])
def test_a_receiver_that_fails_is_tried_again(statuses: list[int], receiver: Receiver, tmp_path: Path) -> None:
    receiver.statuses = list(statuses)
    assert deliver(loaded(), open_one("webhook", receiver.url, tmp_path)) == []
    assert len(receiver.got) == len(statuses) + 1
    assert len(set(receiver.keys)) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 410, 302])
def test_a_refusal_is_given_up_at_once_and_said_once(status: int, receiver: Receiver, tmp_path: Path) -> None:
    receiver.statuses, receiver.headers = [status] * 9, {"Location": receiver.url + "2"}
    (said,) = deliver(loaded(), open_one("webhook", receiver.url, tmp_path))
    assert f"HTTP {status}" in said
    assert SECRET not in said
    assert len(receiver.got) == 1


def test_a_receiver_that_is_down_for_long_is_given_up(receiver: Receiver, tmp_path: Path) -> None:
    receiver.statuses = [500] * 99
    (said,) = deliver(loaded(), open_one("webhook", receiver.url, tmp_path))
    assert "given up after 8: HTTP 500" in said


def test_retry_after_is_honoured(receiver: Receiver, tmp_path: Path) -> None:
    receiver.statuses, receiver.headers = [429], {"Retry-After": "1"}
    began = time.monotonic()
    deliver(loaded(), open_one("webhook", receiver.url, tmp_path))
    assert len(receiver.got) == 2
    assert time.monotonic() - began >= 1


def test_a_slow_receiver_times_out_and_holds_up_nobody(receiver: Receiver, tmp_path: Path) -> None:
    receiver.delay_s = 0.3
    channel = open_one("webhook", receiver.url, tmp_path, timeout_s=0.1)
    store = loaded()
    began = time.monotonic()
    dispatcher = Dispatcher(store, "r", {"here": channel}, lambda _: None, first_pause_s=0.01)
    dispatcher.wake()
    assert time.monotonic() - began < 0.1
    receiver.delay_s = 0.0
    dispatcher.close()
    assert store.waiting("r", "here") == 0
    receiver.delay_s = 0.3
    with pytest.raises(DeliveryError, match="timed out"):
        channel.send(MESSAGE)


def test_a_receiver_that_is_not_there_waits_for_the_next_process(receiver: Receiver, tmp_path: Path) -> None:
    receiver.server.server_close()
    store = loaded()
    deliver(store, open_one("webhook", receiver.url, tmp_path), patience_s=0.05)
    assert store.waiting("r", "here") == 1


def test_one_failing_channel_does_not_stop_another(receiver: Receiver, tmp_path: Path) -> None:
    class Broken(Channel):
        def send(self, message: Message) -> None:
            raise RuntimeError(SECRET)

    store = Store()
    store.take("r", [ALARM], ["bad", "here"], words)
    said: list[str] = []
    good = open_one("webhook", receiver.url, tmp_path)
    Dispatcher(store, "r", {"bad": Broken(), "here": good}, said.append, first_pause_s=0.001).close()
    assert len(receiver.got) == 1
    assert said == [f"channel bad: message {MESSAGE.id} given up after 8: RuntimeError"]


def test_messages_of_a_channel_keep_their_order(receiver: Receiver, tmp_path: Path) -> None:
    receiver.statuses = [500]
    store = loaded()
    store.take("r", [Alarm("recovered", "echo-trap", "critical", 180, 290, 195)], ["here"], words)
    deliver(store, open_one("webhook", receiver.url, tmp_path))
    assert [got["kind"] for got in receiver.got] == ["opened", "opened", "recovered"]


LEAKS: list[Callable[[Path], object]] = [
    lambda folder: open_one("webhook", f"ftp://{SECRET}", folder),
    lambda folder: open_one("webhook", f"{SECRET}", folder),
    lambda folder: settings(f'[notify]\nhere = "https://{SECRET}"', folder),
    lambda folder: settings(f'[notify.here]\ntype = "pigeon"\nurl = "https://{SECRET}"', folder),
    lambda folder: settings(f'[notify.here]\ntype = "slack"\nuri = "https://{SECRET}"', folder),
    lambda folder: open_channels((f"https://{SECRET}",), {}),
]


@pytest.mark.parametrize("mistake", LEAKS)
def test_no_error_shows_a_secret(mistake: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        mistake(tmp_path)
    assert SECRET not in str(caught.value)


def test_settings_do_not_show_a_secret(tmp_path: Path) -> None:
    loaded = settings(f'[notify.here]\ntype = "slack"\nurl = "https://{SECRET}"', tmp_path)
    assert SECRET not in f"{loaded!r} {loaded.model_dump_json()}"
    assert open_channels(("here",), loaded.notify)


def test_a_missing_variable_and_a_missing_channel_are_named(tmp_path: Path) -> None:
    known = settings('[notify.here]\ntype = "slack"\nurl_env = "HOOK"', tmp_path).notify
    with pytest.raises(ConfigError, match="HOOK is not set"):
        open_channels(("here",), known, {})
    with pytest.raises(ConfigError, match="for: here"):
        open_channels(("there",), known, {})
    with pytest.raises(ConfigError, match="needs url_env"):
        open_channels(("here",), settings('[notify.here]\ntype = "slack"', tmp_path).notify, {})


def test_email_without_apprise_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"echotrap\[notify\]"):
        open_one("email", "mailto://me", tmp_path)


def test_wandb_alerts_in_the_open_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    class Open:
        def __init__(self) -> None:
            self.alerts: list[dict[str, Any]] = []
            self.summary: dict[str, Any] = {}

        def alert(self, **facts: Any) -> None:
            self.alerts.append(facts)

    channel = open_channels(("w",), settings('[notify.w]\ntype = "wandb"', tmp_path).notify, {})["w"]
    monkeypatch.setattr(wandb, "run", None)
    with pytest.raises(DeliveryError, match="no W&B run is open"):
        channel.send(MESSAGE)
    monkeypatch.setattr(wandb, "run", Open())
    channel.send(MESSAGE)
    assert wandb.run.alerts[0]["level"] == "ERROR"
    assert wandb.run.summary["echotrap/verdict"] == "echo-trap"
    channel.send(MESSAGE._replace(kind="recovered"))
    assert wandb.run.summary["echotrap/verdict"] == "recovered"


def test_a_command_gets_the_report_without_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = "import sys, os; open(sys.argv[1], 'w').write(sys.stdin.read() + os.environ['ECHOTRAP_SEVERITY'] + sys.argv[2])"
    Command(f'{sys.executable} -c "{program}" {out} $HOME;', lambda: '{"verdict": 1}').send(MESSAGE)
    assert out.read_text() == '{"verdict": 1}critical$HOME;'


def test_a_command_that_fails_is_not_repeated(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = f"import sys; open('{out}', 'a').write('x'); sys.exit(3)"
    (said,) = deliver(loaded(), Command(f'{sys.executable} -c "{program}"', str))
    assert "ended with 3" in said
    assert out.read_text() == "x"


def test_a_command_that_does_not_exist_or_end_is_reported() -> None:
    with pytest.raises(DeliveryError, match="No such file"):
        Command("no-such-program-here", str).send(MESSAGE)
    with pytest.raises(DeliveryError, match="ended after"):
        Command(f"{sys.executable} -c 'import time; time.sleep(9)'", str, timeout_s=0.3).send(MESSAGE)
    with pytest.raises(ConfigError):
        Command("a 'b", str)


def test_a_command_that_reads_nothing_is_fine() -> None:
    Command(f"{sys.executable} -c pass", lambda: "x" * 1_000_000).send(MESSAGE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise imports
def test_email_goes_through_apprise_and_shows_no_address(
    receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("apprise")
    channel = open_one("email", receiver.url.replace("http://", "json://"), tmp_path)
    channel.send(MESSAGE)
    assert receiver.got[0]["title"] == MESSAGE.title
    assert receiver.got[0]["message"].startswith(MESSAGE.headline)
    receiver.statuses = [500]
    with pytest.raises(DeliveryError) as caught:
        channel.send(MESSAGE)
    with pytest.raises(ConfigError) as refused:
        open_one("email", f"nothing://{SECRET}", tmp_path)
    shown = capfd.readouterr()
    assert SECRET not in f"{caught.value} {refused.value} {caplog.text} {shown.out} {shown.err}"
