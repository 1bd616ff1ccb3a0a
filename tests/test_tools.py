"""How tools are used, in the dialects that frameworks write, and what a reward cannot tell apart."""

import json
import time
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echotrap import text
from echotrap.fields import FIELDS
from echotrap.record import Run
from echotrap.rollouts import MemoryStore, Message, Rollout
from echotrap.text.measure import measure
from echotrap.text.parse import parse
from echotrap.text.rewards import error_of, expected_calls, pass_at, reward_signals, ties_of
from echotrap.text.tools import ACTION, Use, behaviour, calls_in_json, evidenced, loops, repeated, spelled, use_of
from echotrap.tool_rewards import ToolCall

SEARCH_R1 = Rollout(
    1,
    "<think>I need the river.</think>\n<search>longest river of France</search>\n\n<information>Doc 1(Title: Loire) The Loire "
    "is the longest river.</information>\n\n<think>Good.</think>\n<answer>Loire</answer>",
    prompt="Which is the longest river of France?",
)
TOOLRL = Rollout(
    1,
    '<think>Two calls.</think>\n<tool_call>\n{"name": "get_time", "parameters": {"zone": "UTC"}}\n'
    '{"name": "add", "parameters": {"a": 1, "b": 2}}\n</tool_call>',
)
RETOOL = Rollout(
    1,
    "<think>compute</think>\n<code>\n```python\nprint(6 * 7)\n```\n</code>\n<interpreter>\n42\n</interpreter>\n"
    "<answer>\\boxed{42}</answer>",
)
RAGEN = Rollout(
    1,
    "<think>go</think><answer>Right</answer><|im_end|>\n<|im_start|>user\nState: #P_<|im_end|>\n<|im_start|>assistant\n"
    "<think>go</think><answer>Right</answer><|im_end|>\n<|im_start|>user\nState: #P_<|im_end|>\n<|im_start|>assistant\n"
    "<think>up</think><answer>Up</answer><|im_end|>",
)
OPENAI = Rollout(
    1,
    "",
    messages=(
        Message("user", "What time is it in Lyon?"),
        Message("assistant", "", ({"type": "function", "function": {"name": "get_time", "arguments": '{"zone": "Lyon"}'}},)),
        Message("tool", '{"error": "unknown zone"}'),
        Message("assistant", "", ({"type": "function", "function": {"name": "get_time", "arguments": '{"zone": "CET"}'}},)),
        Message("tool", "12:04"),
        Message("assistant", "It is 12:04."),
    ),
)
QWEN = Rollout(
    1,
    '<tool_call>\n{"name": "search", "arguments": {"query": "falcon"}}\n</tool_call><|im_end|>\n<|im_start|>user\n'
    "<tool_response>\nA falcon is a bird.\n</tool_response><|im_end|>\n<|im_start|>assistant\nA bird of prey.<|im_end|>",
)
VERIFIERS = Rollout(
    1,
    "",
    prompt="Find it.",
    messages=(
        Message("assistant", '<tool>\n{"name": "search", "args": {"query": "falcon"}}\n</tool>'),
        Message("user", "<result>\nA falcon is a bird.\n</result>"),
        Message("assistant", "<answer>bird</answer>"),
    ),
)

R1_SEARCHER = Rollout(
    1,
    "<think>I look.</think><|begin_of_query|> falcon <|end_of_query|>\n<|begin_of_documents|>A bird.<|end_of_documents|>\n"
    "<answer>bird</answer>",
)
QWEN_CODER = Rollout(
    1, "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\ntwo\n</parameter>\n</function>\n</tool_call>"
)
GLM = Rollout(1, "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>")

PAGES = [f"page{number}" for number in range(60)]


def use(rollout: Rollout) -> Use:
    return use_of(rollout, parse(rollout))


@pytest.mark.parametrize(
    ("rollout", "calls", "answer"),
    [
        pytest.param(SEARCH_R1, ['search(query="longest river of France")'], "Loire", id="Search-R1"),
        pytest.param(TOOLRL, ['get_time(zone="UTC")', "add(a=1, b=2)"], "", id="ToolRL"),
        pytest.param(RETOOL, ['code(code="```python print(6 * 7) ```")'], "42", id="ReTool"),
        pytest.param(RAGEN, [], "Up", id="RAGEN"),
        pytest.param(OPENAI, ['get_time(zone="Lyon")', 'get_time(zone="CET")'], "It is 12:04.", id="OpenAI"),
        pytest.param(QWEN, ['search(query="falcon")'], "A bird of prey.", id="Qwen"),
        pytest.param(R1_SEARCHER, ['search(query="falcon")'], "bird", id="R1-Searcher"),
        pytest.param(QWEN_CODER, ['add(a=1, b="two")'], "", id="Qwen3-Coder"),
        pytest.param(GLM, ["add(a=1)"], "", id="GLM"),
        pytest.param(VERIFIERS, ['search(query="falcon")'], "bird", id="verifiers"),
    ],
)
def test_calls_and_answer_of_each_dialect(rollout: Rollout, calls: list[str], answer: str) -> None:
    found = use(rollout)
    assert [spelled(act.call) for act in found.calls] == calls
    assert found.answer == answer
    assert sum(turn.malformed for turn in parse(rollout).turns) == 0
    assert (found.malformed, found.void, found.fabricated) == (0, 0, False)


def test_results_belong_to_their_calls() -> None:
    assert [act.result for act in use(OPENAI).calls] == ['{"error": "unknown zone"}', "12:04"]
    assert [act.failed for act in use(OPENAI).calls] == [True, False]
    assert use(RETOOL).calls[0].result == "42"
    assert use(QWEN).calls[0].result == "A falcon is a bird."


def test_an_action_that_changes_nothing_is_repeated_and_one_that_does_is_not() -> None:
    acts = use(RAGEN).acts
    assert [act.call.name for act in acts] == [ACTION, ACTION]
    assert repeated(acts) == 0.5
    moved = use(replace(RAGEN, text=RAGEN.text.replace("State: #P_", "State: P#_", 1)))
    assert repeated(moved.acts) == 0.0
    assert not loops(acts)
    assert loops([*acts, acts[0]])


def test_code_that_nothing_ran_is_the_answer() -> None:
    found = use(Rollout(1, "Here it is:\n```python\nprint(1)\n```"))
    assert not found.calls
    assert found.answer == "print(1)"


@pytest.mark.parametrize(
    ("name", "rollout", "void", "fabricated", "malformed"),
    [
        ("a call that was not closed", Rollout(1, '<tool_call>{"name": "add", "argum'), 1, False, 1),
        ("a result in an assistant's turn", replace(QWEN, text=QWEN.text + "<tool_response>rain</tool_response>"), 0, True, 0),
        ("a result without a call", Rollout(1, "So <information>it rains</information><answer>rain</answer>"), 1, True, 0),
        ("a result that is only named", Rollout(1, "<think>The <information> tag</think><answer>rain</answer>"), 0, False, 0),
        (
            "a turn of thoughts only",
            replace(RAGEN, text=RAGEN.text.replace("<answer>Right</answer>", "", 1)),
            1,
            False,
            0,
        ),
        ("words at the end that were cut off", replace(QWEN, truncated=True), 1, False, 0),
    ],
)
def test_what_is_void_or_made_up(name: str, rollout: Rollout, void: int, fabricated: bool, malformed: int) -> None:
    found = use(rollout)
    assert (found.void, found.fabricated, found.malformed) == (void, fabricated, malformed)


def test_signals_of_a_step_with_tools() -> None:
    step = [replace(OPENAI, group="a"), replace(SEARCH_R1, group="b"), replace(TOOLRL, group="c"), Rollout(1, "No.", group="d")]
    signals = measure(step).signals
    assert signals["zero_call_frac"] == 0.25
    assert signals["valid_call_frac"] == 1.0
    assert signals["tool_count"] == 3.0
    assert signals["top_tool_share"] == pytest.approx(3 / 5)
    assert signals["error_result_frac"] == pytest.approx(1 / 3)
    assert signals["corrected_frac"] == 1.0
    assert signals["evidence_frac"] == 1.0
    assert signals["call_sequences_frac"] == 1.0
    assert signals["queries_per_question"] == 0.25
    assert signals["first_call_turn"] == 1.0
    assert 0 < signals["result_share"] < 1


def test_a_step_without_tools_has_no_tool_signals() -> None:
    signals = measure(
        [Rollout(1, f"<think>so</think><answer>{k}</answer>", group="a", reward=float(k)) for k in range(4)]
    ).signals
    assert not {name for name in signals if "call" in name or name.startswith(("tool", "void", "evidence", "fabricated"))}


@pytest.mark.parametrize(("answer", "found"), [("Loire", 1.0), ("Rhine", 0.0), ("France", np.nan), (" ".join(PAGES), np.nan)])
def test_evidence_is_asked_of_answers_that_can_be_traced(answer: str, found: float) -> None:
    item = replace(SEARCH_R1, text=SEARCH_R1.text.replace("<answer>Loire", f"<answer>{answer}"))
    np.testing.assert_equal(evidenced(use(item), item.prompt or ""), found)


def test_near_duplicate_queries() -> None:
    ask = "<search>{}</search><information>nothing</information>"
    said = ask.format("capital city of Peru") + ask.format("the capital city of Peru") + ask.format("population of Lima")
    assert measure([Rollout(1, said)]).signals["near_duplicate_queries_frac"] == pytest.approx(1 / 3)


GOLD = ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 30})


def call(name: str, arguments: dict[str, object], reward: float, group: str = "a") -> Rollout:
    said = json.dumps({"name": name, "arguments": arguments})
    gold = json.dumps([{"name": GOLD.name, "arguments": dict(GOLD.arguments)}])
    return Rollout(1, f"<tool_call>{said}</tool_call>", group=group, reward=reward, extra={"ground_truth": gold})


TRIALS = [
    call(GOLD.name, dict(GOLD.arguments), 1.0),
    call(GOLD.name, {**GOLD.arguments, "duration_minutes": 15}, 0.0),
    call("create_reminder", {"title": "Team Sync", "remind_at": "2026-10-05"}, 0.0),
    call(GOLD.name, dict(GOLD.arguments), 1.0),
]


def test_the_tie_of_the_four_trials_is_ranked() -> None:
    found = text.ties(MemoryStore(TRIALS))
    assert found is not None
    assert (found.differing, found.tied, found.scored, found.ranked) == (5, 1, 1, 1)
    [pair] = found.pairs
    assert (pair.better.index, pair.worse.index, pair.differ_in, pair.reward) == (1, 2, "tool name", 0.0)
    assert (pair.better.binary, pair.better.fine_grained, pair.better.multiplicative) == (0.0, 0.8889, 0.6667)
    assert (pair.worse.binary, pair.worse.fine_grained, pair.worse.multiplicative) == (0.0, 0.2222, 0.0)
    assert json.loads(json.dumps(asdict(found)))["pairs"][0]["gap"] == pair.gap == 0.6667


def test_what_differs_is_named() -> None:
    names = ("tool name", "parameter names", "parameter values", "number of calls", "answer")
    others = (
        call("other", {"a": 1}, 0.0),
        call("add", {"b": 1}, 0.0),
        call("add", {"a": 2}, 0.0),
        Rollout(1, "No call.", group="a", reward=0.0),
        replace(call("add", {"a": 1}, 0.0), text=call("add", {"a": 1}, 0.0).text + "<answer>2</answer>"),
    )
    for name, other in zip(names, others, strict=True):
        both = [call("add", {"a": 1}, 0.0), other]
        found = ties_of(both, [use(item) for item in both], np.zeros(2, int))
        assert [pair.differ_in for pair in found.pairs] == [name]


def test_an_unequal_reward_or_another_prompt_is_no_tie() -> None:
    apart = [call("add", {"a": 1}, 0.0), call("add", {"a": 2}, 0.5), call("add", {"a": 3}, 0.0, "b")]
    found = ties_of(apart, [use(item) for item in apart], np.array([0, 0, 1]))
    assert (found.differing, found.tied, found.pairs) == (1, 0, ())


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([GOLD], None),
        ([], "name"),
        ([replace(GOLD, name="other")], "name"),
        ([replace(GOLD, arguments={"title": "Team Sync"})], "parameter_name"),
        ([replace(GOLD, arguments={**GOLD.arguments, "duration_minutes": 15})], "parameter_value"),
    ],
)
def test_taxonomy_of_errors(calls: list[ToolCall], error: str | None) -> None:
    said = "".join(f"<tool_call>{json.dumps({'name': c.name, 'arguments': dict(c.arguments)})}</tool_call>" for c in calls)
    assert error_of(use(Rollout(1, said + "<answer>x</answer>")), [GOLD]) == error


def test_order_is_the_finest_error() -> None:
    first, second = ToolCall("open", {"page": 1}), ToolCall("close")
    said = '<tool_call>{"name": "close"}\n{"name": "open", "arguments": {"page": 1}}</tool_call>'
    assert error_of(use(Rollout(1, said)), [first, second]) == "order"
    assert error_of(use(Rollout(1, "<tool_call>{broken</tool_call>")), [first]) == "malformed"


@pytest.mark.parametrize(
    "value",
    [
        {"name": "add", "arguments": {"a": 1}},
        '{"name": "add", "arguments": {"a": 1}}',
        [{"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}],
        '<think>x</think><tool_call>\n{"name": "add", "parameters": {"a": 1}}\n</tool_call>',
        {"target": [{"name": "add", "args": {"a": 1}}]},
    ],
)
def test_expected_calls_are_read_however_they_are_written(value: object) -> None:
    assert expected_calls(Rollout(1, "", extra={"gts": value})) == [ToolCall("add", {"a": 1})]


@pytest.mark.parametrize(
    "value", ["42", 42, None, "{not json", "[1, 2]", {"name": 3}, {"answer": {"name": "x y"}}, "[" * 100_000]
)
def test_what_is_no_call_is_none(value: object) -> None:
    assert calls_in_json(value) == []


def test_components_are_correlated_with_the_outcome_within_groups() -> None:
    rng = np.random.default_rng(0)
    rollouts = []
    for group in range(8):
        for _ in range(8):
            right = float(rng.random() < 0.5)
            parts = {"correct": right, "brevity": 1 - right + group, "format": float(rng.random() < 0.9)}
            rollouts.append(Rollout(1, "x", group=str(group), reward=sum(parts.values()), components=parts))
    group = np.repeat(np.arange(8), 8)
    signals = reward_signals(rollouts, [use(item) for item in rollouts], group, grouped=True)
    assert signals["components/brevity/corr"] == signals["component_corr_min"] == pytest.approx(-1)
    assert abs(signals["components/format/corr"]) < 0.3
    assert "components/correct/corr" not in signals
    shares = [signals[f"components/{name}/share"] for name in ("correct", "brevity", "format")]
    assert sum(shares) == pytest.approx(1)
    assert signals["component_share_max"] == max(shares[1:])


def test_copies_that_are_paid_unequally() -> None:
    said = [("a", 0.0), ("a", 1.0), ("a", 1.0), ("b", 0.5), ("b", 0.5), ("c", 0.0)]
    rollouts = [Rollout(1, word, group="g", reward=reward) for word, reward in said]
    signals = reward_signals(rollouts, [Use()] * 6, np.zeros(6, int), grouped=True)
    assert signals["unequal_copies_frac"] == pytest.approx(3 / 5)
    assert signals["reward_levels"] == 3
    acting = reward_signals(rollouts, [Use()] * 5 + [use(RAGEN)], np.zeros(6, int), grouped=True)
    assert "unequal_copies_frac" not in acting, "an environment may answer the last action either way"


@pytest.mark.parametrize(
    "said",
    [
        "<information>x" * 20_000,
        "<tool_call><function=f>" + "<parameter=a>" * 20_000,
        "<tool_call>f\n" + "<arg_key>a</arg_key><arg_value>" * 10_000 + "</tool_call>",
        "<search>same</search>" * 5_000,
        "\\boxed{" * 20_000,
        "<search>x</search><information>" + "\n" * 200_000 + "</information>",
    ],
    ids=["results", "parameters", "arguments", "queries", "boxes", "newlines"],
)
def test_hostile_text_takes_no_long_time(said: str) -> None:
    gold = json.dumps([{"name": "search", "arguments": {"query": str(k)}} for k in range(2_000)])
    items = [Rollout(1, said + str(k), group="a", reward=0.0, extra={"gts": gold}) for k in range(2)]
    begun = time.perf_counter()
    uses = [use(item) for item in items]
    behaviour(items, [parse(item) for item in items], uses, [evidenced(one, "") for one in uses])
    reward_signals(items, uses, np.zeros(2, int), grouped=True)
    assert time.perf_counter() - begun < 10


def test_a_finding_of_ties_shows_tied_rollouts() -> None:
    items = [replace(item, step=step) for step in (1, 2) for item in TRIALS]
    run = Run("r", "-", "frame", pd.DataFrame(), rollouts=MemoryStore(items))
    during = [ref for ref in text.evidence(run, "coarse-reward-ties", 2, 2) if ref.when == "during"]
    assert {ref.index for ref in during} == {1, 2}
    assert all("<tool_call>" in ref.text for ref in during)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=24))
def test_more_tries_and_more_turns_never_solve_less(tries: list[tuple[bool, int, int]]) -> None:
    right, turns, group = (list(column) for column in zip(*tries, strict=True))
    names, whose = np.unique(group, return_inverse=True)
    if len(set(np.bincount(whose))) > 1:
        return  # prompts with few tries leave pass@k: another mean
    found = pass_at(right, turns, whose)
    assert found[1, max(turns)] == pytest.approx(np.mean([np.mean(np.array(right)[whose == k]) for k in range(len(names))]))
    for (k, budget), value in found.items():
        assert all(value <= other + 1e-12 for (more, later), other in found.items() if more >= k and later >= budget)


PIECES = st.sampled_from([
    "<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "add", "arguments": {"a": 1}}', '{"name": ', "<search>",
    "</search>", "<information>", "</information>", "<answer>", "</answer>", "```python\n", "```", "<|im_start|>user\n",
    "<|im_start|>assistant\n", "<|im_end|>", "\nuser\n", "\nassistant\n", "Lima", "\\boxed{", "}", "<function=f>", " ", "[", "\n",
])  # fmt: skip


@given(st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=5), st.lists(PIECES, max_size=4).map("".join))
def test_any_text_is_read_and_every_share_is_one(said: list[str], gold: str) -> None:
    items = [Rollout(1, one, group="a", reward=float(len(one) % 2), extra={"gts": gold, "acc": 1}) for one in said]
    for name, value in measure(items).signals.items():
        field = FIELDS.get(name)
        assert np.isfinite(value), name
        if field is not None:
            assert field.low is None or value >= field.low - 1e-9, name
            assert field.high is None or value <= field.high + 1e-9, name
