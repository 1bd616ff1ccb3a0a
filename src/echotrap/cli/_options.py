"""Options that several commands share. Choices repeat those of the library, whose import is heavy; a test compares them."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import typer

from echotrap.errors import ConfigError

if TYPE_CHECKING:
    from echotrap.config import Settings

FailOn = Literal["info", "warning", "critical", "never"]
Sensitivity = Literal["low", "default", "high"]


class OutputFormat(StrEnum):
    """What a result can be written as."""

    text = "text"
    json = "json"
    markdown = "markdown"
    junit = "junit"
    sarif = "sarif"
    github = "github"
    html = "html"


RunArgument: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="A log, a folder, a URL, or - for standard input.")]
RunsArgument: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Logs, folders, patterns, URLs, or - for standard input.")
]
ConfigOption: TypeAlias = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings to use instead of the nearest echotrap.toml.")
]
OnlyOption: TypeAlias = Annotated[list[str] | None, typer.Option("--only", metavar="ID,..", help="Run these detectors only.")]
SkipOption: TypeAlias = Annotated[list[str] | None, typer.Option("--skip", metavar="ID,..", help="Leave these detectors out.")]
ParamOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--param", metavar="ID.NAME=VALUE", help="Set a parameter of a detector.")
]
SensitivityOption: TypeAlias = Annotated[
    Sensitivity | None, typer.Option(help="low: fewer alarms; high: earlier alarms. [default: default]", show_default=False)
]
KeyOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="RAW=SIGNAL", help="What a key of the log holds; see echotrap fields."),
]
EventOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--event", metavar="STEP:LABEL", help="A change made on purpose; baselines begin anew.")
]
DetectorsOption: TypeAlias = Annotated[
    list[Path] | None, typer.Option("--detectors", metavar="DIR", help="Further detectors; their code is run.")
]
RunNameOption: TypeAlias = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="Which run, where the location holds several.")
]
InputFormatOption: TypeAlias = Annotated[
    str | None, typer.Option("--input-format", metavar="NAME", help="Read as this format rather than by content.")
]
RolloutsOption: TypeAlias = Annotated[
    int | None, typer.Option("--max-rollouts-per-step", metavar="N", min=1, help="Judge at most so many rollouts of a step.")
]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Show everything.")]


def settings(
    config: Path | None,
    *,
    only: list[str] | None = None,
    skip: list[str] | None = None,
    require: list[str] | None = None,
    param: list[str] | None = None,
    key: list[str] | None = None,
    event: list[str] | None = None,
    detectors: list[Path] | None = None,
    **plain: Any,
) -> Settings:
    """Merge flags over environment and file, and check every detector and parameter that they name."""
    from echotrap.config import load
    from echotrap.diagnosis import chosen
    from echotrap.registry import catalogue, unknown
    from echotrap.report import Label

    flags = {
        **plain,
        "only": _listed(only),
        "skip": _listed(skip),
        "require": _listed(require),
        "params": _params(param or []) or None,
        "keys": _keys(key or []) or None,
        "events": [_event(text) for text in event or []] or None,
        "detector_paths": detectors or None,
    }
    merged = load(config, flags)
    chosen(merged)  # every id and parameter is checked before a run is read
    known = catalogue(merged.detector_paths)
    accepted = [item.detector for item in merged.suppress if not glob.has_magic(item.detector)]
    for name in (*merged.require, *(name for name in accepted if name not in get_args(Label))):
        if name not in known:
            raise unknown(name, known)
    return merged


def _listed(values: Iterable[str] | None) -> list[str] | None:
    """Repeated and comma-separated values as one list; ``None`` where nothing was said."""
    if not values:
        return None
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def _params(texts: list[str]) -> dict[str, dict[str, bool | int | float | str]]:
    found: dict[str, dict[str, bool | int | float | str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        detector, dot, parameter = name.strip().partition(".")
        if not (equals and dot and detector and parameter):
            raise ConfigError(f"expected ID.NAME=VALUE, got {text!r}", where="--param")
        found.setdefault(detector, {})[parameter] = _value(value.strip())
    return found


def _keys(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        raw, equals, name = text.rpartition("=")
        if not (equals and raw.strip() and name.strip()):
            raise ConfigError(f"expected RAW=SIGNAL, got {text!r}", where="--key")
        found[raw.strip()] = name.strip()
    return found


def _value(text: str) -> bool | int | float | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _event(text: str) -> dict[str, int | str]:
    step, colon, label = text.partition(":")
    if not (colon and label.strip() and step.strip().lstrip("-").isdigit()):
        raise ConfigError(f"expected STEP:LABEL, got {text!r}", where="--event")
    return {"step": int(step), "label": label.strip()}
