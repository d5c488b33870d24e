"""Callbacks: which deliveries the end of a run inserts, and what senders do with them."""

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, text

from canvas.errors import NotFound
from canvas.outcome import Failed
from providers.address_policy import Guard
from providers.http.client import HttpClient
from scheduler.callbacks.retries import RetrySchedule
from scheduler.callbacks.sender import CallbackSender, SendingLimits
from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper import maintenance
from scheduler.sweeper.maintenance import run_maintenance
from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from store.tables.callbacks import callback_deliveries as rows
from store.tables.callbacks import callbacks as callback_rows
from store.tenants import callback_deliveries, callbacks
from store.tenants.callback_deliveries import AttemptResult, Delivery, DeliveryStatus
from store.tenants.callbacks import CallbackEvent, RunCallback
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, until
from tests.receivers import Receiver, receiving

SECRET_KEY = "a secret that is long"
KEY = EncryptionKey.from_secret(SECRET_KEY)
LOCAL = Guard.parse(allowed="127.0.0.1")
QUICK = RetrySchedule(first=timedelta(milliseconds=100), period=timedelta(minutes=5))
SECRET = callbacks.new_secret()
CANVAS = "begin -> work -> say"
MAKE_DUE = text("update callback_deliveries set due_at = now() where status = 'pending' and tenant_id = :tenant")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def _no_deliveries_of_other_tests(bench: Bench) -> None:
    with bench.database.transaction() as tx:
        tx.execute(rows.delete())


def store(bench: Bench, url: str, canvas_id: UUID | None = None, **more: Any) -> UUID:
    """Store a callback of the bench's tenant, with SECRET; return its id."""
    callback_id = new_id()
    fields = {"events": list(CallbackEvent), "include": [], "description": "", **more}
    sealed = callbacks.seal_secret(KEY, bench.tenant_id, callback_id, SECRET)
    with bench.database.transaction() as tx:
        callbacks.create(tx, bench.tenant_id, callback_id, canvas_id=canvas_id, url=url, sealed_secret=sealed, **fields)
    return callback_id


def start(bench: Bench, url: str, *parts: str, **options: Any) -> Run:
    """Start a run of a new canvas whose agent has a callback with this address."""
    canvas = parts or (CANVAS,)
    params = {name: options.pop(name) for name in ("form",) if name in options}
    drawn = bench.draw(*canvas, say=content("done"), **params)
    store(bench, url, drawn[0], **options.pop("callback", {}))
    return bench.start(drawn=drawn, **options)


def deliveries(bench: Bench, run: Run | None = None) -> list[Delivery]:
    """Return the deliveries of the bench's tenant, or of one run, the oldest first."""
    with bench.database.transaction() as tx:
        found = callback_deliveries.list_deliveries(
            tx, bench.tenant_id, run_id=run.id if run is not None else None, limit=1000
        )
    return found[::-1]


@contextmanager
def sending(bench: Bench, senders: int = 1, *, guard: Guard = LOCAL, **limits: Any) -> Generator[None]:
    """Run senders until the block ends."""
    ending, threads = threading.Event(), list[threading.Thread]()
    chosen = SendingLimits(**{"schedule": QUICK, **limits})
    with ExitStack() as stack:
        for _ in range(senders):
            sender = CallbackSender(bench.database, bench.coordinator.versions, HttpClient(guard), lambda: KEY, chosen)
            threads.append(threading.Thread(target=sender.run, args=(ending,), daemon=True))
            threads[-1].start()
        stack.callback(lambda: [thread.join(30) for thread in threads])
        stack.callback(ending.set)
        yield


def ended(bench: Bench, run: Run | None = None) -> list[Delivery]:
    """Wait until all deliveries have ended; return them."""
    until(lambda: (found := deliveries(bench, run)) and all(each.status != "pending" for each in found))
    return deliveries(bench, run)


# -- what the end of a run inserts -----------------------------------------------------------------------------------
def test_callback_of_an_agent_is_told_of_the_end_with_ids_usage_and_a_valid_signature(bench: Bench, receiver: Receiver):
    run = start(bench, receiver.url)

    bench.play()
    with sending(bench, public_url="https://easel.example.com/app/"):
        (delivery,) = ended(bench)

    (got,) = receiver.got
    assert got.is_signed_with(SECRET)
    assert not got.is_signed_with(callbacks.new_secret())
    assert abs(int(got.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 300
    assert got.headers["content-type"] == "application/json"
    assert got.id == f"msg_{delivery.id.hex}"
    data = got.body["data"]
    assert (got.body["type"], data["status"]) == ("run.succeeded", "succeeded")
    assert (data["run_id"], data["session_id"]) == (run.id.hex, run.conversation_id.hex)
    assert data["agent_id"] == run.row["canvas_id"].hex
    assert data["run_url"] == f"https://easel.example.com/app/runs/{run.id.hex}"
    assert data["error"] is data["waits_for"] is None
    assert data["title"].startswith("canvas ")
    assert "output" not in data
    assert (delivery.status, delivery.attempt) == ("delivered", 1)
    assert delivery.latest_attempts[0]["status"] == 204


def test_run_without_callbacks_has_no_flag_and_inserts_nothing(bench: Bench, receiver: Receiver):
    store(bench, receiver.url, bench.draw(CANVAS)[0])
    store(bench, receiver.url)

    run = bench.start(CANVAS, say=content("done"))
    bench.play()

    assert run.status == "succeeded"
    assert not run.row["has_callbacks"]
    assert deliveries(bench) == []


def test_advances_send_no_statement_about_callbacks(bench: Bench, sent_statements: list[bytes]):
    start(bench, "https://example.com")
    sent_statements.clear()

    bench.play()

    assert len(deliveries(bench)) == 1
    sent_by_play = sent_statements[: next(n for n, sql in enumerate(sent_statements) if b"FROM callback" in sql)]
    assert len(sent_by_play) > 3
    assert not any(b"callback" in sql for sql in sent_by_play)


def test_failed_run_is_told_with_code_and_message_of_its_error(bench: Bench, receiver: Receiver):
    bench.does(work=lambda ctx: Failed("it broke", code="broken"))
    start(bench, receiver.url)

    bench.play()
    with sending(bench):
        ended(bench)

    data = receiver.got[0].body["data"]
    assert data["status"] == "failed"
    assert data["error"]["code"] == "broken"
    assert "it broke" in data["error"]["message"]


def test_each_wait_and_the_end_are_told_once_whatever_is_repeated(bench: Bench, receiver: Receiver):
    run = start(bench, receiver.url, "begin -> form -> say", form=FORM)
    bench.play()

    bench.coordinator.advance_run(run.id)
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest())  # shows the form again
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(inputs={"name": "Ada"}))
    bench.play()
    bench.coordinator.advance_run(run.id)
    with sending(bench):
        ended(bench)

    assert sorted(receiver.events) == ["run.succeeded", "run.waiting"]
    (waiting,) = receiver.of("run.waiting")
    assert (waiting.body["data"]["status"], waiting.body["data"]["waits_for"]) == ("waiting", "person")


def test_cancelled_runs_are_told_also_one_that_was_queued(bench: Bench, receiver: Receiver):
    first = start(bench, receiver.url, "begin -> form -> say", form=FORM)
    drawn = (first.row["canvas_id"], first.row["version_id"])
    queued = bench.start(drawn=drawn, conversation_id=first.conversation_id, on_busy="enqueue")

    bench.lifecycle.cancel_run(bench.tenant_id, queued.id)
    bench.lifecycle.cancel_run(bench.tenant_id, first.id)
    bench.play()

    told = {(each.event, each.run_id) for each in deliveries(bench)}
    assert told == {("run.cancelled", queued.id), ("run.cancelled", first.id)}


def test_decision_that_rolls_back_inserts_nothing(bench: Bench):
    run = start(bench, "https://example.com")
    bench.play(until=lambda: run.statuses.get("say") == "ready")
    claimed = bench.claim(run, "say")
    bench.report(claimed)

    def decide_and_fail() -> None:
        with bench.database.transaction() as tx:
            tx.execute(text("update runs set status = 'succeeded' where id = :run"), run=run.id)
            assert tx.scalar(text("select count(*) from callback_deliveries where run_id = :run"), run=run.id) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        decide_and_fail()
    assert deliveries(bench) == []

    bench.coordinator.advance_run(run.id)
    assert [each.event for each in deliveries(bench)] == ["run.succeeded"]


def test_callbacks_of_one_run_are_told_of_that_run_only_and_signed_with_the_secret_of_the_tenant(
    bench: Bench, receiver: Receiver
):
    drawn = bench.draw(CANVAS, say=content("the answer"))
    told = RunCallback(["run.succeeded"], ["output"], receiver.url)

    run = bench.start(drawn=drawn, callbacks=(told,))
    bench.start(drawn=drawn)
    bench.play()
    with sending(bench):
        (delivery,) = ended(bench)

    assert delivery.run_id == run.id
    with bench.database.transaction() as tx:
        (secret,) = callbacks.tenant_secrets(tx, bench.tenant_id, KEY, datetime.now(UTC))
    assert receiver.got[0].is_signed_with(secret)
    assert receiver.got[0].body["data"]["output"] == "the answer"
    assert receiver.got[0].body["data"]["output_is_cut"] is False


def test_run_that_names_a_stored_callback_uses_its_address_and_secret_and_is_told_once(
    bench: Bench, receiver: Receiver
):
    drawn = bench.draw(CANVAS, say=content("done"))
    stored = store(bench, receiver.url, drawn[0])

    bench.start(drawn=drawn, callbacks=(RunCallback(list(CallbackEvent), stored_id=stored),))
    bench.play()
    with sending(bench):
        (delivery,) = ended(bench)

    assert delivery.callback_id == stored
    assert [each.is_signed_with(SECRET) for each in receiver.got] == [True]


def test_answer_in_a_message_may_bring_a_callback(bench: Bench, receiver: Receiver):
    run = bench.start("begin -> form -> say", form=FORM, say=content("done"))
    bench.play()
    drawn = (run.row["canvas_id"], run.row["version_id"])
    told = RunCallback(list(CallbackEvent), url=receiver.url)

    answer = bench.a_start(query="Ada", drawn=drawn, conversation_id=run.conversation_id, callbacks=(told,))
    bench.lifecycle.start_run(answer)
    bench.play()

    assert [each.event for each in deliveries(bench, run)] == ["run.succeeded"]


def test_callback_that_is_stored_while_a_run_waits_is_told_of_its_end(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=content("done"))
    bench.play()
    store(bench, "https://example.com", run.row["canvas_id"])

    bench.lifecycle.flag_runs_of(bench.tenant_id, run.row["canvas_id"])
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(inputs={"name": "Ada"}))
    bench.play()

    assert [each.event for each in deliveries(bench)] == ["run.succeeded"]


def test_callback_of_another_tenant_is_not_told(bench: Bench):
    drawn = bench.draw(CANVAS, say=content("done"))
    with bench.database.transaction() as tx:  # as no route allows it
        tx.send(
            callbacks.INSERT, id=new_id(), tenant_id=bench.a_tenant(), canvas_id=drawn[0], url="https://example.com",
            events=list(CallbackEvent), include=[],
        )  # fmt: skip

    run = bench.start(drawn=drawn)
    bench.play()

    assert not run.row["has_callbacks"]
    assert deliveries(bench) == []


def test_events_that_a_callback_does_not_name_and_disabled_callbacks_insert_nothing(bench: Bench):
    drawn = bench.draw(CANVAS, say=content("done"))
    store(bench, "https://example.com", drawn[0], events=["run.failed"])
    disabled = store(bench, "https://example.com", drawn[0])
    with bench.database.transaction() as tx:
        callbacks.disable_gone(tx, bench.tenant_id, disabled)

    bench.start(drawn=drawn)
    bench.play()

    assert deliveries(bench) == []


def test_partitions_that_are_created_later_have_the_trigger(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    without = text("""
        select count(*) from pg_inherits i where i.inhparent = to_regclass('runs') and not exists (
            select from pg_trigger t where t.tgrelid = i.inhrelid and t.tgname = 'runs_enqueue_callbacks')
    """)
    partitions = text("select count(*) from pg_inherits where inhparent = to_regclass('runs')")
    with bench.database.transaction() as tx:
        before = tx.scalar(partitions)

    run_maintenance(bench.database, datetime.now(UTC) + timedelta(weeks=20))
    monkeypatch.setattr(
        "store.maintenance.partitions.is_small", lambda tx, table: False
    )  # attached, not created as one
    run_maintenance(bench.database, datetime.now(UTC) + timedelta(weeks=40))

    with bench.database.transaction() as tx:
        assert tx.scalar(partitions) > before + 1
        assert tx.scalar(without) == 0


# -- what senders do -------------------------------------------------------------------------------------------------
def test_refused_delivery_is_sent_again_with_the_same_id_and_body(bench: Bench, receiver: Receiver):
    receiver.replies += [(500, {}), (302, {"location": receiver.url + "/elsewhere"})]
    start(bench, receiver.url)
    bench.play()

    with sending(bench):
        (delivery,) = ended(bench)

    assert [each["status"] for each in delivery.latest_attempts] == [500, 302, 204]
    assert delivery.latest_attempts[0]["error"] == "status 500"
    assert len({(each.path, each.id, each.content) for each in receiver.got}) == 1


def test_receiver_that_hangs_is_recorded_and_delays_no_other_callback(bench: Bench, receiver: Receiver):
    receiver.hangs = threading.Event()
    drawn = bench.draw(CANVAS, say=content("done"))
    store(bench, receiver.url, drawn[0])
    for _ in range(6):
        bench.start(drawn=drawn)
    bench.play()

    with receiving() as other:
        beside = start(bench, other.url)
        bench.play()
        with sending(bench, timeout=2.0, requests=4, of_each=2):
            (told,) = ended(bench, beside)
            assert len(receiver.got) <= 2
            until(lambda: any(each.latest_attempts for each in deliveries(bench) if each.run_id != beside.id))

    assert told.status == "delivered"
    (failed, *_) = [each for each in deliveries(bench) if each.latest_attempts and each.run_id != beside.id]
    assert failed.latest_attempts[0]["status"] is None
    assert "no complete answer within 2 seconds" in failed.latest_attempts[0]["error"]


def test_retry_after_of_a_receiver_is_obeyed(bench: Bench, receiver: Receiver):
    receiver.replies.append((429, {"retry-after": "100"}))
    start(bench, receiver.url)
    bench.play()

    with sending(bench):
        until(lambda: deliveries(bench)[0].latest_attempts)

    (delivery,) = deliveries(bench)
    left = delivery.due_at - datetime.now(UTC)
    assert (delivery.status, delivery.latest_attempts[0]["status"]) == ("pending", 429)
    assert timedelta(seconds=30) < left <= timedelta(seconds=100)


def test_receiver_that_is_gone_is_disabled_and_gets_nothing_more(bench: Bench, receiver: Receiver):
    receiver.replies.append((410, {}))
    drawn = bench.draw(CANVAS, say=content("done"))
    stored = store(bench, receiver.url, drawn[0])
    bench.start(drawn=drawn)
    bench.play()

    with sending(bench):
        (delivery,) = ended(bench)
    bench.start(drawn=drawn)
    bench.play()

    assert (delivery.status, delivery.latest_attempts[-1]["status"]) == ("dead", 410)
    assert len(deliveries(bench)) == 1
    with bench.database.transaction() as tx:
        assert callbacks.get(tx, bench.tenant_id, stored).disabled_because == "gone"


def test_delivery_is_dead_after_its_period_and_a_replay_sends_it_again(bench: Bench, receiver: Receiver):
    receiver.replies += [(503, {})] * 2
    start(bench, receiver.url)
    bench.play()

    with sending(bench, schedule=RetrySchedule(timedelta(milliseconds=10), timedelta(milliseconds=20))):
        (dead,) = ended(bench)
        receiver.replies.clear()
        with bench.database.transaction() as tx:
            callback_deliveries.replay(tx, bench.tenant_id, dead.id)
        until(lambda: deliveries(bench)[0].status == "delivered")

    assert dead.status == "dead"
    assert len({each.id for each in receiver.got}) == 1
    with bench.database.transaction() as tx, pytest.raises(NotFound):
        callback_deliveries.replay(tx, bench.a_tenant(), dead.id)


def test_delivery_whose_sender_died_is_sent_by_another_and_the_late_result_changes_nothing(
    bench: Bench, receiver: Receiver
):
    start(bench, receiver.url)
    bench.play()
    with bench.database.transaction() as tx:
        (claimed,) = callback_deliveries.claim_due(tx, most=10, most_of_each=10)  # the sender dies before it sends
    with bench.database.transaction() as tx:
        assert callback_deliveries.claim_due(tx, most=10, most_of_each=10) == []
        tx.execute(MAKE_DUE, tenant=bench.tenant_id)  # as a minute later

    with sending(bench):
        (delivery,) = ended(bench)
    with bench.database.transaction() as tx:
        late = AttemptResult(500, 1, "late")
        was_recorded = callback_deliveries.record(
            tx, bench.tenant_id, claimed.id, claimed.attempt, late, at=datetime.now(UTC), status=DeliveryStatus.DEAD
        )

    assert not was_recorded
    assert (delivery.status, delivery.attempt, len(receiver.got)) == ("delivered", 2, 1)
    assert deliveries(bench) == [delivery]


def test_two_senders_send_each_delivery_once(bench: Bench, receiver: Receiver):
    drawn = bench.draw(CANVAS, say=content("done"))
    store(bench, receiver.url, drawn[0])
    for _ in range(25):
        bench.start(drawn=drawn)
    bench.play()

    with sending(bench, 2):
        done = ended(bench)

    assert len(done) == len(receiver.got) == len({each.id for each in receiver.got}) == 25


def test_replaced_secret_signs_beside_the_new_one(bench: Bench, receiver: Receiver):
    drawn = bench.draw(CANVAS, say=content("done"))
    stored = store(bench, receiver.url, drawn[0])
    new = callbacks.new_secret()
    with bench.database.transaction() as tx:
        callbacks.rotate(tx, bench.tenant_id, stored, callbacks.seal_secret(KEY, bench.tenant_id, stored, new))
    bench.start(drawn=drawn)
    bench.play()

    with sending(bench):
        ended(bench)

    (got,) = receiver.got
    assert got.is_signed_with(new)
    assert got.is_signed_with(SECRET)


def test_private_address_is_not_connected_to(bench: Bench, receiver: Receiver):
    start(bench, receiver.url)
    bench.play()

    with sending(bench, guard=Guard()):
        until(lambda: deliveries(bench)[0].latest_attempts)

    assert receiver.got == []
    assert "not allowed" in deliveries(bench)[0].latest_attempts[0]["error"]


def test_secret_that_does_not_open_is_an_error_of_the_attempt_without_the_secret(bench: Bench, receiver: Receiver):
    start(bench, receiver.url)
    bench.play()
    with bench.database.transaction() as tx:
        tx.execute(
            callback_rows.update().where(callback_rows.c.tenant_id == bench.tenant_id).values(sealed_secret=b"x")
        )

    with sending(bench):
        until(lambda: deliveries(bench)[0].latest_attempts)

    assert receiver.got == []
    assert "not a secret that Easel sealed" in deliveries(bench)[0].latest_attempts[0]["error"]


def test_pending_deliveries_of_a_deleted_callback_end_as_dead(bench: Bench, receiver: Receiver):
    drawn = bench.draw(CANVAS, say=content("done"))
    stored = store(bench, receiver.url, drawn[0])
    bench.start(drawn=drawn)
    bench.play()
    with bench.database.transaction() as tx:
        callbacks.remove(tx, bench.tenant_id, stored)

    with sending(bench):
        (delivery,) = ended(bench)

    assert (delivery.status, receiver.got) == ("dead", [])
    assert delivery.latest_attempts[0]["error"] == "The callback was deleted."


@contextmanager
def sweeper_process(bench: Bench, home: Path) -> Generator["subprocess.Popen[bytes]"]:
    """Run a sweeper as deployed until the block ends."""
    variables = {
        "DATABASE_URL": bench.database.url, "REDIS_URL": bench.redis_url, "EASEL_HOME": str(home),
        "EASEL_SECRET_KEY": SECRET_KEY, "EASEL_SSRF_ALLOW": "127.0.0.1",
    }  # fmt: skip
    running = subprocess.Popen([sys.executable, "-m", "scheduler.sweep"], env={**os.environ, **variables})
    try:
        yield running
    finally:
        running.terminate()
        running.wait(60)


def test_sweeper_that_is_killed_while_it_sends_is_replaced_by_another(bench: Bench, receiver: Receiver, tmp_path: Path):
    receiver.hangs = threading.Event()
    start(bench, receiver.url)
    bench.play()
    with sweeper_process(bench, tmp_path) as running:
        until(lambda: receiver.got)
        running.kill()
        running.wait(60)
    receiver.hangs.set()
    with bench.database.transaction() as tx:
        tx.execute(MAKE_DUE, tenant=bench.tenant_id)  # as a minute later

    with sweeper_process(bench, tmp_path):
        (delivery,) = ended(bench)

    assert (delivery.status, delivery.attempt) == ("delivered", 2)
    assert [(each.id, each.is_signed_with(SECRET)) for each in receiver.got] == [(receiver.got[0].id, True)] * 2


# -- retention -------------------------------------------------------------------------------------------------------
def test_maintenance_deletes_old_deliveries_then_callbacks_of_runs_that_are_over(bench: Bench, receiver: Receiver):
    run = bench.start(CANVAS, say=content("done"), callbacks=(RunCallback(["run.succeeded"], url=receiver.url),))
    bench.play()
    with sending(bench):
        ended(bench)
    kept = bench.start(CANVAS, say=content("done"), callbacks=(RunCallback(["run.failed"], url=receiver.url),))

    maintenance.delete_old_deliveries(bench.database, datetime.now(UTC) - timedelta(days=1))
    assert len(deliveries(bench)) == 1
    run_maintenance(bench.database, datetime.now(UTC) + timedelta(days=31), callback_period=timedelta(days=30))

    assert deliveries(bench) == []
    with bench.database.transaction() as tx:
        left = tx.rows(select(callback_rows.c.run_id).where(callback_rows.c.tenant_id == bench.tenant_id))
    assert [run_id for (run_id,) in left] == [kept.id]
    assert run.id != kept.id


def test_delivery_of_a_run_and_revision_exists_once(bench: Bench):
    drawn = bench.draw(CANVAS, say=content("done"))
    store(bench, "https://example.com", drawn[0])
    run = bench.start(drawn=drawn)
    bench.play()

    with bench.database.transaction() as tx:  # the same occurrence again, as no advance writes it
        tx.execute(text("update runs set status = 'running' where id = :run"), run=run.id)
        tx.execute(text("update runs set status = 'succeeded' where id = :run"), run=run.id)

    assert len(deliveries(bench)) == 1
    with bench.database.transaction() as tx:
        assert tx.scalar(select(rows.c.revision).where(rows.c.run_id == run.id)) == run.row["revision"]


def test_deliveries_are_listed_in_pages_of_one_status(bench: Bench):
    drawn = bench.draw(CANVAS, say=content("done"))
    store(bench, "https://example.com", drawn[0])
    for _ in range(3):
        bench.start(drawn=drawn)
    bench.play()

    with bench.database.transaction() as tx:
        page = callback_deliveries.list_deliveries(tx, bench.tenant_id, statuses=["pending"], limit=2)
        rest = callback_deliveries.list_deliveries(
            tx, bench.tenant_id, statuses=["pending"], before=page[-1].id, limit=2
        )
        dead = callback_deliveries.list_deliveries(tx, bench.tenant_id, statuses=["dead"], limit=2)

    assert [each.id for each in deliveries(bench)[::-1]] == [each.id for each in (*page, *rest)]
    assert (len(page), dead) == (2, [])
