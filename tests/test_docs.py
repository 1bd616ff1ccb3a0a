"""Pages that can be computed are computed: ``pytest tests/test_docs.py --update-golden`` writes them anew."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from echotrap import config, pipeline, specs
from echotrap.cli import reference
from echotrap.cli.detectors import catalogue_page
from echotrap.config import Settings
from echotrap.detector import Alert, Level, Track
from echotrap.diagnosis import Examination, examine
from echotrap.evaluation import claims
from echotrap.fields import FIELDS
from echotrap.registry import catalogue, story
from echotrap.render import json as render_json
from echotrap.render import render
from echotrap.render.story import page as story_page
from echotrap.render.svg import track_figure

ROOT = Path(__file__).parents[1]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "detectors/README.md": catalogue_page,
    "docs/cli.md": reference,
    "docs/coverage.md": claims.page,
    "docs/config.schema.json": lambda: _json(config.schema()),
    "docs/report.schema.json": lambda: _json(render_json.schema()),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_current(page: str, request: pytest.FixtureRequest) -> None:
    file, text = ROOT / page, PAGES[page]()
    if request.config.getoption("--update-golden"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text, "pytest tests/test_docs.py --update-golden writes it anew"


CATALOGUE = ROOT / "docs/catalogue"


def _figure(name: str) -> tuple[str, str]:
    """A picture of the detector at work and its caption: on a recorded run where one shows it, else on a case of its spec."""
    detector = catalogue()[name]
    for folder in sorted((ROOT / "sample_runs").glob("*/truth.toml")):
        outcome = _examined(folder.parent.name).outcomes[name]
        if isinstance(outcome, Alert) and max(item.level for item in outcome.episodes) >= Level.WARNING:
            return track_figure(outcome.track, name), f"On the recorded run {folder.parent.name}"
    for case in specs.load(ROOT / f"tests/specs/{name}.toml"):
        track = case._judge(detector)
        if case.expect == "alert" and isinstance(track, Track) and track_figure(track, name):
            return track_figure(track, name), f"On a case of its specification: {case.name}"
    return "", ""


@cache
def _examined(run: str) -> Examination:
    return examine(pipeline.load(str(ROOT / "sample_runs" / run), Settings()))


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_the_story_of_each_detector_is_current(name: str, request: pytest.FixtureRequest) -> None:
    file, picture = CATALOGUE / f"{name}.md", CATALOGUE / f"{name}.svg"
    if request.config.getoption("--update-golden"):
        CATALOGUE.mkdir(exist_ok=True)
        drawn, caption = _figure(name)
        if drawn:
            picture.write_text(drawn, encoding="utf-8")
        file.write_text(story_page(catalogue()[name], story(name), f"{name}.svg {caption}" if drawn else None), encoding="utf-8")
    text = file.read_text(encoding="utf-8")
    shown = re.search(r"!\[(.*)\]\((.*)\)", text)
    figure = f"{shown[2]} {shown[1]}" if shown else None
    assert text == story_page(catalogue()[name], story(name), figure), "pytest tests/test_docs.py --update-golden writes it anew"
    assert picture.is_file() is (figure is not None)
    if figure:
        ET.parse(picture)


def test_no_page_tells_of_a_detector_that_is_gone() -> None:
    assert {path.stem for path in CATALOGUE.iterdir()} <= set(catalogue())


def test_every_claim_is_covered_or_says_why_not() -> None:
    assert [claim.number for claim in claims.CLAIMS] == list(range(1, 42))
    for claim in claims.CLAIMS:
        assert set(claim.detectors) <= set(catalogue()), claim.number
        assert set(claim.signals) <= set(FIELDS), claim.number
        shown = claim.detectors or claim.signals
        assert bool(shown) is bool(claim.read_from), claim.number
        assert shown or claim.why_not, claim.number
        assert set(claim.read_from.split(", ")) <= {"metrics", "rollouts", "evaluations", ""}, claim.number
    assert sum(bool(claim.why_not) for claim in claims.CLAIMS) <= 8


def test_every_command_has_help_and_is_in_the_reference() -> None:
    text = reference()
    done = subprocess.run([sys.executable, "-m", "echotrap", "--help"], capture_output=True, text=True, check=True)
    commands = [line.split()[0] for line in done.stdout.split("Commands:")[1].splitlines() if line.strip()]
    assert commands
    for command in commands:
        assert f"\n## echotrap {command}\n" in text
    assert "\n    \n" not in text


def test_options_that_pages_name_exist() -> None:
    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", reference()))
    for page in ROOT.glob("docs/*.md"):
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page.read_text()))
        assert named <= known | {"--update-golden"}, page


def test_settings_that_the_pipeline_page_shows_are_settings(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/ci.md").read_text(), re.DOTALL)
    (tmp_path / "echotrap.toml").write_text(example)
    found = config.load(tmp_path / "echotrap.toml", env={})
    assert (found.fail_on, found.expect[0].verdict, found.suppress[0].detector) == ("warning", ("echo-trap",), "length-collapse")


def test_json_output_keeps_to_the_published_schema(trap_report, healthy_report, scant_report) -> None:
    schema = json.loads((ROOT / "docs/report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for results in ([trap_report], [scant_report], [trap_report, healthy_report]):
        validator.validate(json.loads(render(results, "json")))
    assert not validator.is_valid({"schema_version": "1.0"} | {"verdict": {}})


def test_a_published_field_is_never_taken_away() -> None:
    """Within one major version the schema only grows: what a reader of 1.0 relies on stays."""
    schema = json.loads((ROOT / "docs/report.schema.json").read_text())["$defs"]
    promised = {
        "Report": {"schema_version", "run", "verdict", "findings", "coverage", "not_evaluated", "notes"},
        "RunFacts": {"name", "source", "framework", "steps"},
        "Verdict": {"label", "severity", "stage", "onset_step", "alarm_step"},
        "Finding": {"detector", "severity", "onset_step", "alarm_step", "message", "evidence", "counter_evidence", "remedy",
                    "references", "rollouts"},
        "Skipped": {"detector", "reason"},
        "Batch": {"schema_version", "runs", "errors"},
    }  # fmt: skip
    for name, fields in promised.items():
        assert fields <= set(schema[name]["properties"]), name


def test_decisions_are_numbered_and_listed() -> None:
    pages = sorted((ROOT / "docs/adr").glob("0*.md"))
    index = (ROOT / "docs/adr/README.md").read_text()
    for number, page in enumerate(pages, start=1):
        title = page.read_text().splitlines()[0]
        assert page.name.startswith(f"{number:04d}-")
        assert title.startswith(f"# {number}. ")
        assert f"[{number}]({page.name}) | {title.partition('. ')[2]} |" in index


def test_what_is_cited_of_the_failure_catalogue_is_in_it() -> None:
    text = (ROOT / "docs/failure_modes.md").read_text()
    held = set(re.findall(r"^#### .*\((\w+)\)", text, re.MULTILINE)) | set(
        re.findall(r"^#{2,3} (\d+(?:\.\d+)?)", text, re.MULTILINE)
    )
    for file in (*ROOT.glob("detectors/*.py"), *ROOT.glob("src/echotrap/*.py")):
        cited = set(
            re.findall(r"(?:failure catalogue|failure_modes\.md),? (\d+(?:\.\d+)?|[A-F]\d+)", file.read_text(), re.IGNORECASE)
        )
        assert cited <= held, file
    assert {item.card.code for item in catalogue().values() if item.card.code} <= held
