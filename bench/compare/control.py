"""The control: durable steps written by hand with Celery and PostgreSQL, and nothing more.

    celery -A bench.compare.control worker -P prefork -c 2

A task runs a node, commits its output as one row, and sends the next task. In a fan-out, a counter row identifies the
last branch, which sends the join. A node that waits calls a model with the SDK that Easel uses, too. There are no
canvases, leases or events, and messages of a killed worker may be lost.

It reads CONTROL_DATABASE_URL, CONTROL_REDIS_URL and CONTROL_MODEL_URL. CONTROL_SAFE=1 applies the settings that
Celery's manual recommends against crashes.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from queue import LifoQueue
from typing import Any

import psycopg
import redis
from celery import Celery
from kombu.entity import Exchange, Queue
from psycopg.types.json import Jsonb

QUEUE = "control"
HOP, FAN = "control.hop", "control.fan"
DONE = "control:done:{run}"
PAD = "x" * 990
CONNECTIONS = 8  # of a process, however many threads it has

TABLES = """
    create table control_nodes (
        run text, step int, output jsonb, times int not null default 1,
        at timestamptz not null default clock_timestamp(), primary key (run, step)
    );
    create table control_joins (run text primary key, missing int);
"""
COMMIT = """
    insert into control_nodes (run, step, output) values (%s, %s, %s)
    on conflict (run, step) do update set times = control_nodes.times + 1
"""
BRANCHES = "insert into control_joins values (%s, %s)"
ONE_LESS = "update control_joins set missing = missing - 1 where run = %s returning missing"


def make_app(redis_url: str, *, is_safe: bool = False) -> Celery:
    """Return the control's Celery app. It has its own keys in Redis."""
    app = Celery("control", broker=redis_url)
    transport: dict[str, Any] = {
        "unacked_key": "control:unacked",
        "unacked_index_key": "control:unacked_index",
        "unacked_mutex_key": "control:unacked_mutex",
    }
    if is_safe:
        transport |= {"visibility_timeout": 5, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
        app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
    app.conf.update(
        task_queues=[Queue(QUEUE, Exchange(QUEUE), routing_key=QUEUE)],
        task_default_queue=QUEUE,
        task_ignore_result=True,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options=transport,
    )
    return app


app = make_app(os.environ.get("CONTROL_REDIS_URL", ""), is_safe=os.environ.get("CONTROL_SAFE") == "1")
_connections: "LifoQueue[psycopg.Connection]" = LifoQueue()
_lock = threading.Lock()
_opened = 0


@app.task(name=HOP)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def hop(before: dict[str, Any] | None, run: str, step: int, steps: int, wait_ms: int) -> None:
    """Run a node of a chain; its output is sent to the next one in the message."""
    output = _node(run, step, wait_ms)
    with _connection() as connection:
        connection.execute(COMMIT, (run, step, Jsonb(output)))
    if step + 1 < steps:
        app.send_task(HOP, (output, run, step + 1, steps, wait_ms))
    else:
        _announce_end(run)


@app.task(name=FAN)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def fan(run: str, step: int, width: int, wait_ms: int) -> None:
    """Run a node of a fan-out: 0 is the first, 1 to `width` are the branches, the next one is their join."""
    is_branch = 0 < step <= width
    output = _node(run, step, wait_ms if is_branch else 0)
    with _connection() as connection, connection.transaction():
        connection.execute(COMMIT, (run, step, Jsonb(output)))
        missing = None
        if step == 0:
            connection.execute(BRANCHES, (run, width))
        elif is_branch:
            row = connection.execute(ONE_LESS, (run,)).fetchone()
            missing = row[0] if row is not None else None
    if step == 0:
        for branch in range(1, width + 1):
            app.send_task(FAN, (run, branch, width, wait_ms))
    elif missing == 0:
        app.send_task(FAN, (run, width + 1, width, wait_ms))
    elif not is_branch:
        _announce_end(run)


def _node(run: str, step: int, wait_ms: int) -> dict[str, Any]:
    """Do the work of a node: call a model if it has to wait, and return 1 KB."""
    return {"run": run, "step": step, "pad": _ask_model(f"{run} {step}", wait_ms) if wait_ms else PAD}


def _ask_model(question: str, wait_ms: int) -> str:
    messages: Any = [{"role": "user", "content": question}]
    completion = _model().chat.completions.create(model=f"wait-{wait_ms}", messages=messages)
    return completion.choices[0].message.content or ""


def _announce_end(run: str) -> None:
    _redis().rpush(DONE.format(run=run), 1)


@cache
def _model() -> Any:
    from openai import OpenAI  # only where a node calls a model: the import takes half a second

    return OpenAI(base_url=os.environ["CONTROL_MODEL_URL"], api_key="key", max_retries=0)


@cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(os.environ["CONTROL_REDIS_URL"])


@contextmanager
def _connection() -> Generator[psycopg.Connection]:
    """Borrow a connection of this process; connections are opened on first use, so after the fork."""
    connection = _acquire()
    try:
        yield connection
    finally:
        _connections.put(connection)


def _acquire() -> psycopg.Connection:
    global _opened
    with _lock:
        is_new = _connections.empty() and _opened < CONNECTIONS
        _opened += is_new
    if not is_new:
        return _connections.get()
    return psycopg.connect(os.environ["CONTROL_DATABASE_URL"], autocommit=True)
