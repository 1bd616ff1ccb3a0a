"""Which raw key is which signal: framework, aliases, rules for home-made names. The data are in :mod:`echotrap.fields`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from echotrap.fields import (
    ALIASES,
    EVAL_PREFIX,
    FIELDS,
    FILLER,
    GUESSES,
    MARKS,
    MISLEADING,
    NOT_EVAL,
    PARENTS,
    STEP_KEYS,
    TOKENS,
    WEAK_STEP_KEYS,
)
from echotrap.record import Provenance
from echotrap.sources.base import Note

__all__ = ["Alias", "Naming", "aliases", "framework_of", "logged_as", "name_keys"]

NO_SIGNAL = frozenset({*STEP_KEYS, *WEAK_STEP_KEYS, "_runtime", "total_flos"}) - {"epoch"}


@dataclass(frozen=True, slots=True)
class Alias:
    """A key under which a framework logs a signal, and in which versions (empty: all)."""

    key: str
    versions: str = ""

    def __str__(self) -> str:
        return f"{self.key} ({self.versions})" if self.versions else self.key


@dataclass(frozen=True)
class Naming:
    """What the keys of one run mean.

    Attributes
    ----------
    framework : str or None
        As recognised.
    signals : Mapping
        Canonical name to the raw keys that hold it. Several keys (one per environment or data source) are averaged.
    evals : Mapping
        Raw key of an evaluation metric to its name (``eval/<name>``).
    unknown : tuple of str
        Raw keys that keep their own name.
    provenance : Mapping
        ``"assumed"`` where a key has two readings.
    notes : tuple of Note
        Which readings were taken, and why.
    find : callable
        Raw keys by the name that a framework documents.
    """

    framework: str | None
    signals: Mapping[str, tuple[str, ...]]
    evals: Mapping[str, str]
    unknown: tuple[str, ...]
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    find: Callable[[str], tuple[str, ...]] = field(default=lambda pattern: (), repr=False)


@functools.cache
def aliases(framework: str) -> dict[str, tuple[Alias, ...]]:
    """Keys of one framework by canonical name, best first (``""``: home-made names)."""
    return {name: tuple(_alias(word) for word in keys.split()) for name, keys in ALIASES[framework].items()}


def logged_as(name: str) -> dict[str, tuple[Alias, ...]]:
    """The keys that hold a signal, by framework (``""``: home-made names); frameworks that do not log it are left out.

    Examples
    --------
    >>> [(alias.key, alias.versions) for alias in logged_as("zero_std_frac")["TRL"]]
    [('frac_reward_zero_std', '>=0.18'), ('zero_std_ratio', '')]
    """
    return {framework: found for framework in ALIASES if (found := aliases(framework).get(name))}


def framework_of(keys: Collection[str]) -> str | None:
    """The framework that logs such keys.

    Examples
    --------
    >>> framework_of({"train/reward", "train/completions/mean_length"})
    'TRL'
    """
    known = _Keys(keys)
    for framework, marks in MARKS:
        if all(known.find(mark) for mark in marks.split()):
            return framework
    return None


def name_keys(
    keys: Collection[str],
    framework: str | None = None,
    version: str | None = None,
    counts: Mapping[str, int] | None = None,
    given: Mapping[str, str] | None = None,
) -> Naming:
    """Find the canonical name of each key.

    What the user says comes first, then exact aliases of the framework, then those of the framework it descends from, then
    home-made names, then rules on words, and where no framework is known, guesses on words; keys that none of them knows keep
    their own name.

    Parameters
    ----------
    keys : collection of str
        Keys that hold data.
    framework, version : str, optional
        As declared; recognised otherwise.
    counts : mapping, optional
        How often each key was logged: console lines are cut, so that the best key of a held-out score may be the rarest.
    given : mapping, optional
        Raw key to signal, as the user says.

    Examples
    --------
    >>> naming = name_keys(["actor/entropy", "actor/entropy_loss", "critic/score/mean", "actor/pg_loss", "shoe_size"])
    >>> naming.framework, naming.signals["entropy"], naming.unknown
    ('verl', ('actor/entropy',), ('actor/entropy_loss', 'shoe_size'))
    """
    framework = framework or framework_of(keys)
    given = dict(given or {})
    known = _Keys(key for key in keys if key in given or key.lower() not in NO_SIGNAL)
    own = [framework, *PARENTS.get(framework, ())] if framework in ALIASES and framework is not None else []
    misleading = {key for source in own for key in MISLEADING.get(source, ())}
    if known.find("rollout/in_group_entropy_*") or known.find("rollout/in_group_length_*"):
        misleading |= {"rollout/in_group_std", "rollout/in_group_mean"}  # they hold what the filter selects by
    signals: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()

    def take(name: str, found: Iterable[str]) -> None:
        keys = tuple(key for key in found if key not in used and known.plain[key] not in misleading)
        if keys and name not in signals:
            signals[name] = keys
            used.update(keys)

    def take_all(source: str, *, wildcards: bool = True) -> None:
        find = known.find if source not in own else lambda key: known.find(key) or known.find(key.removeprefix("train/"))
        for name, candidates in aliases(source).items():
            found = [find(alias.key) for alias in candidates if wildcards or "{" not in alias.key]
            if name == "eval_score" and counts:
                most = max((counts.get(key, 0) for keys in found for key in keys), default=0)
                found = [keys for keys in found if any(2 * counts.get(key, 0) >= most for key in keys)]
            for keys in found:
                take(name, keys)

    notes, provenance = list[Note](), dict[str, Provenance]()
    for key, name in given.items():
        found = [key] if key in known.plain else known.find(key)
        if not found:
            notes.append(Note("unused", f"{key!r}, which is said to be {name}, is not in the log"))
        elif name != "step":
            signals[name] = (*signals.get(name, ()), *found)
        used.update(found)
    settled = not signals.keys().isdisjoint(("reward_std", "group_reward_std"))
    for source in own:
        take_all(source)
    for name in FIELDS:
        take(name, [name] if name in known.plain else [])
    take_all("")
    evals = {key: "" for key in known.plain if key not in used and _is_eval(known.plain[key], framework)}
    for name, words in TOKENS:
        wanted = frozenset(words.split())
        for key in known.plain:
            if key not in used and key not in evals and name not in signals and known.words(key) == wanted:
                take(name, [key])
                notes.append(Note("assumed", f"{key!r} is read as {name}"))
    for source in ALIASES:
        if source and source not in own:
            take_all(source, wildcards=False)
    for name, words in GUESSES if framework is None else ():
        wanted = frozenset(words.split())
        for key in known.plain:
            if key not in used and key not in evals and name not in signals and wanted in known.readings(key):
                take(name, [key])
                provenance[name] = "assumed"
                notes.append(Note("assumed", f"{key!r} is read as {name}; [keys] in echotrap.toml says otherwise"))
    evals = {key: name for key, name in evals.items() if key not in used}
    if framework in ("TRL", "Unsloth") and not settled:
        _trl_reward_std(known, signals, provenance, notes, version)
    elif framework is None and not settled and signals.get("reward_std") == ("reward_std",):
        provenance["reward_std"] = "assumed"
        notes.append(Note("assumed", "reward_std is read as batch reward std: nothing says that it is taken within groups"))
    taken = set[str]()
    for key in evals:
        name = _eval_name(known.plain[key], own)
        evals[key] = name if name not in taken else f"eval/{key}"
        taken.add(evals[key])
    unknown = tuple(key for key in known.plain if key not in used and key not in evals)
    return Naming(framework, signals, evals, unknown, provenance, tuple(notes), known.find)


class _Keys:
    """Raw keys, found by the name a framework documents, whatever prefix or escaping a sink has given them."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.plain = {key: _plain(key) for key in keys}
        self._by_name: dict[str, str] = {}
        self._words: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        for key, plain in self.plain.items():
            self._by_name.setdefault(plain, key)
        for key, plain in self.plain.items():
            for prefix in ("train/", "metrics/", "train_"):
                self._by_name.setdefault(plain.removeprefix(prefix), key)
        for name, key in list(self._by_name.items()):
            self._by_name.setdefault(name.lower(), key)

    def find(self, pattern: str) -> tuple[str, ...]:
        """Raw keys that match, in logged order."""
        pattern = _plain(pattern)
        if "{" not in pattern and "*" not in pattern:
            key = self._by_name.get(pattern)
            return () if key is None else (key,)
        matcher = _regex(pattern)
        found = {key: name for name, key in self._by_name.items() if matcher.fullmatch(name)}
        names = set(found.values())
        return tuple(k for k, name in found.items() if not any(name.startswith(f"{other}-") for other in names))

    def words(self, key: str) -> frozenset[str]:
        """What the key says once separators and filler are gone."""
        return self.readings(key)[0]

    def readings(self, key: str) -> tuple[frozenset[str], frozenset[str]]:
        """What the key says without filler, and in full."""
        if key not in self._words:
            spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.plain[key][:200])
            words = frozenset(re.split(r"[^a-z0-9]+", spaced.lower())) - {""}
            self._words[key] = words - FILLER, words
        return self._words[key]


def _plain(key: str) -> str:
    """The key as the framework wrote it: W&B joins nested names with dots, MLflow spells ``@`` out."""
    if "/" not in key and "." in key:
        key = key.replace(".", "/")
    return key.replace("_at_", "@") if "/" in key else key


def _alias(word: str) -> Alias:
    key, _, versions = word.partition("[")
    return Alias(key, versions.rstrip("]"))


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\{[^}]*\}$|\{[^}]*\}|\*)", pattern)
    out = []
    for at, part in enumerate(parts):
        if part == "*":
            out.append(".*")
        elif part.startswith("{"):
            out.append("[^/]+" if at >= len(parts) - 2 and not parts[-1] else ".+")
        else:
            out.append(re.escape(part))
    return re.compile("".join(out))


def _is_eval(key: str, framework: str | None) -> bool:
    return EVAL_PREFIX.match(key) is not None and not (framework in NOT_EVAL and key.startswith("val/"))


def _eval_name(key: str, own: list[str]) -> str:
    rest = EVAL_PREFIX.sub("", key)
    for source in (*own, ""):
        for name, candidates in aliases(source).items():
            if name in FIELDS and any(alias.key == rest for alias in candidates):
                return f"eval/{name}"
    return f"eval/{rest}"


def _trl_reward_std(
    known: _Keys,
    signals: dict[str, tuple[str, ...]],
    provenance: dict[str, Provenance],
    notes: list[Note],
    version: str | None,
) -> None:
    """TRL's ``reward_std`` is the mean in-group std up to 0.26 and the whole-batch std from 0.27."""
    key = known.find("reward_std")
    if not key:
        return
    signals.pop("reward_std", None), signals.pop("group_reward_std", None)
    old = bool(known.find("completion_length")) and not known.find("completions/mean_length")
    before_020 = not known.find("entropy")
    if version is not None:
        within, why = _before(version, (0, 27)), f"TRL {version}"
    elif old or before_020:
        within, why = True, "its keys are those of TRL <= 0.16" if old else "no entropy is logged, so TRL < 0.20"
    elif known.find("policy_loss") or known.find("vespo/phi_seq_mean"):
        within, why = False, "its keys are those of TRL >= 1.0"
    else:
        within, why = False, "the TRL version is unknown; up to 0.26 the same key is the in-group std"
        provenance["reward_std"] = "assumed"
    name = "group_reward_std" if within else "reward_std"
    signals[name] = key
    if not version:
        provenance[name] = "assumed"
    notes.append(Note("assumed", f"reward_std is read as {FIELDS[name].title}: {why}"))


def _before(version: str, limit: tuple[int, int]) -> bool:
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return tuple(parts) < limit
