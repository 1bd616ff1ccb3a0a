"""Repetition inside a text and overlap between texts, for all rollouts of a step at once.

Everything rests on one trick: an n-gram is a 64-bit code, and a sort of ``code << bits | position`` puts equal n-grams side by
side in the order in which they occur. From the sorted array follow the distinct count, the distance to the previous occurrence
(hence loops), and who shares what with whom.

The repetition measures are rep-n of Welleck et al. (1908.04319): ``1 - distinct / all``; the limits of
:func:`gopher_exceeded` are those of Rae et al. (2112.11446, table A1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap.text.words import Hashes, mixed

__all__ = ["Loops", "Overlap", "Repeats", "codes_of", "gopher_exceeded", "loops", "near_copies", "overlap", "repeats"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

OWNER_BITS = 16
MOST_ROLLOUTS = 1 << OWNER_BITS
SKETCH = 64
CHUNK = 1 << 17
_KEYS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)))


def codes_of(units: Hashes, n: int) -> Hashes:
    """A code for each n-gram of a sequence of units; those that span two texts are the caller's to leave out."""
    if len(units) < n:
        return np.empty(0, np.uint64)
    codes = units
    for _ in range(n - 1):  # Horner's rule, with a mix at the end: order matters, products wrap
        codes = codes[:-1] * _KEYS[0] + units[len(units) - len(codes) + 1 :]
    return mixed(codes * _KEYS[1])


class Repeats(NamedTuple):
    """Where n-grams come again inside their own text.

    Attributes
    ----------
    owners : int
        Number of texts.
    totals : (owners,) int64
        n-grams per text.
    positions : (k,) int64
        Where an n-gram begins that stood earlier in the same text, ascending.
    distances : (k,) int64
        How far back it stood last.
    n : int
        Units per n-gram.
    """

    owners: int
    totals: Ints
    positions: Ints
    distances: Ints
    n: int

    def share(self, owner: Ints, without: Flags | None = None) -> Floats:
        """rep-n per text, NaN where the text is shorter than n; n-grams wholly inside ``without`` are no repetition."""
        at = self.positions
        if without is not None and len(at):
            inside = np.ones(len(at), bool)
            for offset in range(self.n):
                inside &= without[at + offset]
            at = at[~inside]
        again = np.bincount(owner[at], minlength=self.owners)
        with np.errstate(invalid="ignore"):
            return np.where(self.totals > 0, again / self.totals, np.nan)


def repeats(units: Hashes, owner: Ints, owners: int, n: int, piece: Ints | None = None) -> Repeats:
    """Find the n-grams that come again inside their own text.

    Parameters
    ----------
    units : (total,) uint64
        Words or characters of all texts, one text after the other.
    owner : (total,) int64
        Text that each belongs to, ascending.
    owners, n : int
        Number of texts; length of the n-grams.
    piece : (total,) int64, optional
        Finer division than ``owner``: n-grams that span two pieces do not count.
    """
    piece = owner if piece is None else piece
    totals = np.zeros(owners, np.int64)
    at, back = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start, stop in _chunks(owner):
        codes = codes_of(units[start:stop], n)
        if not len(codes):
            continue
        positions = np.flatnonzero(piece[start : start + len(codes)] == piece[start + n - 1 : stop])
        mine = owner[start + positions]
        totals += np.bincount(mine, minlength=owners)
        bits = np.uint64(len(codes).bit_length())
        keys = mixed(codes[positions] + mine.astype(np.uint64) * _KEYS[2])
        keys = np.sort(((keys >> bits) << bits) | positions.astype(np.uint64))
        same = np.flatnonzero((keys[1:] >> bits) == (keys[:-1] >> bits))
        mask = (np.uint64(1) << bits) - np.uint64(1)
        second = (keys[same + 1] & mask).astype(np.int64)
        order = np.argsort(second)
        at.append(second[order] + start)
        back.append((second - (keys[same] & mask).astype(np.int64))[order])
    return Repeats(owners, totals, np.concatenate(at), np.concatenate(back), n)


def _chunks(owner: Ints) -> Iterator[tuple[int, int]]:
    """Whole texts, about :data:`CHUNK` units at a time: what fits in the processor's cache is sorted several times faster."""
    start = 0
    while start < len(owner):
        stop = start + CHUNK
        if stop < len(owner):
            stop = int(np.searchsorted(owner, owner[stop - 1], "right"))
        yield start, min(stop, len(owner))
        start = stop


class Loops(NamedTuple):
    """Stretches that repeat what stands right before them; one entry a loop.

    Attributes
    ----------
    start, stop : (k,) int64
        Units from the first period to the last.
    period : (k,) int64
        Units per round.
    longest : (owners,) int64
        Longest stretch of each text that stood earlier in it, loop or not.
    """

    start: Ints
    stop: Ints
    period: Ints
    longest: Ints


def loops(found: Repeats, owner: Ints, *, least: int = 20) -> Loops:
    """Loops of a period of their own, from the distances between equal n-grams.

    A run of positions that all repeat what stood ``d`` units before is a stretch of period ``d``. It is a loop when it makes
    two full rounds more, or one round of a long passage, and covers at least ``least`` units.
    """
    at, back, n = found.positions, found.distances, found.n
    longest = np.zeros(found.owners, np.int64)
    if not len(at):
        return Loops(at, at, at, longest)
    new = np.ones(len(at), bool)
    new[1:] = (np.diff(at) != 1) | (np.diff(back) != 0) | (np.diff(owner[at]) != 0)
    first = np.flatnonzero(new)
    length = np.diff(np.append(first, len(at))) + n - 1
    start, period = at[first], back[first]
    np.maximum.at(longest, owner[start], length)
    is_loop = (length >= np.where(period >= 30, period, 2 * period)) & (length + period >= least)
    start, period, length = start[is_loop], period[is_loop], length[is_loop]
    return Loops(start - period, start + length, period, longest)


def coverage(found: Loops, owner: Ints, counts: Ints) -> Floats:
    """Share of each text's units that lie in a loop; 0 for an empty text."""
    marks = np.zeros(len(owner) + 1, np.int64)
    np.add.at(marks, found.start, 1)
    np.add.at(marks, found.stop, -1)
    inside = np.cumsum(marks[:-1]) > 0
    return np.bincount(owner[inside], minlength=len(counts)) / np.maximum(counts, 1)


@dataclass(frozen=True)
class Overlap:
    """Who shares n-grams with whom.

    Attributes
    ----------
    other_prompts, own_group : (n,) float64
        Share of a rollout's distinct n-grams, known phrases left out, found in a rollout of another prompt, and in another
        rollout of the same group; NaN where there is none to compare with, or no n-gram.
    grams, rollouts_with : arrays
        The step's distinct n-grams (48-bit codes, ascending) and how many rollouts have each.
    elsewhere : (k,) bool
        Which of the distinct n-grams occur under two prompts or more.
    """

    other_prompts: Floats
    own_group: Floats
    grams: Hashes
    rollouts_with: Ints
    elsewhere: Flags


def overlap(codes: Hashes, rollout: Ints, group: Ints, known: Hashes | None = None) -> Overlap:
    """Compare the n-grams of rollouts with one another.

    Parameters
    ----------
    codes : (total,) uint64
        n-grams of all rollouts.
    rollout : (total,) int64
        Rollout of each, fewer than :data:`MOST_ROLLOUTS`.
    group : (n,) int64
        Prompt group of each rollout.
    known : (k,) uint64, optional
        48-bit codes, ascending, that do not count: phrases of the prompt or of the format.
    """
    n = len(group)
    by_group = np.argsort(group, kind="stable")  # rollouts of one group become neighbours in every run of equal n-grams
    rank = np.empty(n, np.uint64)
    rank[by_group] = np.arange(n, dtype=np.uint64)
    bits = np.uint64(OWNER_BITS)
    keys = np.sort(((codes >> bits) << bits) | rank[rollout])
    if len(keys):
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    gram = keys >> bits
    if known is not None and len(known) and len(gram):
        fresh = ~member(gram, known)
        keys, gram = keys[fresh], gram[fresh]
    who = (keys & np.uint64(MOST_ROLLOUTS - 1)).astype(np.int64)
    where = group[by_group][who]
    first = np.flatnonzero(np.concatenate(([True], gram[1:] != gram[:-1]))) if len(gram) else np.empty(0, np.int64)
    size = np.diff(np.append(first, len(gram)))
    elsewhere = where[first] != where[first + size - 1] if len(gram) else np.empty(0, bool)
    in_group = np.zeros(len(gram), bool)
    twin = (gram[1:] == gram[:-1]) & (where[1:] == where[:-1])
    in_group[1:] |= twin
    in_group[:-1] |= twin
    mine = by_group[who]
    distinct = np.bincount(mine, minlength=n)
    crossed = np.bincount(mine[np.repeat(elsewhere, size)], minlength=n)
    within = np.bincount(mine[in_group], minlength=n)
    sizes = np.bincount(group, minlength=int(group.max(initial=-1)) + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        other = np.where((distinct > 0) & (np.count_nonzero(sizes) > 1), crossed / distinct, np.nan)
        own = np.where((distinct > 0) & (sizes[group] > 1), within / distinct, np.nan)
    return Overlap(other, own, gram[first], size, elsewhere)


def member(values: Hashes, known: Hashes) -> Flags:
    """Which values are among the ``known``, which ascend."""
    at = np.searchsorted(known, values)
    at[at == len(known)] = 0
    return known[at] == values if len(known) else np.zeros(len(values), bool)


def near_copies(texts: Sequence[bytes], grams: Sequence[Hashes], group: Ints, own_group: Floats, *, least: float = 0.85) -> Flags:
    """Rollouts that another rollout of their group repeats, exactly or nearly.

    Exact means equal. Near means that the 64 smallest codes of both (a bottom-k sketch) agree by at
    least ``least``; texts of fewer than 8 n-grams must be equal.

    Parameters
    ----------
    texts : sequence of bytes
        What was written, in any form that is equal where the texts are.
    grams : sequence of arrays
        n-gram codes per rollout; only those of candidates are looked at.
    group : (n,) int64
        Prompt group of each.
    own_group : (n,) float64
        :attr:`Overlap.own_group`; a near copy has most of its n-grams in its group.
    """
    n = len(texts)
    out = np.zeros(n, bool)
    seen: dict[tuple[int, bytes], int] = {}
    for index, text in enumerate(texts):
        first = seen.setdefault((int(group[index]), text), index)
        if first != index:
            out[[first, index]] = True
    candidates: dict[int, list[int]] = {}
    for index in np.flatnonzero(np.nan_to_num(own_group) >= least - 0.1).tolist():
        candidates.setdefault(int(group[index]), []).append(index)
    for members in candidates.values():
        if len(members) < 2 or out[members].all():
            continue
        sketches = {index: _sketch(grams[index]) for index in members}
        members = [index for index in members if len(sketches[index]) >= 8]
        if len(members) < 2:
            continue
        vocabulary = np.sort(np.concatenate([sketches[index] for index in members]))
        has = np.zeros((len(members), len(vocabulary)), np.float32)
        for row, index in enumerate(members):
            has[row, np.searchsorted(vocabulary, sketches[index])] = 1
        size = has.sum(1)
        alike = (has @ has.T) / np.minimum(size[:, None], size[None, :])
        np.fill_diagonal(alike, 0)
        out[np.array(members)[(alike >= least).any(1)]] = True
    return out


def _sketch(codes: Hashes) -> Hashes:
    codes = np.sort(codes)
    return codes[np.concatenate(([True], codes[1:] != codes[:-1]))][:SKETCH] if len(codes) else codes


_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
_DUPLICATE_LINES = 0.30


def gopher_shares(text: str) -> dict[str, float]:
    """Repetition of one text as Gopher's filter measures it, each as a share.

    ``top_n``: characters in the most frequent word n-gram (2 to 4) over all; ``duplicate_n``: characters in word n-grams
    (5 to 10) that stood before, none counted twice; ``duplicate_lines``: lines that stood before.

    Examples
    --------
    >>> gopher_shares("go left go left go left stop")["top_2"].__round__(3)
    0.818
    """
    words = text.lower().split()
    letters = max(sum(map(len, words)), 1)
    shares: dict[str, float] = {}
    for n in _TOP:
        counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
        gram, count = counts.most_common(1)[0] if counts else ((), 0)
        shares[f"top_{n}"] = count * sum(map(len, gram)) / letters if count > 1 else 0.0
    for n in _DUPLICATE:
        seen: set[tuple[str, ...]] = set()
        covered_to = covered = 0
        for start, gram in enumerate(zip(*(words[i:] for i in range(n)), strict=False)):
            if gram in seen:
                covered += sum(map(len, words[max(start, covered_to) : start + n]))
                covered_to = start + n
            seen.add(gram)
        shares[f"duplicate_{n}"] = covered / letters
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shares["duplicate_lines"] = 1 - len(set(lines)) / len(lines) if lines else 0.0
    return shares


def gopher_exceeded(text: str) -> bool:
    """Whether a text is over any of Gopher's repetition limits."""
    shares = gopher_shares(text)
    return (
        any(shares[f"top_{n}"] > limit for n, limit in _TOP.items())
        or any(shares[f"duplicate_{n}"] > limit for n, limit in _DUPLICATE.items())
        or shares["duplicate_lines"] > _DUPLICATE_LINES
    )
