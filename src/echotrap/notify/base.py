"""What a channel is, and the one way to post JSON."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import urlsplit

from echotrap.alerts import Message
from echotrap.errors import ConfigError

__all__ = ["Channel", "DeliveryError", "WebChannel"]

COLOURS = {"warning": 0xE0A100, "critical": 0xC62828}
CALM = 0x2E7D32


class DeliveryError(Exception):
    """A message was not delivered. The text holds no address: addresses are secrets.

    Parameters
    ----------
    reason : str
        What happened, in a few words.
    for_good : bool
        Whether trying again is useless.
    wait_s : float or None
        How long the receiver asked to wait.
    """

    def __init__(self, reason: str, *, for_good: bool = False, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.for_good, self.wait_s = for_good, wait_s


class Channel(ABC):
    """Somewhere to send messages to. :meth:`send` is called from a thread of its own and may block."""

    attempts = 8
    """How often a message is tried before it is given up."""

    link = ""
    """Where its messages lead; ``{run}`` is replaced by the run's name."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Deliver one message.

        Raises
        ------
        DeliveryError
            It was not delivered.
        """


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A webhook that sends its caller elsewhere is refused: the address is a secret."""


class WebChannel(Channel):
    """Posts JSON to an address.

    Parameters
    ----------
    name : str
        For messages about it.
    address : str
        Secret.
    timeout_s : float
        For connecting, and for each read.
    """

    def __init__(self, name: str, address: str, timeout_s: float) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the address is not an http or https URL", where=f"notify.{name}")
        self._address, self._timeout_s = address, timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)

    @abstractmethod
    def payload(self, message: Message) -> dict[str, Any]:
        """What is posted."""

    def send(self, message: Message) -> None:
        """Post the message."""
        from echotrap._version import __version__

        request = urllib.request.Request(
            self._address,
            data=json.dumps(self.payload(message)).encode(),
            headers={
                "Content-Type": "application/json",
                "User-Agent": f"echotrap/{__version__}",
                "Idempotency-Key": message.id,
            },
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                answer.read(65536)
        except urllib.error.HTTPError as error:
            with error:
                again = error.code >= 500 or error.code in (408, 425, 429)
                wait = error.headers.get("Retry-After", "")
                raise DeliveryError(
                    f"HTTP {error.code}", for_good=not again, wait_s=float(wait) if wait.isdigit() else None
                ) from None
        except TimeoutError:
            raise DeliveryError("timed out") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise DeliveryError("timed out" if isinstance(reason, TimeoutError) else type(reason).__name__) from None
