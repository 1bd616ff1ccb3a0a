"""Any trainer of Hugging Face's: TRL's GRPO, RLOO, PPO, or transformers' own.

::

    trainer = GRPOTrainer(...)
    trainer.add_callback(EchoTrapCallback(trainer, stop_on="critical"))
    trainer.train()
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from transformers import TrainerCallback

from echotrap.monitor import Monitor

__all__ = ["EchoTrapCallback"]

logger = logging.getLogger("echotrap")


class EchoTrapCallback(TrainerCallback):  # type: ignore[misc]  # transformers may be absent where types are checked
    """Logs to a :class:`echotrap.Monitor`, and stops the trainer its own way, with a checkpoint, when an alarm asks for it.

    Parameters
    ----------
    trainer : Trainer, optional
        Whose completions are read. Without it (or where the trainer keeps none) only metrics are judged.
    every, **options
        As for :class:`echotrap.Monitor`.
    save : bool
        Write a checkpoint before stopping.
    """

    def __init__(self, trainer: Any = None, *, every: int = 10, save: bool = True, **options: Any) -> None:
        self._trainer, self._every, self._save, self._options = trainer, every, save, options
        self.monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to watch, in the main process only."""
        if state.is_world_process_zero:
            facts = {
                "group_size": getattr(args, "num_generations", None),
                "length_limit": getattr(args, "max_completion_length", None),
                "max_steps": state.max_steps if state.max_steps > 0 else None,
                "save_interval": args.save_steps if args.save_strategy == "steps" else None,
            }
            name = getattr(args, "run_name", None) or str(args.output_dir)
            options = {"name": name, "framework": "TRL", "framework_version": _version(), "config": facts, **self._options}
            self.monitor = Monitor(every=self._every, **options)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Take one log call; ask the trainer to stop where an alarm does."""
        if self.monitor is not None and logs and "train_runtime" not in logs:
            training = not any(key.startswith("eval_") for key in logs)
            self.monitor.log(logs, state.global_step, self._rollouts() if training else None)
        if _agreed(self.monitor is not None and self.monitor.should_stop) and not control.should_training_stop:
            if state.is_world_process_zero:
                logger.warning("echotrap: training is stopped after step %d", state.global_step)
            control.should_training_stop = True
            control.should_save = control.should_save or self._save

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Judge the whole run."""
        if self.monitor is not None:
            self.monitor.close()

    def _rollouts(self) -> list[dict[str, Any]] | None:
        """The completions that the trainer keeps of its last batch, if it does."""
        logs = getattr(self._trainer, "_logs", None)
        if not isinstance(logs, Mapping) or not logs.get("completion"):
            return None
        try:
            weights = [float(weight) for weight in getattr(self._trainer, "reward_weights", ())]
            rewards = list(logs["rewards"].values())
            totals = [_weighted(row, weights or [1.0] * len(row)) for row in zip(*rewards, strict=True)]
            return [
                {"prompt": prompt, "completion": completion, "reward": reward}
                for prompt, completion, reward in zip(logs["prompt"], logs["completion"], totals, strict=True)
            ]
        except (KeyError, TypeError, ValueError):  # another version keeps them otherwise
            return None


def _version() -> str | None:
    """TRL's version: the meaning of its keys depends on it."""
    try:
        return version("trl")
    except PackageNotFoundError:
        return None


def _weighted(rewards: Sequence[float | None], weights: Sequence[float]) -> float:
    """The total that the trainer optimises; a reward that is None or NaN does not apply to the rollout."""
    pairs = zip(rewards, weights, strict=True)
    known = [reward * weight for reward, weight in pairs if reward is not None and not math.isnan(reward)]
    return sum(known) if known else math.nan


def _agreed(stop: bool) -> bool:
    """What the main process says, in every process: one that stops alone would leave the others waiting."""
    try:
        import torch.distributed as dist
    except ImportError:
        return stop
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return stop
    said = [stop]
    dist.broadcast_object_list(said, src=0)
    return bool(said[0])
