"""Every format against its golden file, and what each promises beyond looking the same."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from echotrap.pipeline import check
from echotrap.render import FORMATS, Result, View, render
from echotrap.report import Report, RunError

SARIF_SCHEMA = json.loads((Path(__file__).parent / "schemas/sarif-2.1.0.json").read_text())

UNREADABLE = RunError(
    source="runs/gone.jsonl", kind="unreadable", message="no such file", where="runs/gone.jsonl", cure="check the path"
)


@pytest.fixture
def several(trap_report: Report, healthy_report: Report, scant_report: Report) -> tuple[Result, ...]:
    return (healthy_report, trap_report, UNREADABLE, scant_report)


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_says_what_it_said(format, several, trap_report, golden: Callable[[str, str], None]) -> None:
    golden(f"trap{FORMATS[format]}", render([trap_report], format))
    golden(f"several{FORMATS[format]}", render(several, format))


def test_text_fits_80_columns_and_is_plain_when_not_a_terminal(several) -> None:
    text = render(several, "text", View(verbose=True))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_text_is_ascii_where_the_terminal_cannot_do_more(several) -> None:
    assert render(several, "text", View(unicode=False, verbose=True)).isascii()


def test_text_of_others_cannot_steer_the_terminal(trap_report) -> None:
    text = render([trap_report], "text", View(color=True, verbose=True))
    assert "\x1b[31mred" not in text
    assert "\\x1b[31mred" in text


def test_text_leaves_calm_runs_to_the_table(several, healthy_report) -> None:
    assert healthy_report.verdict.headline not in render(several, "text")
    assert healthy_report.verdict.headline in render(several, "text", View(verbose=True))


def test_text_of_many_runs_is_a_table_with_the_worst_on_top(trap_report, healthy_report) -> None:
    lines = render([healthy_report] * 5 + [trap_report], "text").splitlines()
    assert lines[1].startswith("ECHO TRAP")
    assert len(lines) == 9
    assert "-v for all" in lines[-1]


def test_json_of_one_run_is_its_report_and_of_several_a_batch(trap_report, several) -> None:
    assert Report.model_validate_json(render([trap_report], "json")) == trap_report
    batch = json.loads(render(several, "json"))
    assert [run["run"]["name"] for run in batch["runs"]] == ["calm", "grpo-qwen7b", "short"]
    assert batch["errors"] == [UNREADABLE.model_dump()]


def test_json_says_where_a_value_is_missing(trap_report) -> None:
    reward = next(item for item in json.loads(render([trap_report], "json"))["signals"] if item["name"] == "reward_mean")
    assert None in reward["values"]


def test_markdown_keeps_text_of_others_as_text(trap_report) -> None:
    text = render([trap_report], "markdown")
    assert "<script" not in text
    assert "<img" not in text
    assert "**bold**" not in text
    row = next(line for line in text.splitlines() if "stage 3 since" in line)
    assert row.count("|") == 6  # the hostile bar makes no further cell


def test_markdown_fits_a_step_summary_worst_first(trap_report, healthy_report) -> None:
    long = trap_report.model_copy(update={"story": (), "findings": trap_report.findings * 300})
    text = render([healthy_report, *[long] * 20], "markdown")
    assert len(text.encode()) <= 1024 * 1024
    assert "do not fit" in text.splitlines()[-1]
    assert text.index("grpo-qwen7b") < text.index("calm")


def test_junit_counts_each_detector_once(several) -> None:
    root = ET.fromstring(render(several, "junit"))
    trap = root.find("testsuite[@name='grpo-qwen7b']")
    cases = {case.get("name"): case for case in trap}
    assert cases["echo-trap"].find("failure") is not None
    assert cases["entropy-collapse"].find("system-out") is not None
    assert cases["critic-failure"].find("skipped").get("message") == "not in the log: explained_variance"
    assert cases["my-detector"].find("error") is not None
    assert list(cases["non-finite"]) == []
    assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("1", "2", "4")
    assert int(root.get("tests")) == len(list(root.iter("testcase")))


def test_junit_fails_what_the_threshold_says(trap_report) -> None:
    root = ET.fromstring(render([trap_report], "junit", View(fail_on="never")))
    assert root.get("failures") == "0"


def test_sarif_is_valid_and_points_at_the_line_of_the_alarm(several) -> None:
    log = json.loads(render(several, "sarif"))
    jsonschema.Draft4Validator(SARIF_SCHEMA).validate(log)
    run = log["runs"][0]
    first = run["results"][0]
    assert (first["ruleId"], first["level"]) == ("echo-trap", "error")
    where = first["locations"][0]["physicalLocation"]
    assert where == {"artifactLocation": {"uri": "runs/grpo%20qwen.jsonl"}, "region": {"startLine": 195}}
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "echo-trap"
    assert run["results"][2]["suppressions"][0]["justification"].startswith("curriculum change")
    assert run["invocations"][0]["executionSuccessful"] is False


def test_the_sarif_schema_can_say_no(trap_report) -> None:
    log = json.loads(render([trap_report], "sarif"))
    log["runs"][0]["results"][0]["level"] = "critical"
    assert not jsonschema.Draft4Validator(SARIF_SCHEMA).is_valid(log)


def test_github_annotates_at_most_ten_of_each_worst_first(trap_report) -> None:
    echo = next(item for item in trap_report.findings if item.severity == "critical")
    many = [echo.model_copy(update={"onset_step": step}) for step in range(30, 0, -1)]
    warned = [item.model_copy(update={"severity": "warning"}) for item in many]
    lines = render([trap_report.model_copy(update={"findings": tuple(warned + many), "failed": ()})], "github").splitlines()
    commands = [line.split()[0] for line in lines]
    assert commands == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"]
    assert "since step 1 in" in lines[0]
    assert "40 more findings" in lines[-1]


def test_github_escapes_what_would_end_a_command(trap_report) -> None:
    run = trap_report.run.model_copy(update={"name": "a,line=1::b\n::error::c"})
    text = render([trap_report.model_copy(update={"run": run})], "github")
    assert all(re.match(r"::(error|warning|notice) [^:]*::", line) for line in text.splitlines())
    assert "::error::c" not in text


def test_html_asks_for_nothing_and_runs_nothing(trap_report) -> None:
    page = render([trap_report], "html")
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"""(?:src|href|action)=["'](?!#|data:)""", page)
    assert not re.search(r"""\son\w+=|\sstyle=|url\(|@import""", page.replace("onerror=alert", ""))
    assert "default-src 'none'" in page


def test_html_marks_what_repeats_and_nothing_else(trap_report) -> None:
    page = render([trap_report], "html")
    assert page.count("<mark>My first action is to go.</mark>") == 2
    assert "&lt;script&gt;" in page


def test_html_has_one_h1_and_no_gap_between_headings(several) -> None:
    for results in (several, several[1:2], several[2:3]):
        levels = [int(level) for level in re.findall(r"<h(\d)>", render(results, "html"))]
        assert levels.count(1) == 1
        assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_html_stays_small_enough_to_send(trap_report) -> None:
    page = render([trap_report] * 200, "html")
    assert len(page.encode()) <= 1_500_000
    assert "more runs do not fit" in page


def test_a_report_without_anything_can_be_shown(scant_report) -> None:
    bare = scant_report.model_copy(update={"not_evaluated": ()})
    for format in FORMATS:
        text = render([bare], format)
        assert "None" not in text
        assert text == "" or text.endswith("\n")


SAMPLES = sorted(path.parent for path in (Path(__file__).parents[1] / "sample_runs").glob("*/truth.toml"))


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda path: path.name)
def test_the_bundled_runs_in_every_format(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    report = check(folder.name)
    assert Report.model_validate_json(render([report], "json")) == report
    assert max(map(len, render([report], "text").splitlines())) <= 80
    jsonschema.Draft4Validator(SARIF_SCHEMA).validate(json.loads(render([report], "sarif")))
    suite = ET.fromstring(render([report], "junit"))
    assert int(suite.get("tests")) == len(report.clear) + len(report.not_evaluated) + len({f.detector for f in report.findings})
    page = render([report], "html")
    assert len(page.encode()) < 500_000
    assert page.count('class="panel"') == len(report.signals)
    rows = [line for line in render([report], "markdown").splitlines() if "<code>" in line and line.startswith("| ")]
    assert len(rows) == len(report.findings)


@pytest.mark.parametrize(
    ("run", "drawn"),
    [
        ("bandit-template-collapse", ["retrieval_acc", "cross_rollout_share"]),
        ("bandit-healthy", ["cross_rollout_share", "rep_4"]),
    ],
)
def test_what_a_warning_was_judged_by_is_drawn(run: str, drawn: list[str]) -> None:
    from echotrap import diagnose, open_run, signals
    from echotrap.render import charts

    report = diagnose(signals.derive(open_run(Path(__file__).parents[1] / "sample_runs" / run)))
    text = {"cross_rollout_share", "rep_4", "retrieval_acc"}
    assert [signal.name for signal in charts._leading(report) if signal.name in text] == drawn
