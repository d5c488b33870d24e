"""A bare Celery task that sends the next one: the cost of a hop without durability.

BARE_BROKER_URL=redis://... celery -A bench.hops.bare worker -P threads -c 8
"""

import os

from celery import Celery

QUEUE = "bare"

app = Celery("bare", broker=os.environ.get("BARE_BROKER_URL", "redis://"))
app.conf.update(
    task_default_queue=QUEUE,
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="bare.hop", ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def run_hop(left: int, end: str) -> None:
    """Send the next task; the last task sends a message to the queue `end`."""
    if left > 1:
        app.send_task("bare.hop", (left - 1, end))
    else:
        app.send_task("bare.end", (), queue=end)
