"""A program of the user's: started without a shell, given the report on its standard input."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable

from echotrap.alerts import Message
from echotrap.errors import ConfigError
from echotrap.notify.base import Channel, DeliveryError


class Command(Channel):
    """Runs a program for each message. It is tried once: what it does may not be harmless twice.

    Parameters
    ----------
    line : str
        Split as a shell would split it; nothing is expanded.
    report : callable
        Gives the newest report as JSON.
    timeout_s : float
        After which the program is ended.
    """

    attempts = 1

    def __init__(self, line: str, report: Callable[[], str], timeout_s: float = 60.0) -> None:
        try:
            self._argv = shlex.split(line)
        except ValueError as error:
            raise ConfigError(f"cannot be split: {error}", where="--exec") from None
        if not self._argv:
            raise ConfigError("no command", where="--exec")
        self._report, self._timeout_s = report, timeout_s

    def send(self, message: Message) -> None:
        """Run it; the alarm is in its environment as ``ECHOTRAP_*``."""
        facts = {"kind": message.kind, "severity": message.severity, "verdict": message.label, "step": message.alarm_step}
        try:
            done = subprocess.run(
                self._argv,
                input=self._report().encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, **{f"ECHOTRAP_{name.upper()}": str(value) for name, value in facts.items()}},
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DeliveryError(f"ended after {self._timeout_s:g} s", for_good=True) from None
        except OSError as error:
            raise DeliveryError(f"{self._argv[0]}: {error.strerror}", for_good=True) from None
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise DeliveryError(f"{self._argv[0]} ended with {done.returncode}: {last}".rstrip(": "), for_good=True)
