"""Delivers what the store holds, a thread a channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

from echotrap.alerts import Delivery, Store
from echotrap.notify.base import Channel, DeliveryError

__all__ = ["Dispatcher"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
IDLE_S = 5.0


class Dispatcher:
    """Takes messages from the outbox and sends them, with growing pauses after a failure.

    Parameters
    ----------
    store : Store
        Holds the outbox.
    run : str
        Key of the run whose messages are sent.
    channels : Mapping
        Name to channel.
    say : callable
        Told once when a message is given up. Never told an address.
    first_pause_s : float
        Pause after the first failure; doubled after each further one.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        channels: Mapping[str, Channel],
        say: Callable[[str], None],
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._store, self._run, self._channels, self._say, self._first_pause_s = store, run, channels, say, first_pause_s
        self._news = threading.Condition()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, args=(name,), name=f"echotrap-{name}", daemon=True) for name in channels
        ]
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """There is something to deliver."""
        with self._news:
            self._news.notify_all()

    def close(self, patience_s: float = 10.0) -> None:
        """Deliver what is due, for a while; the rest stays in the store for the next process."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end and any(self._store.waiting(self._run, name) for name in self._channels):
            self.wake()
            time.sleep(0.02)
        with self._news:
            self._stopped = True
            self._news.notify_all()
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.1))

    def _work(self, name: str) -> None:
        while not self._stopped:
            try:
                delivery = self._store.claim(self._run, name, time.time())
                if delivery is not None:
                    self._deliver(name, delivery)
                    continue
            except Exception as error:  # a busy store: whatever was under way is held, and comes again
                if not self._stopped:
                    self._say(f"channel {name}: {type(error).__name__}, trying again")
            with self._news:
                if not self._stopped:
                    self._news.wait(min(IDLE_S, self._first_pause_s))

    def _deliver(self, name: str, delivery: Delivery) -> None:
        channel = self._channels[name]
        try:
            link = channel.link.replace("{run}", quote(delivery.message.run, safe=""))
            channel.send(delivery.message._replace(link=link))
        except Exception as error:
            known = error if isinstance(error, DeliveryError) else DeliveryError(type(error).__name__)
            if known.for_good or delivery.attempts + 1 >= channel.attempts:
                self._store.settle(delivery)
                self._say(f"channel {name}: message {delivery.message.id} given up after {delivery.attempts + 1}: {known}")
                return
            pause = known.wait_s if known.wait_s is not None else self._first_pause_s * 2**delivery.attempts
            self._store.postpone(delivery, time.time() + min(pause, LONGEST_PAUSE_S))
        else:
            self._store.settle(delivery)
