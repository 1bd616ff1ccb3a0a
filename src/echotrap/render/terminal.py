"""From Rich to text: one place that knows what a terminal, a pipe or a file can show."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType
from rich.text import Text

from echotrap.render import View

__all__ = ["to_text"]

ASCII = str.maketrans({"·": "-", "…": "...", "—": "-", "─": "-", "→": "->", "▲": "^", "×": "x", "’": "'"})


def to_text(view: View, *parts: RenderableType) -> str:
    """What Rich would print, without trailing blanks, and in ASCII where there is nothing else."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(view.width, 40),
        force_terminal=view.color,
        color_system="standard" if view.color else None,
        no_color=not view.color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))  # what is to be copied stays whole
    text = "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
    return text if view.unicode else text.translate(ASCII).encode("ascii", "replace").decode()
