"""What words cannot see: runs of one symbol, unspaced loops, scripts, redundancy."""

from __future__ import annotations

import re
import string
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from echotrap.text.words import Hashes, Words

__all__ = ["character_units", "compression", "noise_words", "off_script", "one_symbol", "script_of"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WINDOW = 2000
_BRACKETED = re.compile(r"<[^<>]{1,30}>|><")
_BYTES = [chr(code) for code in range(256)]
_KIND = np.array([1 if "a" <= byte <= "z" else 2 if byte.isdecimal() else 0 for byte in _BYTES], np.uint8)
_COUNTED = np.array([("a" <= byte <= "z") | (byte in "aeiouy") << 16 | (byte > "\x7f") << 32 for byte in _BYTES], np.uint64)
_MARKS = frozenset(string.punctuation + "\ufffd")
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


def character_units(texts: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
    """Characters as units for :func:`echotrap.text.ngrams.repeats`, and the text of each: the first and last 1,000 of a text."""
    cut = [text if len(text) <= WINDOW else text[: WINDOW // 2] + text[-WINDOW // 2 :] for text in texts]
    points = np.frombuffer("".join(cut).encode("utf-32-le", "surrogatepass"), np.uint32)
    return points.astype(np.uint64), np.repeat(np.arange(len(cut)), [len(text) for text in cut])


def one_symbol(texts: Sequence[str], *, least: int = 20) -> Flags:
    """Rollouts that are one symbol over and over: token 0 of the vocabulary, whatever the context.

    Token 0 is ``!`` in most byte-level vocabularies and a token in angle brackets in the others: either must make more than half
    of the rollout. Of any other punctuation mark nine tenths are asked for. Letters and words are never such a symbol: a policy
    that loops repeats those, broken numerics do not. White space is left out; fewer than ``least`` characters are not judged.

    Examples
    --------
    >>> one_symbol(["!" * 40, "! " * 40, "<unk>" * 20, "=" * 40, "a " * 40, "a table | - | - | - |"]).tolist()
    [True, True, True, True, False, False]
    """
    out = np.zeros(len(texts), bool)
    for index, text in enumerate(texts):
        solid = "".join(text[: 2 * WINDOW].split()) if len(text) >= least else ""
        if len(solid) < least:
            continue
        [(mark, _)] = Counter(solid[:: len(solid) // least]).most_common(1)  # twenty to forty of them tell which it would be
        if mark in _MARKS:
            out[index] = solid.count(mark) > len(solid) * (0.5 if mark == "!" else 0.9)
        if "><" in solid:
            token, count = Counter(_BRACKETED.findall(solid)).most_common(1)[0]
            out[index] |= count >= least // 4 and 2 * count * len(token) > len(solid)
    return out


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


def noise_words(words: Words) -> Flags:
    """Words that no language has: five letters or more without a vowel, over 32 bytes, or letters and digits that take turns.

    Words that are not plain ASCII are never such: their scripts have their own vowels.
    """
    # One running sum counts three kinds of bytes at once, 16 bits each; differences between a word's ends are the word's counts.
    kind = _KIND[words.buffer]
    sums = np.zeros(len(kind) + 1, np.uint64)
    np.cumsum(_COUNTED[words.buffer], out=sums[1:])
    turn = np.flatnonzero(kind[1:] * kind[:-1] == 2) + 1  # a letter beside a digit
    sizes = words.ends - words.begins
    counts = sums[words.ends] - sums[words.begins]
    letters, vowels, others = ((counts >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32))
    turns = np.searchsorted(turn, words.ends) - np.searchsorted(turn, words.begins + 1)
    mute = (letters == sizes.astype(np.uint64)) & (vowels == 0)
    return np.asarray(((sizes > 32) | mute | (turns >= 3)) & (sizes >= 5) & (others == 0))
