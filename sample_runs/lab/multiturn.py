"""Multi-turn GRPO and PPO on the frozen lake in plain PyTorch, logged the way verl logs.

    python sample_runs/lab/multiturn.py NAME [--resume] [--as OTHER_NAME] [--set key=value ...]

NAME is an entry of ``recipes.toml``. Two things are written to ``runs/NAME`` in the workspace, both in verl's
own form: the file logger's ``NAME.jsonl`` with one ``{"step": ..., "data": {...}}`` per line, and one
``rollout_data/STEP.jsonl`` per step with the decoded rollouts.

The algorithm is StarPO (RAGEN): whole trajectories are sampled, prompt and environment tokens are masked, and
one update is made per minibatch. With ``estimator = "grpo"`` the advantage is the return standardised inside
its prompt group; with ``"ppo"`` a critic predicts the return at each token. StarPO-S is the same loop with
``keep_share < 1`` (train on the groups with the largest spread only), ``kl = 0`` and ``clip_high = 0.28``.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pretrain
import recipes
import tasks
import torch
import torch.nn.functional as functional
import workspace
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

INVALID_TURN_PENALTY = -0.1
GOAL_REWARD = 1.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """What defines a run; every field can be set in its recipe.

    Attributes
    ----------
    prompts, group_size
        One step plays `group_size` episodes from each of `prompts` starts.
    slip
        Chance that the ice turns a move into one of the two sideways moves, as on Gym's slippery lake.
    turns, turn_tokens
        Limits: turns of an episode, new tokens of a turn.
    kl
        Weight of the K3 estimate of the KL to the starting policy, 0 for none.
    estimator
        ``grpo`` or ``ppo``.
    keep_share
        Share of the groups that is trained on, those with the largest spread first.
    advantage_epsilon
        Added to the spread of a group before dividing by it; with 0 a constant group yields NaN.
    skip_non_finite
        Skip the update if the gradient norm is not finite, as verl does.
    save_steps
        Checkpoint interval, 0 for none.
    """

    name: str
    task: str = "lake"
    learning_rate: float = 5e-5
    kl: float = 0.01
    steps: int = 150
    seed: int = 1
    prompts: int = 4
    group_size: int = 8
    slip: float = 0.0
    turns: int = 3
    turn_tokens: int = 40
    estimator: str = "grpo"
    critic_learning_rate: float = 2e-4
    clip_low: float = 0.2
    clip_high: float = 0.2
    minibatches: int = 2
    keep_share: float = 1.0
    entropy_weight: float = 0.0
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    advantage_epsilon: float = 1e-6
    skip_non_finite: bool = True
    save_steps: int = 0


@dataclasses.dataclass
class Episode:
    """One rollout: its tokens, which of them the policy wrote, and how it went."""

    group: int
    start: tasks.Lake
    lake: tasks.Lake
    ids: list[int]
    prompt_length: int
    written: list[int]
    score: float = 0.0
    turns: int = 0
    invalid_turns: int = 0
    clipped_turns: int = 0
    over: bool = False

    def extend(self, ids: list[int], by_policy: bool) -> None:
        """Append tokens of the policy or of the environment."""
        self.ids += ids
        self.written += [int(by_policy)] * len(ids)


@dataclasses.dataclass
class Batch:
    """Episodes of one step as tensors; all but `ids` and `attention` are shifted to predict the next token."""

    ids: torch.Tensor
    attention: torch.Tensor
    written: torch.Tensor
    old_log_probs: torch.Tensor
    entropy: torch.Tensor
    reference_log_probs: torch.Tensor | None = None
    values: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    returns: torch.Tensor | None = None


class Critic(torch.nn.Module):
    """A copy of the starting policy with a scalar head: the return to expect after each token."""

    def __init__(self, base: Path) -> None:
        super().__init__()
        self.body = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).model
        self.head = torch.nn.Linear(self.body.config.hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, ids: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
        """Values at each position but the last."""
        hidden = self.body(input_ids=ids, attention_mask=attention).last_hidden_state
        return self.head(hidden)[:, :-1, 0]


class Trainer:
    """Owns the models of a run and makes one step after another."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        base = workspace.base_folder(settings.task)
        torch.manual_seed(settings.seed)
        self.rng = random.Random(settings.seed)
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
        self.policy = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=settings.learning_rate, weight_decay=0.01)
        self.reference = None
        if settings.kl > 0:
            self.reference = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        self.critic = None
        if settings.estimator == "ppo":
            self.critic = Critic(base)
            self.critic_optimizer = torch.optim.AdamW(self.critic.parameters(), lr=settings.critic_learning_rate)
        self.newline = self.tokenizer("\n")["input_ids"]

    # ------------------------------------------------------------------ rollouts

    def play(self) -> list[Episode]:
        """Sample the episodes of one step, all groups side by side, turn by turn."""
        settings = self.settings
        episodes = []
        for group in range(settings.prompts):
            lake = tasks.new_lake(self.rng)
            prompt = self._user_ids(lake)
            for _ in range(settings.group_size):
                episodes.append(Episode(group, lake, lake, list(prompt), len(prompt), [0] * len(prompt)))
        for turn in range(settings.turns):
            playing = [episode for episode in episodes if not episode.over]
            if not playing:
                break
            replies = self._generate([episode.ids for episode in playing])
            for episode, reply in zip(playing, replies, strict=True):
                self._take_turn(episode, reply, last=turn == settings.turns - 1)
        return episodes

    def _user_ids(self, lake: tasks.Lake) -> list[int]:
        return self.tokenizer(pretrain.user_text(lake.render()))["input_ids"]

    def _take_turn(self, episode: Episode, reply: list[int], last: bool) -> None:
        end = self.tokenizer.eos_token_id
        episode.extend(reply, by_policy=True)
        episode.turns += 1
        episode.clipped_turns += int(reply[-1] != end)
        action = tasks.parse_move(self.tokenizer.decode(reply, skip_special_tokens=True))
        if action is None:
            episode.score += INVALID_TURN_PENALTY
            episode.invalid_turns += 1
        else:
            episode.lake = episode.lake.move(tasks.slipped(self.rng, action, self.settings.slip))
        if episode.lake.solved:
            episode.score += GOAL_REWARD
        episode.over = episode.lake.solved or episode.lake.drowned
        if not episode.over and not last:
            episode.extend(self.newline + self._user_ids(episode.lake), by_policy=False)

    @torch.no_grad()
    def _generate(self, contexts: list[list[int]]) -> list[list[int]]:
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        width = max(map(len, contexts))
        ids = torch.full((len(contexts), width), pad)
        attention = torch.zeros_like(ids)
        for row, context in enumerate(contexts):
            ids[row, width - len(context) :] = torch.tensor(context)
            attention[row, width - len(context) :] = 1
        self.policy.eval()
        output = self.policy.generate(
            input_ids=ids,
            attention_mask=attention,
            do_sample=True,
            temperature=self.settings.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=self.settings.turn_tokens,
            pad_token_id=pad,
            eos_token_id=end,
        )
        replies = output[:, width:].tolist()
        return [reply[: reply.index(end) + 1] if end in reply else reply for reply in replies]

    # ------------------------------------------------------------------ update

    def make_batch(self, episodes: list[Episode]) -> Batch:
        """Pad the episodes and evaluate them under the policy, the reference and the critic."""
        width = max(len(episode.ids) for episode in episodes)
        ids = torch.full((len(episodes), width), self.tokenizer.pad_token_id)
        attention = torch.zeros_like(ids)
        written = torch.zeros((len(episodes), width))
        for row, episode in enumerate(episodes):
            ids[row, : len(episode.ids)] = torch.tensor(episode.ids)
            attention[row, : len(episode.ids)] = 1
            written[row, : len(episode.ids)] = torch.tensor(episode.written, dtype=torch.float)
        with torch.no_grad():
            log_probs, entropy = self._evaluate(self.policy, ids, attention)
            batch = Batch(ids, attention, written[:, 1:], log_probs, entropy)
            if self.reference is not None:
                batch.reference_log_probs = self._evaluate(self.reference, ids, attention)[0]
            if self.critic is not None:
                batch.values = self.critic(ids, attention)
        return batch

    def _evaluate(self, model: Any, ids: torch.Tensor, attention: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1] / self.settings.temperature
        log_probs = functional.log_softmax(logits, dim=-1)
        chosen = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return chosen, entropy

    def set_advantages(self, batch: Batch, scores: torch.Tensor) -> None:
        """Fill in advantages and returns, per token."""
        if batch.values is None:
            spread = scores.std(dim=1, keepdim=True) + self.settings.advantage_epsilon
            per_episode = ((scores - scores.mean(dim=1, keepdim=True)) / spread).reshape(-1, 1)
            batch.advantages = per_episode.expand_as(batch.written)
            batch.returns = batch.advantages
            return
        batch.returns = scores.reshape(-1, 1).expand_as(batch.written)
        raw = batch.returns - batch.values
        mean = masked_mean(raw, batch.written)
        variance = masked_mean((raw - mean) ** 2, batch.written)
        batch.advantages = (raw - mean) / (variance.sqrt() + 1e-8)

    def update(self, batch: Batch, rows: list[int]) -> dict[str, list[float]]:
        """Make one update per minibatch of the rows that passed the filter; returns what each one measured."""
        measured: dict[str, list[float]] = {}
        order = list(rows)
        self.rng.shuffle(order)
        size = max(1, len(order) // self.settings.minibatches)
        self.policy.train()
        for first in range(0, len(order), size):
            chosen = torch.tensor(order[first : first + size])
            figures = self._update_policy(batch, chosen)
            if self.critic is not None:
                figures |= self._update_critic(batch, chosen)
            for key, value in figures.items():
                measured.setdefault(key, []).append(value)
        return measured

    def _update_policy(self, batch: Batch, rows: torch.Tensor) -> dict[str, float]:
        settings = self.settings
        mask, advantages, old = batch.written[rows], batch.advantages[rows], batch.old_log_probs[rows]
        log_probs, entropy = self._evaluate(self.policy, batch.ids[rows], batch.attention[rows])
        ratio = torch.exp(log_probs - old)
        plain = -advantages * ratio
        clipped = -advantages * ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        policy_loss = masked_mean(torch.max(plain, clipped), mask)
        loss = policy_loss - settings.entropy_weight * masked_mean(entropy, mask)
        figures = {
            "actor/pg_loss": policy_loss.item(),
            "actor/pg_clipfrac": masked_mean((clipped > plain).float(), mask).item(),
            "actor/ppo_kl": masked_mean(old - log_probs, mask).item(),
        }
        if batch.reference_log_probs is not None:
            gap = batch.reference_log_probs[rows] - log_probs
            kl_loss = masked_mean(torch.exp(gap) - gap - 1, mask)
            loss = loss + settings.kl * kl_loss
            figures["actor/kl_loss"] = kl_loss.item()
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), settings.max_grad_norm)
        if torch.isfinite(norm) or not settings.skip_non_finite:
            self.optimizer.step()
        figures["actor/grad_norm"] = norm.item()
        return figures

    def _update_critic(self, batch: Batch, rows: torch.Tensor) -> dict[str, float]:
        mask = batch.written[rows]
        values = self.critic(batch.ids[rows], batch.attention[rows])
        loss = 0.5 * masked_mean((values - batch.returns[rows]) ** 2, mask)
        self.critic_optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.settings.max_grad_norm)
        self.critic_optimizer.step()
        return {"critic/vf_loss": loss.item(), "critic/grad_norm": norm.item()}

    # ------------------------------------------------------------------ one step

    def step(self, number: int) -> tuple[dict[str, float], list[Episode]]:
        """Play, update, and return the metrics of the step with its episodes."""
        started = time.time()
        episodes = self.play()
        played = time.time()
        batch = self.make_batch(episodes)
        scores = torch.tensor([episode.score for episode in episodes]).view(self.settings.prompts, -1)
        self.set_advantages(batch, scores)
        evaluated = time.time()
        kept = widest_groups(scores.std(dim=1), self.settings.keep_share)
        rows = [row for row, episode in enumerate(episodes) if episode.group in kept]
        measured = self.update(batch, rows)
        ended = time.time()
        metrics = {key: sum(values) / len(values) for key, values in measured.items()}
        metrics |= self._constants(number)
        metrics["actor/entropy"] = masked_mean(batch.entropy, batch.written).item()
        metrics |= score_metrics(scores, kept) | token_metrics(batch) | episode_metrics(episodes)
        metrics |= {
            "timing_s/gen": played - started,
            "timing_s/old_log_prob": evaluated - played,
            "timing_s/update_actor": ended - evaluated,
            "timing_s/step": ended - started,
            "perf/total_num_tokens": int(batch.attention.sum()),
        }
        return metrics, episodes

    def _constants(self, number: int) -> dict[str, float]:
        constants: dict[str, float] = {
            "training/global_step": number,
            "training/epoch": 0,
            "actor/lr": self.settings.learning_rate,
        }
        if self.reference is not None:
            constants["actor/kl_coef"] = self.settings.kl
        return constants

    # ------------------------------------------------------------------ checkpoints

    def save(self, path: Path, number: int) -> None:
        """Write everything that the next step depends on."""
        state = {
            "step": number,
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "python_rng": self.rng.getstate(),
        }
        if self.critic is not None:
            state["critic"] = self.critic.state_dict()
            state["critic_optimizer"] = self.critic_optimizer.state_dict()
        torch.save(state, path)

    def load(self, path: Path) -> int:
        """Restore a checkpoint; returns its step."""
        state = torch.load(path, weights_only=False)
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])
        self.rng.setstate(state["python_rng"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        return state["step"]


# --------------------------------------------------------------------------- metrics


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens that the policy wrote."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def widest_groups(spreads: torch.Tensor, share: float) -> set[int]:
    """Indices of the groups with the largest spread of scores: RAGEN's uncertainty filter."""
    count = max(1, round(len(spreads) * share))
    return set(spreads.argsort(descending=True, stable=True)[:count].tolist())


def summary(key: str, values: Iterable[float] | torch.Tensor) -> dict[str, float]:
    """Mean, maximum and minimum under verl's key names."""
    tensor = torch.as_tensor(values if isinstance(values, torch.Tensor) else list(values), dtype=torch.float32)
    return {
        f"{key}/mean": tensor.mean().item(),
        f"{key}/max": tensor.max().item(),
        f"{key}/min": tensor.min().item(),
    }


def score_metrics(scores: torch.Tensor, kept: set[int]) -> dict[str, float]:
    """Rewards as verl logs them, and the in-group figures as RAGEN logs them."""
    spreads = scores.std(dim=1)
    metrics = summary("critic/score", scores) | summary("critic/rewards", scores)
    metrics["rollout/in_group_std"] = spreads.mean().item()
    metrics["rollout/in_group_max"] = scores.max(dim=1).values.mean().item()
    metrics["rollout/in_group_mean"] = scores.mean().item()
    metrics["rollout/chosen_in_group_std"] = spreads[sorted(kept)].mean().item()
    return metrics


def token_metrics(batch: Batch) -> dict[str, float]:
    """Advantages, returns and values over the tokens that the policy wrote."""
    written = batch.written > 0
    metrics = summary("critic/advantages", batch.advantages[written])
    metrics |= summary("critic/returns", batch.returns[written])
    if batch.values is not None:
        values, returns = batch.values[written], batch.returns[written]
        metrics |= summary("critic/values", values)
        explained = 1 - (returns - values).var() / (returns.var() + 1e-8)
        metrics["critic/vf_explained_var"] = explained.item()
    return metrics


def episode_metrics(episodes: list[Episode]) -> dict[str, float]:
    """Lengths, turns, success and format errors."""
    turns = sum(episode.turns for episode in episodes)
    metrics = summary("response_length", (float(len(e.ids) - e.prompt_length) for e in episodes))
    metrics["response_length/clip_ratio"] = sum(episode.clipped_turns for episode in episodes) / turns
    metrics |= summary("prompt_length", (float(episode.prompt_length) for episode in episodes))
    metrics["prompt_length/clip_ratio"] = 0.0
    metrics |= summary("num_turns", (float(episode.turns) for episode in episodes))
    metrics["lake/success"] = sum(episode.lake.solved for episode in episodes) / len(episodes)
    metrics["lake/invalid_turns"] = sum(episode.invalid_turns for episode in episodes) / turns
    return metrics


# --------------------------------------------------------------------------- files


def rollout_rows(tokenizer: PreTrainedTokenizerFast, episodes: list[Episode], number: int, size: int) -> list[dict]:
    """The episodes of a step in the form of verl's rollout dump."""
    rows = []
    for index, episode in enumerate(episodes):
        rows.append(
            {
                "input": tokenizer.decode(episode.ids[: episode.prompt_length], skip_special_tokens=True),
                "output": tokenizer.decode(episode.ids[episode.prompt_length :], skip_special_tokens=True),
                "gts": "r{}c{}".format(*episode.start.goal),
                "score": episode.score,
                "step": number,
                "uid": f"step{number}-prompt{episode.group}_{index % size}_0",
                "success": episode.lake.solved,
                "num_turns": episode.turns,
                "invalid_turns": episode.invalid_turns,
            }
        )
    return rows


def train(settings: Settings, resume: bool = False) -> None:
    """Run one training and write the log and the rollouts."""
    folder = workspace.run_folder(settings.name)
    rollouts = folder / "rollout_data"
    rollouts.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    trainer = Trainer(settings)
    first = trainer.load(checkpoint) + 1 if resume and checkpoint.is_file() else 1
    started, error, number = time.time(), None, first - 1
    with (folder / f"{settings.name}.jsonl").open("a" if first > 1 else "w", encoding="utf-8") as log:
        for number in range(first, settings.steps + 1):
            try:
                metrics, episodes = trainer.step(number)
            except RuntimeError as failure:
                error = repr(failure)
                break
            log.write(json.dumps({"step": number, "data": metrics}) + "\n")
            log.flush()
            rows = rollout_rows(trainer.tokenizer, episodes, number, settings.group_size)
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (rollouts / f"{number}.jsonl").write_text(lines, encoding="utf-8")
            if settings.save_steps and number % settings.save_steps == 0:
                trainer.save(checkpoint, number)
            if number % 10 == 0:
                shown = (
                    "critic/score/mean",
                    "rollout/in_group_std",
                    "actor/entropy",
                    "actor/grad_norm",
                    "lake/success",
                )
                print(number, {key: round(metrics[key], 3) for key in shown}, flush=True)
    workspace.write_facts(settings, number if error is None else number - 1, error, started)


if __name__ == "__main__":
    workspace.run_main(lambda: recipes.main(Settings, train, __doc__))
