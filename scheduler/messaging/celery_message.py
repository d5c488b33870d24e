"""A Celery task as it lies in a Redis list: what `send_task` would put there, for a tenth of the price.

Celery's task protocol 2 inside kombu's message for transports without protocol of their own. Both are public formats,
read by workers of any version; a test compares them with what Celery itself sends.
"""

import os
import socket
from base64 import b64encode
from functools import cache
from typing import Any
from uuid import uuid4

import orjson

_EMBEDDED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def task_headers(task: str, args: tuple[str, ...], shadow: str | None = None) -> dict[str, Any]:
    """What a message says of its task; `shadow` is what Flower calls it."""
    task_id = str(uuid4())
    return {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": shadow,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": (None, None),
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": repr(args),
        "kwargsrepr": "{}",
        "origin": _origin(os.getpid()),
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }


def task_body(args: tuple[str, ...]) -> tuple[Any, ...]:
    """What a message gives its task."""
    return args, {}, _EMBEDDED


def encode_message(task: str, args: tuple[str, ...], queue: str, shadow: str | None = None) -> bytes:
    """A message that asks for a task."""
    headers = task_headers(task, args, shadow)
    properties = {
        "correlation_id": headers["id"],
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": str(uuid4()),
    }
    return orjson.dumps(
        {
            "body": b64encode(orjson.dumps(task_body(args))).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": headers,
            "properties": properties,
        }
    )


@cache
def _origin(pid: int) -> str:
    return f"gen{pid}@{socket.gethostname()}"
