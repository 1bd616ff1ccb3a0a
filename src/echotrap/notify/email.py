"""E-mail, through Apprise: ``url_env`` names a variable that holds an Apprise address such as ``mailtos://user:word@host?to=me@host``."""

from __future__ import annotations

import logging
from typing import Any

from echotrap.alerts import Message
from echotrap.config import NotifySettings
from echotrap.errors import ConfigError
from echotrap.notify.base import Channel, DeliveryError


class Email(Channel):
    """Sends through anything that Apprise knows."""

    def __init__(self, name: str, address: str) -> None:
        try:
            import apprise
        except ImportError:
            raise ConfigError("e-mail needs Apprise", where=f"notify.{name}", cure="pip install 'echotrap[notify]'") from None
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # what it logs may hold the address
        self._apprise: Any = apprise.Apprise()
        if not self._apprise.add(address):
            raise ConfigError("the address is not one that Apprise knows", where=f"notify.{name}")

    def send(self, message: Message) -> None:
        """Send title and text as plain text."""
        if not self._apprise.notify(title=message.title, body=message.body, body_format="text"):
            raise DeliveryError("Apprise could not deliver")


def channel(name: str, spec: NotifySettings, address: str) -> Email:
    """Open the channel."""
    return Email(name, address)
