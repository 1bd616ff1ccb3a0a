"""Small SVG pictures, written by hand so that the lab needs no plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

LABELS = {
    "reward": "reward",
    "exact": "exact success",
    "in_group_std": "in-group std",
    "constant_groups": "constant groups",
    "ties": "ties among differing texts",
    "entropy": "entropy",
    "grad_norm": "gradient norm (log)",
    "shared_4grams": "4-grams shared across prompts",
    "own_prompt": "thoughts told apart by prompt",
    "distinct_words": "different words",
    "self_repetition": "4-grams repeated in a rollout",
    "length": "tokens",
    "clipped": "share cut at the limit",
}
SHARES = {"constant_groups", "ties", "shared_4grams", "own_prompt", "self_repetition", "clipped"}  # drawn from 0 to 1
LOGARITHMIC = {"grad_norm"}
OF_A_RUN = (
    "reward", "in_group_std", "constant_groups", "entropy", "grad_norm",
    "shared_4grams", "own_prompt", "distinct_words", "self_repetition", "length",
)  # fmt: skip
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#17becf")
PANEL_WIDTH, PANEL_HEIGHT, GAP, MARGIN = 220, 90, 18, 8

Series = Mapping[int, float]
Lines = Mapping[str, Series]


def run_picture(title: str, measured: Mapping[str, Series]) -> str:
    """Draw the signals of one run, one small panel each."""
    return picture(title, {key: {"": measured[key]} for key in OF_A_RUN if measured.get(key)})


def picture(title: str, panels: Mapping[str, Lines], columns: int = 5) -> str:
    """Draw panels in a grid.

    Parameters
    ----------
    title
        Text above the panels.
    panels
        Lines by name, all on one scale, for each measure (a key of `LABELS`). Shares are drawn from 0 to 1, others from 0 or
        their minimum to their maximum.
    columns
        Panels in a row.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines if name))
    legend = 16 if names else 0
    rows = math.ceil(len(panels) / columns)
    width = columns * (PANEL_WIDTH + GAP) + MARGIN
    height = 24 + legend + rows * (PANEL_HEIGHT + 2 * GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN}" y="16" font-size="13" font-weight="bold">{escape(title)}</text>',
    ]
    for index, name in enumerate(names):
        colour = COLOURS[index % len(COLOURS)]
        parts.append(f'<text x="{MARGIN + 220 * index}" y="32" font-size="11" fill="{colour}">{escape(name)}</text>')
    colour_of = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)} or {"": COLOURS[0]}
    for index, (key, lines) in enumerate(panels.items()):
        left = MARGIN + (index % columns) * (PANEL_WIDTH + GAP)
        top = 24 + legend + GAP + (index // columns) * (PANEL_HEIGHT + 2 * GAP)
        parts += _panel(key, lines, left, top, colour_of)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(key: str, lines: Lines, left: int, top: int, colours: Mapping[str, str]) -> list[str]:
    log = key in LOGARITHMIC
    points = {name: _points(series, log) for name, series in lines.items()}
    values = [value for pairs in points.values() for _, value in pairs]
    steps = [step for pairs in points.values() for step, _ in pairs]
    frame = f'<rect x="{left}" y="{top}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#ccc"/>'
    parts = [f'<text x="{left}" y="{top - 4}" font-size="11">{escape(LABELS[key])}</text>', frame]
    if not values:
        return parts
    low, high = min(values), max(values)
    if not log:
        low, high = min(0.0, low), 1.0 if key in SHARES else high
    first, last = min(steps), max(steps)
    for name, pairs in points.items():
        path = " ".join(
            f"{left + PANEL_WIDTH * (step - first) / max(1, last - first):.1f},"
            f"{top + PANEL_HEIGHT - 4 - (PANEL_HEIGHT - 8) * (value - low) / max(1e-12, high - low):.1f}"
            for step, value in pairs
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="1"/>')
    shown_low, shown_high = (math.exp(low), math.exp(high)) if log else (low, high)
    right = left + PANEL_WIDTH
    parts.append(f'<text x="{right}" y="{top - 4}" font-size="9" text-anchor="end" fill="#666">{shown_high:.3g}</text>')
    bottom = top + PANEL_HEIGHT
    parts.append(f'<text x="{left}" y="{bottom + 11}" font-size="9" fill="#666">{shown_low:.3g} · step {first}</text>')
    parts.append(f'<text x="{right}" y="{bottom + 11}" font-size="9" text-anchor="end" fill="#666">{last}</text>')
    return parts


def _points(series: Series, log: bool, most: int = 110) -> list[tuple[int, float]]:
    """Finite points in step order; long series are drawn as means of equal stretches."""
    finite = sorted((step, value) for step, value in series.items() if math.isfinite(value))
    if log:
        finite = [(step, math.log(value)) for step, value in finite if value > 0]
    size = max(1, math.ceil(len(finite) / most))
    stretches = [finite[start : start + size] for start in range(0, len(finite), size)]
    return [(part[len(part) // 2][0], sum(value for _, value in part) / len(part)) for part in stretches]
