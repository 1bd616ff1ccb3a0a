"""Every text form of the frameworks, as their writers lay it down (invented values), read without any option."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from echotrap import EchotrapError, SourceError, UnknownFormat, open_run
from echotrap.assemble import RunBuilder
from echotrap.sources import formats, open_reader
from echotrap.sources.base import Options, run_name
from echotrap.sources.console import rows_in

HERE = Path(__file__).parent / "fixtures" / "sources"

LOGS: list[tuple[str, str, str | None, list[int], dict[str, dict[int, float]]]] = [
    ("verl/run.jsonl", "jsonl", "verl", [0, 1, 2, 3], {
        "eval_score": {0: 0.41}, "reward_mean": {1: 0.31, 2: 0.32, 3: 0.33}, "entropy": {1: 0.49, 2: 0.48, 3: 0.47},
        "num_turns": {1: 2.0, 2: 2.0, 3: 2.0}}),
    ("verl/console.log", "console", "verl", [0, 1, 2], {
        "eval_score": {0: 0.4}, "reward_mean": {1: 0.41, 2: 0.43}, "grad_norm": {1: 0.9}, "policy_loss": {1: 0.01, 2: -1e-5},
        "reward_max": {1: 1.0}}),
    ("trl/checkpoint-20/trainer_state.json", "json", "TRL", [10, 20], {
        "reward_mean": {10: 0.41, 20: 0.42}, "reward_std": {10: 0.49, 20: 0.49}, "eval_score": {10: 0.6},
        "grad_norm": {20: 0.31}, "zero_std_frac": {10: 0.25, 20: 0.25}, "truncated_frac": {10: 0.02, 20: 0.02}}),
    ("trl/console.log", "console", "TRL", [1, 2], {
        "reward_mean": {1: 0.25, 2: 0.5}, "grad_norm": {1: 0.12, 2: 0.13}, "entropy": {2: 0.4}, "eval_score": {2: 0.75},
        "loss": {1: 0.0, 2: 0.1}}),
    ("ms_swift/logging.jsonl", "jsonl", "ms-swift", [10, 20], {
        "reward_mean": {10: 0.51, 20: 0.51}, "group_reward_std": {10: 0.22, 20: 0.22}, "kl_ref": {10: 0.0004, 20: 0.0004}}),
    ("tinker/metrics.jsonl", "jsonl", "Tinker", [0, 1], {
        "reward_mean": {0: 0.61, 1: 0.61}, "zero_std_frac": {0: 0.5, 1: 0.5}, "eval_score": {0: 0.7},
        "zero_std_all_pass_frac": {0: 0.3, 1: 0.3}, "response_length": {0: 40.0, 1: 40.0}}),
    ("prime_rl/metrics.jsonl", "jsonl", "prime-rl", [40, 41], {
        "reward_mean": {40: 0.58, 41: 0.58}, "grad_norm": {40: 0.12, 41: 0.12}, "zero_std_frac": {40: 0.375, 41: 0.375},
        "policy_lag": {40: 1.3, 41: 1.3}}),
    ("prime_rl/console.log", "console", None, [40, 41], {
        "loss": {40: 0.01, 41: 0.011}, "entropy": {40: 0.501, 41: 0.491}, "mismatch_kl": {40: 0.0012, 41: 0.0013},
        "grad_norm": {40: 0.12, 41: 0.13}, "learning_rate": {40: 1e-6, 41: 1e-6}}),
    ("skyrl/console.log", "console", "SkyRL", [1, 2], {
        "reward_mean": {1: 0.25, 2: 0.5}, "entropy": {1: 1.2, 2: 1.1}, "grad_norm": {1: 0.5, 2: 0.6}}),
    ("slime/console.log", "console", "slime", [12, 13], {
        "reward_mean": {12: 0.25, 13: 0.5}, "grad_norm": {12: 1.5}, "eval_score": {12: 0.3}, "step_time": {12: 30.0},
        "response_length": {12: 411.5, 13: 400.0}}),
    ("roll/console.log", "console", "ROLL", [9, 10], {
        "reward_mean": {9: 0.5, 10: 0.6}, "entropy": {9: 0.9, 10: 0.8}, "grad_norm": {9: 0.7}, "kl_old": {9: 0.001, 10: 0.002}}),
    ("unsloth/table.txt", "console", "Unsloth", [1, 2], {
        "reward_mean": {1: 0.125, 2: 0.25}, "loss": {1: 0.0, 2: 0.0001}, "response_length": {1: 180.5, 2: 1170.5}}),
    ("unsloth/table.tsv.txt", "csv", None, [1, 2], {"reward_mean": {1: 0.5, 2: 0.75}, "kl_ref": {1: 0.001, 2: 0.002}}),
    ("home_made/loop.log", "console", None, [1, 2], {
        "reward_mean": {1: 0.25, 2: 0.5}, "loss": {1: 0.1, 2: 0.09}, "entropy": {1: 1.5, 2: 1.4},
        "kl_ref": {1: 0.001, 2: 0.002}}),
    ("home_made/columns.json", "json", None, [1, 2, 3], {
        "reward_mean": {1: 0.1, 2: 0.2, 3: 0.3}, "entropy": {1: 1, 2: 0.9, 3: 0.8}}),
    ("home_made/by_step.json", "json", None, [1, 2], {"reward_mean": {1: 0.1, 2: 0.2}}),
    ("home_made/long.csv", "csv", None, [1, 2], {"reward_mean": {1: 0.1, 2: 0.2}, "entropy": {1: 1.5}}),
    ("home_made/table.tsv", "csv", None, [1, 2, 3], {"reward_mean": {1: 0.1}, "entropy": {1: 1.5, 2: 1.4, 3: 1.3}}),
]  # fmt: skip
NAMES = [log[0] for log in LOGS]


@pytest.mark.parametrize(("name", "format", "framework", "steps", "signals"), LOGS, ids=NAMES)
def test_a_log_is_recognised_and_read(
    name: str, format: str, framework: str | None, steps: list[int], signals: dict[str, dict[int, float]]
) -> None:
    run = open_run(HERE / name)
    assert (run.format, run.framework) == (format, framework)
    assert run.steps.tolist() == steps
    for signal, values in signals.items():
        assert run.metrics[signal].dropna().to_dict() == pytest.approx(values), signal


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("squeeze", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gz", "zst"])
def test_compressed_logs_read_the_same(tmp_path: Path, name: str, squeeze: object) -> None:
    path = tmp_path / "log"  # told by its content
    path.write_bytes(squeeze((HERE / name).read_bytes()))  # type: ignore[operator]
    assert open_run(path).metrics.equals(open_run(HERE / name).metrics)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_name_says_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.dat"
    shutil.copy(HERE / name, path)
    assert open_run(path).metrics.equals(open_run(HERE / name).metrics)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("home_made/columns", "home_made/by_step"))])
def test_a_log_that_was_cut_gives_what_is_whole(tmp_path: Path, name: str) -> None:
    data = (HERE / name).read_bytes().rstrip(b"\n")
    path = tmp_path / "log"
    path.write_bytes(data[: len(data) * 9 // 10])
    run = open_run(path)
    whole = open_run(HERE / name)
    assert set(run.steps) <= set(whole.steps)
    assert len(run.steps) >= 1


def test_standard_input() -> None:
    code = "import echotrap; print(echotrap.open_run('-').series('reward_mean').values.round(9).tolist())"
    text = (HERE / "verl" / "run.jsonl").read_bytes()
    out = subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, check=True).stdout
    assert out.decode().strip() == "[0.31, 0.32, 0.33]"


def test_the_format_can_be_named() -> None:
    run = open_run(HERE / "verl" / "run.jsonl", format="console")
    assert run.format == "console"
    with pytest.raises(UnknownFormat, match=r"no format is called 'jsn'.*there are: .*jsonl"):
        open_run(HERE / "verl" / "run.jsonl", format="jsn")


def test_formats_are_found_by_listing_the_package() -> None:
    assert {"jsonl", "json", "csv", "console", "folder", "rollouts"} <= formats().keys()
    assert all(name == item.name and item.title for name, item in formats().items())


def test_one_value_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    rows = [{"ts": 1.0, "name": name, "value": at / 10, "step": at} for at in (1, 2) for name in ("reward", "entropy")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path)
    assert run.steps.tolist() == [1, 2]
    assert run.metrics["reward_mean"].tolist() == run.metrics["entropy"].tolist() == [0.1, 0.2]


# -- console text ----------------------------------------------------------------------------------------------


def test_nan_on_the_console_is_certain() -> None:
    run = open_run(HERE / "verl" / "console.log")
    assert [tuple(item) for item in run.nonfinite] == [(2, "grad_norm", "nan", True)]
    assert not [item for item in open_run(HERE / "trl" / "console.log").nonfinite if item.field != "entropy"]


def test_a_line_cut_at_4096_characters_loses_its_last_field() -> None:
    fields = " - ".join(f"actor/entropy_{number:04d}:0.123456789" for number in range(200))
    [row] = rows_in(f"step:7 - actor/entropy:0.5 - {fields}"[:4096].encode())
    assert row.step == 7
    assert row.values["actor/entropy"] == 0.5
    assert set(row.values.values()) == {0.5, 0.123456789}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "{'loss': 0.1, 'reward': tensor(0.5, device='cuda:0'), 'kl': np.float64(0.25)}",
            {"loss": 0.1, "reward": 0.5, "kl": 0.25},
        ),
        ("{'loss': -1e-05, 'grad_norm': inf, 'reward': None}", {"loss": -1e-5, "grad_norm": math.inf, "reward": None}),
        ('{"loss": 0.1, "actor": {"entropy": 0.5}, "reward": 1}', {"loss": 0.1, "actor": {"entropy": 0.5}, "reward": 1}),
        ("[rank0]: {'loss': 0.1, 'actor': {'entropy': 0.5}, 'reward': 1}", {"loss": 0.1, "actor/entropy": 0.5, "reward": 1.0}),
        ("INFO step=5 reward: 0.5, loss: 0.25", {"reward": 0.5, "loss": 0.25}),
        ("Global step 12: {'policy_loss': 0.1, 'actor_lr': 1e-06}", {"policy_loss": 0.1, "actor_lr": 1e-06}),
    ],
)
def test_console_dialects(line: str, values: dict[str, object]) -> None:
    [row] = rows_in(line.encode())
    assert row.values == values


@pytest.mark.parametrize(
    "line",
    [
        "{'learning_rate': 1e-6, 'num_train_epochs': 3, 'output_dir': 'x'}",
        "{'use_kl_loss': False, 'kl_loss_coef': 0.001, 'reward_weights': 1.0, 'loss_type': 'grpo', 'lr': 1e-06}",
        "Map:  50%|#####     | 5/10 [00:00<00:00, 10.0 examples/s]",
        "Loading checkpoint shards: 100%|##########| 2/2 [00:02<00:00,  1.40s/it]",
        "2026-11-30 step 5: saving checkpoint to /x/y",
        "Traceback (most recent call last):",
        'File "trainer.py", line 12, in step: loss = model(batch)',
        "",
    ],
)
def test_noise_is_no_row(line: str) -> None:
    assert list(rows_in(line.encode())) == []


def test_printed_tables_of_keys_and_numbers() -> None:
    table = """
    20261130-10:00:00.000 StatsLogger INFO: Epoch 1/5 Step 3/24 Train step 3/120 done.
    ┌─────────────────────────────────┬────────────┬─────────────────────────────┬────────────┐
    │ ppo_actor/task_reward/avg       │ 2.5000e-01 │ ppo_actor/update/grad_norm  │ 1.2500e-01 │
    │ ppo_actor/update/entropy/avg    │        nan │ timeperf/train_step         │ 3.0000e+01 │
    └─────────────────────────────────┴────────────┴─────────────────────────────┴────────────┘
    Epoch 1/5 Step 4/24 Train step 4/120 done.
    │ ppo_actor/task_reward/avg       │ 5.0000e-01 │
    next
    """
    first, second = rows_in(table.encode())
    assert (first.step, second.step) == (3, 4)
    assert first.values["ppo_actor/task_reward/avg"] == 0.25
    assert math.isnan(first.values["ppo_actor/update/entropy/avg"])
    assert second.values == {"ppo_actor/task_reward/avg": 0.5}


def test_a_console_that_has_only_begun_is_an_empty_run(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text(
        "(TaskRunner pid=1) INFO starting\n(TaskRunner pid=1) WARNING no cache\nLoading:  50%|##  | 1/2 [00:01<00:01]\n"
    )
    builder = RunBuilder(open_reader(str(path)))
    assert len(builder.refresh().steps) == 0
    with path.open("a") as file:
        file.write("step:1 - actor/entropy:0.5 - critic/score/mean:0.1\n")
    assert builder.refresh().steps.tolist() == [1]


def test_a_second_run_on_the_same_console_is_a_restart(tmp_path: Path) -> None:
    line = "{{'loss': 0.1, 'reward': 0.5, 'completions/mean_length': 9.0, 'epoch': {}}}\n"
    path = tmp_path / "out.log"
    path.write_text("".join(line.format(epoch) for epoch in (0.1, 0.2, 0.3, 0.1, 0.2)))
    run = open_run(path)
    assert run.steps.tolist() == [1, 2, 3, 4, 5]
    assert [(event.step, event.kind) for event in run.events] == [(4, "restart")]


# -- JSON documents ----------------------------------------------------------------------------------------------


def test_trainer_state_holds_facts_about_the_run() -> None:
    run = open_run(HERE / "trl" / "checkpoint-20" / "trainer_state.json")
    assert (run.config.max_steps, run.config.save_interval, run.finished) == (40, 10, False)
    assert [tuple(item) for item in run.nonfinite] == [(10, "grad_norm", "nan", True)]


def test_a_cut_document_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    text = (HERE / "trl" / "checkpoint-20" / "trainer_state.json").read_text()
    path = tmp_path / "trainer_state.json"
    path.write_text(text[: text.rindex('"reward"')])
    run = open_run(path)
    assert run.series("reward_mean").steps.tolist() == [10]
    assert any("breaks off" in note.message for note in run.notes)


def test_a_document_that_grows_gives_only_new_rows(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    rows = [{"step": step, "reward": 0.1 * step} for step in range(1, 6)]
    path.write_text(json.dumps({"log_history": rows[:3]}))
    reader = open_reader(str(path))
    assert len(list(reader.poll())) == 3
    assert list(reader.poll()) == []
    path.write_text(json.dumps({"log_history": rows}))
    assert [row.values["step"] for row in reader.poll()] == [4, 5]
    assert not reader.rewound
    path.write_text(json.dumps({"log_history": [{"step": 1, "reward": 9.0}]}))
    assert [row.values["reward"] for row in reader.poll()] == [9.0]
    assert reader.rewound


def test_the_console_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("step:1 - actor/entropy:0.5 - critic/score/mean:0.1\nstep:2 - actor/entropy:0.4")
    builder = RunBuilder(open_reader(str(path)))
    assert builder.refresh().steps.tolist() == [1]
    with path.open("a") as file:
        file.write("5 - critic/score/mean:0.2\n")
    assert builder.refresh().metrics["entropy"].to_dict() == {1: 0.5, 2: 0.45}


def test_several_series_in_one_table_are_runs() -> None:
    run = open_run(HERE / "home_made" / "long.csv")
    assert run.other_runs == ("b",)
    other = open_run(HERE / "home_made" / "long.csv", run="b")
    assert other.metrics["reward_mean"].tolist() == [9.0]
    assert other.other_runs == ("a",)


# -- folders -------------------------------------------------------------------------------------------------------


def test_a_folder_joins_metrics_and_rollouts(tmp_path: Path) -> None:
    shutil.copytree(HERE / "verl", tmp_path / "exp")
    (tmp_path / "exp" / "console.log").unlink()
    run = open_run(tmp_path / "exp")
    assert (run.name, run.format, run.framework) == ("exp", "jsonl", "verl")
    assert run.rollouts is not None
    assert run.rollouts.steps() == (1, 2)


def test_of_several_checkpoints_the_newest_counts() -> None:
    run = open_run(HERE / "trl")
    assert run.steps.tolist() == [10, 20]
    assert run.rollouts is not None
    assert run.rollouts.steps() == (10, 20)
    assert "checkpoint-10/trainer_state.json" not in run.other_runs


def test_of_several_runs_the_one_with_most_signals_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1, "reward": 0.1}\n{"step": 2, "reward": 0.2}\n{"step": 3, "reward": 0.2}\n')
    (tmp_path / "b.jsonl").write_text('{"step": 1, "reward": 0.9, "entropy": 0.5}\n')
    run = open_run(tmp_path)
    assert run.metrics["reward_mean"].tolist() == [0.9]
    assert run.other_runs == ("a.jsonl",)
    assert any(note.kind == "picked" for note in run.notes)
    assert open_run(tmp_path, run="a.jsonl").metrics["reward_mean"].tolist() == [0.1, 0.2, 0.2]
    with pytest.raises(SourceError, match=r"no run is called 'c'.*there are: b.jsonl, a.jsonl"):
        open_run(tmp_path, run="c")


def test_configuration_beside_the_metrics_is_read() -> None:
    run = open_run(HERE / "tinker")
    assert (run.config.group_size, run.config.prompts_per_step, run.config.length_limit) == (4, 16, 256)
    assert run.config.save_interval == 20


def test_a_folder_that_grows_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text('{"step": 1, "reward": 0.1}\n')
    (tmp_path / "rollouts").mkdir()
    builder = RunBuilder(open_reader(str(tmp_path)))
    assert builder.refresh().rollouts is None
    shutil.copy(HERE / "verl" / "rollouts" / "1.jsonl", tmp_path / "rollouts")
    with log.open("a") as file:
        file.write('{"step": 2, "reward": 0.2}\n')
    run = builder.refresh()
    assert run.steps.tolist() == [1, 2]
    assert run.rollouts is not None
    assert run.rollouts.steps() == (1,)


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"\x00\x01\x02\x03" * 100, "binary file"),
        (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.", "pickle"),
        (b"just some prose\nwith several lines\nand nothing else\n", "no log that echotrap knows"),
        (b'{"step": 1, "reward"', "no log that echotrap knows|no JSON"),
        (b"[1, 2, 3]", "no log that echotrap knows|no rows"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        open_run(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        open_run(tmp_path / "nowhere.jsonl")


def test_a_folder_without_logs(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# nothing here\n")
    with pytest.raises(UnknownFormat, match="no log was found in this folder"):
        open_run(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownFormat, match="the folder is empty"):
        open_run(tmp_path / "empty")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "reward": 0.1}\n')

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, whom no mode stops
    with pytest.raises(SourceError, match="no permission to read it"):
        open_run(path)


def test_one_row_of_nan(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "reward": NaN, "loss": NaN, "grad_norm": NaN}\n')
    run = open_run(path)
    assert run.steps.tolist() == [1]
    assert {item.field for item in run.nonfinite} == {"reward_mean", "loss", "grad_norm"}


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows = [f'{{"step": {step}, "reward": 0.5}}' for step in range(1, 21)]
    rows[5], rows[9], rows[12] = '{"step": 6, "rew', "[1, 2]", '{"step": 13, "reward": 0.\udcff5}'
    path.write_bytes("\n".join(rows).encode("utf-8", "surrogateescape"))
    run = open_run(path)
    assert len(run.steps) == 17
    assert [note.count for note in run.notes if note.kind == "skipped"] == [3]


def test_a_damaged_archive_gives_what_came_before(tmp_path: Path) -> None:
    data = "".join(f'{{"step": {step}, "reward": {math.sin(step)}}}\n' for step in range(1, 5001)).encode()
    path = tmp_path / "run.jsonl.gz"
    packed = gzip.compress(data)
    path.write_bytes(packed[: len(packed) // 2])
    run = open_run(path)
    assert 100 < len(run.steps) < 5000
    assert any("breaks off" in note.message for note in run.notes)


def test_a_small_damaged_archive_too(tmp_path: Path) -> None:
    data = "".join(f'{{"step": {step}, "reward": {math.sin(step)}}}\n' for step in range(1, 301)).encode()
    path = tmp_path / "run.jsonl.gz"
    packed = gzip.compress(data)
    path.write_bytes(packed[: len(packed) * 9 // 10])
    run = open_run(path)
    assert 100 < len(run.steps) < 300
    assert any("breaks off" in note.message for note in run.notes)
    path.write_bytes(zstandard.compress(data)[:2000])  # zstd gives whole blocks only
    with pytest.raises(EchotrapError, match="breaks off before anything can be read"):
        open_run(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["verl/run.jsonl", "home_made/table.tsv"])
def test_utf_16_with_a_byte_order_mark_is_read(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(("\ufeff" + (HERE / name).read_text().replace("\n", "\r\n")).encode(encoding))
    assert open_run(path).metrics.equals(open_run(HERE / name).metrics)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a/metrics.jsonl", "a"), ("a/checkpoint-20/trainer_state.json", "a"), ("a/files/output.log", "a"), ("a/log.txt", "a"),
        ("a/logs/train.log.gz", "a"), ("a/progress.csv", "a"), ("a/qwen2.5-7b.jsonl", "qwen2.5-7b"), ("a/seed_3.csv", "seed_3"),
        ("a/training_log.jsonl", "a"), ("a/qwen2.5-7b", "qwen2.5-7b"),
    ],
)  # fmt: skip
def test_a_file_whose_name_says_nothing_is_named_after_its_folder(file: str, name: str) -> None:
    assert run_name(Path(file)) == name


def test_an_empty_folder_is_said_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="the folder is empty") as caught:
        open_run(tmp_path)
    assert "--input-format" not in str(caught.value)


def test_deep_and_long_input_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    path.write_text(
        '{"step": 1, "reward": 0.5}\n' + deep + "\n" + '{"step": 2, "reward": 1e999}\n{"step": 3, "reward": ' + "9" * 400 + "}\n"
    )
    run = open_run(path)
    assert run.steps.tolist() == [1, 2, 3]
    assert [(item.step, item.spelling) for item in run.nonfinite] == [(2, "inf"), (3, "inf")]


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(EchotrapError):
        open_reader(str(tmp_path / "x"), Options())
