"""Words of many texts at once, as 64-bit hashes.

A word is a run of letters, digits and underscores, lower-cased; a character of a script that is written without spaces is a
word of its own. Punctuation is none (runs of it are seen by :mod:`echotrap.text.chars`). The hash of a word is the same in
every process and at every step, so that n-grams of different steps can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hashes", "Words", "locate", "mixed", "specifics", "tokenize"]

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"  # kana, Chinese characters
    "\U00020000-\U0003ffff"
)
_ISOLATE = re.compile(rf"[^\w\x00-\x7f]|([{UNSPACED}])")
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_KEEP = np.array([chr(code).isalnum() or chr(code) == "_" or code > 127 for code in range(256)])
_BYTES = 8  # read at once
_LONGEST = 64  # bytes of a word that its hash looks at
_MASK = np.array([(1 << 8 * size) - 1 for size in range(_BYTES + 1)], np.uint64)
_ODD = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Words:
    """The words of ``n`` texts, one after the other.

    Attributes
    ----------
    hashes : (total,) uint64
        One hash a word.
    starts : (n + 1,) int64
        Text ``i`` is ``hashes[starts[i]:starts[i + 1]]``.
    buffer : (bytes,) uint8
        The texts, lower-cased, as UTF-8.
    begins, ends : (total,) int64
        Where in it each word is.
    """

    hashes: Hashes
    starts: Ints
    buffer: NDArray[np.uint8]
    begins: Ints
    ends: Ints

    @property
    def counts(self) -> Ints:
        """Words per text."""
        return np.diff(self.starts)

    @property
    def owner(self) -> Ints:
        """Text that each word belongs to."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def of(self, index: int) -> Hashes:
        """Words of one text."""
        return self.hashes[self.starts[index] : self.starts[index + 1]]


def mixed(codes: Hashes) -> Hashes:
    """Spread the bits of codes, so that any part of them serves as a hash."""
    codes = (codes ^ (codes >> np.uint64(32))) * _ODD[0]
    return codes ^ (codes >> np.uint64(29))


def tokenize(texts: Sequence[str]) -> Words:
    """Split texts into words.

    Examples
    --------
    >>> tokenize(["So, so!", "", "我要拉"]).counts.tolist()
    [2, 0, 3]
    """
    parts = [_spaced(text).lower().encode("utf-8", "replace") for text in texts]
    buffer = np.frombuffer(b"\n".join([*parts, b"\0" * _BYTES]), np.uint8)
    inside = _KEEP[buffer]
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    if inside[0]:
        edges = np.concatenate(([0], edges))
    begins, ends = edges[0::2], edges[1::2]  # the padding ends the last word
    limits = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) + 1 for part in parts], out=limits[1:])
    return Words(_hashed(buffer, begins, ends), np.searchsorted(begins, limits), buffer, begins, ends)


def _hashed(buffer: NDArray[np.uint8], begins: Ints, ends: Ints) -> Hashes:
    """Hash words eight bytes at a time: nearly all are done after the first or second eight."""
    eights = np.ndarray((len(buffer) - _BYTES + 1,), np.dtype("<u8"), buffer, strides=(1,))
    sizes = ends - begins
    hashes = mixed(eights[begins] & _MASK[np.minimum(sizes, _BYTES)])
    longer = np.flatnonzero(sizes > _BYTES)
    for offset in range(_BYTES, _LONGEST, _BYTES):
        if not len(longer):
            break
        more = eights[begins[longer] + offset] & _MASK[np.minimum(sizes[longer] - offset, _BYTES)]
        hashes[longer] = mixed(hashes[longer] * _ODD[1] + more)
        longer = longer[sizes[longer] > offset + _BYTES]
    hashes[longer] += sizes[longer].astype(np.uint64) * _ODD[1]
    return hashes


def _spaced(text: str) -> str:
    if text.isascii():
        return text
    return _ISOLATE.sub(lambda match: f" {match[1]} " if match[1] else " ", text)


def locate(text: str) -> tuple[Hashes, list[tuple[int, int]]]:
    """Words of one text with where they stand: for the few texts that are shown."""
    return tokenize([text]).hashes, [match.span() for match in _WORD.finditer(text)]


def specifics(texts: Sequence[str]) -> Iterator[Hashes]:
    """Per text, the distinct words that at most half of the texts have: what is particular about each.

    Words of one and two letters are left out; numbers are kept.
    """
    words = tokenize(texts)
    first = words.buffer[words.begins]
    telling = (words.ends - words.begins > 2) | ((first >= ord("0")) & (first <= ord("9")))
    lists = [words.of(i)[telling[words.starts[i] : words.starts[i + 1]]] for i in range(len(texts))]
    distinct = [np.array(sorted(set(values.tolist())), np.uint64) for values in lists]
    every = np.sort(np.concatenate(distinct)) if distinct else np.empty(0, np.uint64)
    for own in distinct:
        shared = np.searchsorted(every, own, "right") - np.searchsorted(every, own, "left")
        yield own[shared * 2 <= len(texts)]
