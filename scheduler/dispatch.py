"""After a commit: hints to Celery, echoes to the bus. The only sender of messages.

A hint that cannot be sent is logged and left: the row is its own outbox, and the sweeper sends it again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from celery import Celery
from kombu.exceptions import KombuError, OperationalError

from scheduler.broker import ADVANCE, CANARY, EXECUTE, NODES, RUNS
from scheduler.bus import Bus
from scheduler.counting import Counters
from scheduler.silence import Silence
from store.runs import Applied, Hint

log = structlog.get_logger()

CANARY_KEPT = 6 * 3600
"""Seconds after which a canary is not worth its task any more. Sender and receiver each go by their own clock for it,
so clocks that are less than this apart hide no lost hint."""


class Dispatch:
    """Sends what a fold has decided. Threads of a process share one.

    A broker that keeps silent is left alone for a second: what is not sent meanwhile, the sweeper sends later.
    `is_broker`: the bus's Redis carries the hints as well.
    """

    def __init__(self, app: Celery, bus: Bus, counters: Counters | None = None, *, is_broker: bool = False) -> None:
        self._app = app
        self.bus = bus
        self._is_broker = is_broker
        self.counters = counters or Counters()
        self._silence = Silence()

    def flush(self, applied: Applied) -> None:
        """Send a fold's hints and echo its events; first of all the call to stop, for somebody pays for each word."""
        if applied.calls_off:
            self.bus.call_off(applied.run_id)
        self.hint(applied.hints)
        if applied.events:
            self.bus.echo(applied.run_id, applied.events[-1][0], is_over=applied.is_over)
        if applied.is_over:
            self.counters.run(applied.status)
        if applied.is_over and applied.conversation_id is not None:
            self.bus.clear_cancel_keys(applied.run_id, applied.conversation_id)
        if applied.next_run is not None:
            self.advance(applied.next_run)

    def hint(self, hints: Sequence[Hint]) -> None:
        """Tell workers that activations are ready."""
        if not hints or self._silence.holds():
            return
        try:
            with self._app.producer_or_acquire() as producer:
                for hint in hints:
                    ids = (str(hint.run_id), str(hint.activation_id))
                    self._app.send_task(
                        EXECUTE,
                        args=ids,
                        queue=NODES,
                        producer=producer,
                        shadow=f"node:{hint.component}",
                        argsrepr=repr(ids),
                        kwargsrepr="{}",
                        ignore_result=True,
                        retry=False,
                    )
        except (OperationalError, KombuError, OSError) as error:
            self._silence.begins()
            log.warning("hints_not_sent", hints=len(hints), error=str(error))
        else:
            self._silence.ends()

    def advance(self, run_id: UUID) -> None:
        """Ask a scheduler to look at a run."""
        self._send(ADVANCE, (str(run_id),), RUNS)

    def canary(self, sent_at: datetime) -> None:
        """Send an empty task through the nodes' queue, to learn whether it moves."""
        self._send(CANARY, (sent_at.isoformat(),), NODES, expires=CANARY_KEPT)

    def has_forgotten(self) -> bool:
        """Whether all hints on their way are known to have been lost since this was asked last."""
        return self._is_broker and self.bus.has_forgotten()

    def _send(self, task: str, args: tuple[str, ...], queue: str, expires: int | None = None) -> None:
        if self._silence.holds():
            return
        if send(self._app, task, args, queue, expires):
            self._silence.ends()
        else:
            self._silence.begins()


def send(app: Celery, task: str, args: tuple[Any, ...], queue: str, expires: float | None = None) -> bool:
    """Send a small task; False, and a line in the log, if the broker does not take it."""
    try:
        app.send_task(
            task, args=args, queue=queue, expires=expires, argsrepr=repr(args), ignore_result=True, retry=False
        )
    except (OperationalError, KombuError, OSError) as error:
        log.warning("message_not_sent", task=task, error=str(error))
        return False
    return True
