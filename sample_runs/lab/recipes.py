"""Read ``recipes.toml``, the table of how each sample run is made."""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

import workspace

PATH = workspace.LAB / "recipes.toml"
SettingsType = TypeVar("SettingsType")


def load() -> dict[str, dict[str, Any]]:
    """All recipes by run name."""
    return tomllib.loads(PATH.read_text(encoding="utf-8"))


def samples() -> list[str]:
    """Names of the recipes that are sample runs."""
    return [name for name, recipe in load().items() if "keep" in recipe]


def sample(name: str) -> str:
    """Check the name of a sample run, for a command line."""
    if name not in samples():
        raise argparse.ArgumentTypeError(f"no sample run is called {name!r}; there are {', '.join(samples())}")
    return name


def main(kind: type[SettingsType], train: Callable[[SettingsType, bool], None], description: str | None) -> None:
    """Command line of a trainer: read the recipe and what is changed in it, and train in the workspace."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=sorted(load()), help="entry of recipes.toml", metavar="recipe")
    parser.add_argument("--as", dest="run_name", help="name of the raw run, if not that of the recipe")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    arguments = parser.parse_args()
    settings = load_settings(kind, arguments.recipe, arguments.run_name, arguments.overrides)
    workspace.enter()
    train(settings, arguments.resume)


def load_settings(kind: type[SettingsType], recipe: str, run_name: str | None = None, overrides: list[str] = ()) -> SettingsType:
    """Build a trainer's settings from a recipe.

    Parameters
    ----------
    kind
        The trainer's dataclass of settings; it must have a field ``name``.
    recipe
        Entry of ``recipes.toml``; its ``settings`` table is used.
    run_name
        Name of the raw run, the recipe's own by default.
    overrides
        ``key=value`` strings that win over the recipe, read as TOML values.
    """
    values = dict(load()[recipe]["settings"])
    for override in overrides:
        key, _, text = override.partition("=")
        values[key] = _parse_value(text)
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise SystemExit(f"{recipe}: unknown settings {', '.join(unknown)}; there are {', '.join(known)}")
    for key, default in known.items():
        if isinstance(default, tuple) and key in values:
            values[key] = tuple(values[key])
        if isinstance(default, float) and key in values:
            values[key] = float(values[key])
    return kind(name=run_name or recipe, **values)


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
