"""Messages to a conversation whose run is active: refused, queued or interrupting, and never lost."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import Conflict, NotFound
from canvas.outcome import Finished
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start, Started
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.lifecycle.start_options import start_for_service
from scheduler.sweeper.sweeper import Sweeper
from store.agents import conversations
from store.monitoring import sweep_queries
from store.primitives.ids import new_id
from store.runs import run_rows as run_store
from store.tables.runs import runs as run_rows
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, new_reporter, until

GREETING = content("Hello {form@name}")
MANY = 6
LOCK_WAITS = text(
    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' limit 1"
)


# -- many at once ----------------------------------------------------------------------------------------------------
def test_one_of_many_concurrent_messages_is_accepted_and_the_others_get_its_run_id(bench: Bench):
    session, drawn = a_session(bench)

    replies = start_concurrently(bench, [message_start(bench, session, drawn, str(number)) for number in range(MANY)])

    (accepted,) = [reply for reply in replies if isinstance(reply, Started)]
    refused = [reply for reply in replies if isinstance(reply, Conflict)]
    assert len(refused) == MANY - 1
    assert [conflict.details["run_id"] for conflict in refused] == [accepted.run_id.hex] * len(refused)
    assert {conflict.details["session_id"] for conflict in refused} == {session.hex}


def test_queued_messages_run_one_after_another_in_the_order_of_acceptance(bench: Bench):
    session, drawn = a_session(bench)
    starts = [message_start(bench, session, drawn, str(number), on_busy="enqueue") for number in range(MANY)]
    backwards = [replace(start, run_id=run_id) for start, run_id in zip(starts, descending_ids(MANY), strict=True)]

    accepted = start_concurrently(bench, backwards)
    order = accepted_runs(bench, session)
    bench.play()

    assert sorted(reply.run_id for reply in accepted if isinstance(reply, Started)) == sorted(order)
    begun = [run_of(bench, run_id, session).row for run_id in order]
    assert [row["status"] for row in begun] == ["succeeded"] * MANY
    for before, after in pairwise(begun):
        assert before["finished_at"] <= after["started_at"]
        assert (after["previous_run"], after["history_upto"]) == (before["id"], before["history_upto"] + 2)


def test_queued_runs_start_in_the_order_of_acceptance_and_not_of_their_ids(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    third_id, second_id = descending_ids(2)

    second = bench.start_run(replace(message_start(bench, session, drawn, on_busy="enqueue"), run_id=third_id))
    third = bench.start_run(replace(message_start(bench, session, drawn, on_busy="enqueue"), run_id=second_id))
    bench.play()

    assert third.id < second.id
    assert first.row["finished_at"] <= second.row["started_at"]
    assert second.row["finished_at"] <= third.row["started_at"]


def test_end_of_a_run_does_not_query_queued_runs_if_none_is_queued(bench: Bench, sent_statements: list[bytes]):
    session, drawn = a_session(bench)
    for number in range(2):
        bench.start_run(message_start(bench, session, drawn, str(number)))
        bench.play()

    assert [sql for sql in sent_statements if b"status = 'queued'" in sql and b"conversation_id = " in sql] == []

    first, second = (bench.start_run(message_start(bench, session, drawn, on_busy="enqueue")) for _ in range(2))
    bench.play()
    assert [first.status, second.status] == ["succeeded", "succeeded"]
    sent_statements.clear()
    third = bench.start_run(message_start(bench, session, drawn))
    bench.play()

    assert third.status == "succeeded"
    assert [sql for sql in sent_statements if b"status = 'queued'" in sql and b"conversation_id = " in sql] == []


def test_run_queued_by_a_previous_release_is_started_by_the_sweeper(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    queued = bench.start_run(message_start(bench, session, drawn, on_busy="enqueue"))
    with bench.database.transaction() as tx:
        tx.execute(text("update conversations set has_queue = false where id = :id"), id=session)
    bench.play()
    assert (first.status, queued.status) == ("succeeded", "queued")

    with bench.database.transaction() as tx:
        stuck = sweep_queries.stuck_runs(tx)
    assert queued.id in stuck
    bench.coordinator.advance_run(queued.id)
    bench.play()

    assert queued.status == "succeeded"


def test_newest_of_many_concurrent_interrupts_runs_and_the_others_are_cancelled(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))

    start_concurrently(
        bench, [message_start(bench, session, drawn, str(number), on_busy="interrupt") for number in range(MANY)]
    )
    order = accepted_runs(bench, session)
    bench.play()

    statuses = [run_of(bench, run_id, session).status for run_id in order]
    assert order[0] == first.id
    assert statuses == ["cancelled"] * MANY + ["succeeded"]


def test_interrupt_cancels_messages_queued_before_it_but_not_after_it(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    bench.play(until=lambda: "work" in first.statuses)
    claimed = bench.claim(first, "work")
    queued = bench.start_run(message_start(bench, session, drawn, on_busy="enqueue"))

    interrupts = bench.start_run(message_start(bench, session, drawn, on_busy="interrupt"))
    after = bench.start_run(message_start(bench, session, drawn, on_busy="enqueue"))
    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert [run.status for run in (first, queued, interrupts, after)] == [
        "cancelled",
        "cancelled",
        "succeeded",
        "succeeded",
    ]
    assert interrupts.row["finished_at"] <= after.row["started_at"]


def test_interrupt_still_takes_effect_if_its_process_was_killed_after_acceptance(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    session, first, queued = interrupt_by_a_killed_process(bench, monkeypatch)
    at_first = [run_of(bench, run_id, session).status for run_id in accepted_runs(bench, session)]

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert at_first == ["running", "queued", "queued"]
    assert (first.status, queued.status) == ("cancelled", "cancelled")
    assert run_of(bench, accepted_runs(bench, session)[2], session).status == "succeeded"


def test_interrupt_of_a_killed_process_that_starts_by_itself_still_cancels_queued_messages(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    session, first, queued = interrupt_by_a_killed_process(bench, monkeypatch)
    interrupts = run_of(bench, accepted_runs(bench, session)[2], session)
    bench.play(until=lambda: interrupts.status == "running")

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert (first.status, queued.status, interrupts.status) == ("succeeded", "cancelled", "succeeded")


# -- exactly when the run ends, shows its form or stops --------------------------------------------------------------
@pytest.mark.parametrize("ends", ["succeeded", "cancelled"])
def test_run_queued_while_the_previous_one_ends_is_started(bench: Bench, monkeypatch: pytest.MonkeyPatch, ends: str):
    drawn = bench.draw("begin -> work")
    first = bench.start(drawn=drawn)
    end = partial(bench.lifecycle.cancel_run, bench.tenant_id, first.id)
    if ends == "succeeded":
        bench.play(until=lambda: "work" in first.statuses)
        claimed = bench.claim(first, "work")
        end = partial(new_reporter(bench.coordinator, claimed).report, Finished(), None, {})
    create, ended = run_store.create, list[Future[Any]]()

    def create_while_the_other_ends(tx: Any, row: Any, **options: Any) -> None:
        create(tx, row, **options)
        ended.append(other.submit(end))
        until(lambda: a_transaction_waits(bench))  # for the lock of the session, which this transaction holds

    with ThreadPoolExecutor(1) as other, monkeypatch.context() as meanwhile:
        meanwhile.setattr(run_store, "create", create_while_the_other_ends)
        second = bench.start_run(message_start(bench, first.conversation_id, drawn, on_busy="enqueue"))
        ended[0].result()
    bench.play()

    assert second.started.queued
    assert (first.status, second.status) == (ends, "succeeded")


def test_message_that_arrives_while_the_run_shows_its_form_is_the_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    drawn = bench.draw("begin -> form -> say", form=FORM, say=GREETING)
    run = bench.start(drawn=drawn)
    find_waiting_run = Lifecycle._waiting_run  # pyright: ignore[reportPrivateUsage]
    waiting_runs: list[UUID | None] = []

    def find_and_then_show_form(self: Lifecycle, start: Start) -> UUID | None:
        waiting_runs.append(find_waiting_run(self, start))
        if len(waiting_runs) == 1:
            bench.play()
        return waiting_runs[-1]

    monkeypatch.setattr(Lifecycle, "_waiting_run", find_and_then_show_form)
    answered = bench.start_run(message_start(bench, run.conversation_id, drawn, "Ann"))
    bench.play()

    assert waiting_runs == [None, run.id]
    assert (answered.id, answered.started.resumed) == (run.id, True)
    assert run.text == "Hello Ann"


@pytest.mark.parametrize("on_busy", ["refuse", "enqueue"])
def test_one_of_two_concurrent_answers_is_accepted_and_the_other_follows_on_busy(bench: Bench, on_busy: str):
    run, drawn = waiting_run(bench)

    replies = start_concurrently(
        bench, [message_start(bench, run.conversation_id, drawn, name, on_busy=on_busy) for name in ("Ann", "Bo")]
    )
    bench.play()

    resumed = [reply for reply in replies if isinstance(reply, Started) and reply.resumed]
    others = [reply for reply in replies if reply not in resumed]
    assert len(resumed) == 1
    assert run.text in ("Hello Ann", "Hello Bo")
    if on_busy == "refuse":
        assert isinstance(others[0], Conflict)
    else:
        assert isinstance(others[0], Started)
        assert run_of(bench, others[0].run_id, run.conversation_id).status == "waiting"  # it waits for its own form


def test_message_to_a_stopping_run_is_refused_with_that_status_or_queued(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    claimed = bench.claim(first, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, first.id)

    with pytest.raises(Conflict) as refused:
        bench.start_run(message_start(bench, session, drawn))
    queued = bench.start_run(message_start(bench, session, drawn, on_busy="enqueue"))
    new_reporter(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert refused.value.details["status"] == "stopping"
    assert (first.status, queued.status) == ("cancelled", "succeeded")


# -- deleted sessions ------------------------------------------------------------------------------------------------
def test_queued_runs_of_a_deleted_session_are_cancelled(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    waiting = [bench.start_run(message_start(bench, session, drawn, on_busy="enqueue")) for _ in range(2)]
    delete(bench, session, drawn[0])

    bench.play()

    assert [run.status for run in (first, *waiting)] == ["succeeded", "cancelled", "cancelled"]
    assert [run.event_names for run in waiting] == [["workflow_finished"]] * 2


def test_sweeper_cancels_queued_runs_of_a_deleted_session(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    waiting = bench.start_run(message_start(bench, session, drawn, on_busy="enqueue"))
    delete(bench, session, drawn[0])
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()

    assert (first.status, waiting.status) == ("running", "cancelled")


def test_form_of_a_deleted_session_cannot_be_answered(bench: Bench):
    run, drawn = waiting_run(bench)
    delete(bench, run.conversation_id, drawn[0])

    with pytest.raises(NotFound, match="Session"):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))

    assert bench.lifecycle.cancel_run(bench.tenant_id, run.id) == "cancelled"


# -- repeated requests -----------------------------------------------------------------------------------------------
def test_reply_to_a_repeated_answer_points_to_the_event_at_which_the_answer_was_accepted(bench: Bench):
    run, drawn = waiting_run(bench)
    answer = message_start(
        bench, run.conversation_id, drawn, "Ann", idempotency=("runs", "k", hashlib.sha256(b"").digest())
    )

    first = bench.lifecycle.start_run(answer)
    bench.play()
    again = bench.lifecycle.start_run(replace(answer, run_id=new_id()))

    assert first.after > 0
    assert again == replace(first, repeated=True)


def test_repeated_start_gets_the_first_reply_although_the_run_has_continued(bench: Bench):
    drawn = bench.draw("begin -> form -> say", form=FORM, say=GREETING)
    start = bench.a_start(drawn=drawn, idempotency=("runs", "k", hashlib.sha256(b"").digest()))
    first = bench.start_run(start)
    bench.play()
    bench.start_run(message_start(bench, first.conversation_id, drawn, "Ann"))
    bench.play()

    again = bench.lifecycle.start_run(start)

    assert again == replace(first.started, repeated=True)
    assert first.status == "succeeded"


def test_repeated_start_message_answers_a_form_once(bench: Bench):
    run, drawn = waiting_run(bench)
    options = {"query": "Ann", "session_id": str(run.conversation_id), "on_busy": "enqueue"}

    replies = [start_for_service(bench.lifecycle, bench.tenant_id, "answer-1", drawn[0], options) for _ in range(2)]
    bench.play()

    assert [(reply.run_id, reply.repeated) for reply in replies] == [(run.id, False), (run.id, True)]
    assert accepted_runs(bench, run.conversation_id) == [run.id]
    assert run.text == "Hello Ann"


def test_failed_start_with_a_history_creates_no_session(bench: Bench):
    existing = bench.start("begin -> work", tenant_id=bench.a_tenant())
    start = replace(bench.a_start("begin -> work"), history=(("user", "hi"), ("assistant", "hello")))

    with pytest.raises(Conflict, match="already in use"):
        bench.lifecycle.start_run(replace(start, run_id=existing.id))
    remaining = count_sessions(bench, start.canvas_id)
    run = bench.start_run(start)

    assert remaining == 0
    with bench.database.transaction() as tx:
        messages = conversations.list_messages(tx, bench.tenant_id, run.conversation_id)
    assert [(one.role, one.run_id) for one in messages] == [("user", None), ("assistant", None), ("user", run.id)]


# -- helpers ---------------------------------------------------------------------------------------------------------
def a_session(bench: Bench) -> tuple[UUID, tuple[UUID, UUID]]:
    """Create a session without messages; return its id and its canvas."""
    drawn = bench.draw("begin -> work -> say", say=content("done"))
    with bench.database.transaction() as tx:
        return conversations.create(tx, bench.tenant_id, *drawn), drawn


def message_start(bench: Bench, session: UUID, drawn: tuple[UUID, UUID], query: str = "hello", **options: Any) -> Start:
    return bench.a_start(drawn=drawn, conversation_id=session, query=query, **options)


def waiting_run(bench: Bench) -> tuple[Run, tuple[UUID, UUID]]:
    """Return a run that waits for its form, and its canvas."""
    drawn = bench.draw("begin -> form -> say", form=FORM, say=GREETING)
    run = bench.start(drawn=drawn)
    bench.play()
    assert run.status == "waiting"
    return run, drawn


def start_concurrently(bench: Bench, starts: Sequence[Start]) -> list[Started | Conflict]:
    """Start runs at the same moment, each with its own coordinator; return the replies and refusals."""
    together = Barrier(len(starts))

    def begin(start: Start) -> Started | Conflict:
        lifecycle = Lifecycle(bench.a_coordinator())
        together.wait()
        try:
            return lifecycle.start_run(start)
        except Conflict as refused:
            return refused

    with ThreadPoolExecutor(len(starts)) as pool:
        return [future.result() for future in [pool.submit(begin, start) for start in starts]]


def descending_ids(count: int) -> list[UUID]:
    """Return ids of runs, the latest first."""
    return sorted((new_id() for _ in range(count)), reverse=True)


def accepted_runs(bench: Bench, session: UUID) -> list[UUID]:
    """Return the ids of a session's runs in the order of acceptance."""
    query = run_rows.select().where(run_rows.c.conversation_id == session).order_by(run_rows.c.created_at)
    with bench.database.transaction() as tx:
        return [row.id for row in tx.rows(query)]


def run_of(bench: Bench, run_id: UUID, session: UUID) -> Run:
    return Run(bench, Started(run_id, session, run_id, 0))


def count_sessions(bench: Bench, canvas_id: UUID) -> int:
    with bench.database.transaction() as tx:
        return conversations.page(tx, bench.tenant_id, canvas_id, conversations.ConversationFilter())[1]


def delete(bench: Bench, session: UUID, canvas_id: UUID) -> None:
    with bench.database.transaction() as tx:
        assert conversations.delete(tx, bench.tenant_id, canvas_id, [session]) == {session}


def a_transaction_waits(bench: Bench) -> bool:
    """Return whether a transaction waits for a lock."""
    with bench.database.statements() as tx:
        return bool(tx.scalar(LOCK_WAITS))


def interrupt_by_a_killed_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[UUID, Run, Run]:
    """Return a session, its active and its queued run, after a process was killed that had accepted an interrupt."""
    session, drawn = a_session(bench)
    first = bench.start_run(message_start(bench, session, drawn))
    queued = bench.start_run(message_start(bench, session, drawn, on_busy="enqueue"))
    with monkeypatch.context() as patch:
        patch.setattr(Lifecycle, "cancel_run", exit_process)
        with pytest.raises(SystemExit):
            bench.start_run(message_start(bench, session, drawn, on_busy="interrupt"))
    return session, first, queued


def exit_process(*_: Any) -> None:
    raise SystemExit
