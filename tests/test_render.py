"""Every format against its golden file, and what each promises beyond looking the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from echotrap.render import FORMATS, Result, View, render
from echotrap.report import Report, RunError

UNREADABLE = RunError(
    source="runs/gone.jsonl", kind="unreadable", message="no such file", where="runs/gone.jsonl", cure="check the path"
)


@pytest.fixture
def several(trap_report: Report, healthy_report: Report, scant_report: Report) -> tuple[Result, ...]:
    return (healthy_report, trap_report, UNREADABLE, scant_report)


@pytest.mark.parametrize("format", ["text", "json", "markdown"])
def test_each_format_says_what_it_said(format, several, trap_report, golden: Callable[[str, str], None]) -> None:
    golden(f"trap{FORMATS[format]}", render([trap_report], format))
    golden(f"several{FORMATS[format]}", render(several, format))


def test_text_fits_80_columns_and_is_plain_when_not_a_terminal(several) -> None:
    text = render(several, "text", View(verbose=True))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_text_is_ascii_where_the_terminal_cannot_do_more(several) -> None:
    assert render(several, "text", View(unicode=False, verbose=True)).isascii()
