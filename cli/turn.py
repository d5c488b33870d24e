"""One turn of a conversation with an agent: begin it, follow it, tell of it, and cancel it when the person asks.

On the processes of a running `easel up`, or on scheduler, worker and sweeper as threads of this process.
"""

import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import local
from canvas.document import Document
from canvas.errors import ModelError
from canvas.state import RunStatus
from canvas.transcript import Position
from cli import agents, canvas_file, connection, output
from cli.canvas_file import Judged
from cli.connection import Connection, tenant_of
from cli.exits import OF_STATUS, Exit
from cli.follow import Following, listening
from cli.output import DIM, YELLOW
from cli.servers import Found
from cli.telling import Lines, Speech, Teller
from providers.catalogue import resolve
from scheduler.lifecycle import Start, Started
from scheduler.requests import start_of
from scheduler.turn_start import Request
from store import canvases, versions
from store.database import Transaction
from store.ids import new_id


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for: an agent by name, or the canvas of a file, and what to tell it."""

    target: str
    judged: Judged | None
    tenant: str
    options: Mapping[str, Any]  # those of the HTTP trigger: query, inputs, session_id, release


@contextmanager
def at_work(found: Found) -> Generator[Connection]:
    """A connection to servers on which somebody carries out runs: `easel up`, or else this process."""
    connection.migrated(found)
    if found.up is not None:
        with connection.connected(found) as connected:
            yield connected
        return
    database_url, redis_url, broker_url = found.settings.servers()
    with local.engine(found.settings, database_url, redis_url, broker_url=broker_url) as engine:
        yield Connection(engine.lifecycle, found)


def start(found: Found, wanted: Wanted, *, as_json: bool) -> Exit:
    """Start a run and follow it."""
    with at_work(found) as connected:
        run_id = new_id()
        with connected.database.transaction() as tx:
            tenant_id, chosen = chosen_start(tx, wanted, run_id)
        return _follow(connected, tenant_id, run_id, lambda: connected.lifecycle.start_run(chosen), as_json)


def resume(found: Found, tenant: str, run_id: UUID, request: Request, *, as_json: bool) -> Exit:
    """Answer a run that waits, and follow it."""
    with at_work(found) as connected:
        with connected.database.transaction() as tx:
            tenant_id = tenant_of(tx, tenant)
        begin = lambda: connected.lifecycle.resume_run(tenant_id, run_id, request)  # noqa: E731
        return _follow(connected, tenant_id, run_id, begin, as_json)


def chosen_start(tx: Transaction, wanted: Wanted, run_id: UUID) -> tuple[UUID, Start]:
    """The tenant, and the Start of a run; a file becomes the draft of the agent named after it, and is snapshotted.

    A file that continues a conversation runs as it is now, not as it was when the conversation began.
    """
    tenant_id = tenant_of(tx, wanted.tenant)
    if wanted.judged is None:
        agent = agents.find(tx, tenant_id, wanted.target)
        chosen = start_of(tx, tenant_id, run_id, agent.id, wanted.options)
        canvas_file.must_run(f'Agent "{agent.title}"', versions.version(tx, chosen.version_id).dsl)
        return tenant_id, chosen
    canvas_id, _ = agents.put(tx, tenant_id, agents.title_of(Path(wanted.target)), wanted.judged.stored)
    chosen = start_of(tx, tenant_id, run_id, canvas_id, wanted.options)
    return tenant_id, replace(chosen, version_id=versions.snapshot(tx, tenant_id, canvas_id).id)


def stand_ins(document: Document) -> list[str]:
    """The stand-ins that a canvas names where it could name a model, as they are labelled."""
    labels = {"echo": "echo stand-in (no real model)", "scripted": "scripted stand-in"}
    found: dict[str, None] = {}
    for llm_id in _model_ids([entry.params for entry in document.entries.values()]):
        try:
            spec = resolve(llm_id, ())
        except ModelError:
            continue  # a model of an account; whether it is there is for the run to find out
        found[labels["echo" if spec.name == "echo" else "scripted"]] = None
    return list(found)


def _model_ids(value: Any) -> Iterator[str]:
    """Every `llm_id` inside of params, those of an Agent's tools among them; `parse` has bounded the depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == "llm_id" and isinstance(item, str):
                yield item
            else:
                yield from _model_ids(item)
    elif isinstance(value, list):
        for item in value:
            yield from _model_ids(item)


def _follow(
    connected: Connection, tenant_id: UUID, run_id: UUID, begin: Callable[[], Started], as_json: bool
) -> Exit:
    """Begin a turn with open ears, tell of it until it ends, and say how it ended."""
    redis_url = connected.bus.url
    with listening(redis_url, run_id) as ears, interrupts() as interrupted:
        started = begin()
        if started.run_id != run_id:  # the conversation's run had been waiting for this turn
            with listening(redis_url, started.run_id) as other_ears:
                following = Following(
                    connected.database, tenant_id, started.run_id, other_ears, Position(started.after)
                )
                return _tell(connected, following, started, interrupted, as_json)
        following = Following(connected.database, tenant_id, run_id, ears, Position(started.after))
        return _tell(connected, following, started, interrupted, as_json)
