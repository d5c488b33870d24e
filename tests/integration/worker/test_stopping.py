"""A cancelled run ends its current work: sockets close, programs end, statements are cancelled, waits end."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

import openai  # the first call imports it for a second
import pytest
import redis
from sqlalchemy import text

from canvas.outcome import Finished, Outcome
from components.context import NodeContext
from providers.address_policy import Guard
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker import endpoint as endpoints
from tests.integration.worker.conftest import PausedNodes
from tests.integration.worker.endpoint import BUSY, MODEL, PARTIAL_BODY, STREAM, Endpoint, chat_event
from worker.execution.attempt import AttemptRunner
from worker.leases.leases import LeaseKeeper
from worker.services.factory import ServiceConfig

SOON = 20.0  # seconds, on a busy machine, for what usually takes a tenth of a second
NEVER = timedelta(hours=1)
CHAT, TALK, SEARCH, PAGE = "/v1/chat/completions", "/v1/audio/speech", "/search", "/page"

assert openai.__version__

SEARCH_FOR = '{"query": "prices"}'
ASKING = {"llm_id": MODEL, "prompts": [{"role": "user", "content": "Hi"}]}
SEARCHING = {
    **ASKING,
    "component": "Agent",
    "sys_prompt": "You search.",
    "tools": [{"component_name": "TavilySearch", "name": "Search", "params": {"api_key": "a key that is long"}}],
}
INVOKING = {"component": "Invoke", "method": "get", "variables": [], "headers": "", "timeout": 60}
CHOOSING = {
    "llm_id": MODEL,
    "category_description": {"a": {"description": "one", "to": ["say"]}, "b": {"description": "two", "to": ["say"]}},
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with endpoints.endpoint() as server:
        yield server


def cancel(bench: Bench, run: Run) -> None:
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)


# -- sockets ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["before the answer", "in the middle of it"])
@pytest.mark.parametrize("doing", ["a model", "a whole answer", "a page", "a tool of an agent", "reading aloud"])
def test_cancelled_run_closes_the_connection_that_it_waits_for(
    bench: Bench, endpoint: Endpoint, doing: str, moment: str
):
    bench.accounts = [endpoint.account]
    call = {"index": 0, "id": "1", "type": "function", "function": {"name": "tavily_search_0", "arguments": SEARCH_FOR}}
    say, path = content("{model@content}"), CHAT
    match doing:
        case "a model":
            run = bench.start("begin -> model -> say", model=ASKING, say=say)
        case "a whole answer":
            run = bench.start("begin -> route -> say", route={"component": "Categorize", **CHOOSING}, say=content("no"))
        case "a page":
            path = PAGE
            run = bench.start("begin -> page -> say", page={**INVOKING, "url": endpoint.url + PAGE}, say=content("no"))
        case "a tool of an agent":
            path = SEARCH
            finish = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}\n\n'
            endpoint.replies[CHAT] = [STREAM + chat_event({"tool_calls": [call]}) + finish + b"data: [DONE]\n\n"]
            run = bench.start("begin -> model -> say", model=SEARCHING, say=say)
        case _:
            path = TALK
            run = bench.start("begin -> say", say={"content": ["Hello there."], "auto_play": True})
    if moment == "in the middle of it":
        endpoint.partial_replies[path] = (
            STREAM + chat_event({"content": "Once"}) if doing == "a model" else PARTIAL_BODY
        )
    services = ServiceConfig(guard=Guard(allow_any=True), base_urls={"TAVILYSEARCH": endpoint.url})

    with at_work(bench, bench.a_worker(services=services, tts_model=endpoints.VOICE)):
        assert endpoint.is_hanging.wait(20), endpoint.requested_paths
        cancel(bench, run)
        assert endpoint.client_has_closed.wait(SOON), f"the connection is still open: {doing}"
        until(lambda: run.status == "cancelled")

    assert endpoint.requested_paths[-1] == path


def test_cancelled_attempt_does_not_retry_its_model(bench: Bench, endpoint: Endpoint):
    bench.accounts = [endpoint.account]
    endpoint.replies[CHAT] = [BUSY]
    waits = {**ASKING, "max_retries": 3, "delay_after_error": 600}
    run = bench.start("begin -> model -> say", model=waits, say=content("{model@content}"))

    with at_work(bench):
        until(lambda: endpoint.requested_paths)
        cancel(bench, run)
        until(lambda: run.status == "cancelled")

    assert endpoint.requested_paths == [CHAT]


# -- programs and statements -----------------------------------------------------------------------------------------
def test_cancelled_sandbox_program_ends_with_all_its_child_processes(bench: Bench, tmp_path: Path):
    script = (
        "import subprocess, time\n"
        f"def main():\n    subprocess.Popen(['sleep', '6{tmp_path.stat().st_ino}'])\n    time.sleep(600)\n"
    )
    run = bench.start("begin -> code", code={"component": "CodeExec", "lang": "python", "script": script})
    with at_work(bench, bench.a_worker(sandbox="local", sandbox_allow_root=True)):
        until(lambda: running_children(tmp_path))
        cancel(bench, run)
        until(lambda: run.status == "cancelled")

    until(lambda: not running_children(tmp_path), seconds=SOON)


def running_children(folder: Path) -> list[str]:
    """Return the ids of the running processes that the program has started."""
    mark = f"6{folder.stat().st_ino}".encode()
    found: list[str] = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in command.read_bytes():
                found.append(command.parent.name)
        except OSError:  # it has just ended
            continue
    return found


def test_cancelled_attempt_cancels_its_statement_on_the_server(bench: Bench):
    url = urlsplit(bench.database.url)
    params = {
        "component": "ExeSQL",
        "db_type": "postgres",
        "host": url.hostname,
        "port": url.port,
        "database": url.path.lstrip("/"),
        "username": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        "sql": "select count(*), 'of a cancelled run' from generate_series(1, 2000000000)",
    }
    run = bench.start("begin -> ask", ask=params)
    at_the_server = text("""
        select count(*) from pg_stat_activity
        where datname = current_database() and state = 'active' and query like 'FETCH %'
    """)

    def running_statements() -> int:
        with bench.database.transaction() as tx:
            return tx.scalar(at_the_server)

    with at_work(bench, bench.a_worker(services=ServiceConfig(guard=Guard(allow_any=True)))):
        until(running_statements)
        cancel(bench, run)
        until(lambda: not running_statements(), seconds=SOON)
        until(lambda: run.status == "cancelled")


# -- other points of a run -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("node", ["work", "compute"])
def test_claimed_attempt_of_a_cancelled_run_does_not_begin(bench: Bench, node: str, monkeypatch: pytest.MonkeyPatch):
    claimed, may_continue = threading.Event(), threading.Event()
    began: list[str] = []
    prepare = AttemptRunner._prepare_context

    def prepare_slowly(self: AttemptRunner) -> Any:
        if self._claim.node_id == node:
            claimed.set()
            may_continue.wait(20)
        return prepare(self)

    def record_start(ctx: NodeContext) -> Outcome:
        began.append(ctx.node_id)
        return Finished()

    monkeypatch.setattr(AttemptRunner, "_prepare_context", prepare_slowly)
    bench.does(**{node: record_start})
    run = bench.start(f"begin -> {node}")
    worker = bench.a_worker()

    with at_work(bench, worker):
        assert claimed.wait(20)
        until(lambda: worker.leases.is_subscribed)
        cancel(bench, run)
        until(lambda: [a.stopped for a in worker.leases.attempts() if a.run_id == run.id and a.stopped])
        may_continue.set()
        until(lambda: run.status == "cancelled")

    assert began == []


def test_earlier_cancel_key_is_found_at_the_claim(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{run.id}-cancel", "x")

    with at_work(bench, bench.a_worker(lease=NEVER, renew_every=NEVER, cancel_poll=NEVER)):
        until(lambda: run.status == "cancelled", seconds=SOON)


def test_cancel_key_of_a_run_between_two_nodes_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    run = bench.start("begin -> work")
    worker = bench.a_worker(lease=NEVER, renew_every=NEVER, cancel_poll=NEVER)
    may_poll = threading.Event()
    bus = bench.coordinator.dispatch.bus
    find_cancelled = bus.find_cancelled

    def poll_when_allowed(runs: Any) -> Any:
        may_poll.wait(20)  # by then no attempt of the run is active
        return find_cancelled(runs)

    monkeypatch.setattr(bus, "find_cancelled", poll_when_allowed)
    bench.play(worker, until=lambda: run.statuses.get("work") == "ready")
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{run.id}-cancel", "x")

    may_poll.set()

    until(lambda: run.status == "cancelled", seconds=SOON)


def test_cancelled_wide_run_stops_all_attempts_and_begins_no_others(bench: Bench, paused_nodes: PausedNodes):
    nodes = [f"n{number}" for number in range(256)]
    begun: set[str] = set()

    async def work(ctx: NodeContext) -> Finished:
        begun.add(ctx.node_id)
        return await paused_nodes._work(ctx)

    bench.does(**dict.fromkeys(nodes, work))
    run = bench.start(f"begin -> {', '.join(nodes)}")

    with at_work(bench, bench.a_worker(), threads=32):
        until(lambda: len(begun) == 32)
        began = monotonic()
        cancel(bench, run)
        until(lambda: len(paused_nodes.stopped) == 32, seconds=SOON)
        elapsed = monotonic() - began
        until(lambda: run.status == "cancelled")

    assert elapsed < SOON
    assert len(begun) == 32
    assert sum(row.status == "closed" for row in run.activations) == 256 - 32


def test_cancelled_run_in_an_iteration_begins_no_other_item(bench: Bench, paused_nodes: PausedNodes):
    items: list[int] = []

    async def work(ctx: NodeContext) -> Finished:
        items.append(ctx.scope_item)
        return await paused_nodes._work(ctx)

    bench.does(list=lambda ctx: Finished(outputs={"result": [1, 2, 3]}), work=work)
    each = {"items_ref": "list@result", "max_concurrency": 1}
    run = bench.start("begin -> list -> each -> say", "each: item -> work", each=each, say=content("never"))

    with at_work(bench):
        until(lambda: items)
        cancel(bench, run)
        until(lambda: run.status == "cancelled", seconds=SOON)

    assert items == [0]
    assert "say" not in run.statuses


def test_attempt_that_does_not_yield_is_abandoned_and_holds_nothing(bench: Bench):
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def ignore_cancel(ctx: NodeContext) -> Finished:
        begun.set()
        may_end.wait(20)
        ended.set()
        return Finished(outputs={"result": "too late"})

    bench.does(compute=ignore_cancel)
    run = bench.start("begin -> compute -> say", say=content("never"))

    with at_work(bench):
        assert begun.wait(20)
        cancel(bench, run)
        until(lambda: run.status == "cancelled", seconds=SOON)
        has_ended = ended.is_set()
        before = run.row
        may_end.set()
        assert ended.wait(20)

    assert not has_ended
    assert run.row == before
    assert run.outputs("compute") == {}


# -- lost cancel messages --------------------------------------------------------------------------------------------
def test_run_with_a_lost_cancel_message_ends_at_the_next_renewal(bench: Bench, paused_nodes: PausedNodes):
    run = paused_nodes.start("begin -> work")
    worker = bench.a_worker(renew_every=timedelta(milliseconds=40), cancel_poll=NEVER)
    lose_cancel_messages(worker.leases)

    with at_work(bench, worker):
        paused_nodes.wait_for("work")
        cancel(bench, run)
        until(lambda: run.status == "cancelled", seconds=SOON)

    assert paused_nodes.stopped == ["work"]


def lose_cancel_messages(leases: LeaseKeeper) -> None:
    """Lose all cancel messages."""
    leases._listener._stop_run = lambda run_id: None
