"""Telling somebody: one file a channel, and a dispatcher that delivers without ever holding up a watcher."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping

from echotrap.config import NotifySettings
from echotrap.errors import ConfigError
from echotrap.notify.base import Channel, DeliveryError
from echotrap.notify.dispatch import Dispatcher

__all__ = ["Channel", "DeliveryError", "Dispatcher", "open_channels"]


def open_channels(
    names: tuple[str, ...], known: Mapping[str, NotifySettings], env: Mapping[str, str] | None = None
) -> dict[str, Channel]:
    """The channels that the user named, ready to send.

    Parameters
    ----------
    names : tuple of str
        From ``--notify``.
    known : Mapping
        ``[notify.NAME]`` of the configuration.
    env : Mapping, optional
        Where ``url_env`` looks; the process's environment by default.

    Raises
    ------
    ConfigError
        There is no such channel, or it lacks what it needs. A secret never appears in the message.
    """
    env = os.environ if env is None else env
    channels = {}
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            raise ConfigError(
                f"no channel {name!r}" if "://" not in name else "a channel is named, its URL is never given here",
                where="--notify",
                cure=f"the configuration has [notify.NAME] for: {there}",
            )
        make: Callable[[str, NotifySettings, str], Channel] = importlib.import_module(
            f"echotrap.notify.{known[name].type}"
        ).channel
        channels[name] = make(name, known[name], _address(name, known[name], env))
        channels[name].link = known[name].link
    return channels


def _address(name: str, spec: NotifySettings, env: Mapping[str, str]) -> str:
    """The secret address of a channel; empty for one that needs none."""
    where = f"notify.{name}"
    if spec.url_env is not None:
        if not env.get(spec.url_env):
            raise ConfigError(f"the environment variable {spec.url_env} is not set", where=where)
        return env[spec.url_env].strip()
    if spec.url is not None:
        return spec.url.get_secret_value().strip()
    if spec.type == "wandb":
        return ""
    raise ConfigError("a channel needs url_env (or url)", where=where, cure='url_env = "NAME_OF_A_VARIABLE"')
