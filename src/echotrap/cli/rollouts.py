"""``echotrap rollouts``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echotrap.cli import _console, _options
from echotrap.errors import EchotrapError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from echotrap.rollouts import Rollout, RolloutStore

EXCERPT = 600
ASKED = 300


class Format(StrEnum):
    """What rollouts can be written as."""

    text = "text"
    json = "json"


class Sort(StrEnum):
    """What comes first."""

    repetition = "repetition"
    shared = "shared"
    reward = "reward"
    length = "length"
    logged = "logged"


ORDER: Mapping[Sort, Callable[[Mapping[str, float]], float]] = {
    Sort.repetition: lambda scores: -max(scores.get("rep_4", 0.0), scores.get("loop_coverage", 0.0)),
    Sort.shared: lambda scores: -scores.get("cross_rollout_share", 0.0),
    Sort.reward: lambda scores: scores.get("reward", math.inf),
    Sort.length: lambda scores: -scores.get("words", 0.0),
    Sort.logged: lambda scores: 0.0,
}
SHOWN = {
    "reward": "reward",
    "words": "words",
    "rep_4": "repeated inside",
    "loop_coverage": "in a loop",
    "cross_rollout_share": "shared with other prompts",
    "copy": "copy in its group",
}
SHARES = ("rep_4", "loop_coverage", "cross_rollout_share", "copy")


def rollouts(
    run: _options.RunArgument,
    step: Annotated[int | None, typer.Option(metavar="STEP", help="Which step. [default: the last]")] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first: the most repetitive, the lowest reward, ...")] = Sort.repetition,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="How many.")] = 5,
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print.")] = Format.text,
    ties: Annotated[bool, typer.Option("--ties", help="Show pairs that differ and got the same reward.")] = False,
    config: _options.ConfigOption = None,
    key: _options.KeyOption = None,
    run_name: _options.RunNameOption = None,
    input_format: _options.InputFormatOption = None,
    verbose: _options.Verbose = False,
) -> None:
    """Show the rollouts of a step, with what was measured on each."""
    from echotrap.pipeline import read

    settings = _options.settings(config, key=key)
    with _console.working("reading"):
        store = read(run, settings, format=input_format, run=run_name).rollouts
        if store is None or not store.steps():
            raise EchotrapError("holds no rollouts", where=run, cure="name the folder that they were dumped to")
        chosen = _step(store, step, run)
        if ties:
            _show_ties(store, chosen, top, format)
            return
        found = store.at(chosen)
        scores = _scores(store, found)
    order = sorted(range(len(found)), key=lambda index: ORDER[sort](scores[index]))[:top]
    if format is Format.json:
        told = [_facts(found[index], scores[index]) for index in order]
        _console.write(json.dumps({"step": chosen, "rollouts": len(found), "shown": told}, indent=2, ensure_ascii=False) + "\n")
        return
    _console.show(*_page(chosen, [(found[index], scores[index]) for index in order], len(found), verbose))


def _show_ties(store: RolloutStore, step: int, top: int, format: Format) -> None:
    """What the reward of a step could not tell apart."""
    from rich.text import Text

    from echotrap import text
    from echotrap.render.words import number, plain

    found = text.ties(store, step, most=top)
    assert found is not None
    if format is Format.json:
        _console.write(json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return
    head = f"step {step}: {found.tied} of the {found.differing} pairs that differ got the same reward"
    head += f"; a fine-grained reward ranks {found.ranked} of {found.scored}" if found.scored else ""
    lines = [Text(head, style="bold")]
    for pair in found.pairs:
        gap = (
            f", fine-grained {pair.better.fine_grained:.4f} against {pair.worse.fine_grained:.4f}" if pair.gap is not None else ""
        )
        about = f"reward {number(pair.reward)}, another {pair.differ_in}{gap}"
        both = [f"  {side.index:>4}  {plain(side.does)}" for side in (pair.better, pair.worse)]
        lines += [Text(about, style="cyan"), Text("\n".join(both))]
    _console.show(*lines)


def _step(store: RolloutStore, wanted: int | None, run: str) -> int:
    steps = store.steps()
    if wanted is None:
        return steps[-1]
    if wanted not in steps:
        near = sorted(sorted(steps, key=lambda item: abs(item - wanted))[:4])
        raise EchotrapError(f"no rollouts of step {wanted}", where=run, cure=f"the nearest are {', '.join(map(str, near))}")
    return wanted


def _scores(store: RolloutStore, found: list[Rollout]) -> list[dict[str, float]]:
    """What is defined of each rollout."""
    from echotrap.signals import start_of
    from echotrap.text.measure import measure

    columns = measure(found, start_of(store)).per_rollout
    rows = [{name: float(values[index]) for name, values in columns.items()} for index in range(len(found))]
    for row, rollout in zip(rows, found, strict=True):
        row["reward"] = rollout.reward
    return [{name: value for name, value in row.items() if math.isfinite(value)} for row in rows]


def _asked(rollout: Rollout) -> str | None:
    """The prompt, where it is kept apart or can be told from the text."""
    from echotrap.text.parse import parse

    return rollout.prompt or parse(rollout).prompt or None


def _facts(rollout: Rollout, scores: Mapping[str, float]) -> dict[str, Any]:
    return {
        "step": rollout.step,
        "index": rollout.index,
        "group": rollout.group,
        "reward": scores.get("reward"),
        "truncated": rollout.truncated,
        "tokens": rollout.tokens,
        "origin": rollout.origin,
        "prompt": _asked(rollout),
        "scores": {name: value for name, value in scores.items() if name != "reward"},
        "text": rollout.text,
    }


def _page(step: int, chosen: list[tuple[Rollout, dict[str, float]]], of: int, verbose: bool) -> list[RenderableType]:
    from rich.rule import Rule
    from rich.text import Text

    from echotrap.render.words import number, plain

    parts: list[RenderableType] = [Text(f"step {step}: {len(chosen)} of {of} rollouts", style="bold")]
    for rollout, scores in chosen:
        about = [f"rollout {rollout.index}", *([f"group {plain(rollout.group)}"] if rollout.group is not None else [])]
        about += [
            f"{title} {number(scores[name], '0..1' if name in SHARES else '')}" for name, title in SHOWN.items() if name in scores
        ]
        about += [plain(rollout.origin)] if rollout.origin else []
        text = rollout.text if verbose or len(rollout.text) <= EXCERPT else rollout.text[:EXCERPT] + " … (-v shows all)"
        lines = "\n".join(map(plain, text.splitlines()))
        parts += [Rule(style="dim"), Text(" · ".join(about), style="cyan")]
        if asked := " ".join((_asked(rollout) or "").split()):
            short = asked if verbose or len(asked) <= ASKED else "… " + asked[-ASKED:]  # the question stands at the end
            parts.append(Text(f"asked: {plain(short)}", style="dim"))
        parts.append(Text(lines))
    return parts
