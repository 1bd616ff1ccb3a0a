"""``echotrap init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from echotrap.cli import _console
from echotrap.errors import ConfigError

EXAMPLES = """
# [keys]                            # what keys of your own hold: a signal (echotrap fields lists them) or step
# avgReturn = "reward_mean"
# "my/std" = "group_reward_std"

# [[events]]                        # a change made on purpose: baselines begin anew
# step = 200
# label = "curriculum, second part"

# [params."reward-variance-collapse"]   # echotrap explain reward-variance-collapse lists them
# window_steps = 10

# [[expect]]                        # a run whose verdict is known: any other one fails
# run = "runs/known-bad-*"
# verdict = ["echo-trap"]
# until = 2030-01-31
# reason = "kept to test the alarm"

# [[suppress]]                      # a finding that is accepted for a while: shown, but it does not fail
# run = "*"
# detector = "length-collapse"
# until = 2030-01-31
# reason = "the new prompt asks for short answers"

# [notify.team]                     # where echotrap watch sends alarms; the address stays out of the file
# type = "slack"
# url_env = "SLACK_WEBHOOK_URL"
"""


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to; - prints it.")] = Path("echotrap.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write an echotrap.toml in which everything is explained and nothing is changed."""
    if str(file) != "-" and file.exists() and not force:
        raise ConfigError("is there already", where=str(file), cure="--force replaces it")
    _console.save(file, template())


def template() -> str:
    """Every setting with its meaning and default, commented out."""
    from echotrap.config import RunSettings, Settings

    skipped = {"run", "keys", "events", "params", "expect", "suppress", "notify", "notices"}
    lines = ["# Settings of echotrap. Flags and ECHOTRAP_* variables overrule this file; echotrap config check reads it.", ""]
    for name, field in Settings.model_fields.items():
        if name not in skipped:
            lines += [f"# {field.description}", f"# {name} = {_toml(field.examples[0] if field.examples else field.default)}"]
    lines += ["", "[run]                               # facts about the run; they win over those of the log"]
    for name, field in RunSettings.model_fields.items():
        example = '"verl"' if name == "framework" else "0.0" if "reward" in name or "penalty" in name else "8"
        lines.append(f"# {name} = {example}".ljust(36) + f"# {field.description}")
    return "\n".join(lines) + "\n" + EXAMPLES


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return str(value) if isinstance(value, int) else f'"{value}"'
