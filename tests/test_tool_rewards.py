"""The four trials of the cookbook page, and the corners of the score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echotrap.tool_rewards import ToolCall, binary, fine_grained, multiplicative

EXPECTED = ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 30})


@pytest.mark.parametrize(
    ("call", "coarse", "fine"),
    [
        (EXPECTED, 1.0, 1.0),
        (ToolCall("create_calendar_event", {"title": "Team Sync", "date": "2026-10-05", "duration_minutes": 15}), 0.0, 0.8889),
        (ToolCall("create_reminder", {"title": "Team Sync", "remind_at": "2026-10-05"}), 0.0, 0.2222),
        (ToolCall("create_calendar_event", dict(EXPECTED.arguments)), 1.0, 1.0),
    ],
)
def test_the_four_trials(call: ToolCall, coarse: float, fine: float) -> None:
    assert binary(call, EXPECTED) == coarse
    assert round(fine_grained(call, EXPECTED), 4) == fine


def test_no_expected_parameters_score_one_on_both_parts() -> None:
    assert fine_grained(ToolCall("now", {"zone": "UTC"}), ToolCall("now")) == 1.0
    assert fine_grained(ToolCall("later"), ToolCall("now")) == pytest.approx(2 / 3)


def test_a_wrong_tool_is_worth_nothing_in_the_product() -> None:
    call = ToolCall("create_reminder", dict(EXPECTED.arguments))
    assert fine_grained(call, EXPECTED) == pytest.approx(2 / 3)
    assert multiplicative(call, EXPECTED) == 0.0


arguments = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@given(st.sampled_from("xy"), arguments, st.sampled_from("xy"), arguments)
def test_scores_stay_in_order(name: str, given_: dict[str, int], wanted_name: str, wanted: dict[str, int]) -> None:
    call, expected = ToolCall(name, given_), ToolCall(wanted_name, wanted)
    assert 0.0 <= multiplicative(call, expected) <= fine_grained(call, expected) <= 1.0
    assert binary(call, expected) <= fine_grained(call, expected)
