"""Message streams: text deltas are published at once, the row is written soon after, and no text is repeated."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components import registry
from providers.models.chat.scripted import Script
from scheduler.messaging.redis_bus import channel
from scheduler.sweeper.sweeper import Sweeper
from store.db.transaction import Transaction
from store.monitoring import sweep_queries
from store.primitives.ids import new_id
from store.runs import activations, message_streams
from store.tables.runs import activations as rows
from store.tables.runs import turns as turn_rows
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, subscribe, until
from tests.integration.worker.provider import FIRST_WORD, FULL_TEXT, MODEL, hanging_model
from tests.integration.worker.short_rate_windows import expire_rate_limit_waits
from worker.context import text_stream

ANSWER = "Forty-two, of course. 😀 And \u4f60\u597d besides."
MESSAGE = content("So: {model@content} Bye.")
LINE = "begin -> model -> say"
EXPIRE_LEASES = text("""
    update activations set lease_until = now() - interval '1 s' where run_id = :run_id and id in (
        select id from activations where run_id = :run_id and status = 'running' for no key update skip locked
    )
""")


@pytest.fixture
def listener(bench: Bench) -> Iterator["StreamListener"]:
    with redis.Redis.from_url(bench.redis_url) as client, client.pubsub() as pubsub:
        yield StreamListener(pubsub)


# -- text deltas -----------------------------------------------------------------------------------------------------
def test_text_deltas_are_published_before_the_node_has_reported(bench: Bench, listener: "StreamListener"):
    run = play_answer(bench, listener)

    finished = next(event.number for event in run.events if event.name == "message_end")
    deltas = listener.text_deltas_before(finished)
    assert joined_text(deltas) == f"So: {ANSWER} Bye."
    assert deltas[0]["x"].startswith("So: ")


def test_offsets_of_text_deltas_count_code_points_without_a_gap(bench: Bench, listener: "StreamListener"):
    run = play_answer(bench, listener)

    end = 0
    for delta in listener.text_deltas():
        assert (delta["t"], delta["ep"]) == (str(run.streams[0].id), 0)
        assert delta["o"] <= end < delta["o"] + len(delta["x"])
        end = delta["o"] + len(delta["x"])
    assert end == len(run.text)


def test_text_delta_contains_the_text_that_its_stream_row_lacks(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    """So a reader that joins in the middle does not wait for the row."""
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 600.0)
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = listener.start(bench, LINE, model={"llm_id": MODEL}, say=MESSAGE)

        with at_work(bench):
            until(lambda: listener.text_deltas() and listener.text_deltas()[-1]["x"].endswith(FIRST_WORD))
            assert (text_of(bench, run), listener.text_deltas()[-1]["o"]) == ("", 0)
            assert listener.text_deltas()[-1]["x"] == f"So: {FIRST_WORD}"
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")


def test_text_longer_than_the_repeat_limit_continues_in_further_text_deltas(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(text_stream, "MAX_REPEATED", 10)

    run = play_answer(bench, listener)

    assert joined_text(listener.text_deltas()) == run.text
    assert listener.text_deltas()[-1]["o"] > 0


def test_message_continues_the_stream_of_its_model_and_repeats_nothing(bench: Bench, listener: "StreamListener"):
    run = play_answer(bench, listener)

    assert run.text == f"So: {ANSWER} Bye."
    assert [stream.epoch for stream in run.streams] == [0]
    assert run.outputs("say")["content"] == run.text
    assert run.outputs("model")["content"] == ANSWER
    assert "message_reset" not in run.event_names


def test_text_before_a_model_reference_is_streamed_but_is_no_output_of_the_model(
    bench: Bench, listener: "StreamListener"
):
    bench.script = Script([{"reply": ANSWER}])
    run = listener.start(bench, LINE, say=content("Hello {sys.query}! {model@content}"), query="Ann")
    bench.play()
    listener.wait_for_last_event(run)

    assert run.text == f"Hello Ann! {ANSWER}"
    assert run.outputs("model")["content"] == ANSWER
    assert joined_text(listener.text_deltas()) == run.text


def test_model_streams_behind_a_text_with_a_global_variable(bench: Bench, listener: "StreamListener"):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        say = content("Hello {sys.query}! {model@content}")
        run = listener.start(bench, LINE, model={"llm_id": MODEL}, say=say, query="Ann")

        with at_work(bench):
            until(lambda: joined_text(listener.text_deltas()) == f"Hello Ann! {FIRST_WORD}")
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")


def test_model_without_a_message_publishes_no_text_deltas(bench: Bench, listener: "StreamListener"):
    bench.script = Script([{"reply": ANSWER}])
    run = listener.start(bench, "begin -> model -> work", work={"script": "{model@content}"})
    bench.play()
    listener.wait_for_last_event(run)

    assert run.status == "succeeded"
    assert listener.text_deltas() == []
    assert run.text == ""


# -- claims, leases and outages --------------------------------------------------------------------------------------
def test_no_text_delta_is_sent_before_the_claim_is_durable(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    order: list[str] = []
    make_durable, send = activations.make_claim_durable, text_stream.MessageStreamWriter._send

    def record_durable_claim(*args: Any) -> bool:
        order.append("durable")
        return make_durable(*args)

    def record_delta(self: Any, stream: Any) -> None:
        order.append("delta")
        send(self, stream)

    monkeypatch.setattr(activations, "make_claim_durable", record_durable_claim)
    monkeypatch.setattr(text_stream.MessageStreamWriter, "_send", record_delta)
    run = play_answer(bench, listener)

    assert run.status == "succeeded"
    assert order[0] == "durable"
    assert order.count("durable") == 2  # of the model and of the Message


def test_worker_with_a_lost_lease_sends_no_text_deltas(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(activations, "make_claim_durable", lambda *_: False)

    run = play_answer(bench, listener)

    assert listener.text_deltas() == []
    assert run.text == f"So: {ANSWER} Bye."  # stored with the report, which the lease guards


def test_lease_is_not_expired_while_its_attempt_claims_a_message_stream(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    claim_stream = message_streams.claim_stream
    swept: list[Any] = []

    def claim_slowly(tx: Transaction, run_id: UUID, *args: Any) -> message_streams.StreamLease:
        with bench.database.transaction() as other:  # it waits here for longer than its lease
            other.execute(EXPIRE_LEASES, run_id=run_id)
            swept.extend(sweep_queries.expire_leases(other))
        return claim_stream(tx, run_id, *args)

    monkeypatch.setattr(message_streams, "claim_stream", claim_slowly)
    run = play_answer(bench, listener)

    assert (run.status, swept) == ("succeeded", [])


def test_database_outage_at_the_stream_claim_stops_text_deltas_and_fails_no_node(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any) -> Any:
        raise OperationalError("select", {}, Exception("the database is away"))

    monkeypatch.setattr(message_streams, "claim_stream", fail)
    run = play_answer(bench, listener)

    assert (run.status, listener.text_deltas()) == ("succeeded", [])
    assert run.text == f"So: {ANSWER} Bye."


def test_message_stream_is_stored_whole_while_redis_is_unavailable(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_: Any) -> Any:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(bench.worker.execution.text_deltas._connection, "send_packed_command", fail)
    run = play_answer(bench, listener)

    assert (run.status, run.text) == ("succeeded", f"So: {ANSWER} Bye.")


def test_postponed_node_resets_its_message_stream_before_it_writes_again(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    async def write_and_wait(params: Any, ctx: Any) -> Finished:
        await ctx.write("One ")
        if run.activation("model").attempt == 1:
            await ctx.rate_limit_wait.wait(60, "Vendor")
        await ctx.write("two.")
        return Finished(outputs={"content": "One two."})

    model = registry.find("LLM")
    assert model is not None
    monkeypatch.setitem(registry.COMPONENTS, "llm", replace(model, run=write_and_wait))
    run = listener.start(bench, LINE, say=MESSAGE)
    bench.play()
    assert (run.activation("model").status, run.activation("model").attempt) == ("ready", 1)

    expire_rate_limit_waits(bench, run)
    Sweeper(bench.coordinator).tick()
    bench.play()
    listener.wait_for_last_event(run)

    assert (run.status, run.text) == ("succeeded", "So: One two. Bye.")
    assert run.event_names.count("message_reset") == 1
    assert joined_text([delta for delta in listener.text_deltas() if delta["ep"] == 1]) == "So: One two. Bye."


# -- the row of a stream ---------------------------------------------------------------------------------------------
def test_message_stream_row_contains_the_text_written_so_far(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 0.0)
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = bench.start(LINE, model={"llm_id": MODEL}, say=MESSAGE)

        with at_work(bench):
            until(lambda: text_of(bench, run) == f"So: {FIRST_WORD}")
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")


def test_text_that_comes_during_a_write_of_the_row_is_written_during_a_pause_of_the_model(
    bench: Bench, listener: "StreamListener", monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 0.0)
    write_row, may_write = text_stream.MessageStreamWriter._write_row, threading.Event()

    def write_late(self: text_stream.MessageStreamWriter, *args: Any) -> bool:
        assert may_write.wait(20)
        return write_row(self, *args)

    monkeypatch.setattr(text_stream.MessageStreamWriter, "_write_row", write_late)
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = listener.start(bench, LINE, model={"llm_id": MODEL}, say=MESSAGE)

        with at_work(bench):
            until(lambda: joined_text(listener.text_deltas()) == f"So: {FIRST_WORD}")
            may_write.set()
            until(lambda: text_of(bench, run) == f"So: {FIRST_WORD}")
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")


def test_second_attempt_resets_the_message_stream_of_the_first(bench: Bench, listener: "StreamListener"):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = listener.start(bench, LINE, model={"llm_id": MODEL}, say=MESSAGE)
        worker = bench.a_worker(renew_every=timedelta(milliseconds=40))

        with at_work(bench, worker):
            assert provider.is_hanging.wait(30)
            until(lambda: listener.text_deltas())
            lose_worker(bench, run)
            until(lambda: run.status == "succeeded")
            assert provider.client_has_closed.wait(30)

    listener.wait_for_last_event(run)
    assert run.status == "succeeded"
    assert run.text == f"So: {FULL_TEXT} Bye."
    assert run.activation("model").attempt == 2
    assert run.event_names.count("message_reset") == 1
    (stream,) = run.streams
    assert stream.epoch == 1
    assert joined_text([delta for delta in listener.text_deltas() if delta["ep"] == 1]) == run.text


def test_message_that_fails_before_it_writes_does_not_reset_its_stream(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    async def fails(params: Any, ctx: Any) -> Any:
        raise NodeFailure("out of words")

    message = registry.find("Message")
    assert message is not None
    monkeypatch.setitem(registry.COMPONENTS, "message", replace(message, run=fails))
    bench.script = Script([{"reply": ANSWER}])
    run = bench.start(LINE, say=MESSAGE)
    bench.play()

    assert run.status == "failed"
    assert (run.text, [stream.epoch for stream in run.streams]) == (f"So: {ANSWER}", [0])


def test_stream_write_of_an_earlier_attempt_is_refused(bench: Bench):
    """Its epoch is over, and the row does not change."""
    run_id, stream, first, second = new_id(), new_id(), new_id(), new_id()
    with bench.database.transaction() as tx:
        message_streams.claim_stream(tx, run_id, stream, "say", first)
        tx.execute(message_streams.TRUNCATE, run_id=run_id, stream_id=stream, number=4)
        message_streams.claim_stream(tx, run_id, stream, "say", second)

        assert not message_streams.write(tx, run_id, stream, first, 0, "late")
        assert message_streams.write(tx, run_id, stream, second, 1, "new")


# -- helpers ---------------------------------------------------------------------------------------------------------
@dataclass
class StreamListener:
    """A subscriber to the notifications of one run, and everything it receives, in order."""

    pubsub: Any
    messages: list[dict[str, Any]] = field(default_factory=list)

    def start(self, bench: Bench, *parts: str, **options: Any) -> Run:
        """Start a run after subscribing to its notifications."""
        start = bench.a_start(*parts, run_id=new_id(), **options)
        subscribe(self.pubsub, channel(start.run_id))
        return bench.start_run(start)

    def wait_for_last_event(self, run: Run) -> None:
        """Wait for the notification of the last event of a run that is at rest."""
        last = max(event.number for event in run.events)
        until(lambda: any(message.get("n", 0) >= last for message in self._gather()))

    def _gather(self) -> list[dict[str, Any]]:
        while (message := self.pubsub.get_message(timeout=0.02)) is not None:
            self.messages.append(json.loads(message["data"]))
        return self.messages

    def text_deltas(self) -> list[dict[str, Any]]:
        """Return all text deltas."""
        return [message for message in self._gather() if "x" in message]

    def text_deltas_before(self, event: int) -> list[dict[str, Any]]:
        """Return the text deltas before the notification of an event."""
        end = next(at for at, message in enumerate(self._gather()) if message.get("n", 0) >= event)
        return [message for message in self.messages[:end] if "x" in message]


def play_answer(bench: Bench, listener: StreamListener) -> Run:
    """Play a run whose Message contains the answer of a model."""
    bench.script = Script([{"reply": ANSWER}])
    run = listener.start(bench, LINE, say=MESSAGE)
    bench.play()
    listener.wait_for_last_event(run)
    assert run.status == "succeeded"
    return run


def joined_text(text_deltas: list[dict[str, Any]]) -> str:
    """Join text deltas by their offsets."""
    text = ""
    for delta in text_deltas:
        text = text[: delta["o"]] + delta["x"]
    return text


def text_of(bench: Bench, run: Run) -> str:
    with bench.database.transaction() as tx:
        return tx.scalar(select(turn_rows.c.text).where(turn_rows.c.run_id == run.id)) or ""


def lose_worker(bench: Bench, run: Run) -> None:
    """Expire the leases of the running activations of a run, and advance it."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.run_id == run.id, rows.c.status == "running").values(lease_until=past))
        assert sweep_queries.expire_leases(tx) == [run.id]
    bench.coordinator.advance_run(run.id)
