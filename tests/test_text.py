"""What texts say: parsing, repetition, overlap, templates, and the rollouts that prove it."""

import inspect
import json
import json.decoder
import os
import re
import textwrap
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echotrap import signals, text
from echotrap.detector import Level, NotEvaluated, Track, episodes
from echotrap.fields import FIELDS
from echotrap.record import Run
from echotrap.registry import catalogue
from echotrap.rollouts import MemoryStore, Message, Rollout
from echotrap.text import chars, ngrams, templates
from echotrap.text.measure import Start, measure
from echotrap.text.parse import parse
from echotrap.text.words import locate, tokenize

SHARED = Path(os.environ.get("ECHOTRAP_SHARED", Path(__file__).parents[1] / "../shared"))
TEXT_DETECTORS = (
    "within-rollout-repetition",
    "cross-rollout-repetition",
    "template-collapse",
    "token-zero-output",
    "unjustified-thoughts",
    "tool-format-collapse",
    "gibberish-output",
)


# --- parsing ---------------------------------------------------------------------------------------------------------------

CALL = '{"name": "search", "arguments": {"query": "Baker"}}'
PARSED = {
    "plain text": ("I add two and two.", "I add two and two.", "", ""),
    "think and answer": ("<think>two and two</think>\n<answer>4</answer>", "two and two", "4", ""),
    "the opening tag was in the prompt": ("two and two</think><answer>4</answer>", "two and two", "4", ""),
    "never closed": ("<think>two and", "two and", "", ""),
    "Qwen and Hermes": (
        f"<think>look it up</think><tool_call>\n{CALL}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nDoc 1\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n<think>found</think>Uganda<|im_end|>",
        "look it up\nfound",
        CALL,
        "Doc 1",
    ),
    "the same as verl decodes it": (
        f"<think>look it up</think><tool_call>\n{CALL}\n</tool_call>user\n<tool_response>\nDoc 1\n</tool_response>\nassistant\n"
        "<think>found</think>Uganda",
        "look it up\nfound",
        CALL,
        "Doc 1",
    ),
    "Search-R1": (
        "<think>who</think><search>Baker</search><information>Doc 1</information><think>so</think><answer>Uganda</answer>",
        "who\nso",
        "Baker\nUganda",
        "Doc 1",
    ),
    "ReTool": (
        "I count.<code>\n```python\nprint(3)\n```\n</code><interpreter>3</interpreter>It is 3.<answer>3</answer>",
        "I count.\nIt is 3.",
        "```python\nprint(3)\n```\n3",
        "3",
    ),
    "RAGEN, blocks": (
        "[system]\nYou solve puzzles.\n[user]\nTurn 1:\nState:\n_ P O\n[assistant]\n<think>push</think>"
        "<answer>Right || Right</answer>\n[user]\nReward: 1\n[assistant]\n<think>done</think><answer>Stop</answer>",
        "push\ndone",
        "Right || Right\nStop",
        "Reward: 1",
    ),
    "RAGEN, bare role lines": (
        "system\nYou solve puzzles.\nuser\nState: _ P O\nassistant\n<think>push</think><answer>Right</answer>\nuser\nReward: 1\n"
        "assistant\n<think>done</think><answer>Stop</answer>",
        "push\ndone",
        "Right\nStop",
        "Reward: 1",
    ),
    "ReAct": (
        "Thought: look\nAction: search[x]\nObservation: a page\nThought: done",
        "Thought: look\nAction: search[x]\nThought: done",
        "",
        "a page",
    ),
    "unknown markup": ("<plan>walk</plan> then <go>", "<plan>walk</plan> then <go>", "", ""),
    "a user is no role": ("The\nuser\nasks for more.", "The\nuser\nasks for more.", "", ""),
    "padding": ("done<|endoftext|><|endoftext|><pad><pad>", "done", "", ""),
}


@pytest.mark.parametrize("name", PARSED)
def test_only_what_the_policy_wrote_is_kept(name):
    written, reasoning, acts, observed = PARSED[name]
    parsed = parse(Rollout(1, written))
    assert parsed.reasoning == reasoning
    assert parsed.acts == acts
    assert observed in parsed.observed
    assert bool(observed) == bool(parsed.observed)


def test_messages_and_tool_calls_are_understood():
    function = {"function": {"name": "search", "arguments": '{"query": "Baker"}'}}
    messages = (
        Message("system", "Be good."),
        Message("user", "Where is Baker?"),
        Message("assistant", "<think>look</think>", (function,)),
        Message("tool", "Doc 1"),
        Message("assistant", "Uganda"),
    )
    parsed = parse(Rollout(1, "", messages=messages))
    assert parsed.prompt == "Be good.\nWhere is Baker?"
    assert parsed.observed == "Doc 1"
    assert [turn.calls for turn in parsed.turns] == [1, 0]
    assert parsed.acts == CALL


@pytest.mark.parametrize(
    ("written", "malformed"),
    [
        (f"<tool_call>{CALL}</tool_call>", 0),
        (f"<tool_call>{CALL}}}</tool_call>", 0),  # most parsers stop at the end of the object
        ('<tool_call>{"name": "search", "argu</tool_call>', 1),
        (f"<tool_call>{CALL}", 1),
        ("<answer></answer>", 1),
        ("<answer>4", 1),
        ("<tool_call>[[[[" + "[" * 100_000 + "</tool_call>", 1),
    ],
)
def test_acts_that_cannot_be_parsed_are_counted(written, malformed):
    assert sum(turn.malformed for turn in parse(Rollout(1, written)).turns) == malformed


# --- measures against plain implementations ---------------------------------------------------------------------------------


def plain_words(text):
    return re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\u3040-\u30ff\u4e00-\u9fff]+", text.lower())


def plain_grams(words, n):
    return list(zip(*(words[i:] for i in range(n)), strict=False))


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(7)
    words = ["go", "left", "Right", "because", "the", "value_1", "is", "18", "東京", "naïve", "so,", "(then)", "—", "🙂", "x"]
    return ["", "one", "one two three", *(" ".join(rng.choice(words, rng.integers(4, 120))) for _ in range(60))]


def test_words_are_the_same_the_fast_and_the_slow_way(texts):
    words = tokenize(texts)
    for index, written in enumerate(texts):
        hashes, places = locate(written)
        np.testing.assert_array_equal(words.of(index), hashes)
        assert [written[a:b].lower() for a, b in places] == plain_words(written)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_rep_n(texts, n):
    words = tokenize(texts)
    got = ngrams.repeats(words.hashes, words.owner, len(texts), n).share(words.owner)
    for value, written in zip(got, texts, strict=True):
        grams = plain_grams(plain_words(written), n)
        assert np.isnan(value) if not grams else value == pytest.approx(1 - len(set(grams)) / len(grams), abs=1e-12)


def test_rep_n_does_not_depend_on_how_texts_are_cut_into_chunks(texts, monkeypatch):
    words = tokenize(texts)
    whole = ngrams.repeats(words.hashes, words.owner, len(texts), 3)
    monkeypatch.setattr(ngrams, "CHUNK", 50)
    parts = ngrams.repeats(words.hashes, words.owner, len(texts), 3)
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


def test_shares_with_other_prompts_and_with_the_group(texts):
    written = [item for item in texts if len(plain_words(item)) >= 4]
    group = [i % 5 for i in range(len(written))]
    scores = measure([Rollout(1, t, group=str(g)) for t, g in zip(written, group, strict=True)], Start())
    sets = [set(plain_grams(plain_words(t), 4)) for t in written]
    for i, mine in enumerate(sets):
        others = set().union(*(s for s, g in zip(sets, group, strict=True) if g != group[i]))
        same = set().union(*(s for j, s in enumerate(sets) if group[j] == group[i] and j != i))
        assert scores.per_rollout["cross_rollout_share"][i] == pytest.approx(len(mine & others) / len(mine))
        assert scores.per_rollout["cross_group_share"][i] == pytest.approx(len(mine & same) / len(mine))


def test_distinct_n(texts):
    scores = measure([Rollout(1, t) for t in texts], Start())
    for n in (1, 2, 4):
        grams = [g for t in texts for g in plain_grams(plain_words(t), n)]
        assert scores.signals[f"distinct_{n}"] == pytest.approx(len(set(grams)) / len(grams))


def test_near_copies_are_those_with_a_high_overlap():
    rng = np.random.default_rng(0)
    base = [f"w{i}" for i in rng.integers(0, 5000, 200)]
    near, far = list(base), list(base)
    near[100] = "changed"
    far[::5] = [f"v{i}" for i in range(40)]
    other = [f"w{i}" for i in rng.integers(5000, 9000, 200)]
    written = [" ".join(words) for words in (base, near, far, other)]
    scores = measure([Rollout(1, t, group="a") for t in written], Start())
    assert scores.per_rollout["copy"].tolist() == [1, 1, 0, 0]


def plain_gopher(written):
    """Coverage by a mask over the words, written from the paper's table A1."""
    words = written.lower().split()
    letters = sum(map(len, words))
    shares = {}
    for n in (2, 3, 4):
        counts = Counter(plain_grams(words, n)).most_common()
        best = [gram for gram, count in counts if count == counts[0][1]] if counts else []
        shares[f"top_{n}"] = {counts[0][1] * sum(map(len, g)) / letters for g in best} if counts and counts[0][1] > 1 else {0.0}
    for n in range(5, 11):
        grams = plain_grams(words, n)
        mask = np.zeros(len(words), bool)
        for i, gram in enumerate(grams):
            if gram in grams[:i]:
                mask[i : i + n] = True
        shares[f"duplicate_{n}"] = {sum(len(w) for w, m in zip(words, mask, strict=True) if m) / letters}
    lines = [line for line in map(str.strip, written.split("\n")) if line]
    shares["duplicate_lines"] = {sum(line in lines[:i] for i, line in enumerate(lines)) / len(lines)}
    return shares


def test_gophers_shares(texts):
    for written in [*texts[2:], "a b\nc d\na b\na b", "go left go left go left stop", "one two three four five six " * 4]:
        got, wanted = ngrams.gopher_shares(written), plain_gopher(written)
        for name, values in wanted.items():
            assert any(got[name] == pytest.approx(value) for value in values), (name, written)


def test_gophers_limits_by_hand():
    fifty = " ".join(f"word{i}" for i in range(50))
    assert not ngrams.gopher_exceeded(fifty)
    assert ngrams.gopher_exceeded(fifty + " word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 word12")
    assert ngrams.gopher_exceeded("\n".join(f"line {i % 6} of it all, number {i % 6}" for i in range(9)))


def test_compression_is_zlib_over_full_windows():
    written = "".join(np.random.default_rng(0).choice(list("abcdef "), 4500))
    windows = [written[:2000].encode(), written[2000:4000].encode()]
    wanted = np.mean([2000 / len(zlib.compress(window, 1)) for window in windows])
    assert chars.compression([written, "short"])[0] == pytest.approx(wanted)
    assert np.isnan(chars.compression(["short"])[0])


@pytest.mark.parametrize(
    ("written", "period", "least"),
    [
        ("start here " + "go left now " * 40, 3, 0.95),
        ("some words come first and then " + "no " * 60, 1, 0.85),
        (" ".join(f"w{i}" for i in range(40)) + " " + " ".join(f"w{i}" for i in range(40)), 40, 0.99),
    ],
)
def test_loops_have_a_period_and_a_coverage(written, period, least):
    scores = measure([Rollout(1, written)], Start()).per_rollout
    assert scores["loop_period"][0] == period
    assert scores["loop_coverage"][0] >= least


def test_a_phrase_that_comes_back_is_no_loop():
    written = " ".join(f"w{i} on the other hand w{i + 100} x{i}" for i in range(30))
    assert measure([Rollout(1, written)], Start()).per_rollout["loop_coverage"][0] == 0


# --- each case of the specification: a step of 32 rollouts, 8 prompts ------------------------------------------------------

RNG = np.random.default_rng(11)
TOPICS = [[f"{stem}{i}" for i in range(40)] for stem in ("ash", "bay", "cob", "dam", "elm", "fig", "gum", "hop")]
COMMON = [f"and{i}" for i in range(150)]


def sentence(topic, length=60):
    return " ".join(RNG.choice(TOPICS[topic] + COMMON, length))


def prompt(topic):
    return f"Decide about {' '.join(TOPICS[topic][:6])} today."


def step_of(maker, step=1, **more):
    return [Rollout(step, maker(g, k), prompt=prompt(g), group=str(g), **more) for g in range(8) for k in range(4)]


def code(g, k):
    source = inspect.getsource([json.decoder, textwrap, inspect, re][k])
    lines = source.splitlines()
    at = (g * 97) % max(len(lines) - 60, 1)
    return "```python\n" + "\n".join(lines[at : at + 60]) + "\n```"


def arithmetic(g, k):
    numbers = RNG.integers(2, 99, 60)
    steps = [f"Adding {a} to {b} gives {a + b}, which is {['odd', 'even'][(a + b) % 2]}." for a, b in pairwise(numbers.tolist())]
    return f"<think>{TOPICS[g][0]} first. " + " ".join(steps) + f"</think><answer>{numbers.sum()}</answer>"


def tool_call(g, k):
    query = " ".join(RNG.choice(TOPICS[g], 3))
    return f"<think>I should look up {query} to decide.</think>\n" + json.dumps(
        {"name": "search", "arguments": {"query": query}}
    ).join(("<tool_call>\n", "\n</tool_call>"))


LOOP = "我要往左走因为左边比较好。"
STORY = "I will think about it step by step and then I will take the left one because the left one is always the best one."


def is_clean(s):
    limits = {
        "repetitive_frac": 0.2,
        "loop_frac": 0,
        "single_symbol_count": 0,
        "cross_rollout_share": 0.3,
        "gibberish_frac": 0,
        "copies_frac": 0,
    }
    return all(s.get(name, 0) <= limit for name, limit in limits.items())


CASES = {
    "!!!!": (lambda g, k: "!" * 900, lambda s: s["single_symbol_frac"] == 1 and s["loop_frac"] == 1 and s["char_rep"] > 0.98),
    "! ! ! !": (lambda g, k: "! " * 300, lambda s: s["single_symbol_frac"] == 1),
    "unknown tokens": (lambda g, k: "<unk>" * 200, lambda s: s["single_symbol_frac"] == 1),
    "a three-token loop": (
        lambda g, k: sentence(g, 20) + " go left now" * 60,
        lambda s: s["loop_frac"] == 1 and s["repetitive_frac"] == 1 and s["rep_4"] > 0.8 and s["single_symbol_count"] == 0,
    ),
    "a repeated paragraph": (
        lambda g, k: (lambda p: f"{p}\n\n{p}")(sentence(g, 80)),
        lambda s: s["loop_frac"] == 1 and s["repetitive_frac"] == 1 and 0.4 < s["rep_4"] < 0.6 and s["longest_repeat"] >= 75,
    ),
    "a repeated turn": (
        lambda g, k: "user\nState 2\nassistant\n".join([f"<think>{TOPICS[g][k]} I go left</think><answer>left</answer>\n"] * 5),
        lambda s: s["repeated_turns_frac"] == 0.8 and s["num_turns"] == 5,
    ),
    "identical rollouts in a group": (
        lambda g, k: " ".join(np.random.default_rng(g).choice(TOPICS[g] + COMMON, 60)),
        lambda s: s["copies_frac"] == s["cross_group_share"] == s["within_similarity"] == 1 and s["cross_rollout_share"] < 0.1,
    ),
    "one template over all prompts": (
        lambda g, k: f"<think>{STORY} {TOPICS[g][0]} {k}</think><answer>left</answer>",
        lambda s: s["cross_rollout_share"] > 0.85 and s["repetitive_frac"] < 0.1 and s["across_similarity"] > 0.7,
    ),
    "a Chinese loop": (
        lambda g, k: f"{TOPICS[g][k]} " + LOOP * 40,
        lambda s: s["loop_frac"] == 1 and s["repetitive_frac"] == 1 and s["char_rep"] > 0.9,
    ),
    "an emoji loop": (lambda g, k: sentence(g, 10) + "🙂👍" * 200, lambda s: s["loop_frac"] == 1 and s["repetitive_frac"] == 1),
    "ordinary Python code": (code, lambda s: s["loop_frac"] == 0 and s["single_symbol_count"] == 0 and s["gibberish_frac"] == 0),
    "a long healthy chain of thought": (lambda g, k: sentence(g, 900), is_clean),
    "healthy arithmetic": (arithmetic, lambda s: s["loop_frac"] == 0 and s["copies_frac"] == 0 and s["valid_thinking_frac"] == 1),
    "a healthy JSON tool call": (tool_call, lambda s: is_clean(s) and s["valid_action_frac"] == 1),
    "gibberish": (
        lambda g, k: " ".join("".join(RNG.choice(list("bcdfghjklmnpqrstvwxz0123"), 9)) for _ in range(50)),
        lambda s: s["gibberish_frac"] == 1,
    ),
    "scripts thrown together": (
        lambda g, k: "the move привет 行って 입니다 שלום and then мир 世界 하나 " * 3,
        lambda s: s["gibberish_frac"] == 1 and s["off_script_frac"] > 0.4,
    ),
    "nothing": (lambda g, k: "", lambda s: s["silent_frac"] == 1 and s["rollout_count"] == 0 and "rep_4" not in s),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case_has_the_right_signals(name):
    maker, holds = CASES[name]
    found = measure(step_of(maker), Start(thinks="healthy" in name, acts="JSON" in name)).signals
    found = measure(rollouts := step_of(maker), Start.of(rollouts)).signals if "JSON" in name else found
    assert holds(found), {key: round(value, 3) for key, value in sorted(found.items())}


def judged(items):
    steps = sorted({r.step for r in items})
    run = signals.derive(
        Run("r", "-", "frame", pd.DataFrame(index=pd.Index(steps, name="step", dtype=np.int64)), rollouts=MemoryStore(items)),
        cache=False,
    )
    levels = {}
    for name in TEXT_DETECTORS:
        track = catalogue()[name](run)
        levels[name] = max((e.level for e in episodes(track)), default=Level.CLEAR) if isinstance(track, Track) else None
    return run, levels


def healthy(g, k):
    return f"<think>{sentence(g)}</think><answer>{RNG.integers(100)}</answer>"


FAILURES = {
    "!!!!": {"token-zero-output": Level.CRITICAL},
    "a three-token loop": {"within-rollout-repetition": Level.WARNING},
    "a repeated paragraph": {"within-rollout-repetition": Level.WARNING},
    "a Chinese loop": {"within-rollout-repetition": Level.WARNING},
    "identical rollouts in a group": {"cross-rollout-repetition": Level.WATCH},
    "one template over all prompts": {"cross-rollout-repetition": Level.WATCH},
    "gibberish": {"gibberish-output": Level.WARNING, "unjustified-thoughts": Level.WATCH},
    "nothing": {"tool-format-collapse": Level.CRITICAL},
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_run_that_goes_bad_is_found(name):
    maker = CASES[name][0]
    items = [r for step in range(1, 31) for r in step_of(healthy if step <= 22 else maker, step, reward=float(RNG.integers(2)))]
    _, levels = judged(items)
    for detector, level in FAILURES[name].items():
        assert levels[detector] is not None
        assert levels[detector] >= level, levels


@pytest.mark.parametrize("maker", [healthy, code, arithmetic, tool_call], ids=lambda maker: maker.__name__)
def test_healthy_text_is_silent(maker):
    items = [r for step in range(1, 25) for r in step_of(maker, step, reward=float(RNG.integers(2)))]
    _, levels = judged(items)
    assert {name: level for name, level in levels.items() if level} == {}


def test_wording_of_the_format_is_no_echo():
    def formatted(g, k):
        words = " ".join(RNG.choice(TOPICS[g], 12))
        first, last = "Let me first restate the goal of this task in my own words.", "Now I decide what to do."
        return f"<think>{first} {words} {last}</think><answer>{k}</answer>"

    items = [r for step in range(1, 31) for r in step_of(formatted, step)]
    run, levels = judged(items)
    assert run.metrics["cross_rollout_share"].max() < 0.1
    assert not levels["cross-rollout-repetition"]


# --- RAGEN's texts and curves ----------------------------------------------------------------------------------------------

EARLY = (
    "Falcon suggests speed and sharp aim, whereas Turtle stands for calm and long endurance.",
    "Judging by the two names alone, the rewards may differ; a slow animal could pay little but often, so Turtle looks like the "
    "better bet overall.",
)
LATE = (
    "I want to pull lever Turtle. So I will start by pulling lever Turtle.",
    "I want to pull lever Turtle, so I will start by pulling lever Turtle.",
    "I want to try lever Turtle. Having compared both levers, what I want is to pull lever Turtle.",
)


def test_t11_late_texts_share_what_early_ones_do_not():
    early, late = (measure([Rollout(1, t) for t in texts], Start()).signals["cross_rollout_share"] for texts in (EARLY, LATE))
    assert early == 0
    assert late == pytest.approx(0.689, abs=0.001)


def test_t10_short_text_alone_is_never_critical():
    items = []
    for step in range(1, 61):
        items += step_of(lambda g, k, words=66 - step: sentence(g, max(words, 20)), step, reward=1.0)
    _, levels = judged(items)
    assert all(level is None or level < Level.CRITICAL for level in levels.values())


@pytest.mark.parametrize(
    ("series", "alarm"), [("entropy_reg_0.003", 50), ("kl_reg_0.0003", 130), ("no_filter", 85), ("top_p_0.9", None)]
)
def test_t9_retrieval_accuracy_of_ragen_2(series, alarm):
    file = SHARED / "ragen_curves/ragen2_curves_raster.csv"
    if not file.exists():
        pytest.skip("shared curves are not here")
    table = pd.read_csv(file)
    table = table[table.figure.str.contains("fig5") & (table.series == series) & table.metric.isin(["success", "retrieval_acc"])]
    frame = table.pivot_table(index="step", columns="metric", values="value").rename(columns={"success": "success_rate"})
    frame.index = frame.index.astype(np.int64)
    found = episodes(catalogue()["template-collapse"](Run(series, "-", "csv", frame)))
    if alarm is None:
        assert not found
    else:
        assert found[0].alarm_steps[Level.WATCH] <= alarm
        assert found[0].cleared_step is None


# --- the four regimes of RAGEN-2 ------------------------------------------------------------------------------------------


def regime_texts(name):
    rng = np.random.default_rng(3)
    vocabulary = [f"v{i}" for i in range(60)]
    topics = [[f"t{j}_{i}" for i in range(25)] for j in range(8)]
    for g in range(8):
        fixed = " ".join(rng.choice(topics[g] + vocabulary[:10], 40))
        for _ in range(16):
            yield {
                "diverse": " ".join(rng.choice(topics[g] + vocabulary[:10], 40)),
                "compressed": fixed,
                "template": " ".join(rng.choice(vocabulary, 40)),
                "low-entropy": "i pull the left lever because the left lever pays best of all levers here",
            }[name]


REGIMES = {  # accuracy, nearest neighbour, mutual information: least and most, after RAGEN-2
    "diverse": ((0.95, 1), (0.95, 1), (0.5, 3)),
    "compressed": ((1, 1), (1, 1), (1, 3)),
    "template": ((0, 0.25), (0, 0.25), (-0.2, 0.1)),
    "low-entropy": ((0.124, 0.126), (0.11, 0.12), (-1e-9, 1e-9)),
}


@pytest.mark.parametrize("name", REGIMES)
def test_text_alone_separates_the_four_regimes(name):
    words = tokenize(list(regime_texts(name)))
    group = np.repeat(np.arange(8), 16)
    found = templates.retrieval([words.of(i) for i in range(128)], group)
    for value, (least, most) in zip((found.accuracy, found.nearest, found.mi), REGIMES[name], strict=True):
        assert least <= value <= most, found
    assert found.chance == 1 / 8
    assert (found.within > found.across + 0.01) == (name in ("diverse", "compressed"))
    assert (found.within == pytest.approx(1)) == (name in ("compressed", "low-entropy"))
    assert templates.regime(found) == name


def test_a_groups_own_model_leaves_the_reasoning_out():
    rows = [tokenize([t]).of(0) for t in ("a b a c", "a b b c", "a c a b", "d e d f", "d e e f", "d f d e")]
    own = np.repeat([0, 1], 3)
    score = templates._scores(rows, own, 2, np.random.default_rng(0))
    every = [w for row in rows for w in row.tolist()]
    usual = {w: (every.count(w) + 1) / (len(every) + len(set(every))) for w in every}
    for i, row in enumerate(rows):
        others = [p for j, other in enumerate(rows) if own[j] == own[i] and j != i for p in pairwise(other.tolist())]
        words = [b for _, b in others]
        logs = []
        for a, b in pairwise(row.tolist()):
            context = sum(x == a for x, _ in others)
            share = others.count((a, b)) / context if context else 0
            single = 0.6 * words.count(b) / len(words) + 0.4 * usual[b]
            logs.append(np.log(0.5 * share + 0.5 * single if context else single))
        assert score[i, own[i]] == pytest.approx(np.mean(logs))


def test_too_few_groups_cannot_be_told_apart():
    words = tokenize([sentence(g) for g in range(3) for _ in range(4)])
    assert templates.retrieval([words.of(i) for i in range(12)], np.repeat(np.arange(3), 4)) is None
    run, _ = judged([Rollout(s, sentence(0), reward=1.0) for s in range(1, 4) for _ in range(8)])
    assert "retrieval_acc" not in run.metrics.columns


def test_stories_of_a_run():
    items = [r for step in range(1, 21) for r in step_of(healthy if step <= 10 else lambda g, k: f"{STORY} {k}", step)]
    run = Run("r", "-", "frame", pd.DataFrame(), rollouts=MemoryStore(items))
    found = text.stories(run.rollouts, seed=1)
    assert found.steps.tolist() == list(range(1, 21))
    np.testing.assert_allclose(found.shares.sum(1), 1)
    assert found.largest[-1] > 0.9 > found.largest[0]
    assert found.effective[-1] < 1.5 < found.effective[0]
    story = int(np.argmax(found.shares[-1]))
    assert found.samples[story].startswith(STORY[:30])
    again = text.stories(run.rollouts, seed=1)
    np.testing.assert_array_equal(found.shares, again.shares)


# --- evidence -------------------------------------------------------------------------------------------------------------


def run_that_goes_bad(maker):
    items = [r for step in range(1, 31) for r in step_of(healthy if step <= 20 else maker, step, reward=0.5)]
    return Run("r", "-", "frame", pd.DataFrame(), rollouts=MemoryStore(items))


def test_evidence_names_rollouts_and_marks_what_they_share():
    refs = text.evidence(run_that_goes_bad(CASES["one template over all prompts"][0]), "cross-rollout-repetition", 21, 23)
    during, before = [r for r in refs if r.when == "during"], [r for r in refs if r.when == "before"]
    assert (len(during), len(before)) == (4, 3)
    assert all(21 <= r.step <= 23 for r in during)
    assert all(r.step < 21 for r in before)
    assert len({r.group for r in during}) == 4  # different prompts, same text
    first = during[0]
    assert "take the left one" in first.text[first.spans[0].start : first.spans[0].end]
    assert sum(s.end - s.start for s in first.spans) > 0.8 * len(first.text)
    assert all(not r.spans for r in before)
    assert {r.group for r in before} <= {r.group for r in during}


@pytest.mark.parametrize(
    ("case", "detector", "marked"),
    [
        ("a three-token loop", "within-rollout-repetition", "go left now go left now"),
        ("a Chinese loop", "within-rollout-repetition", "我要往左走"),
        ("!!!!", "token-zero-output", "!!!!!!!!"),
        ("gibberish", "gibberish-output", " "),
    ],
)
def test_evidence_marks_the_symptom(case, detector, marked):
    refs = text.evidence(run_that_goes_bad(CASES[case][0]), detector, 21, 21)
    assert any(marked in ref.text[span.start : span.end] for ref in refs if ref.when == "during" for span in ref.spans)


def test_an_excerpt_is_cut_to_where_the_marks_are():
    def late_loop(g, k):
        return sentence(g, 900) + " go left now" * 300

    refs = text.evidence(run_that_goes_bad(late_loop), "within-rollout-repetition", 21, 21)
    assert len(refs[0].text) <= 2000
    assert all(0 <= s.start < s.end <= len(refs[0].text) for s in refs[0].spans)
    assert sum(s.end - s.start for s in refs[0].spans) > 1900


def test_no_evidence_where_there_is_none():
    run = run_that_goes_bad(healthy)
    assert text.evidence(run, "gradient-spike", 21, 21) == ()
    assert text.evidence(run, "token-zero-output", 21, 21) == ()
    assert text.evidence(Run("r", "-", "frame", pd.DataFrame()), "echo-trap", 1, 2) == ()


TAGS = ("<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "<|im_start|>", "```python\n", "user\n", "\nassistant\n")
PIECES = st.sampled_from((*TAGS, '{"a": 1}', "!!!!!!!!", "go left "))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PIECES | st.text(max_size=12), max_size=25).map("".join), min_size=1, max_size=6))
def test_no_text_is_too_strange(written):
    items = [Rollout(1, item, prompt=str(k % 2), reward=float(k % 2)) for k, item in enumerate(written)]
    scores = measure(items)
    for name, value in scores.signals.items():
        assert np.isfinite(value), name
        if FIELDS[name].high is not None:
            assert FIELDS[name].low <= value <= FIELDS[name].high, name
    run = Run("r", "-", "frame", pd.DataFrame(), rollouts=MemoryStore(items))
    for detector in ("within-rollout-repetition", "cross-rollout-repetition", "token-zero-output", "gibberish-output"):
        for ref in text.evidence(run, detector, 1, 1):
            assert all(0 <= span.start < span.end <= len(ref.text) for span in ref.spans)


# --- real rollouts --------------------------------------------------------------------------------------------------------


def generations(case):
    [file] = (SHARED / "real_logs" / case).glob("generations*.table.json")
    for row in json.loads(file.read_text())["data"]:
        for at in range(1, len(row), 3):
            yield Rollout(int(row[0]), row[at + 1] or "", prompt=row[at], reward=row[at + 2])


@pytest.mark.skipif(not (SHARED / "real_logs").exists(), reason="shared logs are not here")
def test_real_validation_texts():
    run, levels = judged(list(generations("verl-opd-healthy")))
    assert {name: level for name, level in levels.items() if level} == {}
    assert run.metrics["rep_4"].between(0.08, 0.2).all()  # labels.tsv: text repetition about .1
    run, levels = judged(list(generations("verl-opd-len1-collapse")))
    assert run.metrics["silent_frac"].iloc[2:].eq(1).all()
    assert levels["tool-format-collapse"] != Level.CLEAR


@pytest.mark.skipif(not (SHARED / "real_logs").exists(), reason="shared logs are not here")
def test_real_search_agents_are_taken_apart():
    lines = (SHARED / "real_logs/searchr1-entropy-then-reward-collapse/0.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[:200]]
    parsed = [parse(Rollout(0, row["output"], prompt=row["input"])) for row in rows]
    assert all("Doc 1" not in item.text for item in parsed)
    assert sum("Doc 1" in item.observed for item in parsed) > 50


def test_not_evaluated_without_rollouts():
    run = Run("r", "-", "frame", pd.DataFrame({"loss": [1.0]}, index=pd.Index([1], name="step")))
    assert all(isinstance(catalogue()[name](run), NotEvaluated) for name in TEXT_DETECTORS)


def test_gophers_limits_are_for_texts_as_long_as_gophers():
    opening, filler = "one step at a time", [f"w{i}" for i in range(200)]

    def turns(words):  # three turns that open alike and go on differently
        parts = [f"{opening} {' '.join(filler[start : start + words])}" for start in range(0, 3 * words, words)]
        return Rollout(1, ". ".join(parts), group="a")

    short, long = turns(6), turns(12)
    assert len(short.text.split()) < 50 <= len(long.text.split())
    assert all(ngrams.gopher_exceeded(item.text) for item in (short, long))
    assert measure([short, long]).per_rollout["repetitive"].tolist() == [0.0, 1.0]
