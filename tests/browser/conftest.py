"""A dashboard on a free port, and a real Chromium in front of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A headless Chromium; its absence skips, unless ECHOTRAP_REQUIRE_BROWSER=1 makes that a failure."""
    if CHROMIUM is None:
        if os.environ.get("ECHOTRAP_REQUIRE_BROWSER") == "1":
            pytest.fail("there is no Chromium, and ECHOTRAP_REQUIRE_BROWSER=1")
        pytest.skip("there is no Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start the dashboard as a checkout does; returns its address."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*paths: Path) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "app/main.py"), "--server.port", str(port), "--"]
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
        with (tmp_path / "dashboard.log").open("wb") as log:
            running.append(subprocess.Popen([*command, *map(str, paths)], cwd=ROOT, env=env, stdout=log, stderr=log))
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                return address
            except OSError:
                time.sleep(0.2)
        pytest.fail((tmp_path / "dashboard.log").read_text())

    yield start
    for process in running:
        process.terminate()
        process.wait(10)
