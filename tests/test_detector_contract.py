"""What holds for every detector in the catalogue, whoever wrote it."""

import ast
import string
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from echotrap.detector import Detector, Level, NotEvaluated, Track, at_sensitivity, episodes
from echotrap.fields import FIELDS
from echotrap.record import Run, RunConfig
from echotrap.registry import SECTIONS, catalogue, story
from echotrap.specs import load

ROOT = Path(__file__).parents[1]
SPECS = ROOT / "tests" / "specs"
CATALOGUE = catalogue()
RULES = {name: detector for name, detector in CATALOGUE.items() if detector.card.family != "composite"}
ALLOWED = {"echotrap", "echotrap.detector", "echotrap.record", "echotrap.stats", "numpy", "scipy", "__future__"}
# remedies that no configuration key expresses
NO_LEVER = frozenset({"regime-change"})

every = pytest.mark.parametrize("detector", [pytest.param(d, id=name) for name, d in CATALOGUE.items()])
rule = pytest.mark.parametrize("detector", [pytest.param(d, id=name) for name, d in RULES.items()])
case = pytest.mark.parametrize(
    ("detector", "case"),
    [
        pytest.param(detector, case, id=f"{name}: {case.name}")
        for name, detector in RULES.items()
        if (SPECS / f"{name}.toml").exists()
        for case in load(SPECS / f"{name}.toml")
    ],
)


def source(detector: Detector) -> Path:
    return ROOT / "detectors" / f"{detector.card.id.replace('-', '_')}.py"


def frame(detector: Detector, values: np.ndarray) -> pd.DataFrame:
    """A run's frame in which every signal that the detector needs or uses has these values."""
    names = {name for alternatives in detector.card.needs for name in alternatives} | set(detector.card.uses)
    index = pd.Index(np.arange(1, len(values) + 1), name="step")
    return pd.DataFrame(dict.fromkeys(sorted(names), values), index=index, dtype=np.float64)


@every
def test_docstring_has_its_sections_in_order(detector: Detector) -> None:
    text = story(detector.card.id)
    assert not text.splitlines()[0].endswith(":")
    places = [text.index(f"\n{section}\n{'-' * len(section)}\n") for section in SECTIONS]
    assert places == sorted(places)
    body = text.split("What to do\n----------\n")[1].split("\n\nReferences")[0]
    assert len(body.split()) >= 3


@every
def test_docstring_shows_an_alarm_that_runs(detector: Detector) -> None:
    example = story(detector.card.id).split("\nExample\n")[1].split("\nFalse positives\n")[0]
    assert ">>>" in example


@every
def test_file_is_named_after_the_id(detector: Detector) -> None:
    assert source(detector).is_file()


@every
def test_signals_are_canonical(detector: Detector) -> None:
    named = {name for alternatives in detector.card.needs for name in alternatives} | set(detector.card.uses)
    if detector.card.family != "composite":
        assert named <= set(FIELDS)


@every
def test_parameters_are_frozen_and_within_their_bounds(detector: Detector) -> None:
    params = detector.params
    first = fields(params)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(params, first, 0)
    for item in fields(params):
        if not item.metadata:
            continue
        least, most = item.metadata["least"], item.metadata["most"]
        for value in (getattr(params, item.name), item.metadata["low"], item.metadata["high"]):
            assert least <= value <= most, item.name
        assert item.metadata["source"], item.name


@every
def test_imports_only_the_contract(detector: Detector) -> None:
    standard = {"collections", "collections.abc", "dataclasses", "functools", "itertools", "math", "typing"}
    tree = ast.parse(source(detector).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert set(names) <= ALLOWED | {name for name in names if name.split(".")[0] in ("numpy", "scipy")} | standard


@every
def test_card_says_what_to_do(detector: Detector) -> None:
    card = detector.card
    assert card.title
    assert card.references
    assert card.remedies
    keys = set().union(*(remedy.keys for remedy in card.remedies))
    if card.id not in NO_LEVER and any(remedy.keys for remedy in card.remedies):
        assert {"verl", "TRL"} <= keys
    assert card.highest >= Level.WATCH


@rule
def test_too_short_or_missing_is_said(detector: Detector) -> None:
    if detector.card.needs:
        empty = DETECT(detector, pd.DataFrame(index=pd.Index([1, 2, 3], name="step")))
        assert isinstance(empty, NotEvaluated)
        for alternatives in detector.card.needs:
            assert " or ".join(alternatives) in empty.reason
            assert set(alternatives) <= set(empty.missing)
    for length in (0, 1, 2):
        track = DETECT(detector, frame(detector, np.full(length, 0.5)))
        assert isinstance(track, NotEvaluated) or track.level.max(initial=0) <= Level.WATCH


@rule
def test_nothing_but_missing_values_is_not_evaluated(detector: Detector) -> None:
    assert isinstance(DETECT(detector, frame(detector, np.full(50, np.nan))), NotEvaluated)


@rule
@pytest.mark.parametrize("sensitivity", ["low", "default", "high"])
def test_a_constant_run_has_no_alarm(detector: Detector, sensitivity: str) -> None:
    for value in (0.3, 0.5):
        frame_ = frame(detector, np.full(120, value))
        run = Run("constant", "-", "frame", frame_)
        track = detector(run, at_sensitivity(detector.params, sensitivity))  # type: ignore[arg-type]
        assert isinstance(track, NotEvaluated) or track.level.max() <= Level.WATCH


@case
def test_track_is_well_formed(detector: Detector, case) -> None:
    run = case.run()
    before = run.metrics.copy(deep=True)
    params = replace(detector.params, **case.params) if case.params else None
    track = detector(run, params)
    pd.testing.assert_frame_equal(run.metrics, before)
    if isinstance(track, NotEvaluated):
        assert track.reason
        return
    assert_well_formed(detector, track, run)
    again = detector(run, params)
    assert isinstance(again, Track)
    np.testing.assert_array_equal(track.level, again.level)
    np.testing.assert_array_equal(track.onset, again.onset)


def assert_well_formed(detector: Detector, track: Track, run: Run) -> None:
    n = len(track.steps)
    assert (np.diff(track.steps) > 0).all()
    assert np.isin(track.steps, run.steps).all()
    for part in (track.level, track.onset, track.score, track.limit):
        assert part.shape == (n,)
    assert track.level.dtype == np.int8
    assert track.level.min(initial=0) >= 0
    assert track.level.max(initial=0) <= detector.card.highest
    above = track.level > 0
    assert (track.onset[~above] == -1).all()
    assert np.isin(track.onset[above], run.steps).all()
    assert (track.onset[above] <= track.steps[above]).all()
    for name, value in track.evidence.items():
        if isinstance(value, np.ndarray):
            assert value.shape == (n,), name
        else:
            assert isinstance(value, (float, str)), name
    for episode in episodes(track):
        for index in (episode.first, episode.peak, episode.last):
            message = detector.card.message.format(
                **{"step": int(track.steps[index]), "onset": int(track.onset[index])} | track.evidence_at(index)
            )
            assert message
            told = {name: value for name, value in track.evidence_at(index).items() if f"{{{name}" in detector.card.message}
            assert not any(isinstance(value, float) and np.isnan(value) for value in told.values()), message


@every
def test_message_names_are_identifiers(detector: Detector) -> None:
    names = [name for _, name, _, _ in string.Formatter().parse(detector.card.message) if name is not None]
    assert all(name.isidentifier() for name in names)


@pytest.mark.parametrize("spelling", ["inf", "1e300", "1e-300", "-1"])
@rule
def test_extreme_values_do_not_raise(detector: Detector, spelling: str) -> None:
    values = np.concatenate((np.full(20, 0.5), np.full(20, float(spelling))))
    with np.errstate(all="ignore"):
        track = DETECT(detector, frame(detector, values))
    assert isinstance(track, Track | NotEvaluated)


def DETECT(detector: Detector, metrics: pd.DataFrame) -> Track | NotEvaluated:
    return detector(Run("contract", "-", "frame", metrics, config=RunConfig(group_size=8)))
