"""The Celery task of a node: from its message to its end. `worker/tasks.py` and the local engine define it."""

from typing import Any
from uuid import UUID

from celery.exceptions import Reject

from canvas.ids import ActivationId, RunId
from scheduler.messaging.celery_message import carried_claim
from store.runs import prepared_claims
from worker.celery_requests import TASK_ENDS
from worker.fastpath.inline_tasks import thread_continuation
from worker.task_end import NodeFailed
from worker.worker import Worker

EXPECTED_ERRORS = (NodeFailed,)
"""Exceptions of the task that Celery logs in one line, without a traceback."""


def execute_node(worker: Worker, request: Any, run_id: str, activation_id: str) -> str:
    """Execute the activation that a message names; return the task's result, or raise what ends it otherwise.

    `request`: the task's context, which has the headers of its message.
    """
    ids = RunId(UUID(run_id)), ActivationId(UUID(activation_id))
    prepared = prepared_claims.decode(*ids, carried_claim(request))
    end = TASK_ENDS.last = worker.execute(*ids, thread_continuation(worker.execution.new_continuation), prepared)
    if end is None:
        raise Reject("The process is shutting down.", requeue=True)
    return end.result()
