"""What words cannot see: runs of one symbol, unspaced loops, scripts, redundancy."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from echotrap.text.words import Words

__all__ = ["character_units", "compression", "noise_words", "off_script", "one_symbol", "script_of"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WINDOW = 2000
_SCRIPTS = {
    "latin": "a-zA-Z\u00c0-\u024f\u1e00-\u1eff",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f",
    "indic": "\u0900-\u0dff",
    "southeast-asian": "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff",
    "cjk": "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f",
    "hangul": "\u1100-\u11ff\uac00-\ud7af",
}
_LETTERS = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}


def character_units(texts: Sequence[str]) -> Words:
    """Characters as units, for :func:`echotrap.text.ngrams.repeats`: the first and the last 1,000 of each text."""
    cut = [text if len(text) <= WINDOW else text[: WINDOW // 2] + text[-WINDOW // 2 :] for text in texts]
    starts = np.zeros(len(cut) + 1, np.int64)
    np.cumsum([len(text) for text in cut], out=starts[1:])
    points = np.frombuffer("".join(cut).encode("utf-32-le", "surrogatepass"), np.uint32)
    return Words(points.astype(np.uint64), starts)


def one_symbol(texts: Sequence[str], words: Words, *, least: int = 20) -> Flags:
    """Rollouts more than half of which is one character, or one word, over and over.

    Judged by neighbours: the share of characters (words) that equal the one before. White space does not count, and fewer than
    ``least`` characters are not judged.

    Parameters
    ----------
    texts : sequence of str
        What was written.
    words : Words
        The same texts as words.
    """
    out = np.zeros(len(texts), bool)
    for index, text in enumerate(texts):
        if len(text) < least:
            continue
        symbols = np.frombuffer("".join(text[: 2 * WINDOW].split()).encode("utf-32-le", "surrogatepass"), np.uint32)
        out[index] = len(symbols) >= least and _repeats_itself(symbols)
        if not out[index] and len(own := words.of(index)) >= least // 2:
            out[index] = _repeats_itself(own)
    return out


def _repeats_itself(units: NDArray[np.uint32] | NDArray[np.uint64]) -> bool:
    return bool(np.count_nonzero(units[1:] == units[:-1]) * 2 > len(units))


def compression(texts: Sequence[str]) -> Floats:
    """Mean zlib ratio of each text over full windows of 2,000 characters; NaN for a shorter text.

    The windows are fixed because the ratio grows with length alone: 1.7 to 2.5 on loop-free text of 50 to 1,600 words.
    """
    out = np.full(len(texts), np.nan)
    for index, text in enumerate(texts):
        if len(text) >= WINDOW:
            starts = range(0, len(text) - WINDOW + 1, WINDOW)
            windows = [text[start : start + WINDOW].encode("utf-8", "replace") for start in starts]
            out[index] = np.mean([len(window) / len(zlib.compress(window, 1)) for window in windows])
    return out


def script_of(text: str) -> str:
    """The script that most letters of a text belong to.

    Examples
    --------
    >>> script_of("Take the left path, 左"), script_of("走左边的路 A")
    ('latin', 'cjk')
    """
    if text.isascii():
        return "latin"
    return max(_LETTERS, key=lambda name: len(_LETTERS[name].findall(text)))


def off_script(text: str, script: str) -> tuple[float, int]:
    """Share of a text's letters outside ``script``, and the number of other scripts it uses."""
    if text.isascii():
        letters = sum(map(str.isalpha, text)) if script != "latin" else 0
        return (1.0, 1) if letters else (0.0, 0)
    counts = {name: len(pattern.findall(text)) for name, pattern in _LETTERS.items()}
    total = sum(counts.values())
    others = [name for name, count in counts.items() if count and name != script]
    return (1 - counts[script] / total if total else 0.0), len(others)


def noise_words(words: Words) -> Floats:
    """Share of each text's words that no language has (:class:`echotrap.text.words.Words` marks them); NaN without words."""
    flags = (words.hashes & np.uint64(1)).astype(np.int64)
    sums = np.concatenate(([0], np.cumsum(flags)))
    counts = words.counts
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, (sums[words.starts[1:]] - sums[words.starts[:-1]]) / counts, np.nan)
