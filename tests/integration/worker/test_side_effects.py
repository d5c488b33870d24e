"""An action that may have happened is not repeated by itself: its effect is stored before its first request."""

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
from tests.builders import content, goto, reads
from tests.fakes import FakeHttp
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker.conftest import PausedNodes
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
def sweeper_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sweeper act at its first tick."""
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)


# -- before an action -------------------------------------------------------------------------------------------------
def test_effect_of_an_activation_is_stored_before_its_node_runs(bench: Bench):
    seen: dict[str, str | None] = {}

    def look(ctx: NodeContext) -> Finished:
        seen[ctx.node_id] = run.activation(ctx.node_id).effect
        return Finished()

    bench.does(plain=look, order=look, send=look)
    run = bench.start("begin -> plain -> order -> send", order={"component": "Keyed"}, send=UNSAFE)
    bench.play()

    assert run.status == "succeeded"
    assert seen == {"plain": None, "order": "keyed", "send": "unsafe"}


def test_unsafe_node_does_not_run_after_its_lease_is_lost(bench: Bench):
    sent: list[str] = []
    bench.does(send=lambda ctx: sent.append(ctx.node_id) or Finished())
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)
    late_worker = bench.a_worker(time_limit=lambda *_: expire_running_leases(bench, run) or 60.0)

    late_worker.execute(run.id, run.activation("send").id)

    assert sent == []
    assert (run.statuses["send"], run.activation("send").attempt) == ("ready", 1)


def test_unsafe_node_does_not_run_after_its_run_is_cancelled(bench: Bench):
    sent: list[str] = []
    bench.does(send=lambda ctx: sent.append(ctx.node_id) or Finished())
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)

    bench.play(bench.a_worker(time_limit=lambda *_: bench.lifecycle.cancel_run(bench.tenant_id, run.id) and 60.0))

    assert (run.status, sent) == ("cancelled", [])


# -- a lost worker ----------------------------------------------------------------------------------------------------
def test_unsafe_node_of_a_lost_worker_fails_the_run_with_an_unknown_outcome(bench: Bench):
    run = lose_worker_in_send(bench, UNSAFE)
    bench.play()

    assert (run.status, run.row["error"]) == ("failed", NOT_KNOWN)
    assert (run.activation("send").attempt, run.activation("send").crash_count) == (1, 1)
    assert run.events[-1].body["code"] == "unknown_outcome"


def test_unsafe_node_is_not_repeated_after_a_report_by_a_sweeper_of_an_earlier_release(bench: Bench):
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)
    lose_activation(bench, run, run.activation("send").id)
    bench.outbox.lose()
    lost = {"is": "Failed", "error": "The worker was lost.", "code": "worker_lost", "retryable": True}
    with bench.database.transaction() as tx:
        mine = (rows.c.run_id == run.id, rows.c.node_id == "send")
        tx.execute(update(rows).where(*mine).values(status="reported", crash_count=1, outcome=lost))

    bench.coordinator.advance_run(run.id)
    bench.play()

    assert (run.status, run.row["error"]) == ("failed", NOT_KNOWN)


def test_unsafe_node_that_was_lost_before_it_ran_is_executed_by_another_attempt(bench: Bench):
    run = bench.start("begin -> send", send=UNSAFE)
    bench.play(until=lambda: "send" in run.statuses)
    bench.claim(run, "send", lease=AT_ONCE)
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 2)


def test_unsafe_node_with_on_unknown_retry_is_executed_again(bench: Bench):
    run = lose_worker_in_send(bench, {**UNSAFE, "on_unknown": "retry"})
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 2)


def test_goto_target_of_an_unsafe_node_reads_the_error_of_the_unknown_outcome(bench: Bench):
    run = lose_worker_in_send(bench, {**UNSAFE, **goto("say")}, "say", say=content("{send@_ERROR}"))
    bench.play()

    assert (run.status, run.text) == ("succeeded", NOT_KNOWN)


def test_unsafe_node_interrupted_by_a_shutdown_has_an_unknown_outcome(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work", work=UNSAFE)
    leaving = bench.a_worker()

    with at_work(bench, leaving):
        paused_nodes.wait_for("work")
        leaving.close()

    until(lambda: run.status == "failed")
    assert run.row["error"].startswith("It is not known whether work has happened")
    assert run.activation("work").crash_count == 0


# -- forms about unknown outcomes -------------------------------------------------------------------------------------
def test_answer_happened_completes_an_unsafe_node_with_the_entered_outputs(bench: Bench):
    run = lose_worker_in_send(bench, ASKS, "after", after=reads("send"))
    assert run.status == "waiting"
    read = read_reference(bench, "after", "send@id")

    answer(bench, run, {"send.outcome": "happened", "send.outputs": {"id": 7}})
    bench.play()

    assert (run.status, read) == ("succeeded", [7])
    assert run.activation("send").attempt == 1
    (outputs,) = [event.outputs for event in run.events if event.name == "node_finished" and event.node_id == "send"]
    assert outputs["id"] == 7


def test_answer_again_executes_an_unsafe_node_in_another_attempt(bench: Bench):
    run = lose_worker_in_send(bench, ASKS, "after")

    answer(bench, run, {"*.outcome": "again"})
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 2)


def test_single_unknown_outcome_is_answered_by_a_query_of_the_conversation(bench: Bench):
    run = lose_worker_in_send(bench, ASKS)

    bench.start_run(bench.a_start(drawn=version_of(run), conversation_id=run.conversation_id, query="Happened"))
    bench.play()

    assert (run.status, run.activation("send").attempt) == ("succeeded", 1)


def test_unrelated_answer_shows_the_form_of_the_unknown_outcome_again(bench: Bench):
    run = lose_worker_in_send(bench, ASKS)

    answer(bench, run, None, query="what?")

    assert run.status == "waiting"
    assert run.event_names.count("user_inputs") == 2


def test_unknown_outcomes_of_parallel_items_are_answered_together_or_one_by_one(bench: Bench):
    each = {"component": "Iteration", "items_ref": "env.list", "max_concurrency": 3}
    parts = ("begin -> each -> say", "each: item -> send")
    run = bench.start(*parts, each=each, send=ASKS, say=content("done"), variables={"list": [1, 2, 3]})
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

    assert (run.status, run.text) == ("succeeded", "done")
    assert [row.attempt for row in run.activations if row.node_id == "send"] == [1, 2, 1]


# -- tools of an Agent ------------------------------------------------------------------------------------------------
SENDS = {"times": 1, "tool_calls": [{"name": "send_0", "arguments": {"to": "Ada"}}]}
LOOKS = {"times": 1, "last": "sent", "tool_calls": [{"name": "look_1", "arguments": {"to": "Ada"}}]}


def test_agent_lost_during_an_unsafe_tool_call_has_an_unknown_outcome(bench: Bench, agent_tools: "AgentTools"):
    bench.script = Script([SENDS, {"reply": "Sent."}])
    run = agent_tools.start(bench, on_unknown="ask")
    agent_tools.during_call["send"] = lambda: expire_running_leases(bench, run)

    play_while_running(bench, run)
    assert (run.status, list(run.events[-1].body["forms"])) == ("waiting", ["agent"])
    answer(bench, run, {"agent.outcome": "again"})
    bench.play()

    assert (run.status, run.outputs("agent")["content"]) == ("succeeded", "Sent.")
    assert agent_tools.calls == [("send", "unsafe"), ("send", "unsafe")]


def test_agent_lost_after_an_unsafe_tool_call_continues_from_the_recorded_result(
    bench: Bench, agent_tools: "AgentTools"
):
    bench.script = Script([SENDS, LOOKS, {"reply": "Sent."}])
    run = agent_tools.start(bench)
    agent_tools.during_call["look"] = lambda: expire_running_leases(bench, run)

    play_while_running(bench, run)

    assert (run.status, run.activation("agent").attempt) == ("succeeded", 2)
    assert agent_tools.calls == [("send", "unsafe"), ("look", "keyed"), ("look", "keyed")]


@dataclass
class AgentTools:
    """Two tools of an Agent: one that must not be called twice, and one that may."""

    calls: list[tuple[str, str | None]] = field(default_factory=list)  # the tool, and the stored effect of the Agent
    during_call: dict[str, Callable[[], None]] = field(default_factory=dict)  # by tool, for its first call
    run: Run | None = None

    def start(self, bench: Bench, **params: Any) -> Run:
        listed = [{"component_name": "Send"}, {"component_name": "Look"}]
        defaults = {"llm_id": "m", "prompts": [{"role": "user", "content": "Write."}]}
        self.run = bench.start("begin -> agent", agent={"component": "Agent", "tools": listed, **defaults, **params})
        return self.run

    def tool(self, name: str) -> Tool[ToolParams]:
        async def use(params: ToolParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
            assert self.run is not None
            self.calls.append((name, self.run.activation("agent").effect))
            await asyncio.to_thread(self.during_call.pop(name, lambda: None))
            return ToolResult({"content": "sent"}, "sent")

        to = {"to": Argument("string", "To whom.", required=True)}
        effect: Effect = "unsafe" if name == "send" else "idempotent"
        return Tool(name.capitalize(), name, ToolParams, "Letters.", to, use, effect)


@pytest.fixture
def agent_tools(monkeypatch: pytest.MonkeyPatch) -> AgentTools:
    agent_tools = AgentTools()
    monkeypatch.setattr(
        tools, "find", lambda name: agent_tools.tool(name.lower()) if name in ("Send", "Look") else None
    )
    return agent_tools


# -- e-mails ----------------------------------------------------------------------------------------------------------
class MailServer:
    """A mail server that calls `during_call` once, while it receives a message."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.during_call: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def connect(self, account: MailAccount) -> AsyncGenerator["MailServer"]:
        yield self

    async def set_envelope(self, sender: str, recipients: Sequence[str]) -> Mapping[str, str]:
        return {}

    async def deliver(self, message: bytes) -> None:
        self.messages.append(message)
        during_call, self.during_call = self.during_call, lambda: None
        await asyncio.to_thread(during_call)


EMAIL_PARAMS: Mapping[str, Any] = {
    "smtp_server": "smtp.example.com",
    "email": "me@example.com",
    "password": "pass-1234",
    "sender_name": "Ann",
    "to_email": "you@example.com",
}


def start_with_mail_server(bench: Bench, mail_server: MailServer, *nodes: str, **params: Any) -> tuple[Run, Worker]:
    """Return a run that sends an e-mail, and a worker that is lost during the delivery."""

    def services(_: Any, common: Services) -> Services:
        return replace(common, mail=mail_server)

    run = bench.start(*nodes, **params)
    mail_server.during_call = lambda: expire_running_leases(bench, run)
    return run, bench.a_worker(services=ServiceConfig(of_tenant=services))


def test_email_is_not_sent_again_after_its_worker_is_lost(bench: Bench):
    mail_server = MailServer()
    email = {"component": "Email", **EMAIL_PARAMS, **goto("say")}
    run, worker = start_with_mail_server(
        bench, mail_server, "begin -> send; say", send=email, say=content("{send@_ERROR}: {send@success}")
    )

    play_while_running(bench, run, worker)

    assert (run.status, run.text) == ("succeeded", "delivery state unknown: false")
    assert (len(mail_server.messages), run.activation("send").attempt) == (1, 2)


def test_answer_happened_completes_an_email_node_without_sending_again(bench: Bench):
    mail_server = MailServer()
    run, worker = start_with_mail_server(
        bench, mail_server, "begin -> send", send={"component": "Email", **EMAIL_PARAMS, "on_unknown": "ask"}
    )

    play_while_running(bench, run, worker)
    assert (run.status, list(run.events[-1].body["forms"])) == ("waiting", ["send"])
    answer(bench, run, {"send.outcome": "happened", "send.outputs": {"success": True}})
    bench.play(worker)

    assert (run.status, run.outputs("send")["success"], len(mail_server.messages)) == ("succeeded", True, 1)


def test_agent_lost_while_sending_an_email_continues_without_sending_it_again(bench: Bench):
    mail_server = MailServer()
    call = {"times": 1, "tool_calls": [{"name": "email_0", "arguments": {"to_email": "you@example.com"}}]}
    unknown = {"times": 1, "last": "delivery state unknown", "reply": "It may have been sent."}
    bench.script = Script([unknown, call])
    listed = [{"component_name": "Email", "params": dict(EMAIL_PARAMS)}]
    params = {"llm_id": "m", "prompts": [{"role": "user", "content": "Write."}]}
    run, worker = start_with_mail_server(
        bench, mail_server, "begin -> agent", agent={"component": "Agent", "tools": listed, **params}
    )

    play_while_running(bench, run, worker)

    assert (run.status, run.outputs("agent")["content"]) == ("succeeded", "It may have been sent.")
    assert len(mail_server.messages) == 1


# -- idempotency keys -------------------------------------------------------------------------------------------------
def test_idempotency_keys_of_an_activation_stay_the_same_over_its_attempts(bench: Bench):
    http = FakeHttp(lambda call: HttpResponse(200, {}, b"", call.url))
    worker = bench.a_worker(services=ServiceConfig(of_tenant=lambda _, services: Services(http)))

    async def order(ctx: NodeContext) -> Finished:
        for body in ("a", "a", "b"):
            await ctx.services.http.send(HttpCall("POST", "http://shop.test/orders", json=body))
        await ctx.services.http.send(HttpCall("GET", "http://shop.test/orders"))
        if run.activation("order").attempt == 1:
            await asyncio.to_thread(expire_running_leases, bench, run)
        return Finished()

    bench.does(order=order)
    run = bench.start("begin -> order", order={"component": "Keyed"})
    play_while_running(bench, run, worker)

    keys = [call.headers.get("Idempotency-Key") for call in http.calls]
    assert (run.status, run.activation("order").attempt) == ("succeeded", 2)
    assert keys[:4] == keys[4:]
    assert len({*keys[:3]}) == 3
    assert keys[3] is None


# -- helpers ----------------------------------------------------------------------------------------------------------
def lose_worker_in_send(bench: Bench, send: Mapping[str, Any], *after: str, **params: Any) -> Run:
    """Return a run whose worker was lost during `send`, after a tick of the sweeper."""
    follows = "" if "exception_goto" in send else "".join(f" -> {node}" for node in after)
    beside = "".join(f"; {node}" for node in after) if "exception_goto" in send else ""
    run = bench.start(f"begin -> send{follows}{beside}", send=send, **params)
    bench.play(until=lambda: "send" in run.statuses)
    lose_activation(bench, run, run.activation("send").id)
    bench.outbox.lose()
    Sweeper(bench.coordinator).tick()
    return run


def lose_activation(bench: Bench, run: Run, activation: Any) -> None:
    """Claim an unsafe activation, store its effect, and let its lease expire."""
    with bench.database.transaction() as tx:
        claimed = activations.claim(tx, run.id, activation, lease_id=activation, lease=AT_ONCE, worker="by hand")
        assert claimed is not None
        assert activations.record_effect(tx, claimed, AT_ONCE, "unsafe") is False


def expire_running_leases(bench: Bench, run: Run) -> None:
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


def play_while_running(bench: Bench, run: Run, worker: Worker | None = None) -> None:
    """Process messages until the run has ended or waits, also those that a sweeper is still about to send.

    A worker that notices that its lease is lost may return before the sweeper has sent the next attempt's message.
    """
    until(lambda: bench.play(worker) or run.status != "running")


def answer(bench: Bench, run: Run, inputs: Mapping[str, Any] | None, *, query: str = "") -> None:
    bench.lifecycle.resume_run(bench.tenant_id, run.id, RunRequest(query=query, inputs=inputs))


def version_of(run: Run) -> tuple[Any, Any]:
    return run.row["canvas_id"], run.row["version_id"]


def read_reference(bench: Bench, node: str, expression: str) -> list[Any]:
    """Let a node look up a reference; return the list of the values."""
    values: list[Any] = []

    def look(ctx: NodeContext) -> Finished:
        values.append(ctx.lookup(expression))
        return Finished()

    bench.does(**{node: look})
    return values
