"""Every detector does what its spec says (tests/specs/README.md)."""

from pathlib import Path

import numpy as np
import pytest

from echotrap.errors import EchotrapError
from echotrap.registry import catalogue
from echotrap.specs import Case, expand, load

SPECS = Path(__file__).parent / "specs"
CASES = {path.stem: load(path) for path in sorted(SPECS.glob("*.toml"))}


@pytest.mark.parametrize(
    ("detector", "case"),
    [pytest.param(detector, case, id=f"{detector}: {case.name}") for detector, cases in CASES.items() for case in cases],
)
def test_case(detector: str, case: Case) -> None:
    case.check(catalogue()[detector])


@pytest.mark.parametrize("detector", sorted(catalogue()))
def test_alert_clear_and_not_evaluated_are_specified(detector: str) -> None:
    assert detector in CASES, f"tests/specs/{detector}.toml is missing"
    assert {case.expect for case in CASES[detector]} == {"alert", "clear", "not-evaluated"}


def test_no_spec_without_a_detector() -> None:
    assert set(CASES) <= set(catalogue())


def test_names_are_unique() -> None:
    for cases in CASES.values():
        assert len({case.name for case in cases}) == len(cases)


def test_noise_is_seeded_and_has_the_stated_size() -> None:
    added, multiplied = expand("2x4000~0.1"), expand("2x4000~10%", seed=1)
    np.testing.assert_array_equal(added, expand("2x4000~0.1"))
    assert np.std(added) == pytest.approx(0.1, rel=0.1)
    assert np.std(np.log(multiplied)) == pytest.approx(0.1, rel=0.1)


def test_missing_and_nonfinite_are_different_facts() -> None:
    run = Case("x", "clear", {"loss": "1 _ nan 2 inf", "entropy": "1x3"}, start=10, every=5).run()
    assert run.series("loss").steps.tolist() == [10, 25]
    assert [(item.step, item.field, item.spelling) for item in run.nonfinite] == [(20, "loss", "nan"), (30, "loss", "inf")]
    assert run.series("entropy").steps.tolist() == [10, 15, 20]


@pytest.mark.parametrize("bad", ["1y4", "x4", "1x", "1~", "--"])
def test_bad_notation_is_named(bad: str) -> None:
    with pytest.raises(EchotrapError, match="not series notation"):
        expand(bad)


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[[case]]\nname = "a"\nexpect = "clear"\nlevle = "watch"\n')
    with pytest.raises(EchotrapError, match="levle"):
        load(path)
