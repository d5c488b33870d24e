"""The turns of a conversation for its own user: what the user said and what each run wrote, the files and errors too.

Message streams are rows of the run; a turn begins with a message of the user. Both have the time of their transaction,
so a stream belongs to the last message before its opening.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Uuid, and_, bindparam, func, select

from canvas.events.run_events import MESSAGE_END
from canvas.ids import ActivationId, RunId, SessionId, TenantId
from canvas.state.run_state import RunStatus
from store.db.transaction import Transaction
from store.tables.runs import run_events, runs
from store.tables.runs import turns as streams
from store.tables.tenants import conversation_messages as messages

_some_runs = bindparam("run_ids", type_=ARRAY(Uuid))
_opening = run_events.alias("opening")
_end = run_events.alias("ending")

MESSAGES = (
    select(messages.c.role, messages.c.content, messages.c.run_id, messages.c.created_at)
    .where(messages.c.conversation_id == bindparam("conversation_id"))
    .order_by(messages.c.number.desc())
    .limit(bindparam("most"))
)
RUNS = select(runs.c.id, runs.c.status, runs.c.error, runs.c.first_event).where(
    runs.c.tenant_id == bindparam("tenant_id"), runs.c.id == func.any(_some_runs)
)
STREAMS = (
    select(
        streams.c.run_id,
        streams.c.id,
        streams.c.text,
        streams.c.closed_at,
        _opening.c.created_at.label("opened_at"),
        _end.c.body.label("end"),
    )
    .select_from(
        streams.join(_opening, and_(_opening.c.run_id == streams.c.run_id, _opening.c.number == streams.c.opened_at))
        .outerjoin(
            _end,
            and_(
                _end.c.run_id == streams.c.run_id,
                _end.c.number == streams.c.closed_at,
                _end.c.event == MESSAGE_END,
            ),
        )
    )
    .where(streams.c.run_id == func.any(_some_runs), streams.c.opened_at.is_not(None))
    .order_by(streams.c.run_id, streams.c.opened_at)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The text of one message stream, and the body of its `message_end`; a deleted run has neither id nor body."""

    id: ActivationId | None
    text: str
    end: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class ConversationTurn:
    """A message of the user with the answers to it. `run_id` is None if the run has been deleted or never existed."""

    question: Any
    run_id: RunId | None
    status: str | None
    error: str
    created_at: datetime
    answers: list[TurnAnswer] = field(default_factory=list[TurnAnswer])


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The run of a conversation that is not over. `first_event`: of its current turn, whose answers are left out."""

    id: RunId
    status: str
    first_event: int


def read_turns(
    tx: Transaction, tenant_id: TenantId, conversation_id: SessionId, *, most: int
) -> tuple[list[ConversationTurn], list[OpenRun], bool]:
    """Return the turns of the last `most` messages, the runs that are not over, and whether there are older messages.

    The caller has checked that the conversation is the tenant's.
    """
    found = tx.rows(MESSAGES, conversation_id=conversation_id, most=most + 1)
    rows = list(reversed(found[:most]))
    run_ids = sorted({row.run_id for row in rows if row.run_id is not None})
    states = {row.id: row for row in tx.rows(RUNS, tenant_id=tenant_id, run_ids=run_ids)} if run_ids else {}
    turns: list[ConversationTurn] = []
    for row in rows:
        state = states.get(row.run_id)
        if row.role == "user" or not turns:
            question = row.content if row.role == "user" else None
            turns.append(
                ConversationTurn(
                    question,
                    row.run_id if state is not None else None,
                    state.status if state is not None else None,
                    state.error if state is not None else "",
                    row.created_at,
                )
            )
        if row.role != "user" and row.content is not None and state is None:
            turns[-1].answers.append(TurnAnswer(None, _text(row.content)))
    open_runs = [
        OpenRun(row.id, row.status, row.first_event) for row in states.values() if not RunStatus(row.status).is_over
    ]
    if run_ids:
        _add_streams(turns, tx.rows(STREAMS, run_ids=run_ids), {each.id: each.first_event for each in open_runs})
    return turns, sorted(open_runs, key=lambda run: run.id), len(found) > most


def _add_streams(turns: Sequence[ConversationTurn], rows: Sequence[Any], current: Mapping[RunId, int]) -> None:
    of_run: dict[RunId, list[ConversationTurn]] = defaultdict(list)
    for turn in turns:
        if turn.run_id is not None:
            of_run[turn.run_id].append(turn)
    for row in rows:
        first = current.get(row.run_id)
        if first is not None and (row.closed_at is None or row.closed_at >= first):
            continue  # a follower of the run gets it from the events of the current turn
        asked = [turn for turn in of_run[row.run_id] if turn.created_at <= row.opened_at]
        chosen = asked[-1:] or of_run[row.run_id][:1]
        for turn in chosen:
            turn.answers.append(TurnAnswer(row.id, row.text, row.end or {}))


def _text(content: Any) -> str:
    """Return the text of an answer that is a text or the outputs of the node that answered."""
    shown = content.get("content") if isinstance(content, Mapping) else content
    return shown if isinstance(shown, str) else ""
