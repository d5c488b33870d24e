"""What may have happened is not done again by itself: its row says so before anything leaves."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text, update

from canvas.outcome import Finished
from components import tools
from components.base import Effect
from components.context import NodeContext
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from providers.interfaces import HttpCall, HttpResponse, MailAccount, Services
from providers.models.chat.scripted import Script
from scheduler.coordinator.run_start import RunRequest
from scheduler.sweeper import sweeper
from scheduler.sweeper.sweeper import Sweeper
from store.runs import activations
from store.tables.runs import activations as rows
from tests.builders import goto, reads, says
from tests.fakes import FakeHttp
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker.conftest import Patient
from worker.services.factory import ServiceConfig
from worker.worker import Worker

AT_ONCE = timedelta(0)
EXPIRE = text("""
    update activations set lease_until = lease_until - interval '1 hour'
    where run_id = :run_id and status = 'running' and lease_id = any(:leases)
""")
UNSAFE: Mapping[str, Any] = {"component": "Unsafe"}
ASKS: Mapping[str, Any] = {**UNSAFE, "on_unknown": "ask"}
NOT_KNOWN = (
    "It is not known whether send has happened: its worker was lost while it ran. "
    "Check it, and start the run again if the action is needed."
)


@pytest.fixture(autouse=True)
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeper believes what it sees at first sight."""
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)


# -- before anything leaves -------------------------------------------------------------------------------------------
def test_before_a_node_acts_its_row_says_what_repeating_it_would_mean(bench: Bench):
    seen: dict[str, str | None] = {}

    def look(ctx: NodeContext) -> Finished:
        seen[ctx.node_id] = run.activation(ctx.node_id).effect
        return Finished()

    bench.does(plain=look, order=look, send=look)
    run = bench.start("begin -> plain -> order -> send", order={"component": "Keyed"}, send=UNSAFE)
    bench.play()

    assert run.status == "succeeded"
    assert seen == {"plain": None, "order": "keyed", "send": "unsafe"}


def test_nothing_leaves_a_worker_that_has_lost_its_lease(bench: Bench):
    sent: list[str] = []
    bench.does(send=lambda ctx: sent.append(ctx.node_id) or Finished())
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)
    late = bench.a_worker(time_limit=lambda *_: lose(bench, run) or 60.0)

    late.execute(run.id, run.activation("send").id)

    assert sent == []
    assert (run.statuses["send"], run.activation("send").attempt) == ("ready", 1)


def test_nothing_leaves_once_a_run_has_been_cancelled(bench: Bench):
    sent: list[str] = []
    bench.does(send=lambda ctx: sent.append(ctx.node_id) or Finished())
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)

    bench.play(bench.a_worker(time_limit=lambda *_: bench.lifecycle.cancel_run(bench.tenant_id, run.id) and 60.0))

    assert (run.status, sent) == ("cancelled", [])


# -- a lost worker ----------------------------------------------------------------------------------------------------
def test_what_may_have_happened_fails_the_run_and_says_so(bench: Bench):
    run = lost_while_sending(bench, UNSAFE)
    bench.play()

    assert (run.status, run.row["error"]) == ("failed", NOT_KNOWN)
    assert (run.activation("send").attempt, run.activation("send").strikes) == (1, 1)
    assert run.events[-1].body["code"] == "unknown_outcome"


def test_what_may_have_happened_is_not_done_again_when_a_sweeper_of_an_earlier_release_tells_of_it(bench: Bench):
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)
    lose_activation(bench, run, run.activation("send").id)
    bench.outbox.lose()
    lost = {"is": "Failed", "error": "The worker was lost.", "code": "worker_lost", "retryable": True}
    with bench.database.transaction() as tx:
        mine = (rows.c.run_id == run.id, rows.c.node_id == "send")
        tx.execute(update(rows).where(*mine).values(status="reported", strikes=1, outcome=lost))

    bench.coordinator.advance_run(run.id)
    bench.play()

    assert (run.status, run.row["error"]) == ("failed", NOT_KNOWN)


def test_what_was_lost_before_it_acted_is_done_by_another(bench: Bench):
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)
    bench.claim(run, "send", lease=AT_ONCE)
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 2)


def test_an_author_may_have_it_done_twice_rather_than_not_at_all(bench: Bench):
    run = lost_while_sending(bench, {**UNSAFE, "on_unknown": "retry"})
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 2)


def test_the_way_out_of_a_failure_can_read_what_is_not_known(bench: Bench):
    run = lost_while_sending(bench, {**UNSAFE, **goto("say")}, "say", say=says("{send@_ERROR}"))
    bench.play()

    assert (run.status, run.said) == ("succeeded", NOT_KNOWN)


def test_what_a_leaving_worker_was_doing_may_have_happened_too(bench: Bench, patient: Patient):
    run = patient.start("begin -> work", work=UNSAFE)
    leaving = bench.a_worker()

    with at_work(bench, leaving):
        patient.wait_for("work")
        leaving.close()

    until(lambda: run.status == "failed")
    assert run.row["error"].startswith("It is not known whether work has happened")
    assert run.activation("work").strikes == 0


# -- asking -----------------------------------------------------------------------------------------------------------
def test_a_person_knows_that_it_has_happened_and_what_it_has_brought(bench: Bench):
    run = lost_while_sending(bench, ASKS, "after", after=reads("send"))
    assert run.status == "waiting"
    read = bench_reads(bench, "after", "send@id")

    answer(bench, run, {"send.outcome": "happened", "send.outputs": {"id": 7}})
    bench.play()

    assert (run.status, read) == ("succeeded", [7])
    assert run.activation("send").attempt == 1
    (told,) = [event.outputs for event in run.events if event.name == "node_finished" and event.node_id == "send"]
    assert told["id"] == 7


def test_what_has_not_happened_is_done_by_another_attempt(bench: Bench):
    run = lost_while_sending(bench, ASKS, "after")

    answer(bench, run, {"*.outcome": "again"})
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 2)


def test_a_single_question_can_be_answered_in_a_word_of_the_conversation(bench: Bench):
    run = lost_while_sending(bench, ASKS)

    bench.begun(bench.a_start(drawn=of(run), conversation_id=run.conversation_id, query="Happened"))
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 1)


def test_an_answer_that_says_nothing_of_it_shows_the_question_once_more(bench: Bench):
    run = lost_while_sending(bench, ASKS)

    answer(bench, run, None, query="what?")

    assert run.status == "waiting"
    assert run.told.count("user_inputs") == 2


def test_items_side_by_side_are_answered_together_and_one_by_one(bench: Bench):
    each = {"component": "Iteration", "items_ref": "env.list", "max_concurrency": 3}
    parts = ("begin -> each -> say", "each: item -> send")
    run = bench.start(*parts, each=each, send=ASKS, say=says("done"), variables={"list": [1, 2, 3]})
    bench.play(until=lambda: sum(row.node_id == "send" for row in run.activations) == 3)
    for row in [row for row in run.activations if row.node_id == "send"]:
        lose_activation(bench, run, row.id)
    bench.outbox.lose()
    Sweeper(bench.coordinator).tick()
    assert (run.status, sorted(run.events[-1].body["forms"])) == ("waiting", ["send[0]", "send[1]", "send[2]"])

    answer(bench, run, {"send[1].outcome": "again"})
    bench.play()
    assert (run.status, sorted(run.events[-1].body["forms"])) == ("waiting", ["send[0]", "send[2]"])
    answer(bench, run, {"send.outcome": "happened"})
    bench.play()

    assert (run.status, run.said) == ("succeeded", "done")
    assert [row.attempt for row in run.activations if row.node_id == "send"] == [1, 2, 1]


# -- an Agent's tools -------------------------------------------------------------------------------------------------
SENDS = {"times": 1, "tool_calls": [{"name": "send_0", "arguments": {"to": "Ada"}}]}
LOOKS = {"times": 1, "last": "sent", "tool_calls": [{"name": "look_1", "arguments": {"to": "Ada"}}]}


def test_an_agent_that_is_lost_within_an_unsafe_tool_may_have_used_it(bench: Bench, letters: "Letters"):
    bench.script = Script([SENDS, {"reply": "Sent."}])
    run = letters.start(bench, on_unknown="ask")
    letters.meanwhile["send"] = lambda: lose(bench, run)

    bench.play()
    assert (run.status, list(run.events[-1].body["forms"])) == ("waiting", ["agent"])
    answer(bench, run, {"agent.outcome": "again"})
    bench.play()

    assert (run.status, run.outputs("agent")["content"]) == ("succeeded", "Sent.")
    assert letters.used == [("send", "unsafe"), ("send", "unsafe")]


def test_an_agent_that_is_lost_after_an_unsafe_tool_goes_on_from_what_is_recorded(bench: Bench, letters: "Letters"):
    bench.script = Script([SENDS, LOOKS, {"reply": "Sent."}])
    run = letters.start(bench)
    letters.meanwhile["look"] = lambda: lose(bench, run)

    bench.play()

    assert (run.status, run.activation("agent").attempt) == ("succeeded", 2)
    assert letters.used == [("send", "unsafe"), ("look", "keyed"), ("look", "keyed")]


@dataclass
class Letters:
    """Tools of an Agent: one that may not be used twice, and one that may."""

    used: list[tuple[str, str | None]] = field(default_factory=list)  # and what the Agent's row said meanwhile
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)  # what happens during the first use
    run: Run | None = None

    def start(self, bench: Bench, **params: Any) -> Run:
        listed = [{"component_name": "Send"}, {"component_name": "Look"}]
        asked = {"llm_id": "m", "prompts": [{"role": "user", "content": "Write."}]}
        self.run = bench.start("begin -> agent", agent={"component": "Agent", "tools": listed, **asked, **params})
        return self.run

    def tool(self, name: str) -> Tool[ToolParams]:
        async def use(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
            assert self.run is not None
            self.used.append((name, self.run.activation("agent").effect))
            await asyncio.to_thread(self.meanwhile.pop(name, lambda: None))
            return ToolResult({"content": "sent"}, "sent")

        to = {"to": Argument("string", "To whom.", required=True)}
        effect: Effect = "unsafe" if name == "send" else "idempotent"
        return Tool(name.capitalize(), name, ToolParams, "Letters.", to, use, effect)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    letters = Letters()
    monkeypatch.setattr(tools, "find", lambda name: letters.tool(name.lower()) if name in ("Send", "Look") else None)
    return letters


# -- letters ----------------------------------------------------------------------------------------------------------
class Office:
    """A mail server that takes letters, and may see a worker vanish over one."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["Office"]:
        yield self

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        return {}

    async def deliver(self, message: bytes) -> None:
        self.letters.append(message)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        await asyncio.to_thread(meanwhile)


LETTER: Mapping[str, Any] = {
    "smtp_server": "smtp.example.com",
    "email": "me@example.com",
    "password": "pass-1234",
    "sender_name": "Ann",
    "to_email": "you@example.com",
}


def mailing(bench: Bench, office: Office, *nodes: str, **params: Any) -> tuple[Run, Worker]:
    """A run with a letter in it, and a worker who has the mail server."""

    def services(_: Any, common: Services) -> Services:
        return replace(common, mail=office)

    run = bench.start(*nodes, **params)
    office.meanwhile = lambda: lose(bench, run)
    return run, bench.a_worker(services=ServiceConfig(of_tenant=services))


def test_a_letter_over_which_a_worker_was_lost_is_not_sent_again(bench: Bench):
    office = Office()
    letter = {"component": "Email", **LETTER, **goto("say")}
    run, worker = mailing(bench, office, "begin -> send; say", send=letter, say=says("{send@_ERROR}: {send@success}"))

    bench.play(worker)

    assert (run.status, run.said) == ("succeeded", "delivery state unknown: false")
    assert (len(office.letters), run.activation("send").attempt) == (1, 2)


def test_a_person_may_say_that_a_letter_has_arrived(bench: Bench):
    office = Office()
    run, worker = mailing(bench, office, "begin -> send", send={"component": "Email", **LETTER, "on_unknown": "ask"})

    bench.play(worker)
    assert (run.status, list(run.events[-1].body["forms"])) == ("waiting", ["send"])
    answer(bench, run, {"send.outcome": "happened", "send.outputs": {"success": True}})
    bench.play(worker)

    assert (run.status, run.outputs("send")["success"], len(office.letters)) == ("succeeded", True, 1)


def test_an_agent_whose_worker_was_lost_over_a_letter_goes_on_without_sending_it_again(bench: Bench):
    office = Office()
    call = {"times": 1, "tool_calls": [{"name": "email_0", "arguments": {"to_email": "you@example.com"}}]}
    unknown = {"times": 1, "last": "delivery state unknown", "reply": "It may have been sent."}
    bench.script = Script([unknown, call])
    listed = [{"component_name": "Email", "params": dict(LETTER)}]
    asked = {"llm_id": "m", "prompts": [{"role": "user", "content": "Write."}]}
    run, worker = mailing(bench, office, "begin -> agent", agent={"component": "Agent", "tools": listed, **asked})

    bench.play(worker)

    assert (run.status, run.outputs("agent")["content"]) == ("succeeded", "It may have been sent.")
    assert len(office.letters) == 1


# -- keys of requests -------------------------------------------------------------------------------------------------
def test_requests_of_one_activation_have_keys_that_stay_the_same_over_its_attempts(bench: Bench):
    http = FakeHttp(lambda call: HttpResponse(200, {}, b"", call.url))
    worker = bench.a_worker(services=ServiceConfig(of_tenant=lambda _, services: Services(http)))

    async def order(ctx: NodeContext) -> Finished:
        for body in ("a", "a", "b"):
            await ctx.services.http.send(HttpCall("POST", "http://shop.test/orders", json=body))
        await ctx.services.http.send(HttpCall("GET", "http://shop.test/orders"))
        if run.activation("order").attempt == 1:
            await asyncio.to_thread(lose, bench, run)
        return Finished()

    bench.does(order=order)
    run = bench.start("begin -> order", order={"component": "Keyed"})
    bench.play(worker)

    keys = [call.headers.get("Idempotency-Key") for call in http.calls]
    assert (run.status, run.activation("order").attempt) == ("succeeded", 2)
    assert keys[:4] == keys[4:]
    assert len({*keys[:3]}) == 3
    assert keys[3] is None


# -- in other words ---------------------------------------------------------------------------------------------------
def lost_while_sending(bench: Bench, send: Mapping[str, Any], *after: str, **params: Any) -> Run:
    """A run whose worker was lost within `send`, after the sweeper has seen it."""
    follows = "" if "exception_goto" in send else "".join(f" -> {node}" for node in after)
    beside = "".join(f"; {node}" for node in after) if "exception_goto" in send else ""
    run = bench.start(f"begin -> send{follows}{beside}", send=send, **params)
    bench.play(until=lambda: "send" in run.statuses)
    lose_activation(bench, run, run.activation("send").id)
    bench.outbox.lose()
    Sweeper(bench.coordinator).tick()
    return run


def lose_activation(bench: Bench, run: Run, activation: Any) -> None:
    """A worker claims an unsafe activation, begins, and is never seen again."""
    with bench.database.transaction() as tx:
        claimed = activations.claim(tx, run.id, activation, lease_id=activation, lease=AT_ONCE, worker="by hand")
        assert claimed is not None
        assert activations.record_effect(tx, claimed, AT_ONCE, "unsafe") is False


def lose(bench: Bench, run: Run) -> None:
    """Expire the leases of all attempts that work for the run now, also if a renewal comes in between.

    Attempts that begin meanwhile keep theirs: another worker may claim the activation at once.
    """
    working = [row.lease_id for row in run.activations if row.status == "running"]

    def are_lost() -> bool:
        with bench.database.transaction() as tx:
            tx.execute(EXPIRE, run_id=run.id, leases=working)
        Sweeper(bench.coordinator).tick()
        return not any(row.status == "running" and row.lease_id in working for row in run.activations)

    assert working
    until(are_lost)


def answer(bench: Bench, run: Run, inputs: Mapping[str, Any] | None, *, query: str = "") -> None:
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=query, inputs=inputs))


def of(run: Run) -> tuple[Any, Any]:
    return run.row["canvas_id"], run.row["version_id"]


def bench_reads(bench: Bench, node: str, expression: str) -> list[Any]:
    """What a node finds under a reference."""
    found: list[Any] = []

    def look(ctx: NodeContext) -> Finished:
        found.append(ctx.lookup(expression))
        return Finished()

    bench.does(**{node: look})
    return found
