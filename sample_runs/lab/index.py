"""Write ``sample_runs/README.md`` from the recipes, the truths and the pictures.

python sample_runs/lab/index.py
"""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import Any

import recipes
import workspace

INTRODUCTION = """\
# Sample runs

Real reinforcement-learning runs of tiny language-model agents (0.7 million parameters, trained from scratch),
each recorded the way a user's run is and each with its truth. They are small enough to ship and honest enough
to argue about: no number in them was edited. What was done to the files: some are compressed, of some only
every k-th step's rollouts are kept (then `truth.toml` says so), and host names in file names were replaced.

Each folder holds the log, where there are any the rollouts, `picture.svg`, and `truth.toml`: the label and the
steps between which the failure sets in, why we think so, the settings, seed and versions, and figures of the
first and the last tenth of the run. Some of those figures are not in the log but measured on all rollouts of the run:

| figure | meaning |
|---|---|
| `in_group_std` | standard deviation of the reward inside a prompt group, mean over the groups |
| `constant_groups` | share of groups whose rewards are all equal |
| `ties` | of the pairs of differing completions in a group, the share with equal reward |
| `shared_4grams` | share of a rollout's word 4-grams that also stand in a rollout of another prompt in the same step |
| `distinct_4grams` | different 4-grams over all 4-grams of a step |
| `self_repetition` | share of a rollout's 4-grams that it has said before |
| `own_prompt` | share of rollouts whose most similar thought is of the same prompt (by chance 0.23 in 4 groups of 8, 0.11 in 8) |
| `distinct_texts`, `distinct_words` | share of different texts in a group; number of different words in a step |

For the shared and distinct 4-grams and the different words, the words of a rollout's own prompt are blanked, so that "Oak it is"
and "Baker it is" count as the same phrase. echotrap itself does not blank them, and adds several reward functions up where the
lab takes their mean; its figures differ by that.

## Re-make one

    pip install torch==2.13.0 && pip install -e '.[lab]'  # any CPU build of torch will do; the versions are in truth.toml
    python sample_runs/lab/check.py bandit-diverged       # trains it anew and compares it with the recorded run
    python sample_runs/lab/record.py --list               # `record.py NAME` writes the sample folder itself

The minutes in the table are wall-clock on one of two CPU cores, some of them while the other was busy; add two to six for the
starting policy of each task (`lab/pretrain.py`), which is made once. Runs are seeded (the requests
depend on the number of steps, too): the same versions on the same kind of
machine give the same run, elsewhere rounding may lead a run another way to the same kind of end. The last columns say what came
out when every run was made anew from nothing but its recipe: the verdict on it, and how many of the logged figures
(clock readings left out) are equal to the last bit.

What the tasks are and what was learned from them: [docs/lab.md](../docs/lab.md).
The recipes: [lab/recipes.toml](lab/recipes.toml).

## The runs
"""


def read_truth(name: str) -> dict[str, Any]:
    """Truth of a recorded run."""
    path = workspace.SAMPLE_RUNS / name / "truth.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def table_row(name: str, truth: dict[str, Any], again: dict[str, str] | None) -> str:
    """One line of the overview; `again` is the run's row of ``remade.csv``."""
    onset = f"{truth['onset_first']}-{truth['onset_last']}" if "onset_first" in truth else ""
    minutes = f"{truth['wall_seconds'] / 60:.1f}"
    cells = [f"[{name}](#{name})", truth["format"], truth["class"], truth["echo_trap"], onset]
    cells += [truth["expect"], str(truth["steps"]), minutes]
    cells += [again["remade"], f"{int(again['equal']):,} of {int(again['numbers']):,}"] if again else ["", ""]
    return "| " + " | ".join(cells) + " |"


def section(name: str, truth: dict[str, Any]) -> str:
    """Picture and paragraph of a run."""
    files = sorted(path.name for path in (workspace.SAMPLE_RUNS / name).iterdir())
    logs = ", ".join(f"`{file}`" for file in files if file not in ("truth.toml", "picture.svg"))
    return (
        f"### {name}\n\n![signals of {name}]({name}/picture.svg)\n\n"
        f"{truth['about']}\n\n*The numbers:* {truth['why']}.\n\n*How it was judged:* {truth['how_seen']}\n\n"
        f"Files: {logs}.\n"
    )


def read_remade() -> dict[str, dict[str, str]]:
    """What came out when the runs were made anew (see `check`), by run."""
    with (workspace.LAB / "remade.csv").open(newline="", encoding="utf-8") as file:
        return {row["run"]: row for row in csv.DictReader(file)}


def page() -> str:
    """Assemble the page."""
    names = [name for name in recipes.load() if Path(workspace.SAMPLE_RUNS / name / "truth.toml").is_file()]
    truths = {name: read_truth(name) for name in names}
    remade = read_remade()
    lines = [
        INTRODUCTION,
        "| run | format | class | echo trap | onset (steps) | expected verdict | steps | minutes | made anew | equal figures |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(table_row(name, truth, remade.get(name)) for name, truth in truths.items()),
        "",
        *(section(name, truth) for name, truth in truths.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    (workspace.SAMPLE_RUNS / "README.md").write_text(page(), encoding="utf-8")
