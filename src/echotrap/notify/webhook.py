"""Any receiver of JSON: the fields of the message, as they are."""

from __future__ import annotations

from typing import Any

from echotrap.alerts import Message
from echotrap.config import NotifySettings
from echotrap.notify.base import WebChannel


class Webhook(WebChannel):
    """Posts ``{"source": "echotrap", "id": ..., "kind": ..., "title": ..., "text": ..., ...}``."""

    def payload(self, message: Message) -> dict[str, Any]:
        """Everything, plus the two texts that people read."""
        return {
            "source": "echotrap",
            **message._asdict(),
            "numbers": dict(message.numbers),
            "title": message.title,
            "text": message.body,
        }


def channel(name: str, spec: NotifySettings, address: str) -> Webhook:
    """Open the channel."""
    return Webhook(name, address, spec.timeout_s)
