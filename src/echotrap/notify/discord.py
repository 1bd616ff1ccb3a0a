"""Discord, through a webhook."""

from __future__ import annotations

from typing import Any

from echotrap.alerts import Message
from echotrap.config import NotifySettings
from echotrap.notify.base import CALM, COLOURS, WebChannel

MOST_TITLE, MOST_TEXT = 256, 4096  # Discord refuses longer ones


class Discord(WebChannel):
    """Posts one embed that can mention nobody."""

    def payload(self, message: Message) -> dict[str, Any]:
        """Title and text within Discord's limits."""
        colour = CALM if message.kind in ("recovered", "resumed") else COLOURS.get(message.severity, CALM)
        embed = {"title": message.title[:MOST_TITLE], "description": message.body[:MOST_TEXT], "color": colour}
        return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def channel(name: str, spec: NotifySettings, address: str) -> Discord:
    """Open the channel."""
    return Discord(name, address, spec.timeout_s)
