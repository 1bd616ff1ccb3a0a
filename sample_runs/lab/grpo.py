"""Train a tiny policy with TRL's own `GRPOTrainer` and leave behind what a user's run leaves behind.

    python sample_runs/lab/grpo.py NAME [--resume] [--as OTHER_NAME] [--set key=value ...]

NAME is an entry of ``recipes.toml``. The raw run is written to ``runs/NAME`` in the workspace; `record`
turns it into a committed sample.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recipes
import tasks
import workspace

RewardFunction = Callable[..., list[float | None]]

# A run must not carry the machine it was made on: no host or user name, no code, no hardware figures.
QUIET_WRITERS = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_PROJECT": "echotrap-lab",
    "WANDB_HOST": "lab",
    "WANDB_USERNAME": "lab",
    "WANDB_EMAIL": "",
    "WANDB_PROGRAM": "grpo.py",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_MACHINE_INFO": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
    "TRACKIO_PROJECT": "echotrap-lab",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What defines a run; every field can be set in its recipe.

    Attributes
    ----------
    reward
        Key of `REWARDS`.
    prompts, group_size
        One step samples `group_size` completions for each of `prompts` prompts.
    beta
        Weight of the KL penalty against the starting policy; 0 switches it off.
    warmup_steps
        The learning rate rises linearly over so many steps.
    updates_per_batch
        Optimiser steps per generated batch (TRL's ``num_iterations``).
    invalid_logits
        ``raise`` when the policy's logits are not finite, or sample from them as if they were ``zero``.
    bold_chance
        Bandit only: chance that the bold arm pays.
    target_words
        Bandit with length shaping only: number of words that earns the full bonus.
    writers
        Any of ``wandb``, ``tensorboard``, ``trackio``.
    save_steps
        Checkpoint interval, 0 for none.
    stop_at, stop_by
        End the process after this step: ``exit`` leaves at once, ``kill`` is SIGKILL.
    """

    name: str
    task: str = "bandit"
    reward: str = "bandit"
    learning_rate: float = 5e-5
    beta: float = 0.04
    steps: int = 200
    seed: int = 1
    prompts: int = 4
    group_size: int = 8
    max_completion_length: int = 72
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    loss_type: str = "dapo"
    scale_rewards: str = "group"
    warmup_steps: int = 0
    updates_per_batch: int = 1
    logging_steps: int = 1
    bold_chance: float = 0.25
    target_words: int = 60
    invalid_logits: str = "raise"
    log_completions: bool = True
    writers: tuple[str, ...] = ()
    save_steps: int = 0
    stop_at: int = 0
    stop_by: str = "exit"


# --------------------------------------------------------------------------- rewards


def completion_text(completion: Any) -> str:
    """Text of a completion, which TRL hands over as a list of messages."""
    return completion[-1]["content"] if isinstance(completion, list) else completion


def make_bandit_reward(settings: Settings) -> RewardFunction:
    """Build the bandit's reward; payoffs depend on seed and step only, so that a resumed run repeats them."""

    def bandit_reward(completions: list, gold: list[str], trainer_state: Any, **_: Any) -> list[float | None]:
        payoffs = random.Random(f"{settings.seed}-{trainer_state.global_step}")
        rewards: list[float | None] = []
        for completion, arms in zip(completions, map(json.loads, gold), strict=True):
            text = completion_text(completion)
            rewards.append(tasks.bandit_reward(text, arms["steady"], arms["bold"], payoffs, settings.bold_chance))
        return rewards

    return bandit_reward


def make_length_reward(settings: Settings) -> RewardFunction:
    """Build the "think longer" shaping term."""

    def thinking_words_reward(completions: list, **_: Any) -> list[float | None]:
        return [tasks.thinking_words_reward(completion_text(c), settings.target_words) for c in completions]

    return thinking_words_reward


def own_words_reward(prompts: list, completions: list, **_: Any) -> list[float | None]:
    """Score the "do not parrot the question" shaping term."""
    return [
        tasks.own_words_reward(completion_text(completion), completion_text(prompt))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def make_tool_reward(name: str, part: Callable[[tasks.ToolScore], float]) -> RewardFunction:
    """Build a tool-call reward out of one figure of `tasks.ToolScore`; `name` is the name it is logged under."""

    def reward(completions: list, gold: list[str], **_: Any) -> list[float | None]:
        return [
            part(tasks.tool_score(completion_text(completion), json.loads(arguments)))
            for completion, arguments in zip(completions, gold, strict=True)
        ]

    reward.__name__ = name
    return reward


def make_parsed_only_reward(completions: list, gold: list[str], **_: Any) -> list[float | None]:
    """Exact match, but None where no call can be parsed: TRL takes None for "not scorable"."""
    rewards: list[float | None] = []
    for completion, arguments in zip(completions, gold, strict=True):
        text = completion_text(completion)
        unparsed = tasks.parse_call(text) is None
        rewards.append(None if unparsed else tasks.tool_score(text, json.loads(arguments)).binary)
    return rewards


def reward_functions(settings: Settings) -> list[RewardFunction]:
    """Reward functions of a run; TRL averages them with equal weight."""
    if settings.reward == "bandit":
        return [make_bandit_reward(settings)]
    if settings.reward == "bandit_and_length":
        return [make_bandit_reward(settings), make_length_reward(settings)]
    if settings.reward == "bandit_and_own_words":
        return [make_bandit_reward(settings), own_words_reward]
    if settings.reward == "binary":
        return [make_tool_reward("exact_match_reward", lambda score: score.binary)]
    if settings.reward == "multiplicative":
        return [make_tool_reward("multiplicative_reward", lambda score: score.multiplicative)]
    if settings.reward == "parsed_only":
        make_parsed_only_reward.__name__ = "exact_or_none_reward"
        return [make_parsed_only_reward]
    if settings.reward == "fine":
        return [
            make_tool_reward("tool_name_reward", lambda score: score.name),
            make_tool_reward("param_name_reward", lambda score: score.keys),
            make_tool_reward("param_value_reward", lambda score: score.values),
        ]
    raise SystemExit(f"unknown reward {settings.reward!r}")


# --------------------------------------------------------------------------- training


def make_dataset(settings: Settings) -> Any:
    """One prompt per group and step, with the gold answer as JSON beside it."""
    from datasets import Dataset

    rng = random.Random(1000 + settings.seed)
    rows = []
    for _ in range(settings.steps * settings.prompts):
        if settings.task == "bandit":
            bandit = tasks.bandit_prompt(rng)
            text, gold = bandit.text, {"steady": bandit.steady, "bold": bandit.bold}
        else:
            request = tasks.tool_prompt(rng, few_values=settings.task == "tool-few")
            text, gold = request.text, request.arguments
        rows.append({"prompt": [{"role": "user", "content": text}], "gold": json.dumps(gold)})
    return Dataset.from_list(rows)


def make_config(settings: Settings, folder: Path, reward_count: int) -> Any:
    """Translate `Settings` into TRL's own configuration."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder / "output"),
        run_name=settings.name,
        project="echotrap-lab",
        trackio_space_id=None,
        trackio_static_space_id=False,
        report_to=list(settings.writers) or "none",
        log_completions=settings.log_completions,
        num_completions_to_print=1,
        logging_steps=settings.logging_steps,
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_num_workers=0,
        per_device_train_batch_size=settings.prompts * settings.group_size,
        gradient_accumulation_steps=1,
        num_generations=settings.group_size,
        max_completion_length=settings.max_completion_length,
        temperature=settings.temperature,
        generation_kwargs={"remove_invalid_values": True} if settings.invalid_logits == "zero" else None,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.warmup_steps else "constant",
        warmup_steps=settings.warmup_steps,
        num_iterations=settings.updates_per_batch,
        beta=settings.beta,
        loss_type=settings.loss_type,
        scale_rewards=settings.scale_rewards,
        reward_weights=[1.0 / reward_count] * reward_count,
        max_grad_norm=settings.max_grad_norm,
        max_steps=settings.steps,
        seed=settings.seed,
        save_strategy="steps" if settings.save_steps else "no",
        save_steps=settings.save_steps or 500,
    )


def make_stopper(settings: Settings, started: float) -> Any:
    """Build the callback that ends the process early, as a power cut or a scheduler would."""
    from transformers import TrainerCallback

    class Stopper(TrainerCallback):
        """Leave the process after the step that the recipe names."""

        def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Stop once the step has been handed to the writers."""
            if state.global_step != settings.stop_at:
                return
            workspace.write_facts(settings, state.global_step, None, started)
            if settings.stop_by == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(130)

    return Stopper()


def point_writers_at(folder: Path, name: str) -> None:
    """Set the environment of the metric writers; must come before they are imported.

    W&B writes the absolute path of its data folder into the run; the committed runs were recorded with
    ``WANDB_DATA_DIR=/srv/lab``, which says nothing about the machine.
    """
    os.environ.update(QUIET_WRITERS)
    for variable in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        os.environ.setdefault(variable, "cache")
    os.environ.update(
        WANDB_DIR=str(folder),
        WANDB_NAME=name,
        TRACKIO_DIR=str(folder / "trackio"),
        TENSORBOARD_LOGGING_DIR=str(folder / "tensorboard"),
    )


def train(settings: Settings, resume: bool = False) -> None:
    """Run one training."""
    folder = workspace.run_folder(settings.name)
    folder.mkdir(parents=True, exist_ok=True)
    if resume and not list(folder.glob("output/checkpoint-*")):
        raise SystemExit(f"{settings.name} has no checkpoint to go on from; its recipe needs save_steps")
    point_writers_at(folder, settings.name)

    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, set_seed
    from trl import GRPOTrainer

    base = workspace.base_folder(settings.task)
    set_seed(settings.seed)
    functions = reward_functions(settings)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        processing_class=PreTrainedTokenizerFast.from_pretrained(base),
        reward_funcs=functions,
        args=make_config(settings, folder, len(functions)),
        train_dataset=make_dataset(settings),
    )
    started, error = time.time(), None
    if settings.stop_at and not resume:
        trainer.add_callback(make_stopper(settings, started))
    try:
        trainer.train(resume_from_checkpoint=resume or None)
    except RuntimeError as failure:
        error = repr(failure)
    trainer.state.save_to_json(str(folder / "output" / "trainer_state.json"))
    workspace.write_facts(settings, trainer.state.global_step, error, started)


if __name__ == "__main__":
    workspace.run_main(lambda: recipes.main(Settings, train, __doc__))
