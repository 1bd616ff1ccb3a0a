"""What is told, once, and remembered."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echotrap.alerts import Alarm, Message, Store, alarms, compose
from echotrap.detector import Symptoms
from echotrap.diagnosis import Examination
from echotrap.errors import EchotrapError
from echotrap.record import Run, Segment

CALM, WARN, CRIT = 0, 2, 3


def seen(segments: tuple[Segment, ...] = (), **rules: list[int]) -> Examination:
    """An examination whose verdict rules took these levels at steps 1, 2, 3, ..."""
    length = len(next(iter(rules.values())))
    steps = np.arange(1, length + 1)
    run = Run("r", "r.jsonl", "jsonl", pd.DataFrame({"loss": np.zeros(length)}, index=pd.Index(steps)), segments=segments)
    no = np.zeros(length, bool)
    symptoms = Symptoms(run, steps, {}, {}, no, no, no, np.full(length, 50.0))
    levels = {name.replace("_", "-"): np.array(level, np.int8) for name, level in rules.items()}
    return Examination(run, {}, {}, None, symptoms, levels)  # type: ignore[arg-type]


def told(found: tuple[Alarm, ...]) -> list[tuple[str, str, str, int]]:
    return [(alarm.kind, alarm.label, alarm.severity, alarm.step) for alarm in found]


def test_an_incident_is_opened_once_escalates_and_recovers_after_a_cool_down() -> None:
    examined = seen(echo_trap=[CALM] * 9 + [WARN] * 10 + [CRIT] * 10 + [CALM] * 40)
    assert told(alarms(examined)) == [
        ("opened", "echo-trap", "warning", 10),
        ("escalated", "echo-trap", "critical", 20),
        ("recovered", "echo-trap", "critical", 50),
    ]


def test_a_relapse_within_the_cool_down_is_the_same_incident() -> None:
    level = [CALM] * 9 + [WARN] * 5 + [CALM] * 10 + [WARN] * 5 + [CALM] * 30
    assert told(alarms(seen(unstable=level))) == [("opened", "unstable", "warning", 10), ("recovered", "unstable", "warning", 50)]


def test_a_relapse_after_the_cool_down_is_news() -> None:
    level = [CALM] * 9 + [WARN] * 5 + [CALM] * 25 + [WARN] * 5
    kinds = [alarm.kind for alarm in alarms(seen(unstable=level))]
    assert kinds == ["opened", "recovered", "opened"]


def test_a_critical_is_never_held_back_by_an_earlier_warning_of_another_cause() -> None:
    examined = seen(echo_trap=[CALM] * 12 + [CRIT] * 5, unstable=[CALM] * 10 + [WARN] * 7)
    assert told(alarms(examined)) == [("opened", "unstable", "warning", 11), ("escalated", "echo-trap", "critical", 13)]


def test_another_cause_of_the_same_gravity_is_told_once() -> None:
    flicker = seen(echo_trap=[CALM] * 5 + [CALM, WARN] * 5, unstable=[CALM] * 5 + [WARN] * 10)
    assert told(alarms(flicker)) == [("opened", "unstable", "warning", 6), ("changed", "echo-trap", "warning", 7)]


LEVELS = st.lists(st.tuples(st.sampled_from([CALM, CALM, WARN, CRIT]), st.integers(1, 30)), min_size=1, max_size=8)


@given(LEVELS, LEVELS, st.integers(1, 200))
def test_alarms_of_a_prefix_are_the_first_alarms_of_the_run(
    one: list[tuple[int, int]], two: list[tuple[int, int]], cut: int
) -> None:
    first, second = (np.repeat(*np.array(pairs).T).tolist() for pairs in (one, two))
    length = min(len(first), len(second))
    whole = alarms(seen(echo_trap=first[:length], unstable=second[:length]))
    prefix = alarms(seen(echo_trap=first[: min(cut, length)], unstable=second[: min(cut, length)]))
    assert prefix == tuple(alarm for alarm in whole if alarm.step <= cut)


@given(LEVELS, st.lists(st.integers(1, 240), max_size=6))
def test_looking_in_any_chunks_remembers_the_same(pairs: list[tuple[int, int]], cuts: list[int]) -> None:
    level = np.repeat(*np.array(pairs).T).tolist()
    store = Store()
    news: list[Alarm] = []
    for cut in [*sorted(cut for cut in cuts if cut < len(level)), len(level)]:
        news += store.take("r", alarms(seen(echo_trap=level[:cut])))
    whole = alarms(seen(echo_trap=level))
    assert store.take("r", whole) == ()
    assert len(news) == len(set(news)) <= len(whole)
    gravest = {alarm.incident: alarm.severity for alarm in whole}
    assert {alarm.incident: alarm.severity for alarm in news} == gravest


def test_a_writer_that_stalls_in_an_incident_hides_nothing() -> None:
    opened, stalled = Alarm("opened", "echo-trap", "warning", 8, 10, 10), Alarm("stalled", "stalled", "warning", 10, 10, 10)
    assert Store().take("r", [opened, stalled]) == (opened, stalled)


def test_news_of_one_incident_are_one_as_grave_as_it_got() -> None:
    found = [
        Alarm("opened", "unstable", "warning", 8, 10, 10),
        Alarm("escalated", "unstable", "critical", 8, 20, 10),
        Alarm("changed", "echo-trap", "critical", 8, 30, 10),
    ]
    store = Store()
    store.take("r", found[:1])
    assert store.take("r", found) == (Alarm("escalated", "echo-trap", "critical", 8, 30, 10),)


def test_the_past_of_a_run_met_for_the_first_time_is_no_news_but_what_lasts_is() -> None:
    level = [CALM] * 9 + [WARN] * 5 + [CALM] * 45 + [WARN] * 5 + [CRIT] * 5
    news = Store().take("r", alarms(seen(echo_trap=level)), first="what lasts")
    assert told(news) == [("opened", "echo-trap", "critical", 65)]
    assert Store().take("r", alarms(seen(echo_trap=level[:50])), first="what lasts") == ()
    assert Store().take("r", alarms(seen(echo_trap=level[:20])), first="nothing") == ()


def test_a_channel_that_is_added_later_is_told_what_still_lasts() -> None:
    store, found = Store(), alarms(seen(echo_trap=[WARN] * 9 + [CALM] * 45 + [CRIT] * 5))
    store.take("r", found)
    assert store.take("r", found) == ()
    assert told(store.take("r", found, ["late"], words, first="what lasts")) == [("opened", "echo-trap", "critical", 55)]
    assert store.waiting("r", "late") == 1
    assert store.take("r", found, ["late"], words, first="what lasts") == ()


def test_a_step_trained_again_after_a_resume_is_another_step() -> None:
    level = [CALM] * 9 + [WARN] * 5
    store = Store()
    assert len(store.take("r", alarms(seen(echo_trap=level)))) == 1
    resumed = (Segment(1, 14, "start"), Segment(5, 14, "resume"))
    assert len(store.take("r", alarms(seen(resumed, echo_trap=level)))) == 1


def test_late_rows_that_move_an_alarm_a_little_do_not_repeat_it() -> None:
    store = Store()
    store.take("r", alarms(seen(echo_trap=[CALM] * 9 + [WARN] * 20)))
    assert store.take("r", alarms(seen(echo_trap=[CALM] * 6 + [WARN] * 23))) == ()


def test_a_restart_repeats_nothing_and_delivers_what_was_left(tmp_path: Path) -> None:
    file = tmp_path / "state" / "alarms.sqlite3"
    found = alarms(seen(echo_trap=[CALM] * 9 + [WARN] * 5))
    first = Store(file)
    first.take("r", found, ["a", "b"], words)
    delivery = first.claim("r", "a", 0.0)
    assert delivery is not None
    first.settle(delivery)
    first.close()

    second = Store(file)
    assert second.take("r", found, ["a", "b"], words) == ()
    assert second.claim("r", "a", 0.0) is None
    left = second.claim("r", "b", 0.0)
    assert left is not None
    assert left.message == words(found[0])


def test_two_processes_never_deliver_the_same_message(tmp_path: Path) -> None:
    one, two = Store(tmp_path / "s"), Store(tmp_path / "s")
    found = alarms(seen(echo_trap=[CALM] * 9 + [WARN] * 5))
    assert (len(one.take("r", found, ["a"], words)), len(two.take("r", found, ["a"], words))) == (1, 0)
    assert one.claim("r", "a", 100.0) is not None
    assert two.claim("r", "a", 100.0) is None
    assert two.claim("r", "a", 100.0 + Store.HOLD_S + 1) is not None  # the first one died


def test_messages_of_another_run_are_left_alone() -> None:
    store = Store()
    store.take("r", alarms(seen(echo_trap=[WARN] * 5)), ["a"], words)
    assert store.claim("other", "a", 0.0) is None


def test_a_store_that_cannot_be_written_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store, reason = Store.open(tmp_path / "file" / "alarms.sqlite3")
    assert "remembered until the end of this process" in reason
    assert len(store.take("r", alarms(seen(echo_trap=[WARN] * 5)))) == 1


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "alarms.sqlite3").write_text("no database" * 100)
    with pytest.raises(EchotrapError, match="memory of alarms"):
        Store(tmp_path / "alarms.sqlite3")


def test_nothing_is_taken_when_writing_the_words_fails(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")

    def fails(alarm: Alarm) -> Message:
        raise ValueError("words")

    found = alarms(seen(echo_trap=[WARN] * 5))
    with pytest.raises(ValueError, match="words"):
        store.take("r", found, ["a"], fails)
    assert len(store.take("r", found)) == 1


def words(alarm: Alarm) -> Message:
    return compose(alarm, None, run="r", key="r")


def test_a_message_names_verdict_stage_and_steps() -> None:
    message = words(alarms(seen(echo_trap=[CALM] * 9 + [CRIT] * 5))[0])
    assert message.title == "[critical] echo-trap (stage 3) in r"
    assert "began at step 10, alarm at 10" in message.body


def test_the_store_is_for_its_owner_only(tmp_path: Path) -> None:
    Store(tmp_path / "state" / "alarms.sqlite3")
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    assert sqlite3.connect(tmp_path / "state" / "alarms.sqlite3").execute("SELECT count(*) FROM told").fetchone() == (0,)


def test_a_run_that_nobody_watches_any_more_is_forgotten(tmp_path: Path) -> None:
    found = alarms(seen(echo_trap=[WARN] * 5))
    store = Store(tmp_path / "s")
    for run, at in (("old", 0.0), ("new", 4e9)):
        store.saw(run, 5, at)
        store.take(run, found)
    store.close()
    again = Store(tmp_path / "s")
    assert (len(again.take("old", found)), len(again.take("new", found))) == (1, 0)
