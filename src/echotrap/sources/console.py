"""Console text: whatever a framework printed, between progress bars, warnings and stack traces.

Each dialect is a function from one clean line to a row, or to nothing; the reader tries them in order. Lines may carry Ray
prefixes, ANSI codes, carriage returns and ``np.float64(..)``, and may have been cut at 4,096 characters: what is whole is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from echotrap.sources.base import Format, Head, Note, Options, Reader, Row, run_name
from echotrap.sources.jsonl import MAX_DEPTH, parse, row_of
from echotrap.sources.lines import Lines

__all__ = ["FORMAT", "Console", "rows_in"]

CUT_AT = 4090
MAX_TEXT = 1 << 16
MAX_SCAN = 1 << 26

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
RAY = re.compile(r"\(\w{1,80}+(?: [^()]{0,80})? ?pid=\d{1,12}[^()]{0,80}\)\s?")
WRAPPED = re.compile(r"\b(?:np|numpy|torch)\.\w{1,20}\(([^()]{0,60})\)|\btensor\(([^(),]{0,60})[^()]{0,120}\)")
NUMBER = r"[-+]?(?:\d[\d_]*+(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+"  # possessive: no backtracking over long digits
PAIR = re.compile(
    rf"""(?P<quote>['"])(?P<key>[^'"\n]{{1,200}})(?P=quote)\s*:\s*"""
    rf"""(?:(?P<number>{NUMBER}|[-+]?(?:nan|NaN|inf|Infinity)\b|None\b|null\b|True\b|False\b|true\b|false\b)(?=\s*[,}}\]])"""
    rf"""|(?P<mark>['"])(?P<text>[^'"\n]{{0,200}})(?P=mark)|(?P<open>\{{))|(?P<close>\}})"""
)
WORD = re.compile(
    r"(?:^|[/_ .])(?:loss|rewards?|entropy|grad(?:ient)?[_ .]*norm|kl|score|scores|return|accuracy)(?:$|[/_ .])", re.IGNORECASE
)
SETTING = re.compile(
    r"(?:coeff?|weights?|type|mode|fn|func|name|path|model|beta|ctrl|scale|target|threshold|steps)$", re.IGNORECASE
)
"""A line of numbers is a metrics row if one of its keys says such a thing, and is not a setting."""

SUMMARY = "train_runtime"
CONSTANTS = {"None": None, "null": None, "True": True, "False": False, "true": True, "false": False}

Dialect = Callable[[str, int, bool], Row | None]


def _value(text: str) -> float | str | None:
    if text in CONSTANTS:
        return CONSTANTS[text]
    try:
        return float(text)
    except ValueError:
        return text


def _telling(values: dict[str, Any]) -> bool:
    return SUMMARY in values or any(
        WORD.search(key) and not SETTING.search(key) and not isinstance(value, bool) for key, value in values.items()
    )


def _pairs(text: str) -> dict[str, Any]:
    """The key-value pairs of a printed dict, nested ones as ``outer/inner``, as far as it goes."""
    values: dict[str, Any] = {}
    outer: list[str] = []  # the key of each mapping we are in, with those around it
    for match in PAIR.finditer(WRAPPED.sub(lambda found: found[1] or found[2] or "", text)):
        if match["close"]:
            del outer[-1:]
            continue
        key = (outer[-1] if outer else "") + match["key"]
        if match["open"]:
            outer.append(f"{key}/" if len(outer) < MAX_DEPTH else outer[-1])
        elif match["number"] is not None:
            values[key] = _value(match["number"])
        else:
            values[key] = match["text"]  # TRL prints numbers as strings; the text of others does no harm
    return values


# -- dialects ----------------------------------------------------------------------------------------------------------------

_VERL = re.compile(r"\bstep:(\d+) - (?=\S+:)")
_VERL_FIELD = re.compile(r"(.+?):(?:np\.\w+\()?([^\s():]+)\)?")


def verl(text: str, line: int, cut: bool) -> Row | None:
    """``step:12 - actor/entropy:0.5 - critic/score/mean:np.float64(0.4)``."""
    start = _VERL.search(text)
    if start is None:
        return None
    fields = text[start.end() :].split(" - ")
    if cut:
        fields.pop()
    values = {}
    for item in fields:
        if (match := _VERL_FIELD.fullmatch(item.strip())) and isinstance(value := _value(match[2]), float):
            values[match[1]] = value
    return Row(values, int(start[1]), line) if values else None


_ROLL = re.compile(r"metrics_tag:\s*(\{.*)")


def roll(text: str, line: int, cut: bool) -> Row | None:
    """``metrics_tag: {"step": 3, "metrics": {..}}``."""
    found = _ROLL.search(text)
    if found is None:
        return None
    values = _pairs(found[1])
    step = values.pop("step", None)
    values = {key.removeprefix("metrics/"): value for key, value in values.items()}
    return Row(values, int(step) if isinstance(step, float) else None, line) if values else None


_NUMBERED = re.compile(r"\b(rollout|perf|eval|train|step|iter|iteration|update)\s+(\d+)\s*:\s*$", re.IGNORECASE)


def printed_dict(text: str, line: int, cut: bool) -> Row | None:
    """``{'loss': 0.0, 'reward': '0.5'}`` of TRL, HF and ms-swift, and ``rollout 12: {..}`` of slime."""
    start = text.find("{")
    if start < 0 or "}" not in text[start:]:
        return None
    if start == 0 and text.endswith("}"):
        try:
            record = parse(text.encode())
        except ValueError:
            pass
        else:
            row = row_of(record, line)
            return row if _telling(row.values) else None
    values = _pairs(text[start:])
    named = _NUMBERED.search(text[:start])
    if len(values) < 2 or not (_telling(values) or named):
        return None
    if named is None:
        return Row(values, None, line)
    return Row(values, int(named[2]), line, split="eval" if named[1].lower() == "eval" else "train")


_PIPED = re.compile(r"\b(?:step|iter|iteration|update)\s*[:=#]?\s*(\d+)(?:\s*/\s*\d+)?\s*\|(.+)", re.IGNORECASE)
_PIPED_FIELD = re.compile(rf"\s*([A-Za-z][\w ./()%-]{{0,80}}?)\s*[:=]?\s*({NUMBER}|nan|inf|-inf)\s*[%\w/]*\s*")


def piped(text: str, line: int, cut: bool) -> Row | None:
    """``Step 12 | Loss 0.01 | Entropy 0.4 | Mismatch KL 0.002``."""
    start = _PIPED.search(text)
    if start is None:
        return None
    values = {}
    for item in start[2].split("|"):
        if match := _PIPED_FIELD.fullmatch(item):
            values[re.sub(r"[ .]+", "_", match[1].strip().lower()).strip("_")] = _value(match[2])
    return Row(values, int(start[1]), line) if _telling(values) else None


_LOOP = re.compile(
    r"\b(step|iter|iteration|update|episode|epoch)\s*[:=#]?\s*\[?(\d+)(?:\s*/\s*\d+)?\]?(?![\d.%])(.*)", re.IGNORECASE
)
_LOOP_FIELD = re.compile(rf"(?<![\w/.-])([A-Za-z][\w/.-]{{0,120}}+)\s*[:=]\s*({NUMBER}|nan|inf|-inf)(?![\w.])")


def home_made(text: str, line: int, cut: bool) -> Row | None:
    """``[step 12] reward=0.5 loss=0.1`` and the like, of loops that people write themselves."""
    if "=" not in text and ":" not in text:
        return None
    start = _LOOP.search(text)
    if start is None:
        return None
    found = _LOOP_FIELD.findall(start[3])
    values = {key: _value(value) for key, value in (found[:-1] if cut else found)}
    if len(values) < 2 or not _telling(values):
        return None
    if start[1].lower() in ("epoch", "episode"):
        return Row({**values, start[1].lower(): float(start[2])}, None, line)
    return Row(values, int(start[2]), line)


DIALECTS: tuple[Dialect, ...] = (verl, roll, printed_dict, piped, home_made)


# -- blocks of several lines ---------------------------------------------------------------------------------------------------

_STEP_BLOCK = re.compile(r"\bstep\s+(\d+):\s*(\{.*)?$", re.IGNORECASE)


class _Text:
    """Lines of one file in, rows out; remembers tables and dicts that span lines."""

    def __init__(self) -> None:
        self.header: list[str] = []
        self.block: list[str] = []
        self.block_step = 0
        self.boxed: dict[str, Any] = {}
        self.boxed_step: int | None = None
        self.cut = 0

    def rows(self, raw: bytes, number: int) -> Iterator[Row]:
        """The rows that a line completes."""
        if len(raw) > MAX_TEXT:
            raw = raw[:MAX_TEXT]
        for part in raw.split(b"\r"):
            if len(part) < 3:
                continue
            text = part.decode("utf-8", "replace")
            cut = len(text) >= CUT_AT
            if "\x1b" in text:
                text = ANSI.sub("", text)
            if "pid=" in text:
                text = RAY.sub("", text)
            text = text.strip()
            if self.block:
                yield from self._continue(text, number)
                continue
            if (start := _STEP_BLOCK.search(text)) and not (start[2] or "").endswith("}"):
                self.block, self.block_step = [start[2] or ""], int(start[1])
                continue
            if text[:1] in BOX or self.boxed:
                if pairs := _boxed_cells(text):
                    self.boxed |= pairs
                    continue
                if text[:1] not in BOX_SIDES and self.boxed:  # the lower border, or what follows the table
                    yield Row(self.boxed, self.boxed_step, number)
                    self.boxed = {}
                if text[:1] in BOX:
                    continue
            if steps := _TOLD_STEP.findall(text):
                self.boxed_step = int(steps[-1])
            if "|" in text or "\t" in text:
                cells = _cells(text)
                if cells and cells[0].lower() in ("step", "global_step", "iteration") and len(cells) > 1:
                    self.header = [_heading(cell) for cell in cells]
                    continue
                if self.header and (row := self._table_row(cells, number)):
                    yield row
                    continue
            for dialect in DIALECTS:
                if row := dialect(text, number, cut):
                    self.cut += cut
                    yield row
                    break

    def _continue(self, text: str, number: int) -> Iterator[Row]:
        self.block.append(text)
        joined = " ".join(self.block)
        opened, closed = joined.count("{"), joined.count("}")
        if (len(self.block) > 2 and not opened) or len(self.block) > 2000:
            self.block = []
        elif opened and opened <= closed:
            values = _pairs(joined)
            self.block = []
            if values:
                yield Row(values, self.block_step, number)

    def _table_row(self, cells: list[str], number: int) -> Row | None:
        if len(cells) != len(self.header) or not cells[0].isdigit():
            return None
        values = {key: _value(cell.replace(",", "")) for key, cell in zip(self.header[1:], cells[1:], strict=True) if cell}
        return Row(values, int(cells[0]), number)


BOX_SIDES = frozenset("│┃|")
BOX = frozenset("│┃┌└╭╰┏┗├┡╞┣┢+")
_TOLD_STEP = re.compile(r"\bstep:?\s+(\d{1,12})\b", re.IGNORECASE)
_BOXED = re.compile(rf"[│┃|]\s*([A-Za-z][\w/@.:-]{{0,120}}/[\w/@.:-]{{0,120}})\s*[│┃|]\s*({NUMBER}|nan|inf|-inf)\s*(?=[│┃|])")


def _boxed_cells(text: str) -> dict[str, Any]:
    """Keys and numbers side by side in a printed table (AReaL, Tinker)."""
    return {key: _value(value) for key, value in _BOXED.findall(text)}


def _cells(text: str) -> list[str]:
    parts = text.strip("| ").split("|") if "|" in text else text.split("\t")
    return [part.strip() for part in parts]


def _heading(cell: str) -> str:
    name = re.sub(r"\s*/\s*", "/", cell)
    return {"Training Loss": "loss", "Validation Loss": "eval/loss"}.get(name, name)


def rows_in(data: bytes) -> Iterator[Row]:
    """The rows in a piece of console text."""
    text = _Text()
    for number, line in enumerate(data.split(b"\n"), start=1):
        yield from text.rows(line, number)


class Console(Reader):
    """Reads console text and follows it."""

    lossy = True

    def __init__(self, path: Path) -> None:
        super().__init__(run_name(path))
        self.lines, self.text = Lines(path), _Text()
        self.files = [str(path)]

    def poll(self) -> Iterator[Row]:  # noqa: D102 - documented in the base class
        lines = self.lines
        for block in lines.poll():
            if lines.rewound and lines.count == len(block):
                self.rewound, self.text = True, _Text()
            number = lines.count - len(block)
            for line in block:
                number += 1
                yield from self.text.rows(line, number)
        rest = lines.rest.strip()
        if rest.endswith(b"}"):
            lines.take_rest()
            yield from self.text.rows(rest, lines.count + 1)
        self.notes = []
        if self.text.cut:
            self.notes.append(Note("skipped", "lines were cut at 4,096 characters; their last fields are lost", self.text.cut))
        if lines.rest.strip():
            self.notes.append(Note("skipped", "the last line is incomplete and was left out"))
        if lines.damaged:
            self.notes.append(Note("skipped", "the compressed stream breaks off; what came before was read"))


_PREAMBLE = re.compile(rb"\bpid=\d{1,12}\b|\b(?:INFO|WARNING|DEBUG)\b|\d%\|")


def _sniff(head: Head) -> float:
    if not head.data or head.path is None or b"\0" in head.data:
        return 0.0
    if next(rows_in(head.data), None) is not None:
        return 0.8
    read, text = 0, _Text()
    for block in Lines(head.path).poll():  # a long preamble may come first
        for line in block:
            if next(text.rows(line, 0), None) is not None:
                return 0.5
            read += len(line)
        if read > MAX_SCAN:
            break
    return 0.05 if len(_PREAMBLE.findall(head.data)) >= 3 else 0.0  # a run that has just begun


def _open(location: str, options: Options) -> Reader:
    return Console(Path(location))


FORMAT = Format("console", "console text", _sniff, _open)
