"""Speech: at once on the bus, soon in its row, and never twice."""

import json
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
from tests.builders import says
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker.paces import nothing_has_left_of_late
from tests.integration.worker.provider import FIRST_WORD, MODEL, WHOLE, hanging_model
from worker.context import text_stream

ANSWER = "Forty-two, of course. 😀 And \u4f60\u597d besides."
SAYS = says("So: {model@content} Bye.")
LINE = "begin -> model -> say"
RUN_OUT = text("""
    update activations set lease_until = now() - interval '1 s' where run_id = :run_id and id in (
        select id from activations where run_id = :run_id and status = 'running' for no key update skip locked
    )
""")


@pytest.fixture
def heard(bench: Bench) -> Iterator["Heard"]:
    with redis.Redis.from_url(bench.redis_url) as client, client.pubsub(ignore_subscribe_messages=True) as listener:
        yield Heard(listener)


# -- on the bus ------------------------------------------------------------------------------------------------------
def test_pieces_are_on_the_bus_before_the_node_has_reported(bench: Bench, heard: "Heard"):
    run = answering(bench, heard)

    finished = next(event.number for event in run.events if event.name == "message_end")
    before_the_end = heard.before(finished)
    assert pasted(before_the_end) == f"So: {ANSWER} Bye."
    assert before_the_end[0]["x"].startswith("So: ")


def test_offsets_count_code_points_and_leave_no_gap(bench: Bench, heard: "Heard"):
    run = answering(bench, heard)

    end = 0
    for piece in heard.pieces():
        assert (piece["t"], piece["ep"]) == (str(run.turns[0].id), 0)
        assert piece["o"] <= end < piece["o"] + len(piece["x"])
        end = piece["o"] + len(piece["x"])
    assert end == len(run.said)


def test_a_piece_carries_what_the_turns_row_does_not_have(
    bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch
):
    """So whoever comes in mid-speech need not wait for the row to be written."""
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 600.0)
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = heard.start(bench, LINE, model={"llm_id": MODEL}, say=SAYS)

        with at_work(bench):
            until(lambda: heard.pieces() and heard.pieces()[-1]["x"].endswith(FIRST_WORD))
            assert (text_of(bench, run), heard.pieces()[-1]["o"]) == ("", 0)
            assert heard.pieces()[-1]["x"] == f"So: {FIRST_WORD}"
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")


def test_a_text_that_outgrows_its_piece_goes_on_in_pieces_of_its_own(
    bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(text_stream, "MAX_REPEATED", 10)

    run = answering(bench, heard)

    assert pasted(heard.pieces()) == run.said
    assert heard.pieces()[-1]["o"] > 0


def test_a_message_goes_on_where_the_model_ended_and_repeats_nothing(bench: Bench, heard: "Heard"):
    run = answering(bench, heard)

    assert run.said == f"So: {ANSWER} Bye."
    assert [turn.epoch for turn in run.turns] == [0]
    assert run.outputs("say")["content"] == run.said
    assert run.outputs("model")["content"] == ANSWER
    assert "message_reset" not in run.told


def test_what_is_said_before_the_model_is_said_by_it_and_counts_as_the_messages(bench: Bench, heard: "Heard"):
    bench.script = Script([{"reply": ANSWER}])
    run = heard.start(bench, LINE, say=says("Hello {sys.query}! {model@content}"), query="Ann")
    bench.play()

    assert run.said == f"Hello Ann! {ANSWER}"
    assert run.outputs("model")["content"] == ANSWER
    assert pasted(heard.pieces()) == run.said


def test_nobody_hears_a_model_that_no_message_shows(bench: Bench, heard: "Heard"):
    bench.script = Script([{"reply": ANSWER}])
    run = heard.start(bench, "begin -> model -> work", work={"script": "{model@content}"})
    bench.play()

    assert run.status == "succeeded"
    assert heard.pieces() == []
    assert run.said == ""


# -- before the claim is on disk -------------------------------------------------------------------------------------
def test_nothing_leaves_a_worker_before_its_claim_is_on_disk(
    bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch
):
    order: list[str] = []
    firm, send = activations.make_claim_durable, text_stream.MessageStreamWriter._send

    def firmly(*given: Any) -> bool:
        order.append("firm")
        return firm(*given)

    def sent(self: Any, turn: Any) -> None:
        order.append("piece")
        send(self, turn)

    monkeypatch.setattr(activations, "make_claim_durable", firmly)
    monkeypatch.setattr(text_stream.MessageStreamWriter, "_send", sent)
    run = answering(bench, heard)

    assert run.status == "succeeded"
    assert order[0] == "firm"
    assert order.count("firm") == 2  # the model's and the Message's


def test_a_worker_whose_lease_is_gone_says_not_a_word(bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(activations, "make_claim_durable", lambda *_: False)

    run = answering(bench, heard)

    assert heard.pieces() == []
    assert run.said == f"So: {ANSWER} Bye."  # it came with the report, which its lease guards


def test_nobody_takes_the_lease_of_a_speaker_who_is_about_to_take_a_turn(
    bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch
):
    take = message_streams.claim_stream
    swept: list[Any] = []

    def slowly(tx: Transaction, run_id: UUID, *given: Any) -> message_streams.StreamLease:
        with bench.database.transaction() as other:  # it stands still here, for longer than its lease
            other.execute(RUN_OUT, run_id=run_id)
            swept.extend(sweep_queries.expire_leases(other))
        return take(tx, run_id, *given)

    monkeypatch.setattr(message_streams, "claim_stream", slowly)
    run = answering(bench, heard)

    assert (run.status, swept) == ("succeeded", [])


def test_an_outage_silences_a_speaker_and_does_not_fail_it(
    bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch
):
    def away(*_: Any) -> Any:
        raise OperationalError("select", {}, Exception("the database is away"))

    monkeypatch.setattr(message_streams, "claim_stream", away)
    run = answering(bench, heard)

    assert (run.status, heard.pieces()) == ("succeeded", [])
    assert run.said == f"So: {ANSWER} Bye."


def test_a_speaker_goes_on_while_redis_is_away(bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch):
    async def away(*_: Any) -> Any:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(bench.worker.execution.text_deltas._connection, "send_packed_command", away)
    run = answering(bench, heard)

    assert (run.status, run.said) == ("succeeded", f"So: {ANSWER} Bye.")


def test_postponed_node_takes_back_what_it_has_said_before_it_says_it_again(
    bench: Bench, heard: "Heard", monkeypatch: pytest.MonkeyPatch
):
    async def speak_and_wait(params: Any, ctx: Any) -> Finished:
        await ctx.write("One ")
        if run.activation("model").attempt == 1:
            await ctx.rate_limit_wait.wait(60, "Vendor")
        await ctx.write("two.")
        return Finished(outputs={"content": "One two."})

    model = registry.find("LLM")
    assert model is not None
    monkeypatch.setitem(registry.COMPONENTS, "llm", replace(model, run=speak_and_wait))
    run = heard.start(bench, LINE, say=SAYS)
    bench.play()
    assert (run.activation("model").status, run.activation("model").attempt) == ("ready", 1)

    nothing_has_left_of_late(bench, run)
    Sweeper(bench.coordinator).tick()
    bench.play()

    assert (run.status, run.said) == ("succeeded", "So: One two. Bye.")
    assert run.told.count("message_reset") == 1
    assert pasted([piece for piece in heard.pieces() if piece["ep"] == 1]) == "So: One two. Bye."


# -- in its row ------------------------------------------------------------------------------------------------------
def test_who_comes_late_finds_the_text_so_far_in_its_row(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_stream, "WRITE_INTERVAL", 0.0)
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = bench.start(LINE, model={"llm_id": MODEL}, say=SAYS)

        with at_work(bench):
            until(lambda: text_of(bench, run) == f"So: {FIRST_WORD}")
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")


def test_a_second_attempt_takes_back_what_the_first_has_said(bench: Bench, heard: "Heard"):
    with hanging_model() as provider:
        bench.accounts = [provider.account]
        run = heard.start(bench, LINE, model={"llm_id": MODEL}, say=SAYS)
        worker = bench.a_worker(renew_every=timedelta(milliseconds=40))

        with at_work(bench, worker):
            assert provider.asked.wait(10)
            until(lambda: heard.pieces())
            sweep_away(bench, run)
            until(lambda: run.status == "succeeded")
            assert provider.left.wait(5)

    assert run.status == "succeeded"
    assert run.said == f"So: {WHOLE} Bye."
    assert run.activation("model").attempt == 2
    assert run.told.count("message_reset") == 1
    (turn,) = run.turns
    assert turn.epoch == 1
    assert pasted([piece for piece in heard.pieces() if piece["ep"] == 1]) == run.said


def test_a_message_that_fails_before_its_first_word_unsays_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    async def fails(params: Any, ctx: Any) -> Any:
        raise NodeFailure("out of words")

    message = registry.find("Message")
    assert message is not None
    monkeypatch.setitem(registry.COMPONENTS, "message", replace(message, run=fails))
    bench.script = Script([{"reply": ANSWER}])
    run = bench.start(LINE, say=SAYS)
    bench.play()

    assert run.status == "failed"
    assert (run.said, [turn.epoch for turn in run.turns]) == (f"So: {ANSWER}", [0])


def test_what_an_earlier_attempt_still_says_is_of_another_epoch(bench: Bench):
    """A reader ignores it, and its row is not touched."""
    run_id, turn, first, second = new_id(), new_id(), new_id(), new_id()
    with bench.database.transaction() as tx:
        message_streams.claim_stream(tx, run_id, turn, "say", first)
        tx.execute(message_streams.TRUNCATE, run_id=run_id, turn=turn, number=4)
        message_streams.claim_stream(tx, run_id, turn, "say", second)

        assert not message_streams.write(tx, run_id, turn, first, 0, "late")
        assert message_streams.write(tx, run_id, turn, second, 1, "new")


# -- in other words --------------------------------------------------------------------------------------------------
@dataclass
class Heard:
    """Everything a listener of one run gets, in order."""

    listener: Any
    messages: list[dict[str, Any]] = field(default_factory=list)

    def start(self, bench: Bench, *parts: str, **options: Any) -> Run:
        """Start a run that is listened to from before its beginning."""
        start = bench.a_start(*parts, run_id=new_id(), **options)
        self.listener.subscribe(channel(start.run_id))
        until(lambda: self.listener.get_message(timeout=0.01) is None)
        return bench.begun(start)

    def _gather(self) -> list[dict[str, Any]]:
        while (message := self.listener.get_message(timeout=0.02)) is not None:
            self.messages.append(json.loads(message["data"]))
        return self.messages

    def pieces(self) -> list[dict[str, Any]]:
        """What was said."""
        return [message for message in self._gather() if "x" in message]

    def before(self, event: int) -> list[dict[str, Any]]:
        """What was said before this event was told."""
        told = next(at for at, message in enumerate(self._gather()) if message.get("n", 0) >= event)
        return [message for message in self.messages[:told] if "x" in message]


def answering(bench: Bench, heard: Heard) -> Run:
    """A model's answer inside a Message."""
    bench.script = Script([{"reply": ANSWER}])
    run = heard.start(bench, LINE, say=SAYS)
    bench.play()
    assert run.status == "succeeded"
    return run


def pasted(pieces: list[dict[str, Any]]) -> str:
    """Pieces put together by their offsets."""
    text = ""
    for piece in pieces:
        text = text[: piece["o"]] + piece["x"]
    return text


def text_of(bench: Bench, run: Run) -> str:
    with bench.database.transaction() as tx:
        return tx.scalar(select(turn_rows.c.text).where(turn_rows.c.run_id == run.id)) or ""


def sweep_away(bench: Bench, run: Run) -> None:
    """The worker of whatever runs was silent for too long."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with bench.database.transaction() as tx:
        tx.execute(rows.update().where(rows.c.run_id == run.id, rows.c.status == "running").values(lease_until=past))
        assert sweep_queries.expire_leases(tx) == [run.id]
    bench.coordinator.advance_run(run.id)
