"""Model calls of runs: what is stored of them, when, and what never is."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from canvas.outcome import Failed, Finished
from components.context import NodeContext
from providers.models.chat.scripted import Script
from providers.models.types.chat import ChatRequest
from store.db.database import Database
from store.db.pipeline import Pipeline
from store.runs import attempt_records, model_calls
from store.runs.model_calls import CallBodies, StoredCall
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until
from tests.integration.worker.scripted_vendor import (
    BUSY,
    FAILS,
    HANGS,
    KEY,
    MODEL,
    ScriptedVendor,
    calls,
    said,
    vendor_of,
)
from worker.context.call_bodies import MAX_PART_BYTES

TOOL_KEY = "tvly-another-key-of-a-tool"
ADD = {"component_name": "TavilySearch", "name": "Search", "params": {"api_key": TOOL_KEY}}
TABLES = text("""
    select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = current_schema() and c.relkind in ('r', 'p') and not c.relispartition
""")


# -- what is stored --------------------------------------------------------------------------------------------------
def test_call_is_stored_with_what_was_sent_and_answered(bench: Bench):
    with vendor_of(said("They rose.")) as served:
        run = played(bench, served, agent(tools=[]))

    (call,) = calls_of(run)
    bodies = bodies_of(run, call)
    assert (call.kind, call.model, call.account, call.status) == (
        "chat",
        MODEL,
        "OpenAI-API-Compatible (default)",
        "ok",
    )
    assert (call.attempt, call.tries, call.waited_ms, call.error) == (1, 1, 0, None)
    assert call.activation_id == run.activation("model").id
    assert call.usage == run.activation("model").usage
    assert call.started_at <= call.first_token_at <= call.ended_at
    assert run.row["created_at"] <= call.started_at
    assert bodies.request["messages"] == served.requests[0]["messages"]
    assert bodies.response == {"role": "assistant", "content": "They rose."}


def test_bodies_of_an_agents_rounds_equal_what_the_vendor_received(bench: Bench):  # T143
    with vendor_of(calls("a"), calls("b"), said("Done.")) as served:
        run = played(bench, served, agent())

    stored = calls_of(run)
    bodies = [bodies_of(run, call) for call in stored]
    assert [one.request["messages"] for one in bodies] == [request["messages"] for request in served.requests]
    assert [one.request["tools"] for one in bodies] == [request["tools"] for request in served.requests]
    assert [call.round for call in stored] == ["round:0", "round:1", "round:2"]
    assert bodies[0].response["tool_calls"][0]["function"] == {"name": "tavily_search_0", "arguments": '{"query": "a"}'}


def test_each_message_of_a_run_is_stored_and_sent_once(bench: Bench, monkeypatch: pytest.MonkeyPatch):  # T143
    rounds = 6
    sent_parts: list[UUID] = []
    write = model_calls.write

    def recording(tx: Any, run_id: Any, batches: Sequence[Any]) -> None:
        sent_parts.extend(digest for batch in batches if batch is not None for digest in batch.parts)
        write(tx, run_id, batches)

    monkeypatch.setattr(model_calls, "write", recording)
    with vendor_of(*(calls(str(number)) for number in range(rounds)), said("Done.")) as served:
        run = played(bench, served, agent(rounds=rounds))

    stored = [digest for (digest,) in rows(run, "select digest from call_parts where run_id = :of_run")]
    sent = served.requests[-1]["messages"]
    assert len(calls_of(run)) == rounds + 1
    assert len(stored) == len(sent) + len({"tools"}) + len(served.requests)  # and the answers
    assert sorted(sent_parts) == sorted(stored)


def test_calls_of_a_journal_entry_survive_the_loss_of_their_worker(bench: Bench):
    with vendor_of(calls("a"), HANGS, said("Done.")) as served:
        bench.accounts = [served.account]
        run = started(bench, agent())
        lost = bench.a_worker(services=served.services)
        with at_work(bench, lost):
            assert served.is_hanging.wait(30)
            before = calls_of(run)
            lost.close()
        bench.play(bench.a_worker(services=served.services))

    assert [(call.round, call.status) for call in before] == [("round:0", "ok")]
    assert run.status == "succeeded"
    assert [(call.attempt, call.round, call.status) for call in calls_of(run)] == [
        (1, "round:0", "ok"),
        (1, "round:1", "cancelled"),  # the worker was shut down, and reported it
        (2, "round:1", "ok"),
    ]


def test_failed_call_is_stored_with_its_error_and_without_the_key(bench: Bench):
    with vendor_of(FAILS) as served:
        run = played(bench, served, agent(tools=[]))

    (call,) = calls_of(run)
    assert (call.status, call.tries) == ("failed", 1)
    assert call.error is not None
    assert "AUTH_ERROR" in call.error
    assert KEY not in call.error
    assert bodies_of(run, call).response is None


def test_call_of_a_cancelled_run_is_stored_as_cancelled(bench: Bench):
    with vendor_of(HANGS) as served:
        bench.accounts = [served.account]
        run = started(bench, agent(tools=[]))
        with at_work(bench, bench.a_worker(services=served.services)):
            assert served.is_hanging.wait(30)
            bench.lifecycle.cancel_run(bench.tenant_id, run.id)
            until(lambda: run.status == "cancelled")
            (call,) = until(lambda: calls_of(run))

    assert (call.status, call.first_token_at) == ("cancelled", None)
    assert bodies_of(run, call).request["messages"]


def test_repeated_requests_of_a_call_are_one_row_with_its_tries(bench: Bench):
    with vendor_of(BUSY, BUSY, said("At last.")) as served:
        run = played(bench, served, agent(tools=[], max_retries=3, delay_after_error=0.01))

    (call,) = calls_of(run)
    assert (call.status, call.tries) == ("ok", 3)


def test_run_whose_nodes_ask_no_model_sends_no_statement_about_calls(bench: Bench, sent_statements: list[bytes]):
    # T098
    bench.does(work=lambda ctx: Finished({"result": 1}))
    run = bench.start("begin -> work -> say", say=content("done"))
    bench.play()

    assert run.status == "succeeded"
    assert not [sql for sql in sent_statements if b"model_calls" in sql or b"call_parts" in sql or b"attempts" in sql]


def test_call_costs_no_round_trip_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    waits: list[int] = []
    wait = Pipeline.wait

    def counted(self: Any) -> None:
        if self._sent and threading.current_thread() is threading.main_thread():  # which claims and reports
            waits.append(1)
        wait(self)

    def play(**settings: Any) -> int:
        bench.script = answering("Hello.")
        run = started(bench, {"component": "LLM"})
        worker = bench.a_worker(**settings)
        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "wait", counted)
            waits.clear()
            bench.play(worker)
        assert run.status == "succeeded"
        assert len(calls_of(run)) == (settings["model_calls"] == "full")
        return len(waits)

    play(model_calls="off")  # fills caches

    assert play(model_calls="full") == play(model_calls="off")


# -- kinds -----------------------------------------------------------------------------------------------------------
def test_embedding_call_is_stored_with_its_texts_and_without_vectors(bench: Bench):
    async def embed(ctx: NodeContext) -> Any:
        worker_models = bench.worker.execution.models
        embedder = await worker_models.embedder(bench.tenant_id, "echo")
        await embedder.embed(["one text", "another"])
        return Finished({"result": 1})

    bench.does(work=embed)
    run = bench.start("begin -> work")
    bench.play()

    (call,) = calls_of(run)
    bodies = bodies_of(run, call)
    assert (call.kind, call.status) == ("embedding", "ok")
    assert bodies.request == {"texts": ["one text", "another"]}
    assert set(bodies.response) == {"vectors", "dimensions"}
    assert bodies.response["vectors"] == 2


def test_rerank_call_is_stored_with_question_texts_and_scores(bench: Bench):
    async def rank(ctx: NodeContext) -> Any:
        reranker = await bench.worker.execution.models.reranker(bench.tenant_id, "echo")
        await reranker.rank("one text", ["one text", "another"])
        return Finished({"result": 1})

    bench.does(work=rank)
    run = bench.start("begin -> work")
    bench.play()

    (call,) = calls_of(run)
    bodies = bodies_of(run, call)
    assert call.kind == "rerank"
    assert bodies.request == {"texts": ["one text", "one text", "another"]}
    assert len(bodies.response["scores"]) == 2


# -- limits ----------------------------------------------------------------------------------------------------------
def test_message_above_the_limit_is_cut_and_says_how_large_it_was(bench: Bench):
    long = "word " * 40_000
    run = asked(bench, [{"role": "user", "content": long}])

    (call,) = calls_of(run)
    (message,) = bodies_of(run, call).request["messages"]
    assert message["role"] == "user"
    assert message["$cut"] > 200_000
    assert long.startswith(message["head"])
    assert len(json.dumps(message)) <= MAX_PART_BYTES


def test_image_is_stored_whole_up_to_a_limit_and_described_above_it(bench: Bench):
    small, large = (f"data:image/png;base64,{'A' * length}" for length in (4_000, 400_000))
    images = [{"type": "image_url", "image_url": {"url": url}} for url in (small, large)]
    run = asked(bench, [{"role": "user", "content": [{"type": "text", "text": "See."}, *images]}])

    (call,) = calls_of(run)
    (message,) = bodies_of(run, call).request["messages"]
    _, first, second = message["content"]
    assert first["image_url"]["url"] == small
    described = second["image_url"]["url"]["$data"]
    assert (described["type"], described["bytes"], described["part"]) == ("image/png", 300_000, None)


# -- settings (T068) -------------------------------------------------------------------------------------------------
def test_usage_setting_stores_figures_without_bodies(bench: Bench):
    run = asked(bench, [{"role": "user", "content": "a secret plan"}], model_calls="usage")

    (call,) = calls_of(run)
    assert call.usage
    assert (call.request, call.response) == (None, None)
    assert rows(run, "select 1 from call_parts where run_id = :of_run") == []


def test_off_setting_stores_nothing(bench: Bench):
    run = asked(bench, [{"role": "user", "content": "a secret plan"}], model_calls="off")

    assert calls_of(run) == []


@pytest.mark.parametrize("hidden", ["work", "Act", "Other, Act"])
def test_bodies_of_hidden_nodes_and_components_are_not_stored(bench: Bench, hidden: str):
    plan = f"a secret plan {uuid4()}"
    run = asked(bench, [{"role": "user", "content": plan}], model_calls_hide=hidden)

    (call,) = calls_of(run)
    assert (call.request, call.response) == ({"hidden": True}, None)
    assert call.usage
    assert "call_parts" not in tables_with(bench.database, plan)


# -- secrets ---------------------------------------------------------------------------------------------------------
def test_no_row_of_the_database_has_a_key_that_was_used(bench: Bench):  # T143
    """The vendor repeats the key of a request in its error."""
    with vendor_of(calls("a"), said("Done."), FAILS) as served:
        runs = [played(bench, served, agent()), played(bench, served, agent(tools=[]))]

    assert served.authorizations == {f"Bearer {KEY}"}
    assert [call.status for run in runs for call in calls_of(run)] == ["ok", "ok", "failed"]
    assert tables_with(bench.database, KEY) == tables_with(bench.database, f"Bearer {KEY}") == set()
    assert tables_with(bench.database, TOOL_KEY) == {"canvases", "versions"}  # the bench seals no document


def test_keys_in_what_a_model_says_are_masked_in_its_call(bench: Bench):
    with vendor_of(calls("a"), said(f"I saw {TOOL_KEY} and {KEY}.")) as served:
        run = played(bench, served, agent())

    (_, last) = calls_of(run)
    assert bodies_of(run, last).response["content"] == "I saw *** and ***."
    said_by = "select 1 from call_parts where run_id = :of_run and strpos(body::text, {}) > 0"
    assert rows(run, said_by.format(f"'{KEY}'")) == rows(run, said_by.format(f"'{TOOL_KEY}'")) == []


def test_calls_of_another_tenant_are_not_found(bench: Bench):
    with vendor_of(calls("a"), said("Done.")) as served:
        run = played(bench, served, agent())
    other = bench.a_tenant()

    with bench.database.transaction() as tx:
        assert model_calls.list_calls(tx, other, run.id) == []
        assert model_calls.get_call(tx, other, run.id, calls_of(run)[0].id) is None
        assert attempt_records.list_calls_of_run(tx, other, run.id) == []
        assert len(attempt_records.list_calls_of_run(tx, bench.tenant_id, run.id)) == 1


# -- when it cannot be stored ----------------------------------------------------------------------------------------
def test_node_does_not_fail_when_its_calls_cannot_be_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_calls, "PUT_CALLS", text("insert into no_such_table select :run_id, :calls"))
    with vendor_of(calls("a"), said("Done.")) as served:
        run = played(bench, served, agent())

    assert (run.status, run.text.endswith("Done.")) == ("succeeded", True)
    monkeypatch.undo()
    assert calls_of(run) == []


# -- helpers ---------------------------------------------------------------------------------------------------------
def agent(*, tools: Sequence[Any] = (ADD,), rounds: int = 5, **more: Any) -> dict[str, Any]:
    return {
        "component": "Agent",
        "llm_id": MODEL,
        "sys_prompt": "You search.",
        "prompts": [{"role": "user", "content": "How are prices?"}],
        "tools": list(tools),
        "max_rounds": rounds,
        **more,
    }


def started(bench: Bench, params: Mapping[str, Any]) -> Run:
    return bench.start("begin -> model -> say", model=params, say=content("{model@content}"))


def played(bench: Bench, served: "ScriptedVendor", params: Mapping[str, Any], **settings: Any) -> Run:
    bench.accounts = [served.account]
    run = started(bench, params)
    bench.play(bench.a_worker(services=served.services, **settings))
    return run


def asked(bench: Bench, messages: Sequence[Mapping[str, Any]], **settings: Any) -> Run:
    """Run a node that asks a scripted model with these messages."""

    async def ask(ctx: NodeContext) -> Any:
        answer = await (await ctx.model("scripted")).complete(ChatRequest(messages))
        return Finished({"result": answer.text}) if answer.error is None else Failed(answer.text)

    bench.script = answering("Hello.")
    bench.does(work=ask)
    run = bench.start("begin -> work")
    bench.play(bench.a_worker(**settings))
    assert run.status == "succeeded"
    return run


def answering(*replies: str) -> Script:
    return Script([*({"reply": reply, "times": 1} for reply in replies[:-1]), {"reply": replies[-1]}])


def rows(run: Run, query: str) -> Sequence[Any]:
    with run.bench.database.transaction() as tx:
        return tx.rows(text(query), of_run=run.id)


def tables_with(database: Database, searched: str) -> set[str]:
    """Return the tables of which a row contains a text, partitions by the name of their table."""
    found: set[str] = set()
    with database.transaction() as tx:
        for (table,) in tx.rows(TABLES):
            if tx.scalar(
                text(f'select exists (select from "{table}" r where strpos(r::text, :searched) > 0)'), searched=searched
            ):
                found.add(table)
    return found


def calls_of(run: Run) -> list[StoredCall]:
    with run.bench.database.transaction() as tx:
        return model_calls.list_calls(tx, run.bench.tenant_id, run.id)


def bodies_of(run: Run, call: StoredCall) -> CallBodies:
    with run.bench.database.transaction() as tx:
        return model_calls.load_bodies(tx, run.id, call)
