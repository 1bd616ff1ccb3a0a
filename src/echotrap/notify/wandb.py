"""Back into Weights & Biases: an alert of the run, and the verdict in its summary.

Inside the training process the run that is open there is used. Anywhere else, ``run = "entity/project/id"`` names it: echotrap
joins as a second writer that changes neither the run's state nor its system metrics.
"""

from __future__ import annotations

from typing import Any

from echotrap.alerts import Message
from echotrap.config import NotifySettings
from echotrap.errors import ConfigError
from echotrap.notify.base import Channel, DeliveryError


class WandbRun(Channel):
    """Calls ``run.alert`` and sets ``echotrap/*`` in the run's summary."""

    def __init__(self, name: str, path: str | None) -> None:
        if path is not None and path.count("/") != 2:
            raise ConfigError("run is not of the form entity/project/id", where=f"notify.{name}.run")
        self._path = path
        self._joined: Any = None

    def send(self, message: Message) -> None:
        """Alert, then summary."""
        import wandb

        try:
            run = self._run(wandb)
            grave = message.severity == "critical" and message.kind not in ("recovered", "resumed")
            run.alert(title=message.title, text=message.body, level="ERROR" if grave else "WARN", wait_duration=0)
            over = message.kind in ("recovered", "resumed")
            run.summary.update(
                {
                    "echotrap/verdict": "recovered" if over else message.label,
                    "echotrap/severity": "ok" if over else message.severity,
                    "echotrap/onset_step": message.onset_step,
                    "echotrap/alarm_step": message.alarm_step,
                }
            )
        except DeliveryError:
            raise
        except Exception as error:  # the client raises many kinds, and its texts may hold addresses
            raise DeliveryError(type(error).__name__) from None

    def _run(self, wandb: Any) -> Any:
        if self._path is None:
            if wandb.run is None:
                raise DeliveryError("no W&B run is open in this process, and the channel names none", for_good=True)
            return wandb.run
        if self._joined is None:
            entity, project, run_id = self._path.split("/")
            settings = wandb.Settings(
                mode="shared", x_primary=False, x_label="echotrap", x_update_finish_state=False, x_disable_stats=True,
                console="off", silent=True,
            )  # fmt: skip
            self._joined = wandb.init(entity=entity, project=project, id=run_id, reinit="create_new", settings=settings)
        return self._joined


def channel(name: str, spec: NotifySettings, address: str) -> WandbRun:
    """Open the channel."""
    return WandbRun(name, spec.run)
