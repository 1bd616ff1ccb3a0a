"""Does the reasoning still belong to its prompt? RAGEN-2's template collapse, measured on text alone.

RAGEN-2 (2604.06268) scores each reasoning under each prompt with the policy's log-probs. Its appendix F allows any fixed scorer;
here it is a bigram model per prompt group, learned from the group's other rollouts. Every model leaves one rollout out, its own
or a random one: with unequal sample sizes a collapsed policy would retrieve worse than chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from echotrap.text.ngrams import codes_of
from echotrap.text.words import Hashes, tokenize

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Clusters", "Regime", "Retrieval", "clusters", "regime", "retrieval"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_GROUPS, MOST_PER_GROUP, MOST_WORDS = 16, 8, 512
PAIR, WORD = 0.5, 0.6  # weight of the group's bigrams over its words, and of its words over the step's
STD_FLOOR = 1e-3  # RAGEN-2, collapse_metrics.py
SAME_STORY = 0.85  # cosine of two centres from which they are one
ALIKE = 0.85  # within-prompt similarity from which a policy counts as deterministic; the synthetic regimes have 0.2-0.7 and 1.0

Regime = Literal["diverse", "compressed", "template", "low-entropy"]


class Retrieval(NamedTuple):
    """How well reasonings can be told apart by prompt.

    Attributes
    ----------
    accuracy, chance : float
        Share of reasonings whose own prompt's model scores them best, and what guessing would give.
    nearest, nearest_chance : float
        Share whose nearest neighbour (1-3-gram Jaccard) has the same prompt, and what guessing would give.
    mi, zscore : float
        Matched minus marginal score, nats per bigram; the same over the standard deviation of the marginal.
    within, across : float
        Mean 1-3-gram Jaccard similarity inside a prompt, and between prompts.
    """

    accuracy: float
    chance: float
    nearest: float
    nearest_chance: float
    mi: float
    zscore: float
    within: float
    across: float


def regime(found: Retrieval) -> Regime:
    """Place a step on RAGEN-2's map: whether the reasoning varies with the prompt, and whether it varies within one."""
    tied = found.accuracy - found.chance > 0.4 * (1 - found.chance)
    same = found.within >= ALIKE
    return ("compressed" if same else "diverse") if tied else ("low-entropy" if same else "template")


def retrieval(reasonings: Sequence[Hashes], group: Ints, *, seed: int = 0) -> Retrieval | None:
    """Measure how much the reasonings of one step tell about their prompts.

    Parameters
    ----------
    reasonings : sequence of arrays
        Words of each reasoning; those of fewer than four words are left out.
    group : (n,) int64
        Prompt group of each.
    seed : int
        At most 16 groups of 8 rollouts are compared; this draws them, and the rollouts left out.

    Returns
    -------
    Retrieval or None
        ``None`` with fewer than four groups of at least two rollouts: there is nothing to tell apart.
    """
    rng = np.random.default_rng(seed)
    usable = np.array([index for index, words in enumerate(reasonings) if len(words) >= 4], np.int64)
    names, sizes = np.unique(group[usable], return_counts=True)
    names = names[sizes >= 2]
    if len(names) < 4:
        return None
    if len(names) > MOST_GROUPS:
        names = np.sort(rng.choice(names, MOST_GROUPS, replace=False))
    rows, label = [], []
    for place, name in enumerate(names):
        members = usable[group[usable] == name]
        if len(members) > MOST_PER_GROUP:
            members = np.sort(rng.choice(members, MOST_PER_GROUP, replace=False))
        rows += [reasonings[index][:MOST_WORDS] for index in members]
        label += [place] * len(members)
    own = np.array(label)
    score = _scores(rows, own, len(names), rng)
    n = len(rows)
    best = score.max(1, keepdims=True)
    ties = np.isclose(score, best, rtol=0, atol=1e-9)  # equal models, equal right to be the answer
    mine = score[np.arange(n), own]
    marginal = np.log(np.mean(np.exp(score - best), axis=1)) + best[:, 0]
    alike = _jaccard(rows)
    same = own[:, None] == own[None, :]
    np.fill_diagonal(alike, -1)
    top = np.isclose(alike, alike.max(1, keepdims=True), rtol=0, atol=1e-9)
    off = ~np.eye(n, dtype=bool)
    counts = np.bincount(own)
    return Retrieval(
        accuracy=float(np.mean(ties[np.arange(n), own] / ties.sum(1))),
        chance=1 / len(names),
        nearest=float(np.mean((top & same).sum(1) / top.sum(1))),
        nearest_chance=float(np.mean((counts[own] - 1) / (n - 1))),
        mi=float(np.mean(mine - marginal)),
        zscore=float(np.mean((mine - marginal) / (marginal.std() + STD_FLOOR))),
        within=float(alike[same & off].mean()),
        across=float(alike[~same].mean()),
    )


def _scores(rows: Sequence[Hashes], own: Ints, groups: int, rng: np.random.Generator) -> Floats:
    """Mean log-probability of each reasoning under each group's model, (n, groups)."""
    from scipy.sparse import csr_array

    word, index = np.unique(np.concatenate(rows), return_inverse=True)
    starts = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    document = np.repeat(np.arange(len(rows)), np.diff(starts))
    inside = document[:-1] == document[1:]
    pair, column = np.unique(index[:-1][inside] * len(word) + index[1:][inside], return_inverse=True)
    shape = (len(rows), len(pair))
    counts: csr_array = csr_array((np.ones(len(column)), (document[:-1][inside], column)), shape=shape)
    counts.sum_duplicates()
    before, after = pair // len(word), pair % len(word)
    usual = np.bincount(index, minlength=len(word)) + 1.0
    usual /= usual.sum()
    total = np.zeros((groups, len(pair)))
    for place in range(groups):
        members = np.flatnonzero(own == place)
        total[place] = counts[members].sum(0)
    context = np.array([np.bincount(before, weights=row, minlength=len(word)) for row in total])
    spoken = np.array([np.bincount(after, weights=row, minlength=len(word)) for row in total])

    def without(place: int, row: int, columns: NDArray[np.integer]) -> Floats:
        """Log-probability of some bigrams in the group's model, with one of its documents taken out."""
        mine = slice(counts.indptr[row], counts.indptr[row + 1])
        pairs, times = counts.indices[mine], counts.data[mine]
        taken = np.zeros(len(pair))
        taken[pairs] = times
        seen = (total[place] - taken)[columns]
        preceding = (context[place] - np.bincount(before[pairs], weights=times, minlength=len(word)))[before[columns]]
        single = spoken[place] - np.bincount(after[pairs], weights=times, minlength=len(word))
        word_model = WORD * single / max(single.sum(), 1) + (1 - WORD) * usual
        follows = np.divide(seen, preceding, out=np.zeros_like(seen), where=preceding > 0)
        weight = np.where(preceding > 0, PAIR, 0.0)
        result: Floats = np.log(weight * follows + (1 - weight) * word_model[after[columns]])
        return result

    everything = np.arange(len(pair))
    left_out = [int(rng.choice(np.flatnonzero(own == place))) for place in range(groups)]
    models = np.array([without(place, row, everything) for place, row in enumerate(left_out)])
    score: Floats = np.asarray(counts @ models.T)
    for row, place in enumerate(own):
        mine = slice(counts.indptr[row], counts.indptr[row + 1])
        score[row, place] = counts.data[mine] @ without(int(place), row, counts.indices[mine])
    scaled: Floats = score / np.asarray(counts.sum(1)).reshape(-1, 1)
    return scaled


def _jaccard(rows: Sequence[Hashes]) -> Floats:
    """Jaccard similarity of the sets of 1-, 2- and 3-grams, pairwise."""
    from scipy.sparse import csr_array

    sets = [np.unique(np.concatenate([codes_of(row, n) for n in (1, 2, 3)])) for row in rows]
    vocabulary, column = np.unique(np.concatenate(sets), return_inverse=True)
    starts = np.concatenate(([0], np.cumsum([len(item) for item in sets])))
    has: csr_array = csr_array((np.ones(len(column)), column, starts), shape=(len(rows), len(vocabulary)))
    size = np.diff(starts)
    common = (has @ has.T).toarray()
    alike: Floats = common / (size[:, None] + size[None, :] - common)
    return alike


@dataclass(frozen=True)
class Clusters:
    """The few stories that a policy tells, over a run.

    Attributes
    ----------
    steps : (n,) int64
        Steps that were looked at.
    shares : (n, k) float64
        Share of each story per step; rows add up to 1.
    samples : tuple of str
        The most typical reasoning of each story.
    terms : tuple of tuple of str
        The words that mark it.
    """

    steps: Ints
    shares: Floats
    samples: tuple[str, ...]
    terms: tuple[tuple[str, ...], ...]

    @property
    def largest(self) -> Floats:
        """Share of the most common story per step."""
        return np.asarray(self.shares.max(1), np.float64)

    @property
    def effective(self) -> Floats:
        """Effective number of stories per step: the exponential of the entropy of their shares."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(self.shares > 0, self.shares * np.log(self.shares), 0.0)
        return np.asarray(np.exp(-terms.sum(1)), np.float64)


def clusters(reasonings: Sequence[str], steps: Ints, *, k: int = 8, seed: int = 0) -> Clusters | None:
    """Group reasonings of a whole run by what they say (TF-IDF, seeded mini-batch k-means).

    Looks at all steps at once, so the stories are comparable over the run; it explains, and judges nothing.

    Parameters
    ----------
    reasonings : sequence of str
        Any sample of the run's reasonings, in any order.
    steps : (n,) int64
        Step of each.

    Returns
    -------
    Clusters or None
        ``None`` with fewer than ``2 * k`` reasonings that have words.
    """
    kept = [index for index, text in enumerate(reasonings) if tokenize([text]).counts[0] >= 2]
    if len(kept) < 2 * k:
        return None
    from scipy.sparse.csgraph import connected_components
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [reasonings[index] for index in kept]
    cjk = sum(not text.isascii() for text in texts) * 2 > len(texts)
    vectorizer = TfidfVectorizer(
        analyzer="char" if cjk else "word",
        ngram_range=(2, 3) if cjk else (1, 2),
        token_pattern=r"\b\w+\b",
        max_features=4096,
        min_df=2,
        sublinear_tf=True,
    )
    try:
        matrix = vectorizer.fit_transform(texts)
    except ValueError:  # no term occurs twice
        return None
    k = min(k, len({text.strip() for text in texts}))
    model = MiniBatchKMeans(n_clusters=k, random_state=seed, n_init=3, batch_size=1024).fit(matrix)
    centre = model.cluster_centers_ / np.maximum(np.linalg.norm(model.cluster_centers_, axis=1, keepdims=True), 1e-12)
    _, story = connected_components(centre @ centre.T > SAME_STORY)  # k-means cuts one story into k when there is only one
    label = story[model.labels_]
    distance = model.transform(matrix)[np.arange(len(texts)), model.labels_]
    when = np.asarray(steps)[kept]
    k = int(story.max()) + 1
    order = np.argsort(-np.bincount(label, minlength=k), kind="stable")
    place = np.empty(k, np.int64)
    place[order] = np.arange(k)
    distinct_steps, row = np.unique(when, return_inverse=True)
    shares = np.zeros((len(distinct_steps), k))
    np.add.at(shares, (row, place[label]), 1)
    names = vectorizer.get_feature_names_out()
    samples, terms = [], []
    for cluster in order:
        members = np.flatnonzero(label == cluster)
        samples.append(texts[members[np.argmin(distance[members])]] if len(members) else "")
        weight = centre[story == cluster].sum(0)
        terms.append(tuple(str(names[i]) for i in np.argsort(-weight)[:6] if weight[i] > 0))
    return Clusters(distinct_steps, shares / shares.sum(1, keepdims=True), tuple(samples), tuple(terms))
