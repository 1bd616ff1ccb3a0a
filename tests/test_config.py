"""Settings: who overrules whom, and what a wrong one says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from echotrap import config
from echotrap.cli import init
from echotrap.config import Settings, load
from echotrap.errors import ConfigError
from echotrap.registry import catalogue

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def write(folder: Path, text: str, name: str = "echotrap.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_later_wins(folder: Path) -> None:
    assert load(folder=folder, env={}).fail_on == "critical"
    write(folder, 'fail_on = "info"\nskip = ["a"]\njobs = 3')
    assert load(folder=folder, env={}).fail_on == "info"
    env = {"ECHOTRAP_FAIL_ON": "warning", "ECHOTRAP_SKIP": "b, c"}
    assert load(folder=folder, env=env).fail_on == "warning"
    merged = load(folder=folder, env=env, flags={"fail_on": "never", "skip": None})
    assert (merged.fail_on, merged.skip, merged.jobs) == ("never", ("b", "c"), 3)


def test_flags_add_to_parameters_and_events(folder: Path) -> None:
    write(folder, '[params."x"]\na = 1\nb = 2\n[[events]]\nstep = 5\nlabel = "one"')
    merged = load(folder=folder, env={}, flags={"params": {"x": {"b": 3}}, "events": [{"step": 9, "label": "two"}]})
    assert merged.params == {"x": {"a": 1, "b": 3}}
    assert [event.step for event in merged.events] == [5, 9]


def test_the_nearest_file_up_to_the_repository_counts(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    write(folder, "[tool.echotrap]\njobs = 2\n", "pyproject.toml")
    assert load(folder=inner, env={}).jobs == 2
    write(folder / "a", "jobs = 5\n")
    assert load(folder=inner, env={}).jobs == 5
    (inner / ".git").mkdir()
    assert load(folder=inner, env={}).jobs == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('fail_onn = "info"', "unknown key 'fail_onn' (did you mean fail_on?)"),
        (
            '[keys]\nret = "reward_men"',
            "'ret' cannot be 'reward_men', no signal is called so (did you mean reward_mean?)",
        ),
        ("[run]\ngroup_siz = 3", "unknown key 'run.group_siz' (did you mean group_size?)"),
        ('fail_on = "warn"', "fail_on: input should be 'info', 'warning', 'critical' or 'never', got 'warn'"),
        ("[run]\ngroup_size = 0", "run.group_size: input should be greater than or equal to 1, got 0"),
        ('[[suppress]]\ndetector = "x"', "suppress.0.reason: field required"),
        ("fail_on =", "not valid TOML"),
    ],
)
def test_a_wrong_file_names_the_place_and_the_cure(folder: Path, text: str, message: str) -> None:
    file = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(folder=folder, env={})
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_wrong_variable_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="ECHOTRAP_JOBS"):
        load(folder=folder, env={"ECHOTRAP_JOBS": "many"})


def test_a_file_that_was_named_must_exist(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(folder / "gone.toml", env={})


def test_a_file_that_happens_to_lie_there_names_no_code(folder: Path) -> None:
    file = write(folder, 'detector_paths = ["mine"]')
    found = load(folder=folder, env={})
    assert found.detector_paths == ()
    assert "--config" in found.notices[0]
    assert load(file, env={}).detector_paths == (folder / "mine",)
    assert load(env={"ECHOTRAP_CONFIG": str(file)}).detector_paths == (folder / "mine",)


def test_expired_entries_are_told_and_not_applied(folder: Path) -> None:
    write(folder, '[[suppress]]\ndetector = "x"\nuntil = 2020-01-31\nreason = "old"')
    found = load(folder=folder, env={})
    assert found.notices == ("expired on 2020-01-31, no longer applied: old",)
    assert not found.suppress[0].holds("any")


def test_parameters_are_checked_against_their_knobs() -> None:
    detector = catalogue()["reward-variance-collapse"]

    def set_to(name: str, value: object) -> object:
        return config.parameters(detector, Settings(params={detector.card.id: {name: value}}))

    assert set_to("window_steps", 7).window_steps == 7
    assert config.parameters(detector, Settings(sensitivity="high")).window_steps == 3
    for name, value, message in (
        ("window_step", 7, "did you mean window_steps"),
        ("window_steps", 7.5, "expected int"),
        ("window_steps", 10_000, "outside of 1 to 100"),
        ("watch_ratio", "high", "expected float"),
        ("preset", 3, "expected str"),
    ):
        with pytest.raises(ConfigError, match=message):
            set_to(name, value)


def test_the_template_changes_nothing_and_names_only_what_exists(folder: Path) -> None:
    text = init.template()
    write(folder, text)
    assert load(folder=folder, env={}) == Settings()
    lines = [line[2:] if re.match(r"# ([\w\"/]+ =|\[)", line) else line for line in text.splitlines()]
    said = "\n".join(lines)
    file = write(folder, said)
    loaded = load(file, env={})
    assert loaded.run.group_size == 8
    assert loaded.keys["avgReturn"] == "reward_mean"


def test_the_published_schema_can_say_no() -> None:
    published = json.loads((ROOT / "docs/config.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    assert validator.is_valid({"fail_on": "warning", "run": {"group_size": 8}})
    assert not validator.is_valid({"fail_onn": "warning"})
    assert not validator.is_valid({"notices": ["x"]})
