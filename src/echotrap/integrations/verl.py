"""verl: what its trainer tracks, judged while it trains.

::

    from echotrap.integrations.verl import install

    trainer = RayPPOTrainer(...)
    install(trainer, stop_on="critical")
    trainer.fit()
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from echotrap.monitor import Monitor

__all__ = ["EchoTrapLogger", "install"]


class EchoTrapLogger:
    """One more backend of ``verl.utils.tracking.Tracking``.

    Parameters
    ----------
    trainer : RayPPOTrainer, optional
        Told to end, its own way, when an alarm asks for it: the next step becomes the last one, which verl validates and saves.
    **options
        As for :class:`echotrap.Monitor`.
    """

    def __init__(self, trainer: Any = None, **options: Any) -> None:
        self.monitor = Monitor(**{"framework": "verl", **options})
        self.trainer = trainer

    def log(self, data: Mapping[str, Any], step: int, **_: Any) -> None:
        """Take one step."""
        self.monitor.log(data, step)
        if self.monitor.should_stop and self.trainer is not None:
            planned = getattr(self.trainer, "total_training_steps", None)
            if planned is not None and planned > step + 1:
                self.trainer.total_training_steps = step + 1

    def finish(self, *_: Any, **__: Any) -> None:
        """Judge the whole run."""
        self.monitor.close()


def install(trainer: Any = None, **options: Any) -> None:
    """Add the backend to every ``Tracking`` that is made from now on.

    Parameters
    ----------
    trainer : RayPPOTrainer, optional
        Whose run is ended at an alarm. Without it an alarm is told, and nothing is stopped.
    **options
        As for :class:`echotrap.Monitor`.
    """
    tracking = importlib.import_module("verl.utils.tracking").Tracking
    begin = tracking.__init__

    def with_echotrap(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self.logger["echotrap"] = EchoTrapLogger(trainer, **options)

    tracking.__init__ = with_echotrap
