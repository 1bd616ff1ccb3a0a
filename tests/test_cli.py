"""The command line as a pipeline meets it: exit codes, what goes where, and what is said when it goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import pytest

from echotrap import cli, pipeline
from echotrap.cli import _jobs, _options
from echotrap.errors import SourceError
from echotrap.report import Report
from echotrap.sources import formats

Outcome = tuple[int, str, str]
ENV = {key: value for key, value in os.environ.items() if not key.startswith("ECHOTRAP_")} | {"COLUMNS": "80"}


def run(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """The program as a shell would start it."""
    command = [sys.executable, "-m", "echotrap", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **{"env": ENV, **options})  # type: ignore[call-overload]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder without configuration above it."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ECHOTRAP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def call(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The program inside this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            cli.main(list(arguments))
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def reports(
    monkeypatch: pytest.MonkeyPatch, trap_report: Report, healthy_report: Report, scant_report: Report
) -> dict[str, Report]:
    """Judging is somebody else's: a location gives the report of its name."""
    known = {
        "trap": trap_report.model_copy(update={"failed": ()}),
        "raised": trap_report,
        "healthy": healthy_report,
        "scant": scant_report,
    }

    def check(location: str, settings: object = None, **options: object) -> Report:
        if location == "boom":
            raise RuntimeError("a bug\nin two lines")
        if location not in known:
            raise SourceError("no such file", where=location, cure="check the path")
        return known[location]

    monkeypatch.setattr(pipeline, "check", check)
    return known


def rows(values: Sequence[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in values)


def calm(steps: int = 60) -> str:
    return rows([{"step": step, "reward": 0.3 + 0.005 * step, "entropy": 1.0, "grad_norm": 0.5} for step in range(1, steps + 1)])


MINE = '''
"""A detector for a test.

What it looks at
----------------
The reward.

Why it matters
--------------
It does not.

How it decides
--------------
{how}

Example
-------
None.

False positives
---------------
All.

What to do
----------
Nothing.

References
----------
None.
"""
from dataclasses import dataclass

import numpy as np

from echotrap.detector import Card, Detector, Level, Track


@dataclass(frozen=True)
class Params:
    pass


def detect(run, params):
    {body}


CARD = Card("{id}", "a symptom", "reward", Level.WARNING, (("reward_mean",),), "seen", (), ())
DETECTOR = Detector(CARD, Params(), detect)
'''
BODIES = {
    "always-warns": """
    steps, values = run.series("reward_mean")
    ones = np.ones(len(steps))
    return Track(steps, np.full(len(steps), 2, np.int8), np.full(len(steps), steps[0]), values, ones)""",
    "never-works": "raise ZeroDivisionError('by zero')",
}


@pytest.fixture
def mine(here: Path) -> Path:
    folder = here / "mine"
    folder.mkdir()
    for name, body in BODIES.items():
        text = MINE.format(id=name, how="It just does.", body=textwrap.dedent(body).strip().replace("\n", "\n    "))
        (folder / f"{name.replace('-', '_')}.py").write_text(text.lstrip())
    return folder


# exit codes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["healthy"], 0),
        (["trap"], 1),
        (["trap", "--fail-on", "never"], 0),
        (["scant"], 3),
        (["scant", "--allow-insufficient"], 0),
        (["raised", "--fail-on", "never"], 2),
        (["gone"], 2),
        (["boom"], 2),
        (["healthy", "scant"], 3),
        (["healthy", "scant", "trap"], 1),
        (["healthy", "scant", "trap", "gone"], 2),
        (["trap", "--baseline", "trap"], 0),
        (["trap", "--baseline", "healthy"], 1),
        (["trap", "--baseline", "gone"], 2),
        (["healthy", "--require", "echo-trap"], 0),
        (["scant", "--require", "echo-trap"], 2),
        (["healthy", "--require", "no-such"], 2),
        (["healthy", "--only", "no-such"], 2),
        (["healthy", "--param", "reward-variance-collapse.window_step=3"], 2),
        (["healthy", "--param", "nonsense"], 2),
        (["healthy", "--event", "soon:x"], 2),
        (["healthy", "--fail-on", "sometimes"], 2),
        (["healthy", "--no-such-flag"], 2),
        (["healthy", "--config", "gone.toml"], 2),
        (["healthy", "--format", "json", "--format", "markdown"], 2),
        (["healthy", "-o", "report.xyz"], 2),
        ([], 2),
    ],
)
def test_exit_code(arguments: list[str], code: int, call, reports) -> None:
    assert call("check", *arguments)[0] == code


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("calm.jsonl", calm(), 0, ""),
        ("empty.jsonl", b"", 2, "empty"),
        ("binary.bin", bytes(range(256)) * 40, 2, "binary.bin"),
        ("one.jsonl", rows([{"step": 7, "reward": float("nan"), "entropy": 1.0}]), 3, "could be judged"),
        ("cut.jsonl", calm()[:-20], 0, ""),
        ("unknown.jsonl", rows([{"step": step, "price": step} for step in range(60)]), 3, "could be judged"),
    ],
)
def test_inputs_of_every_kind(name: str, content: str | bytes, code: int, said: str, here: Path, call) -> None:
    (here / name).write_bytes(content.encode() if isinstance(content, str) else content)
    got, out, err = call("check", name, "--fail-on", "never")
    assert got == code, out + err
    assert said in err
    assert bool(out) is (code != 2)
    if code == 2:
        assert len(err.splitlines()) == 1


def test_a_folder_without_logs_and_a_missing_file(here: Path, call) -> None:
    (here / "hollow").mkdir()
    for name in ("hollow", "gone.jsonl"):
        code, out, err = call("check", name)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith(f"error: {name}: ")


def test_a_file_without_permission(here: Path) -> None:
    (here / "calm.jsonl").write_text(calm())
    (here / "secret.jsonl").write_text(calm())
    (here / "secret.jsonl").chmod(0)
    code = """
import os
from echotrap import cli, pipeline
cli.build(), pipeline.check("calm.jsonl")  # imports what root alone may read
if os.geteuid() == 0:
    os.setuid(65534)
cli.main(["check", "secret.jsonl"])
"""
    here.chmod(0o755)
    here.parent.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert "ermission" in done.stderr


def test_a_detector_that_raises_is_shown_and_fails(here: Path, mine: Path, call) -> None:
    (here / "calm.jsonl").write_text(calm())
    code, out, _ = call("check", "calm.jsonl", "--detectors", "mine", "--only", "never-works", "--fail-on", "never")
    assert code == 2
    assert "FAILED  never-works: ZeroDivisionError: by zero" in out


def test_a_detector_of_ones_own_counts(here: Path, mine: Path, call) -> None:
    (here / "calm.jsonl").write_text(calm())
    own = ("check", "calm.jsonl", "--detectors", "mine", "--only", "always-warns")
    assert call(*own)[0] == 0
    assert call(*own, "--fail-on", "warning")[0] == 1


def test_code_in_the_working_folder_is_never_run(here: Path, mine: Path, call) -> None:
    (here / "calm.jsonl").write_text(calm())
    (mine / "always_warns.py").write_text("raise SystemExit('run!')")
    (here / "echotrap.toml").write_text('detector_paths = ["mine"]')
    code, _, err = call("check", "calm.jsonl")
    assert code == 0
    assert "is ignored" in err


def test_an_unexpected_exception_is_one_line_and_never_1(here: Path) -> None:
    code = "from echotrap import pipeline, cli\ndef check(*a, **k): raise KeyError('x')\npipeline.check = check\ncli.main()"
    done = subprocess.run([sys.executable, "-c", code, "check", "x"], capture_output=True, text=True, env=ENV)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "KeyError" in done.stderr
    assert "--traceback" in done.stderr
    shown = subprocess.run([sys.executable, "-c", code, "--traceback", "check", "x"], capture_output=True, text=True, env=ENV)
    assert (shown.returncode, "Traceback" in shown.stderr) == (2, True)


def test_a_bug_in_a_command_is_2(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jobs, "expand", lambda patterns: 1 / 0)
    code, out, err = call("check", "x")
    assert (code, out) == (2, "")
    assert err.startswith("error: ZeroDivisionError: division by zero (")
    code, out, _ = call("check", "x", "--format", "json")
    assert (code, json.loads(out)["errors"][0]["kind"]) == (2, "internal")


@pytest.mark.parametrize("arguments", [("--help",), ("check", "calm.jsonl", "--format", "json"), ("detectors",)])
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...], here: Path) -> None:
    (here / "calm.jsonl").write_text(calm())
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        command = [sys.executable, "-m", "echotrap", *arguments]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, env=ENV, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupting_is_130(here: Path) -> None:
    command = [sys.executable, "-m", "echotrap", "check", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV) as process:
        assert process.stdin is not None
        process.stdin.write(b" " * (1 << 20))  # more than a pipe holds: it reads by then
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, b"Traceback" in err) == (130, b"", False)


def test_a_name_out_of_a_log_cannot_steer_the_terminal(call, reports) -> None:
    trap = reports["trap"]
    reports["trap"] = trap.model_copy(update={"run": trap.run.model_copy(update={"name": "x\x1b[2J\ny"})})
    code, out, err = call("check", "trap")
    assert code == 1
    assert "\x1b" not in out + err
    assert len(err.splitlines()) == 1


# what goes where ----------------------------------------------------------------------------------------------------


def test_results_on_stdout_talk_on_stderr(call, reports) -> None:
    _, out, err = call("check", "trap", "gone")
    assert "ECHO TRAP, confirmed" in out
    assert err.splitlines() == [
        "exit 1: grpo-qwen7b: critical echo-trap since step 180",
        "error: gone: no such file (check the path)",
    ]


def test_errors_are_json_where_json_was_asked_for(call, reports) -> None:
    for arguments, kind in (
        (("check", "gone", "--format", "json"), "unreadable"),
        (("check", "boom", "-f", "json"), "internal"),
        (("check", "--format=json", "healthy", "--only", "no-such"), "detector"),
        (("check", "healthy", "--format", "json", "--no-such-flag"), "usage"),
        (("check", "healthy", "--format", "json", "--config", "gone.toml"), "configuration"),
    ):
        code, out, _ = call(*arguments)
        assert (code, json.loads(out)["errors"][0]["kind"]) == (2, kind)


def test_json_of_one_run_is_a_report_and_of_several_a_batch(call, reports) -> None:
    _, out, _ = call("check", "healthy", "--format", "json")
    assert Report.model_validate_json(out) == reports["healthy"]
    _, out, _ = call("check", "healthy", "gone", "trap", "--format", "json")
    batch = json.loads(out)
    assert (len(batch["runs"]), len(batch["errors"])) == (2, 1)


def test_several_formats_in_one_call(call, reports, here: Path) -> None:
    (here / "out").mkdir()
    options = ["-o", "out/report.json", "-o", "junit=out/tests", "-o", "x.sarif", "-o", "summary.md", "-o", "page.html"]
    code, out, err = call("check", "trap", *options)
    assert code == 1
    assert out.startswith("ECHO TRAP")
    assert json.loads((here / "out/report.json").read_text())["verdict"]["label"] == "echo-trap"
    assert (here / "out/tests").read_text().startswith("<?xml")
    assert {"x.sarif", "summary.md", "page.html"} <= {path.name for path in here.iterdir()}
    assert "wrote out/report.json" in err


def test_a_format_that_went_into_a_file_is_not_printed(call, reports, here: Path) -> None:
    assert call("check", "healthy", "--format", "json", "-o", "whatever")[1] == ""
    assert json.loads((here / "whatever").read_text())["verdict"]["label"] == "healthy"
    _, out, _ = call("check", "healthy", "-f", "text", "-o", "report.json")  # the ending speaks for itself
    assert out.startswith("HEALTHY")
    assert json.loads((here / "report.json").read_text())["verdict"]["label"] == "healthy"
    call("check", "healthy", "-f", "json", "-o", "report.txt")
    assert (here / "report.txt").read_text().startswith("{")
    _, out, _ = call("check", "trap", "-f", "text", "-f", "github", "-f", "json", "-o", "report.json")
    assert out.startswith("ECHO TRAP")
    assert "::error file=" in out


def test_a_file_that_cannot_be_written_is_a_clear_2(call, reports, here: Path) -> None:
    (here / "taken").write_text("")
    code, _, err = call("check", "healthy", "-o", "taken/report.json")
    assert (code, err.startswith("error: taken/report.json: cannot be written")) == (2, True)


def test_progress_and_colour_are_for_terminals(here: Path, call, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "calm.jsonl").write_text(calm())
    _, out, err = call("check", "calm.jsonl")
    assert ("\x1b" in out, err) == (False, "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in call("check", "calm.jsonl")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in call("check", "calm.jsonl")[1]


def test_a_terminal_without_blocks_gets_ascii(here: Path) -> None:
    (here / "calm.jsonl").write_text(calm())
    done = run("check", "calm.jsonl", env={**ENV, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_standard_input_is_read(here: Path) -> None:
    done = run("check", "-", "--format", "json", input=calm())
    assert json.loads(done.stdout)["run"]["steps"] == 60
    done = run("check", "-", input="no log")
    assert (done.returncode, done.stderr.startswith("error: standard input: ")) == (2, True)


def test_a_file_name_that_is_no_text_can_be_told_in_every_format(call, here: Path) -> None:
    name = os.fsdecode(b"we\xffird.jsonl")
    (here / name).write_text(calm())
    files = [f"{kind}=out.{kind}" for kind in ("json", "markdown", "junit", "sarif", "html")]
    code, out, _ = call("check", name, *(part for file in files for part in ("-o", file)))
    assert (code, out.startswith("HEALTHY")) == (0, True)
    assert json.loads((here / "out.json").read_text())["run"]["name"] == "we?ird"


def test_a_folder_of_several_logs_says_what_was_not_judged(call, here: Path) -> None:
    (here / "logs").mkdir()
    for name in ("one", "two"):
        (here / f"logs/{name}.jsonl").write_text(calm())
    code, _, err = call("check", "logs")
    assert (code, "logs also holds 1 other log that was not judged: " in err) == (0, True)
    assert call("check", "logs", "--run", "one.jsonl")[2] == ""


# many runs ----------------------------------------------------------------------------------------------------------


def test_patterns_are_expanded_once(here: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "[c].jsonl"):
        (here / name).write_text("")
    assert _jobs.expand(["*.jsonl", "a.jsonl", "[c].jsonl", "none*", "-", "wandb://x/y?"]) == [
        "[c].jsonl",
        "a.jsonl",
        "b.jsonl",
        "none*",
        "-",
        "wandb://x/y?",
    ]


def test_one_unreadable_run_does_not_hide_the_others(here: Path) -> None:
    for index in range(6):
        (here / f"run{index}.jsonl").write_text(calm(40 + index))
    (here / "run3.jsonl").write_bytes(b"")
    done = run("check", "run*.jsonl", "--format", "json", "--jobs", "2")
    batch = json.loads(done.stdout)
    assert done.returncode == 2
    assert [item["run"]["steps"] for item in batch["runs"]] == [40, 41, 42, 44, 45]
    assert [item["source"] for item in batch["errors"]] == ["run3.jsonl"]


def test_a_run_that_kills_its_process_is_reported_and_the_others_are_not_lost(here: Path) -> None:
    for index in range(5):
        (here / f"run{index}.jsonl").write_text(calm(40 + index))
    (here / "mine").mkdir()
    body = "import os\n    if len(run.steps) == 42: os._exit(9)\n    return np.nan"
    (here / "mine/deadly.py").write_text(MINE.format(id="deadly", how="-", body=body).lstrip())
    done = run("check", "run*.jsonl", "--format", "json", "--jobs", "2", "--detectors", "mine", "--only", "deadly")
    batch = json.loads(done.stdout)
    assert done.returncode == 2
    assert [item["run"]["steps"] for item in batch["runs"]] == [40, 41, 43, 44]
    assert "ended from outside" in batch["errors"][0]["message"]


# the other commands -------------------------------------------------------------------------------------------------


def test_version_and_help_are_light() -> None:
    heavy = ("numpy", "pandas", "pydantic", "rich", "streamlit", "plotly")
    code = f"import sys\nfrom echotrap import cli\ncli.build()\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(call) -> None:
    from echotrap import __version__

    assert call("--version") == (0, f"echotrap {__version__}\n", "")


def test_no_arguments_show_the_help(call) -> None:
    code, out, err = call()
    assert "Usage: echotrap" in out + err
    assert code == 2


def test_choices_of_options_are_those_of_the_library() -> None:
    from echotrap import config, detector, render

    assert get_args(_options.FailOn) == get_args(config.FailOn)
    assert get_args(_options.Sensitivity) == get_args(detector.Sensitivity)
    assert [item.value for item in _options.OutputFormat] == list(render.FORMATS) == list(get_args(render.Format))


def test_explain_covers_every_detector(call) -> None:
    code, out, _ = call("detectors", "--format", "json")
    known = [item["id"] for item in json.loads(out)]
    assert code == 0
    for name in known:
        code, out, _ = call("explain", name)
        assert code == 0
        assert out.startswith(f"{name} (")
        assert "False positives\n" in out
    code, _, err = call("explain", known[0][:-1])
    assert (code, f"did you mean {known[0]}?" in err) == (2, True)


def test_explain_covers_every_verdict(call) -> None:
    from echotrap.report import Label

    for label in get_args(Label):
        code, out, _ = call("explain", label)
        assert (code, out.startswith(f"{label} (")) == (0, True)
    assert "entropy-collapse" in call("explain", "policy-collapse")[1]


@pytest.mark.parametrize("command", ["check", "report"])
def test_a_folder_that_does_not_exist_is_not_made(call, here: Path, command: str) -> None:
    (here / "log.jsonl").write_text(calm())
    code, _, err = call(command, "log.jsonl", "-o", "nope/x.html")
    assert code == 2
    assert "the folder nope does not exist" in err
    assert not (here / "nope").exists()


def test_nothing_is_suggested_where_nothing_is_near(call) -> None:
    assert "did you mean" not in call("explain", "nonsens")[2]
    assert "did you mean non-finite?" in call("explain", "non-finit")[2]


def test_runs_in_generic_files_are_told_apart(call, here: Path) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "metrics.jsonl").write_text(calm())
    out = call("check", "a/metrics.jsonl", "b/metrics.jsonl", "-f", "json")[1]
    assert [report["run"]["name"] for report in json.loads(out)["runs"]] == ["a", "b"]


def test_keys_of_one_s_own(call, here: Path) -> None:
    own = [{"n": 10 * at, "goodness": 0.5, "spread of group": 0.3, "other": 1.0} for at in range(1, 31)]
    (here / "log.jsonl").write_text(rows(own))
    (here / "echotrap.toml").write_text('[keys]\ngoodness = "reward_mean"\nn = "step"\n')
    out = call("fields", "log.jsonl", "--key", "spread of group=group_reward_std")[1]
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "goodness" in lines["reward_mean"]
    assert "spread of group" in lines["group_reward_std"]
    report = json.loads(call("check", "log.jsonl", "-f", "json")[1])
    assert (report["run"]["first_step"], report["run"]["last_step"]) == (10, 300)
    code, _, err = call("check", "log.jsonl", "--key", "other=entropi")
    assert code == 2
    assert "did you mean entropy?" in err
    assert call("check", "log.jsonl", "--key", "entropy")[0] == 2


def test_fields_lists_signals_and_tells_how_a_log_was_read(call, here: Path) -> None:
    known = call("fields")[1]
    assert "mean reward over all rollouts" in known
    assert "TRL: entropy (>=0.20)" in known
    assert "derived: 1 - by_group/frac_mixed" in known
    (here / "log.jsonl").write_text(calm() + rows([{"step": 61, "my/own": 3}]))
    code, out, _ = call("fields", "log.jsonl")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "reward" in lines["reward_mean"]
    assert "unknown key, kept" in lines["my/own"]


def test_formats_are_listed_with_the_run_that_is_read_of_several(call) -> None:
    out = call("formats")[1]
    assert {line.split()[0] for line in out.splitlines()[1:] if line[:1].strip()} == set(formats())
    assert "begun last" in " ".join(out.split("mlflow")[1].split("rollouts")[0].split())


def test_init_writes_once(call, here: Path) -> None:
    assert call("init")[0] == 0
    assert call("config", "check") == (0, f"{here / 'echotrap.toml'}: ok\n", "")
    assert call("init")[0] == 2
    assert call("init", "--force")[0] == 0
    assert call("init", "-")[1] == (here / "echotrap.toml").read_text()


def test_config_check_looks_at_ids_too(call, here: Path) -> None:
    assert call("config", "check")[0] == 0
    for wrong in ('skip = ["reward-variance-colapse"]', '[[suppress]]\ndetector = "reward-variance-colapse"\nreason = "x"'):
        (here / "echotrap.toml").write_text(wrong)
        code, _, err = call("config", "check")
        assert (code, "did you mean reward-variance-collapse?" in err) == (2, True)
    (here / "echotrap.toml").write_text('[[suppress]]\ndetector = "policy-collapse"\nreason = "a verdict"')
    assert call("config", "check")[0] == 0
    assert json.loads(call("config", "schema")[1])["title"] == "echotrap.toml"


def test_report_writes_a_page(call, reports, here: Path) -> None:
    code, out, err = call("report", "trap", "-o", "page.html")
    assert (code, out, err) == (0, "", "wrote page.html\n")
    assert (here / "page.html").read_text().startswith("<!doctype html>")
    call("report", "trap", "-o", "page.md")
    assert (here / "page.md").read_text().startswith("### ")
    assert call("report", "gone")[0] == 2


def test_the_dashboard_says_how_to_reach_it(call, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(os, "execv", lambda program, command: started.extend(command))
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.1 22")
    code, _, err = call("dashboard", "a run", "--port", "8765")
    assert code == 0
    assert "ssh -N -L 8765:127.0.0.1:8765 " in err
    assert "@10.0.0.1 " in err
    assert started[1:4] == ["-m", "streamlit", "run"]
    assert {"--server.address=127.0.0.1", "--server.headless=true", "--browser.gatherUsageStats=false"} <= set(started)
    assert started[-2:] == ["--", "a run"]
    assert Path(started[4]).name == "main.py"


def test_a_desktop_needs_no_tunnel(call, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(os, "execv", lambda program, command: started.extend(command))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert "ssh" not in call("dashboard")[2]
    assert "--server.headless=false" in started


def test_rollouts_are_shown_with_what_was_asked(call, here: Path) -> None:
    rows = [{"step": 1, "prompt": f"{'x' * 400} Which arm, {n}?", "response": f"arm {n}", "reward": 0.0} for n in range(2)]
    (here / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = call("rollouts", "rollouts.jsonl", "--format", "json")
    assert code == 0
    assert [item["prompt"] for item in json.loads(out)["shown"]] == [row["prompt"] for row in rows]
    short, whole = (" ".join(call("rollouts", "rollouts.jsonl", *flag)[1].split()) for flag in ((), ("-v",)))
    assert "asked: … x" in short
    assert "Which arm, 1?" in short
    assert len(short) < len(whole)


def test_rollouts_shows_what_the_reward_ties(call, here: Path) -> None:
    gold = json.dumps([{"name": "add", "arguments": {"a": 1, "b": 2}}])
    said = [("add", {"a": 1, "b": 2}, 1.0), ("add", {"a": 1, "b": 3}, 0.0), ("drop", {"c": 1}, 0.0)]
    rows = [
        {"step": 1, "input": "one", "output": f"<tool_call>{json.dumps({'name': n, 'arguments': a})}</tool_call>", "score": score,
         "gts": gold}
        for n, a, score in said
    ]  # fmt: skip
    (here / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = call("rollouts", "rollouts.jsonl", "--ties", "--format", "json")
    told = json.loads(out)
    assert (code, told["tied"], told["differing"], told["ranked"]) == (0, 1, 3, 1)
    assert [told["pairs"][0][side]["fine_grained"] for side in ("better", "worse")] == [0.8333, 0.0]
    assert "another tool name" in call("rollouts", "rollouts.jsonl", "--ties")[1]
