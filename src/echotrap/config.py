"""Settings: what the user may say, in a file, in the environment or on the command line.

Later wins: defaults < ``echotrap.toml`` (or ``[tool.echotrap]`` in ``pyproject.toml``) < ``ECHOTRAP_*`` < flags.
"""

from __future__ import annotations

import datetime
import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from echotrap.detector import Detector, Sensitivity, at_sensitivity
from echotrap.errors import ConfigError
from echotrap.fields import FIELDS
from echotrap.report import Label

__all__ = [
    "DeclaredEvent",
    "Expectation",
    "FailOn",
    "NotifySettings",
    "RunSettings",
    "Settings",
    "Suppression",
    "find",
    "load",
    "parameters",
    "schema",
]

FailOn = Literal["info", "warning", "critical", "never"]
Value: TypeAlias = bool | int | float | str
FILE = "echotrap.toml"
PREFIX = "ECHOTRAP_"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSettings(_Strict):
    """Facts about the run that its metrics cannot tell; they win over those that the log holds."""

    framework: str | None = Field(default=None, description="verl, TRL, RAGEN, OpenRLHF, ...: decides between readings of a key")
    group_size: int | None = Field(default=None, ge=1, description="rollouts per prompt")
    prompts_per_step: int | None = Field(default=None, ge=1, description="prompts per optimiser step")
    max_turns: int | None = Field(default=None, ge=1, description="turns allowed in one rollout")
    format_penalty: float | None = Field(default=None, description="reward of a rollout that breaks the format")
    length_limit: int | None = Field(default=None, ge=1, description="longest response, in tokens")
    max_steps: int | None = Field(default=None, ge=1, description="planned optimiser steps")
    save_interval: int | None = Field(default=None, ge=1, description="steps between checkpoints")
    reward_min: float | None = Field(default=None, description="lowest possible reward")
    reward_max: float | None = Field(default=None, description="highest possible reward")


class DeclaredEvent(_Strict):
    """A change made on purpose: baselines begin anew there."""

    step: int
    label: str


class _Dated(_Strict):
    run: str = Field(default="*", description="pattern of the run's name or source, as in a shell")
    until: datetime.date | None = Field(default=None, description="last day on which this holds")
    reason: str = Field(min_length=1, description="why; shown wherever it takes effect")

    def holds(self, *names: str, today: datetime.date | None = None) -> bool:
        """Whether it applies to a run of this name or source today."""
        return not self.expired(today) and any(fnmatch(name, self.run) for name in names)

    def expired(self, today: datetime.date | None = None) -> bool:
        """Whether its last day has passed."""
        return self.until is not None and (today or datetime.date.today()) > self.until


class Expectation(_Dated):
    """A run that is known to be what it is: any other verdict fails."""

    verdict: tuple[Label, ...] = Field(min_length=1, description="verdicts that pass")


class Suppression(_Dated):
    """A finding that is accepted for a while: shown, but it does not fail."""

    detector: str = Field(description="id of the detector or verdict, or a pattern")


class NotifySettings(_Strict):
    """A channel that alarms are sent to. Its address is a secret: it is never shown, nor given on a command line."""

    type: Literal["webhook", "slack", "discord", "email", "wandb"] = Field(description="what kind of receiver it is")
    url: SecretStr | None = Field(default=None, description="its address; url_env keeps it out of the file")
    url_env: str | None = Field(default=None, description="environment variable that holds its address")
    run: str | None = Field(default=None, description="wandb: entity/project/id, where no run is open in the process")
    link: str = Field(default="", description="where a message leads; {run} is replaced by the run's name")
    timeout_s: float = Field(default=10.0, gt=0, le=20, description="seconds to wait for the receiver")


class Settings(_Strict):
    """Everything that can be set, with its default."""

    fail_on: FailOn = Field(default="critical", description="lowest severity that makes the exit code 1")
    allow_insufficient: bool = Field(default=False, description="exit 0 rather than 3 when nothing could be judged")
    sensitivity: Sensitivity = Field(default="default", description="low: fewer alarms; high: earlier alarms")
    only: tuple[str, ...] = Field(default=(), description="run these detectors and no others")
    skip: tuple[str, ...] = Field(default=(), description="leave these detectors out")
    require: tuple[str, ...] = Field(default=(), description="detectors that must be able to look, else exit code 2")
    since: int | None = Field(default=None, description="findings that were over before this step do not fail", examples=[100])
    detector_paths: tuple[Path, ...] = Field(
        default=(), description="folders of further detectors; their code is run, so only a file named with --config may set it"
    )
    max_rollouts_per_step: int | None = Field(
        default=None, ge=1, description="judge at most so many rollouts of a step", examples=[512]
    )
    jobs: int = Field(default=0, ge=0, description="runs checked at the same time; 0: one per processor")
    run: RunSettings = Field(default=RunSettings(), description="facts about the run")
    keys: dict[str, str] = Field(
        default={}, description="signal (or step) by the key that holds it, where a log has names of its own"
    )
    events: tuple[DeclaredEvent, ...] = Field(default=(), description="changes made on purpose")
    params: dict[str, dict[str, Value]] = Field(default={}, description="parameters by detector id")
    expect: tuple[Expectation, ...] = Field(default=(), description="runs whose verdict is known")
    suppress: tuple[Suppression, ...] = Field(default=(), description="findings that are accepted for a while")
    notify: dict[str, NotifySettings] = Field(default={}, description="channels that alarms can be sent to, by name")
    notices: tuple[str, ...] = Field(default=(), exclude=True, repr=False, description="what loading has to say")

    @field_validator("keys")
    @classmethod
    def _are_signals(cls, keys: dict[str, str]) -> dict[str, str]:
        for key, name in keys.items():
            if name not in FIELDS and name != "step":
                near = difflib.get_close_matches(name, [*FIELDS, "step"], n=1, cutoff=0.5)
                cure = f"did you mean {near[0]}?" if near else "echotrap fields lists them"
                raise ValueError(f"{key!r} cannot be {name!r}, no signal is called so ({cure})")
        return keys


def load(
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Merge defaults, file, environment and flags.

    Parameters
    ----------
    file : Path, optional
        A configuration the user named. Otherwise the nearest one at or above ``folder`` is used, which may not name code.
    flags : Mapping, optional
        What the command line said; ``None`` values were not said.
    env, folder : optional
        Environment and starting folder; those of the process by default.

    Raises
    ------
    ConfigError
        A key is unknown, a value does not fit, or the file cannot be read.
    """
    env = os.environ if env is None else env
    if file is None and env.get(f"{PREFIX}CONFIG"):
        file = Path(env[f"{PREFIX}CONFIG"])
    explicit = file is not None
    found = file if file is not None else find(folder or Path.cwd())
    data = _read(found) if found else {}
    notices: list[str] = []
    if "detector_paths" in data:
        if explicit and found is not None:
            data["detector_paths"] = [found.parent / path for path in _strings(data["detector_paths"], str(found))]
        else:
            del data["detector_paths"]
            notices.append(f"detector_paths in {found} is ignored: name the file with --config to let it run code")
    settings = _validated({}, data, str(found))
    settings = _validated(settings.model_dump(), _from_env(env), "environment", prefix=PREFIX)
    said = {key: value for key, value in (flags or {}).items() if value is not None}
    if "params" in said:
        merged = {name: dict(values) for name, values in settings.params.items()}
        for name, values in said["params"].items():
            merged.setdefault(name, {}).update(values)
        said["params"] = merged
    if "keys" in said:
        said["keys"] = {**settings.keys, **said["keys"]}
    if "events" in said:
        said["events"] = (*settings.events, *said["events"])
    settings = _validated(settings.model_dump(), said, "command line")
    today = datetime.date.today()
    entries: tuple[Expectation | Suppression, ...] = (*settings.expect, *settings.suppress)
    notices += [f"expired on {item.until}, no longer applied: {item.reason}" for item in entries if item.expired(today)]
    return settings.model_copy(update={"notices": tuple(notices)})


def find(folder: Path) -> Path | None:
    """The nearest configuration at or above a folder, up to the root of the repository."""
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return place / FILE
        project = place / "pyproject.toml"
        if project.is_file() and "echotrap" in _toml(project).get("tool", {}):
            return project
        if (place / ".git").exists():
            return None
    return None


def parameters(detector: Detector, settings: Settings) -> Any:
    """Parameters of one detector: its defaults at the chosen sensitivity, then what was set by name.

    Raises
    ------
    ConfigError
        The detector has no such parameter, or the value is outside of its bounds.
    """
    params = at_sensitivity(detector.params, settings.sensitivity)
    wanted = settings.params.get(detector.card.id, {})
    known = {field.name: field for field in fields(params)}
    fitted: dict[str, Value] = {}
    for name, value in wanted.items():
        where = f"params.{detector.card.id}.{name}"
        if name not in known:
            raise ConfigError("no such parameter", where=where, cure=_nearest(name, known))
        default = getattr(params, name)
        facts = known[name].metadata
        if isinstance(default, bool) or isinstance(value, bool):
            fits = isinstance(value, bool) and isinstance(default, bool)
        elif isinstance(default, int):
            fits = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            value = int(value) if fits else value
        elif isinstance(default, float):
            fits = isinstance(value, int | float)
            value = float(value) if fits else value
        else:
            fits = isinstance(value, str)
        if not fits:
            raise ConfigError(f"expected {type(default).__name__}, got {value!r}", where=where)
        if "least" in facts and not facts["least"] <= value <= facts["most"]:
            raise ConfigError(f"{value!r} is outside of {facts['least']:g} to {facts['most']:g}", where=where)
        fitted[name] = value
    return replace(params, **fitted)


def schema() -> dict[str, Any]:
    """JSON Schema of the file."""
    whole = Settings.model_json_schema()
    whole["properties"].pop("notices")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": FILE}


def _read(file: Path) -> dict[str, Any]:
    data = _toml(file)
    if file.name == "pyproject.toml":
        data = data.get("tool", {}).get("echotrap", {})
    return {key.replace("-", "_"): value for key, value in data.items()}


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such file", where=str(file)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid TOML: {error}", where=str(file)) from None


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    lists = ("only", "skip", "require")
    plain = ("fail_on", "allow_insufficient", "sensitivity", "since", "max_rollouts_per_step", "jobs", *lists)
    said: dict[str, Any] = {}
    for name in plain:
        text = env.get(PREFIX + name.upper(), "").strip()
        if text:
            said[name] = [part.strip() for part in text.split(",") if part.strip()] if name in lists else text
    return said


def _strings(value: object, where: str) -> list[str]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ConfigError("detector_paths: expected a list of folders", where=where)


def _validated(below: Mapping[str, Any], above: Mapping[str, Any], where: str, *, prefix: str = "") -> Settings:
    try:
        return Settings.model_validate({**below, **above})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = [str(part) for part in first["loc"] if part != "function-after"]
        dotted = prefix + path[0].upper() if prefix else ".".join(path)
        if first["type"] == "extra_forbidden":
            cure = _nearest(path[-1], _names(path[:-1]))
            raise ConfigError(f"unknown key {dotted!r}", where=where, cure=cure) from None
        reason = first["msg"].removeprefix("Value error, ")
        secret = path[0] == "notify" or isinstance(first["input"], Mapping | list | tuple)
        shown = "" if secret else f", got {first['input']!r}"
        raise ConfigError(f"{dotted}: {reason[:1].lower()}{reason[1:]}{shown}", where=where) from None


def _names(path: list[str]) -> Iterable[str]:
    inner: dict[str, type[BaseModel]] = {
        "run": RunSettings, "events": DeclaredEvent, "expect": Expectation, "suppress": Suppression,
        "notify": NotifySettings,
    }  # fmt: skip
    model = inner.get(path[0], Settings) if path else Settings
    return [name for name in model.model_fields if name != "notices"]


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
