"""``echotrap bench``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from echotrap.cli import _console, _options


def bench(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="DIR...", help="Folders of runs with their labels.")] = None,
    simulated: Annotated[int, typer.Option(metavar="N", min=0, help="Add N simulated runs of each kind.")] = 0,
    curves: Annotated[Path | None, typer.Option(metavar="DIR", help="Add RAGEN's published curves.")] = None,
    format: Annotated[Literal["text", "json", "html"], typer.Option("--format", "-f", help="What to print.")] = "text",
    dial: Annotated[bool, typer.Option("--dial", help="Add the trade-off over --sensitivity, on the simulated runs.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    peers: Annotated[bool, typer.Option("--peers", help="Add rl-doctor and trainspotter, where they are installed.")] = False,
    param: _options.ParamOption = None,
    config: _options.ConfigOption = None,
    sensitivity: _options.SensitivityOption = None,
) -> None:
    """Measure the diagnosis on labelled runs, beside simple rules.

    A folder holds labels.tsv (columns case, main, class, expect, onset_first, onset_last), or sub-folders with a truth.toml.
    Simulated runs use odd seeds; even ones are for tuning.
    """
    from echotrap.errors import ConfigError
    from echotrap.evaluation import harness, pages

    if not folders and not simulated and curves is None:
        raise ConfigError("nothing to measure", cure="name a folder, --simulated N or --curves DIR")
    settings = _options.settings(config, param=param, sensitivity=sensitivity)
    sets = [(folder.resolve().name, harness.labelled(folder)) for folder in folders or []]
    if curves is not None:
        sets += [("RAGEN curves", harness.curves(curves)), ("RAGEN curves as plotted", harness.curves(curves, "_s5"))]
    if simulated:
        sets.append((f"simulated, {simulated} of a kind", list(harness.simulated(range(1, 2 * simulated, 2)))))
    with _console.working("judging"):
        results = [harness.bench(name, runs, settings, others=peers) for name, runs in sets]
        dials = [(name, harness.dial(runs, settings)) for name, runs in sets[-1:]] if dial and simulated else []
    if format == "text":
        text = pages.document(results, dials, f"echotrap {shlex.join(sys.argv[1:])}")
    else:
        text = {"json": _json, "html": pages.page}[format](results)
    if output:
        _console.save(output, text)
    else:
        _console.write(text)


def _json(results: list) -> str:  # type: ignore[type-arg]
    import orjson

    data = [
        {
            "name": result.name,
            "scores": [score.model_dump() for score in result.scores],
            "runs": {judge: [item.model_dump() for item in said] for judge, said in result.judged.items()},
        }
        for result in results
    ]
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode() + "\n"
