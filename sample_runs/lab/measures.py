"""What a run looks like from outside: its signals per step, and how alike its rollouts are.

Works on raw runs in the workspace. The figures describe samples in ``truth.toml`` and feed the study; they
are computed with plain sets on purpose, independently of the library that the samples are used to test.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import tasks

TIE_TOLERANCE = 1e-6
WORD_PATTERN = re.compile(r"[^\s<>]+")
PLAIN_WORD_PATTERN = re.compile(r"[A-Za-z]+")
TAG_PATTERN = re.compile(r"</?\w+>")

Gram = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Rollout:
    """One sampled trajectory: its prompt group, what the policy wrote, and its reward."""

    group: int
    prompt: str
    text: str
    reward: float


# --------------------------------------------------------------------------- reading raw runs


def trl_rollouts(path: Path, group_size: int) -> list[Rollout]:
    """Rollouts of one completions parquet; the reward is the mean of the reward columns."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(path).to_pylist()
    known = {"step", "prompt", "completion", "advantage"}
    reward_columns = [column for column in rows[0] if column not in known]
    rollouts = []
    for index, row in enumerate(rows):
        rewards = [row[column] for column in reward_columns if row[column] is not None]
        reward = sum(rewards) / len(rewards) if rewards else float("nan")
        rollouts.append(Rollout(index // group_size, _message(row["prompt"]), _message(row["completion"]), reward))
    return rollouts


def _message(value: str | list[dict]) -> str:
    return value if isinstance(value, str) else value[-1]["content"]


def lake_rollouts(path: Path) -> list[Rollout]:
    """Rollouts of one verl dump; only what the policy wrote is kept, the maps are cut out."""
    rollouts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        turns = re.split(r"\nuser\n.*?\nassistant\n", "\n" + row["output"], flags=re.DOTALL)
        group = int(re.search(r"prompt(\d+)_", row["uid"]).group(1))
        rollouts.append(Rollout(group, row["input"], " ".join(turns), row["score"]))
    return rollouts


def rollouts_by_step(folder: Path, group_size: int) -> dict[int, list[Rollout]]:
    """All recorded rollouts of a raw run."""
    found = {}
    for path in folder.glob("output/completions/completions_*.parquet"):
        found[int(path.stem.rsplit("_", 1)[1])] = trl_rollouts(path, group_size)
    for path in folder.glob("rollout_data/*.jsonl"):
        found[int(path.stem)] = lake_rollouts(path)
    return dict(sorted(found.items()))


def log_rows(folder: Path) -> dict[int, dict[str, float]]:
    """Logged metrics of a raw run by step."""
    state = folder / "output" / "trainer_state.json"
    if state.is_file():
        history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
        return {row["step"]: row for row in history if "reward" in row}
    rows = {}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            rows[row["step"]] = row["data"]
    return rows or console_rows(folder / "console.log")


def console_rows(path: Path) -> dict[int, dict[str, float]]:
    """Logged metrics as the trainer printed them, for a killed run that left nothing else; one row a step."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    printed = [ast.literal_eval(line) for line in lines if line.startswith("{'loss'")]
    return {step: {key: float(value) for key, value in row.items()} for step, row in enumerate(printed, start=1)}


def exact_tool_success(folder: Path) -> dict[int, float]:
    """Share of entirely right tool calls by step; empty for other tasks.

    The gold call is read back from the prompt, as the completions carry no gold column.
    """
    found = {}
    for step, rollouts in rollouts_by_step(folder, 8).items():
        golds = [tasks.read_request(rollout.prompt) for rollout in rollouts]
        if any(gold is None for gold in golds):
            return {}
        scores = (tasks.tool_score(rollout.text, gold).binary for rollout, gold in zip(rollouts, golds, strict=True))
        found[step] = statistics.fmean(scores)
    return found


# --------------------------------------------------------------------------- text


def four_grams(text: str) -> list[Gram]:
    """Word 4-grams of a text without its tags."""
    words = WORD_PATTERN.findall(TAG_PATTERN.sub(" ", text))
    return list(zip(*(words[offset:] for offset in range(4)), strict=False))


def without_prompt_words(rollout: Rollout) -> Rollout:
    """Blank the words that stand in the prompt, so that "Oak with Oak" and "Baker with Baker" are one phrase."""
    blanked = set(PLAIN_WORD_PATTERN.findall(rollout.prompt))
    text = PLAIN_WORD_PATTERN.sub(lambda word: "*" if word.group() in blanked else word.group(), rollout.text)
    return dataclasses.replace(rollout, text=text)


def shared_gram_share(rollouts: list[Rollout]) -> float:
    """Mean share of a rollout's 4-grams that also stand in a rollout of another prompt, prompt words blanked."""
    prompts_with: dict[Gram, set[str]] = defaultdict(set)
    grams_of = [four_grams(without_prompt_words(rollout).text) for rollout in rollouts]
    for rollout, grams in zip(rollouts, grams_of, strict=True):
        for gram in grams:
            prompts_with[gram].add(rollout.prompt)
    shares = []
    for rollout, grams in zip(rollouts, grams_of, strict=True):
        if grams:
            shares.append(sum(bool(prompts_with[gram] - {rollout.prompt}) for gram in grams) / len(grams))
    return statistics.fmean(shares) if shares else float("nan")


def distinct_word_count(rollouts: list[Rollout]) -> float:
    """Number of different words in all rollouts, prompt words blanked."""
    words: set[str] = set()
    for rollout in rollouts:
        words.update(PLAIN_WORD_PATTERN.findall(TAG_PATTERN.sub(" ", without_prompt_words(rollout).text)))
    return float(len(words))


def distinct_gram_share(rollouts: list[Rollout]) -> float:
    """Number of different 4-grams over number of 4-grams, all rollouts together, prompt words blanked."""
    grams = [gram for rollout in rollouts for gram in four_grams(without_prompt_words(rollout).text)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def self_repetition_share(rollouts: list[Rollout]) -> float:
    """Mean share of a rollout's 4-grams that it has said before."""
    shares = []
    for rollout in rollouts:
        grams = four_grams(rollout.text)
        if grams:
            shares.append(1 - len(set(grams)) / len(grams))
    return statistics.fmean(shares) if shares else float("nan")


def own_prompt_share(rollouts: list[Rollout]) -> float:
    """Share of rollouts whose most similar thought (Jaccard of their words) answers the same prompt; ties count in part.

    A thought that depends on its prompt is found this way, one that would do for any prompt only by chance, which is
    (g - 1) / (n - 1) for groups of g among n rollouts.
    """
    thoughts = [set(PLAIN_WORD_PATTERN.findall(_thought(rollout.text))) for rollout in rollouts]
    hits = []
    for index, words in enumerate(thoughts):
        likeness = {
            other: len(words & others) / len(words | others) if words | others else 0.0
            for other, others in enumerate(thoughts)
            if other != index
        }
        best = max(likeness.values())
        nearest = [other for other, value in likeness.items() if value == best]
        hits.append(statistics.fmean(rollouts[other].group == rollouts[index].group for other in nearest))
    return statistics.fmean(hits)


def _thought(text: str) -> str:
    """What stands between the think tags; the whole text where they are broken."""
    return " ".join(re.findall(r"<think>(.*?)</think>", text, re.DOTALL)) or text


def distinct_text_share(rollouts: list[Rollout]) -> float:
    """Share of different texts inside a group, averaged over the groups."""
    return statistics.fmean(len({r.text for r in group}) / len(group) for group in groups_of(rollouts))


# --------------------------------------------------------------------------- rewards


def groups_of(rollouts: list[Rollout]) -> list[list[Rollout]]:
    """Rollouts by prompt group."""
    groups: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.group].append(rollout)
    return list(groups.values())


def _finite_rewards(group: list[Rollout]) -> list[float]:
    return [rollout.reward for rollout in group if rollout.reward == rollout.reward]


def in_group_std(rollouts: list[Rollout]) -> float:
    """Mean over the groups of the (sample) standard deviation of the reward."""
    spreads = [statistics.stdev(rewards) for group in groups_of(rollouts) if len(rewards := _finite_rewards(group)) > 1]
    return statistics.fmean(spreads) if spreads else float("nan")


def constant_group_share(rollouts: list[Rollout]) -> float:
    """Share of groups whose rewards are all equal."""
    flags = []
    for group in groups_of(rollouts):
        rewards = _finite_rewards(group)
        if rewards:
            flags.append(max(rewards) - min(rewards) <= TIE_TOLERANCE)
    return statistics.fmean(flags) if flags else float("nan")


def tie_share(rollouts: list[Rollout]) -> float:
    """Of the pairs of differing completions inside a group: the share whose rewards are equal."""
    ties = pairs = 0
    for group in groups_of(rollouts):
        for one, other in itertools.combinations(group, 2):
            if one.text != other.text:
                pairs += 1
                ties += abs(one.reward - other.reward) <= TIE_TOLERANCE
    return ties / pairs if pairs else float("nan")


# --------------------------------------------------------------------------- series

TEXT_MEASURES = {
    "in_group_std": in_group_std,
    "constant_groups": constant_group_share,
    "shared_4grams": shared_gram_share,
    "distinct_4grams": distinct_gram_share,
    "self_repetition": self_repetition_share,
    "distinct_texts": distinct_text_share,
    "distinct_words": distinct_word_count,
    "ties": tie_share,
    "own_prompt": own_prompt_share,
}
LOGGED = {
    "reward": ("reward", "critic/score/mean"),
    "entropy": ("entropy", "actor/entropy"),
    "grad_norm": ("grad_norm", "actor/grad_norm"),
    "length": ("completions/mean_length", "response_length/mean"),
    "clipped": ("completions/clipped_ratio", "response_length/clip_ratio"),
    "kl": ("kl", "actor/kl_loss"),
    "success": ("lake/success", "rewards/exact_match_reward/mean"),
}


def series(folder: Path, group_size: int) -> dict[str, dict[int, float]]:
    """Every measure of a raw run as step -> value."""
    result: dict[str, dict[int, float]] = defaultdict(dict)
    for step, row in log_rows(folder).items():
        for name, keys in LOGGED.items():
            for key in keys:
                if isinstance(row.get(key), float | int):
                    result[name][step] = float(row[key])
    for step, rollouts in rollouts_by_step(folder, group_size).items():
        for name, measure in TEXT_MEASURES.items():
            result[name][step] = measure(rollouts)
    return dict(result)


def window_mean(values: dict[int, float], first: int, last: int) -> float:
    """Mean of the finite values between two steps, both included; nan if there is none."""
    chosen = [v for step, v in values.items() if first <= step <= last and v == v and abs(v) != float("inf")]
    return statistics.fmean(chosen) if chosen else float("nan")


def table(all_series: dict[str, dict[int, float]], windows: Iterable[tuple[int, int]]) -> str:
    """A small text table: one line per window, one column per measure."""
    lines = ["steps".rjust(9) + "".join(name[:10].rjust(11) for name in all_series)]
    for first, last in windows:
        cells = (window_mean(values, first, last) for values in all_series.values())
        lines.append(f"{first}-{last}".rjust(9) + "".join(f"{cell:11.3g}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    """Print a run in sixteen windows."""
    import sys

    import workspace

    workspace.enter()
    for name in sys.argv[1:]:
        folder = workspace.run_folder(name)
        found = series(folder, 8)
        if not found:
            raise SystemExit(f"{folder.resolve()} holds no raw run")
        last = max(max(values) for values in found.values())
        width = max(1, last // 16)
        print(name)
        print(table(found, [(first, first + width - 1) for first in range(1, last + 1, width)]))


if __name__ == "__main__":
    main()
