"""Memories in a run: a Message stores its exchange, a task extracts memories from it, and Retrieval finds them."""

import asyncio
import json
import threading
from typing import Any

import pytest
from pydantic import SecretStr
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from scheduler.messaging.celery_app import EXTRACT
from scheduler.messaging.dispatch import Dispatch
from scheduler.sweeper.sweeper import Sweeper
from store.knowledge.memories import TYPES
from tests.integration.engine import Bench, Run, at_work
from tests.integration.knowledge_bases import CHAT, EMBEDDING, vendor
from tests.integration.memories import MemoryTenant, extraction_answer
from worker.context.node_context import WorkerContext

ALL = sum(TYPES.values())


def message_params(*memory_ids: str, **params: Any) -> dict[str, Any]:
    return {"component": "Message", "content": ["You said: {sys.query}"], "memory_ids": list(memory_ids), **params}


def play_message(bench: Bench, query: str, message: dict[str, Any], **settings: Any) -> Run:
    run = bench.start("begin -> say", query=query, say=message)
    bench.play(bench.a_worker(**settings))
    return run


def test_message_is_stored_in_a_memory_extracted_and_found_by_a_later_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    extractions: list[Dispatch] = []
    monkeypatch.setattr(Dispatch, "extract", lambda dispatch: extractions.append(dispatch))
    with vendor() as served:
        bench.accounts = [served.account]
        book = MemoryTenant(bench.database, bench.tenant_id, bench.accounts)
        memory = book.memory(types=ALL, model=EMBEDDING, chat=CHAT)
        served.answers.append(extraction_answer(semantic=["Ann likes green tea."]))
        run = play_message(bench, "I like green tea.", message_params(memory.id.hex, user_id="ann"))
        worker = bench.a_worker()
        worker.extract()
        later = bench.start(
            "begin -> work -> say",
            query="Which tea?",
            work={"component": "Retrieval", "query": "{sys.query}", "memory_ids": ["Customers"], "top_n": 2},
            say={"component": "Message", "content": ["{work@formalized_content}"]},
        )
        bench.play(worker)

    exchange = "User Input: I like green tea.\nAgent Response: You said: I like green tea."
    raw = next(message for message in book.messages(memory) if not message.source)
    assert run.status == "succeeded"
    assert len(extractions) == 1
    assert (raw.content, raw.user_id, raw.extraction) == (exchange, "ann", "done")
    assert (raw.agent_id, raw.session_id) == (run.row["canvas_id"].hex, run.row["conversation_id"].hex)
    assert later.text == f"Ann likes green tea.\n{exchange}"


def test_unknown_memory_does_not_fail_the_message(bench: Bench):
    run = play_message(bench, "Hello", message_params("f" * 32))

    assert (run.status, run.text) == ("succeeded", "You said: Hello")
    assert run.outputs("say")["memory_error"] == f"Memory ['{'f' * 32}'] not found."


def test_message_is_not_stored_in_a_memory_of_another_tenant(bench: Bench):
    theirs = MemoryTenant(bench.database, bench.a_tenant())
    memory = theirs.memory(model="")

    run = play_message(bench, "Hello", message_params(memory.id.hex))

    assert "not found" in run.outputs("say")["memory_error"]
    assert theirs.messages(memory) == []


def test_second_attempt_of_a_message_stores_no_duplicate_in_its_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    book = MemoryTenant(bench.database, bench.tenant_id)
    memory = book.memory(model="")
    remember, has_remembered = WorkerContext.remember, threading.Event()

    async def remember_and_hang_once(self: WorkerContext, *args: Any) -> None:
        await remember(self, *args)
        if not has_remembered.is_set():
            has_remembered.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(WorkerContext, "remember", remember_and_hang_once)
    run = bench.start("begin -> say", query="Hello", say=message_params(memory.id.hex))
    leaving, other = bench.a_worker(), bench.a_worker()
    with at_work(bench, leaving):
        assert has_remembered.wait(20)
        leaving.close()
    bench.play(other)

    assert (run.status, run.activation("say").attempt) == ("succeeded", 2)
    assert len(book.messages(memory)) == 1


def test_remote_memory_is_written_and_searched_over_the_ragflow_api(bench: Bench, httpserver: HTTPServer):
    requests: list[Any] = []

    def add(request: Request) -> Response:
        requests.append(
            (request.headers["Authorization"], request.headers["Idempotency-Key"], json.loads(request.data))
        )
        return Response(json.dumps({"code": 0, "message": "All add to task.", "data": None}))

    results = {"code": 0, "data": [{"content": "Likes tea"}, {"content": "Lives in Rome"}]}
    httpserver.expect_request("/api/v1/messages", method="POST").respond_with_handler(add)
    httpserver.expect_request("/api/v1/messages/search").respond_with_json(results)
    ragflow = {"ragflow_url": httpserver.url_for(""), "ragflow_api_key": SecretStr("their-key")}
    book = MemoryTenant(bench.database, bench.tenant_id)
    own = book.memory(model="")

    run = play_message(bench, "I like tea.", message_params("f" * 32, own.id.hex), **ragflow)
    search = {
        "component": "Retrieval",
        "query": "tea",
        "memory_ids": ["f" * 32, own.id.hex],
        "retrieval_from": "memory",
    }
    later = bench.start(
        "begin -> work -> say", work=search, say={"component": "Message", "content": ["{work@formalized_content}"]}
    )
    bench.play(bench.a_worker(**ragflow))

    ((authorization, key, body),) = requests
    assert (authorization, key) == ("Bearer their-key", str(run.activation("say").id))
    assert body["memory_id"] == ["f" * 32]
    assert (body["user_input"], body["agent_response"]) == ("I like tea.", "You said: I like tea.")
    assert "memory_error" not in run.outputs("say")
    mine = "User Input: I like tea.\nAgent Response: You said: I like tea."
    assert later.text == f"{mine}\nLikes tea\nLives in Rome"
    search_request = httpserver.log[-1][0]
    assert search_request.args.getlist("memory_id") == ["f" * 32]


def test_refusal_of_the_memory_server_is_an_output_of_the_message(bench: Bench, httpserver: HTTPServer):
    refusal = {"code": 102, "message": "Memory ['x'] not found.", "data": None}
    httpserver.expect_request("/api/v1/messages").respond_with_json(refusal)

    run = play_message(
        bench, "Hello", message_params("x"), ragflow_url=httpserver.url_for(""), ragflow_api_key=SecretStr("key")
    )

    assert (run.status, run.outputs("say")["memory_error"]) == ("succeeded", "Memory ['x'] not found.")


def test_sweeper_enqueues_the_extraction_of_unprocessed_messages(bench: Bench):
    book = MemoryTenant(bench.database, bench.tenant_id)
    book.write(book.memory(types=ALL, model=""), "Hello")

    Sweeper(bench.coordinator).tick()

    assert bench.outbox.of(EXTRACT) == [()]
