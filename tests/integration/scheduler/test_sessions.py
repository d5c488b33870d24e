"""Turns that come while a run of their session goes on: refused, waiting, or interrupting, and never lost."""

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
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run, reporting, until

GREETS = says("Hello {form@name}")
MANY = 6
WAITS = text("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' limit 1")


# -- many at once ----------------------------------------------------------------------------------------------------
def test_of_many_turns_at_once_one_is_accepted_and_the_others_are_told_which(bench: Bench):
    session, drawn = a_session(bench)

    replies = at_once(bench, [turn(bench, session, drawn, str(number)) for number in range(MANY)])

    (accepted,) = [reply for reply in replies if isinstance(reply, Started)]
    refused = [reply for reply in replies if isinstance(reply, Conflict)]
    assert len(refused) == MANY - 1
    assert [conflict.details["run_id"] for conflict in refused] == [accepted.run_id.hex] * len(refused)
    assert {conflict.details["session_id"] for conflict in refused} == {session.hex}


def test_turns_that_wait_run_one_after_another_in_the_order_in_which_they_were_accepted(bench: Bench):
    session, drawn = a_session(bench)
    wanted = [turn(bench, session, drawn, str(number), on_busy="enqueue") for number in range(MANY)]
    backwards = [replace(start, run_id=run_id) for start, run_id in zip(wanted, later_first(MANY), strict=True)]

    accepted = at_once(bench, backwards)
    order = accepted_of(bench, session)
    bench.play()

    assert sorted(reply.run_id for reply in accepted if isinstance(reply, Started)) == sorted(order)
    begun = [run_of(bench, run_id, session).row for run_id in order]
    assert [row["status"] for row in begun] == ["succeeded"] * MANY
    for before, after in pairwise(begun):
        assert before["finished_at"] <= after["started_at"]
        assert (after["previous_run"], after["history_upto"]) == (before["id"], before["history_upto"] + 2)


def test_the_order_is_that_of_acceptance_whatever_the_ids_say(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    third_id, second_id = later_first(2)

    second = bench.begun(replace(turn(bench, session, drawn, on_busy="enqueue"), run_id=third_id))
    third = bench.begun(replace(turn(bench, session, drawn, on_busy="enqueue"), run_id=second_id))
    bench.play()

    assert third.id < second.id
    assert first.row["finished_at"] <= second.row["started_at"]
    assert second.row["finished_at"] <= third.row["started_at"]


def test_run_ends_without_looking_for_a_queued_run_in_every_week_if_none_is_queued(bench: Bench, sent: list[bytes]):
    session, drawn = a_session(bench)
    for number in range(2):
        bench.begun(turn(bench, session, drawn, str(number)))
        bench.play()

    assert [sql for sql in sent if b"status = 'queued'" in sql and b"conversation_id = " in sql] == []

    first, second = (bench.begun(turn(bench, session, drawn, on_busy="enqueue")) for _ in range(2))
    bench.play()
    assert [first.status, second.status] == ["succeeded", "succeeded"]
    sent.clear()
    third = bench.begun(turn(bench, session, drawn))
    bench.play()

    assert third.status == "succeeded"
    assert [sql for sql in sent if b"status = 'queued'" in sql and b"conversation_id = " in sql] == []


def test_run_that_a_previous_release_has_queued_begins_at_the_sweepers_next_look(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    queued = bench.begun(turn(bench, session, drawn, on_busy="enqueue"))
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


def test_of_many_interrupts_at_once_the_newest_runs_and_none_is_left(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))

    at_once(bench, [turn(bench, session, drawn, str(number), on_busy="interrupt") for number in range(MANY)])
    order = accepted_of(bench, session)
    bench.play()

    statuses = [run_of(bench, run_id, session).status for run_id in order]
    assert order[0] == first.id
    assert statuses == ["cancelled"] * MANY + ["succeeded"]


def test_an_interrupt_stops_the_turns_that_wait_and_not_those_that_come_after_it(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    bench.play(until=lambda: "work" in first.statuses)
    claimed = bench.claim(first, "work")
    waits = bench.begun(turn(bench, session, drawn, on_busy="enqueue"))

    interrupts = bench.begun(turn(bench, session, drawn, on_busy="interrupt"))
    after = bench.begun(turn(bench, session, drawn, on_busy="enqueue"))
    reporting(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert [run.status for run in (first, waits, interrupts, after)] == [
        "cancelled",
        "cancelled",
        "succeeded",
        "succeeded",
    ]
    assert interrupts.row["finished_at"] <= after.row["started_at"]


def test_an_interrupt_whose_acceptor_dies_at_once_still_interrupts(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    session, first, waits = interrupted_by_one_who_dies(bench, monkeypatch)
    at_first = [run_of(bench, run_id, session).status for run_id in accepted_of(bench, session)]

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert at_first == ["running", "queued", "queued"]
    assert (first.status, waits.status) == ("cancelled", "cancelled")
    assert run_of(bench, accepted_of(bench, session)[2], session).status == "succeeded"


def test_an_interrupt_whose_acceptor_dies_and_that_begins_by_itself_still_comes_instead_of_what_waited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    session, first, waits = interrupted_by_one_who_dies(bench, monkeypatch)
    interrupts = run_of(bench, accepted_of(bench, session)[2], session)
    bench.play(until=lambda: interrupts.status == "running")

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert (first.status, waits.status, interrupts.status) == ("succeeded", "cancelled", "succeeded")


# -- exactly when the run ends, asks or stops ------------------------------------------------------------------------
@pytest.mark.parametrize("ends", ["succeeded", "cancelled"])
def test_run_queued_while_the_previous_one_ends_is_started(bench: Bench, monkeypatch: pytest.MonkeyPatch, ends: str):
    drawn = bench.draw("begin -> work")
    first = bench.start(drawn=drawn)
    end = partial(bench.lifecycle.cancel_run, bench.tenant_id, first.id)
    if ends == "succeeded":
        bench.play(until=lambda: "work" in first.statuses)
        claimed = bench.claim(first, "work")
        end = partial(reporting(bench.coordinator, claimed).report, Finished(), None, {})
    create, ended = run_store.create, list[Future[Any]]()

    def and_the_other_ends(tx: Any, row: Any, **given: Any) -> None:
        create(tx, row, **given)
        ended.append(other.submit(end))
        until(lambda: somebody_waits(bench))  # for the session, which this transaction holds

    with ThreadPoolExecutor(1) as other, monkeypatch.context() as meanwhile:
        meanwhile.setattr(run_store, "create", and_the_other_ends)
        second = bench.begun(turn(bench, first.conversation_id, drawn, on_busy="enqueue"))
        ended[0].result()
    bench.play()

    assert second.started.queued
    assert (first.status, second.status) == (ends, "succeeded")


def test_a_turn_that_comes_just_when_the_run_begins_to_ask_is_its_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    drawn = bench.draw("begin -> form -> say", form=FORM, say=GREETS)
    run = bench.start(drawn=drawn)
    look = Lifecycle._waiting_run  # pyright: ignore[reportPrivateUsage]
    looks: list[UUID | None] = []

    def and_then_it_asks(self: Lifecycle, start: Start) -> UUID | None:
        looks.append(look(self, start))
        if len(looks) == 1:
            bench.play()
        return looks[-1]

    monkeypatch.setattr(Lifecycle, "_waiting_run", and_then_it_asks)
    answered = bench.begun(turn(bench, run.conversation_id, drawn, "Ann"))
    bench.play()

    assert looks == [None, run.id]
    assert (answered.id, answered.started.resumed) == (run.id, True)
    assert run.said == "Hello Ann"


@pytest.mark.parametrize("on_busy", ["refuse", "enqueue"])
def test_of_two_answers_at_once_one_counts_and_the_other_is_treated_as_asked(bench: Bench, on_busy: str):
    run, drawn = asking(bench)

    replies = at_once(bench, [turn(bench, run.conversation_id, drawn, name, on_busy=on_busy) for name in ("Ann", "Bo")])
    bench.play()

    resumed = [reply for reply in replies if isinstance(reply, Started) and reply.resumed]
    others = [reply for reply in replies if reply not in resumed]
    assert len(resumed) == 1
    assert run.said in ("Hello Ann", "Hello Bo")
    if on_busy == "refuse":
        assert isinstance(others[0], Conflict)
    else:
        assert isinstance(others[0], Started)
        assert run_of(bench, others[0].run_id, run.conversation_id).status == "waiting"  # it asks for itself


def test_a_turn_that_comes_while_the_run_is_being_stopped_is_told_so_or_waits_for_its_end(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    claimed = bench.claim(first, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, first.id)

    with pytest.raises(Conflict) as refused:
        bench.begun(turn(bench, session, drawn))
    waits = bench.begun(turn(bench, session, drawn, on_busy="enqueue"))
    reporting(bench.coordinator, claimed).report(Finished(), None, {})
    bench.play()

    assert refused.value.details["status"] == "stopping"
    assert (first.status, waits.status) == ("cancelled", "succeeded")


# -- sessions that are deleted ---------------------------------------------------------------------------------------
def test_turns_that_wait_in_a_session_that_is_deleted_end_as_cancelled(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    waiting = [bench.begun(turn(bench, session, drawn, on_busy="enqueue")) for _ in range(2)]
    delete(bench, session, drawn[0])

    bench.play()

    assert [run.status for run in (first, *waiting)] == ["succeeded", "cancelled", "cancelled"]
    assert [run.told for run in waiting] == [["workflow_finished"]] * 2


def test_the_sweeper_ends_what_waits_in_a_session_that_is_gone(bench: Bench):
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    waiting = bench.begun(turn(bench, session, drawn, on_busy="enqueue"))
    delete(bench, session, drawn[0])
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()

    assert (first.status, waiting.status) == ("running", "cancelled")


def test_the_form_of_a_session_that_was_deleted_is_not_answered(bench: Bench):
    run, drawn = asking(bench)
    delete(bench, run.conversation_id, drawn[0])

    with pytest.raises(NotFound, match="Session"):
        bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query="Ann"))

    assert bench.lifecycle.cancel_run(bench.tenant_id, run.id) == "cancelled"


# -- repeated --------------------------------------------------------------------------------------------------------
def test_a_repeated_answer_is_followed_from_where_its_own_turn_began(bench: Bench):
    run, drawn = asking(bench)
    answer = turn(bench, run.conversation_id, drawn, "Ann", idempotency=("runs", "k", hashlib.sha256(b"").digest()))

    first = bench.lifecycle.start_run(answer)
    bench.play()
    again = bench.lifecycle.start_run(replace(answer, run_id=new_id()))

    assert first.after > 0
    assert again == replace(first, repeated=True)


def test_a_repeated_start_is_told_what_the_first_one_was_although_its_run_has_gone_on(bench: Bench):
    drawn = bench.draw("begin -> form -> say", form=FORM, say=GREETS)
    start = bench.a_start(drawn=drawn, idempotency=("runs", "k", hashlib.sha256(b"").digest()))
    first = bench.begun(start)
    bench.play()
    bench.begun(turn(bench, first.conversation_id, drawn, "Ann"))
    bench.play()

    again = bench.lifecycle.start_run(start)

    assert again == replace(first.started, repeated=True)
    assert first.status == "succeeded"


def test_a_start_by_task_that_answers_a_form_answers_it_once_however_often_it_comes(bench: Bench):
    run, drawn = asking(bench)
    options = {"query": "Ann", "session_id": str(run.conversation_id), "on_busy": "enqueue"}

    replies = [start_for_service(bench.lifecycle, bench.tenant_id, "answer-1", drawn[0], options) for _ in range(2)]
    bench.play()

    assert [(reply.run_id, reply.repeated) for reply in replies] == [(run.id, False), (run.id, True)]
    assert accepted_of(bench, run.conversation_id) == [run.id]
    assert run.said == "Hello Ann"


def test_a_start_that_fails_leaves_no_session_with_the_past_it_came_with(bench: Bench):
    taken = bench.start("begin -> work", tenant_id=bench.a_tenant())
    start = replace(bench.a_start("begin -> work"), history=(("user", "hi"), ("assistant", "hello")))

    with pytest.raises(Conflict, match="already in use"):
        bench.lifecycle.start_run(replace(start, run_id=taken.id))
    left = sessions_of(bench, start.canvas_id)
    run = bench.begun(start)

    assert left == 0
    with bench.database.transaction() as tx:
        said = conversations.list_messages(tx, bench.tenant_id, run.conversation_id)
    assert [(one.role, one.run_id) for one in said] == [("user", None), ("assistant", None), ("user", run.id)]


# -- in other words --------------------------------------------------------------------------------------------------
def a_session(bench: Bench) -> tuple[UUID, tuple[UUID, UUID]]:
    """A session in which nothing was said, and the canvas it is with."""
    drawn = bench.draw("begin -> work -> say", say=says("done"))
    with bench.database.transaction() as tx:
        return conversations.create(tx, bench.tenant_id, *drawn), drawn


def turn(bench: Bench, session: UUID, drawn: tuple[UUID, UUID], query: str = "hello", **options: Any) -> Start:
    return bench.a_start(drawn=drawn, conversation_id=session, query=query, **options)


def asking(bench: Bench) -> tuple[Run, tuple[UUID, UUID]]:
    """A run that waits with its form, and its canvas."""
    drawn = bench.draw("begin -> form -> say", form=FORM, say=GREETS)
    run = bench.start(drawn=drawn)
    bench.play()
    assert run.status == "waiting"
    return run, drawn


def at_once(bench: Bench, starts: Sequence[Start]) -> list[Started | Conflict]:
    """What becomes of starts that come at the same moment, each in a process of its own as it were."""
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


def later_first(count: int) -> list[UUID]:
    """Ids of runs, the latest first."""
    return sorted((new_id() for _ in range(count)), reverse=True)


def accepted_of(bench: Bench, session: UUID) -> list[UUID]:
    """The runs of a session in the order in which they were accepted."""
    wanted = run_rows.select().where(run_rows.c.conversation_id == session).order_by(run_rows.c.created_at)
    with bench.database.transaction() as tx:
        return [row.id for row in tx.rows(wanted)]


def run_of(bench: Bench, run_id: UUID, session: UUID) -> Run:
    return Run(bench, Started(run_id, session, run_id, 0))


def sessions_of(bench: Bench, canvas_id: UUID) -> int:
    with bench.database.transaction() as tx:
        return conversations.page(tx, bench.tenant_id, canvas_id, conversations.ConversationFilter())[1]


def delete(bench: Bench, session: UUID, canvas_id: UUID) -> None:
    with bench.database.transaction() as tx:
        assert conversations.delete(tx, bench.tenant_id, canvas_id, [session]) == {session}


def somebody_waits(bench: Bench) -> bool:
    """Whether a transaction waits for a lock that another holds."""
    with bench.database.statements() as tx:
        return bool(tx.scalar(WAITS))


def interrupted_by_one_who_dies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[UUID, Run, Run]:
    """A session, its run that goes on and one that waits; the acceptor of a third, which interrupts, dies at once."""
    session, drawn = a_session(bench)
    first = bench.begun(turn(bench, session, drawn))
    waits = bench.begun(turn(bench, session, drawn, on_busy="enqueue"))
    with monkeypatch.context() as dies:
        dies.setattr(Lifecycle, "cancel_run", killed)
        with pytest.raises(SystemExit):
            bench.begun(turn(bench, session, drawn, on_busy="interrupt"))
    return session, first, waits


def killed(*_: Any) -> None:
    raise SystemExit
