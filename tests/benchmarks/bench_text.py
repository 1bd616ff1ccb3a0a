"""Text signals against a plain Python loop and scikit-learn, as ratios of one run.

    python tests/benchmarks/bench_text.py [--megabytes 8] [--repeats 5]

The budgets (word level: not slower than the loop, at least ten times faster than CountVectorizer) hold for repetition n = 1 to 4,
cross-rollout share, copies and windowed compression together; everything else that a step gets has lines of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from echotrap.rollouts import Rollout
from echotrap.text import chars, ngrams
from echotrap.text.measure import Start, measure, word_scores
from echotrap.text.words import tokenize

GROUP = 16
WORDS = 600


def corpus(megabytes: float) -> list[str]:
    """Zipf-distributed words, 600 a rollout."""
    rng = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    vocabulary = np.array(["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(20_000)])
    weight = 1 / np.arange(1, len(vocabulary) + 1)
    count = int(megabytes * 1e6 / (WORDS * 6.7)) // GROUP * GROUP
    return [" ".join(rng.choice(vocabulary, WORDS, p=weight / weight.sum())) for _ in range(count)]


def loop(texts: list[str]) -> None:
    """The plain way: sets of tuples, rep-1 to rep-4 and nothing else."""
    for text in texts:
        words = text.lower().split()
        for n in (1, 2, 3, 4):
            grams = list(zip(*(words[i:] for i in range(n)), strict=False))
            _ = 1 - len(set(grams)) / len(grams)


def vectorizer(texts: list[str]) -> None:
    """scikit-learn's 4-gram counts, the start of such a computation there."""
    from sklearn.feature_extraction.text import CountVectorizer

    CountVectorizer(ngram_range=(4, 4)).fit_transform(texts)


def word_level(texts: list[str]) -> None:
    """What the budget covers."""
    words = tokenize([part for text in texts for part in (text, "")])
    word_scores(texts, [""] * len(texts), np.arange(len(texts)) // GROUP, words, Start(), np.empty(0, np.uint64))


def character_level(texts: list[str]) -> None:
    """Repeated character 8-grams and their loops."""
    units, owner = chars.character_units(texts)
    ngrams.loops(ngrams.repeats(units, owner, len(texts), 8), owner, least=40)


def everything(texts: list[str]) -> None:
    """All signals of a step: parsing, words, characters, scripts, justification, retrieval."""
    rollouts = [Rollout(1, text, prompt=f"prompt {i // GROUP}") for i, text in enumerate(texts)]
    measure(rollouts, Start())


def best(work: Callable[[list[str]], None], texts: list[str], repeats: int) -> float:
    """Shortest of several runs: other load on the machine only adds."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work(texts)
        taken.append(time.perf_counter() - begin)
    return min(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    texts = corpus(options.megabytes)
    size = sum(map(len, texts)) / 1e6
    plain = best(loop, texts, options.repeats)
    sklearn = best(vectorizer, texts, max(options.repeats // 3, 1))
    print(f"{len(texts)} rollouts, {size:.1f} MB, best of {options.repeats}")
    print(f"{'work':34}{'s':>8}{'MB/s':>8}{'/ loop':>9}{'CountVectorizer /':>20}")
    for name, work in [
        ("plain loop, rep-1..4", loop),
        ("word level", word_level),
        ("character level", character_level),
        ("everything", everything),
    ]:
        taken = plain if work is loop else best(work, texts, options.repeats)
        print(f"{name:34}{taken:8.2f}{size / taken:8.1f}{taken / plain:9.2f}{sklearn / taken:20.1f}")
    print(f"{'CountVectorizer, 4-grams':34}{sklearn:8.2f}{size / sklearn:8.1f}{sklearn / plain:9.2f}{1:20.1f}")


if __name__ == "__main__":
    main()
