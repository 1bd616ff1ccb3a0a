"""``echotrap formats``."""

from __future__ import annotations

from echotrap.cli import _console


def formats() -> None:
    """List the formats of logs that can be read; they are recognised by content."""
    from rich.table import Table

    from echotrap.sources import formats as known

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what it is", overflow="fold")
    table.add_column("of several runs without --run", overflow="fold")
    for item in sorted(known().values(), key=lambda item: item.name):
        table.add_row(item.name, item.title, item.picks)
    _console.show(table)
