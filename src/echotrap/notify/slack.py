"""Slack, through an incoming webhook."""

from __future__ import annotations

import html
from typing import Any

from echotrap.alerts import Message
from echotrap.config import NotifySettings
from echotrap.notify.base import CALM, COLOURS, WebChannel


class Slack(WebChannel):
    """Posts one coloured attachment."""

    def payload(self, message: Message) -> dict[str, Any]:
        """Title and text; the three characters that Slack's markup gives a meaning are escaped."""
        colour = CALM if message.kind in ("recovered", "resumed") else COLOURS.get(message.severity, CALM)
        title, body = (html.escape(text, quote=False) for text in (message.title, message.body))
        return {"text": title, "attachments": [{"color": f"#{colour:06x}", "text": body, "mrkdwn_in": [], "fallback": body}]}


def channel(name: str, spec: NotifySettings, address: str) -> Slack:
    """Open the channel."""
    return Slack(name, address, spec.timeout_s)
