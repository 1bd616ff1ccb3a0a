"""Words of many texts at once, as 64-bit hashes.

A word is a run of letters, digits and underscores, lower-cased; a character of a script that is written without spaces is a
word of its own. Punctuation is none (runs of it are seen by :mod:`echotrap.text.chars`). The hash of a word is the same in
every process and at every step, so that n-grams of different steps can be compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hashes", "Words", "locate", "tokenize"]

Hashes = NDArray[np.uint64]

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"  # kana, Chinese characters
    "\U00020000-\U0003ffff"
)
_ISOLATE = re.compile(rf"[^\w\x00-\x7f]|([{UNSPACED}])")
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_KEEP = bytes(code if chr(code).isalnum() or chr(code) == "_" or code > 127 else 32 for code in range(256))
_VOWEL = re.compile(rb"[aeiouy]")
_SWITCH = re.compile(rb"[a-z][0-9]|[0-9][a-z]")
_LIMIT = 2_000_000


@dataclass(frozen=True)
class Words:
    """The words of ``n`` texts, one after the other.

    Attributes
    ----------
    hashes : (total,) uint64
        One hash a word; its lowest bit marks a word that no language has (see :class:`_Vocabulary`).
    starts : (n + 1,) int64
        Text ``i`` is ``hashes[starts[i]:starts[i + 1]]``.
    """

    hashes: Hashes
    starts: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Words per text."""
        return np.diff(self.starts)

    @property
    def owner(self) -> NDArray[np.int64]:
        """Text that each word belongs to."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def of(self, index: int) -> Hashes:
        """Words of one text."""
        return self.hashes[self.starts[index] : self.starts[index + 1]]


class _Vocabulary(dict[bytes, int]):
    """Word to hash, filled as words are met.

    The lowest bit says that the word looks like noise: over 32 bytes, five or more letters and no vowel, or letters and digits
    that change places three times. Keeping it here costs nothing per occurrence.
    """

    def __missing__(self, word: bytes) -> int:
        if len(self) > _LIMIT:
            self.clear()
        value = int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little") & ~1
        if len(word) >= 5 and word.isascii():
            odd = len(word) > 32 or (word.isalpha() and not _VOWEL.search(word)) or len(_SWITCH.findall(word)) >= 3
            value |= odd
        self[word] = value
        return value


_vocabulary = _Vocabulary()


def tokenize(texts: Sequence[str]) -> Words:
    """Split texts into words.

    Examples
    --------
    >>> tokenize(["So, so!", "", "我要拉"]).counts.tolist()
    [2, 0, 3]
    """
    lists = [_split(text) for text in texts]
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(words) for words in lists], out=starts[1:])
    values = map(_vocabulary.__getitem__, chain.from_iterable(lists))
    return Words(np.fromiter(values, np.uint64, int(starts[-1])), starts)


def _split(text: str) -> list[bytes]:
    if not text.isascii():
        text = _ISOLATE.sub(lambda match: f" {match[1]} " if match[1] else " ", text)
    return text.lower().encode("utf-8", "replace").translate(_KEEP).split()


def locate(text: str) -> tuple[Hashes, list[tuple[int, int]]]:
    """Words of one text with where they stand: the slow way, for the few texts that are shown."""
    spans, values = [], []
    for match in _WORD.finditer(text):
        spans.append(match.span())
        values.append(_vocabulary[match.group().lower().encode("utf-8", "replace")])
    return np.array(values, np.uint64), spans


def specifics(texts: Sequence[str]) -> Iterator[Hashes]:
    """Per text, the distinct words that at most half of the texts have: what is particular about each.

    One-letter words and the like are left out; digits are kept.
    """
    lists = [[_vocabulary[word] for word in _split(text) if len(word) > 2 or word.isdigit()] for text in texts]
    words = [np.array(sorted(set(values)), np.uint64) for values in lists]
    every = np.sort(np.concatenate(words)) if words else np.empty(0, np.uint64)
    for own in words:
        shared = np.searchsorted(every, own, "right") - np.searchsorted(every, own, "left")
        yield own[shared * 2 <= len(texts)]
