"""``echotrap dashboard``."""

from __future__ import annotations

import getpass
import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from echotrap.cli import _console, _options
from echotrap.errors import ConfigError

HOST = "127.0.0.1"  # rollouts are private: never on the network
FIRST_PORT, LAST_PORT = 8501, 8599


def dashboard(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN|FOLDER]...", help="What to open; the bundled samples otherwise.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", help="[default: the first free one from 8501]", show_default=False)
    ] = None,
    config: _options.ConfigOption = None,
    browser: Annotated[
        bool | None, typer.Option("--browser/--no-browser", help="Open a browser here.", show_default=False)
    ] = None,
) -> None:
    """Look at runs in the browser, live while they train."""
    _options.settings(config)  # a wrong file is told here rather than on the page
    chosen = _free_port() if port is None else port
    remote = "SSH_CONNECTION" in os.environ or not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or _has_desktop()
    )
    opens = not remote if browser is None else browser
    _console.talk(f"echotrap dashboard on http://{HOST}:{chosen} (Ctrl-C ends it)")
    if remote:
        _console.talk(f"from another machine: {tunnel(chosen)} and then open http://localhost:{chosen}")
    if config is not None:
        os.environ["ECHOTRAP_CONFIG"] = str(config.resolve())
    flags = {
        "server.address": HOST,
        "server.port": chosen,
        "server.headless": str(not opens).lower(),
        "browser.gatherUsageStats": "false",
    }
    command = [sys.executable, "-m", "streamlit", "run", str(_main_page())]
    command += [f"--{name}={value}" for name, value in flags.items()]
    os.execv(sys.executable, [*command, "--", *(runs or [])])


def tunnel(port: int) -> str:
    """The command that brings the dashboard of this machine to another one."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    host = connection[2] if len(connection) == 4 else socket.gethostname()
    try:
        user = f"{getpass.getuser()}@"
    except (KeyError, OSError):
        user = ""
    return f"ssh -N -L {port}:{HOST}:{port} {user}{host}"


def _main_page() -> Path:
    spec = importlib.util.find_spec("echotrap.app")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the dashboard is not installed")
    return Path(spec.submodule_search_locations[0]) / "main.py"


def _free_port() -> int:
    for port in range(FIRST_PORT, LAST_PORT + 1):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ConfigError(f"no port is free from {FIRST_PORT} to {LAST_PORT}", cure="--port names another")


def _has_desktop() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
