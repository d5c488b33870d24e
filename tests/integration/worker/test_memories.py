"""Memories in a run: a Message remembers, a model looks through it in a task of its own, and Retrieval finds it."""

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
from tests.integration.memories import Notebook, extracted
from worker.context.node_context import WorkerContext

ALL = sum(TYPES.values())


def saying(*memory_ids: str, **params: Any) -> dict[str, Any]:
    return {"component": "Message", "content": ["You said: {sys.query}"], "memory_ids": list(memory_ids), **params}


def played(bench: Bench, query: str, message: dict[str, Any], **settings: Any) -> Run:
    run = bench.start("begin -> say", query=query, say=message)
    bench.play(bench.a_worker(**settings))
    return run


def test_what_a_message_says_is_remembered_extracted_and_found_by_a_later_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    hints: list[Dispatch] = []
    monkeypatch.setattr(Dispatch, "extract", lambda dispatch: hints.append(dispatch))
    with vendor() as served:
        bench.accounts = [served.account]
        book = Notebook(bench.database, bench.tenant_id, bench.accounts)
        memory = book.memory(types=ALL, model=EMBEDDING, chat=CHAT)
        served.answers.append(extracted(semantic=["Ann likes green tea."]))
        run = played(bench, "I like green tea.", saying(memory.id.hex, user_id="ann"))
        worker = bench.a_worker()
        worker.extract()
        later = bench.start(
            "begin -> work -> say",
            query="Which tea?",
            work={"component": "Retrieval", "query": "{sys.query}", "memory_ids": ["Customers"], "top_n": 2},
            say={"component": "Message", "content": ["{work@formalized_content}"]},
        )
        bench.play(worker)

    said = "User Input: I like green tea.\nAgent Response: You said: I like green tea."
    raw = next(message for message in book.messages(memory) if not message.source)
    assert run.status == "succeeded"
    assert len(hints) == 1
    assert (raw.content, raw.user_id, raw.extraction) == (said, "ann", "done")
    assert (raw.agent_id, raw.session_id) == (run.row["canvas_id"].hex, run.row["conversation_id"].hex)
    assert later.said == f"Ann likes green tea.\n{said}"


def test_a_memory_that_is_not_there_fails_no_message(bench: Bench):
    run = played(bench, "Hello", saying("f" * 32))

    assert (run.status, run.said) == ("succeeded", "You said: Hello")
    assert run.outputs("say")["memory_error"] == f"Memory ['{'f' * 32}'] not found."


def test_another_tenants_memory_gets_nothing(bench: Bench):
    theirs = Notebook(bench.database, bench.a_tenant())
    memory = theirs.memory(model="")

    run = played(bench, "Hello", saying(memory.id.hex))

    assert "not found" in run.outputs("say")["memory_error"]
    assert theirs.messages(memory) == []


def test_another_attempt_of_a_message_remembers_nothing_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    book = Notebook(bench.database, bench.tenant_id)
    memory = book.memory(model="")
    remember, has_remembered = WorkerContext.remember, threading.Event()

    async def and_hang_once(self: WorkerContext, *given: Any) -> None:
        await remember(self, *given)
        if not has_remembered.is_set():
            has_remembered.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(WorkerContext, "remember", and_hang_once)
    run = bench.start("begin -> say", query="Hello", say=saying(memory.id.hex))
    leaving, other = bench.a_worker(), bench.a_worker()
    with at_work(bench, leaving):
        assert has_remembered.wait(20)
        leaving.close()
    bench.play(other)

    assert (run.status, run.activation("say").attempt) == ("succeeded", 2)
    assert len(book.messages(memory)) == 1


def test_a_memory_elsewhere_is_written_and_searched_over_ragflows_api(bench: Bench, httpserver: HTTPServer):
    told: list[Any] = []

    def add(request: Request) -> Response:
        told.append((request.headers["Authorization"], request.headers["Idempotency-Key"], json.loads(request.data)))
        return Response(json.dumps({"code": 0, "message": "All add to task.", "data": None}))

    found = {"code": 0, "data": [{"content": "Likes tea"}, {"content": "Lives in Rome"}]}
    httpserver.expect_request("/api/v1/messages", method="POST").respond_with_handler(add)
    httpserver.expect_request("/api/v1/messages/search").respond_with_json(found)
    ragflow = {"ragflow_url": httpserver.url_for(""), "ragflow_api_key": SecretStr("their-key")}
    book = Notebook(bench.database, bench.tenant_id)
    own = book.memory(model="")

    run = played(bench, "I like tea.", saying("f" * 32, own.id.hex), **ragflow)
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

    ((authorization, key, body),) = told
    assert (authorization, key) == ("Bearer their-key", str(run.activation("say").id))
    assert body["memory_id"] == ["f" * 32]
    assert (body["user_input"], body["agent_response"]) == ("I like tea.", "You said: I like tea.")
    assert "memory_error" not in run.outputs("say")
    mine = "User Input: I like tea.\nAgent Response: You said: I like tea."
    assert later.said == f"{mine}\nLikes tea\nLives in Rome"
    searched = httpserver.log[-1][0]
    assert searched.args.getlist("memory_id") == ["f" * 32]


def test_what_a_server_refuses_is_told_by_the_message(bench: Bench, httpserver: HTTPServer):
    refusal = {"code": 102, "message": "Memory ['x'] not found.", "data": None}
    httpserver.expect_request("/api/v1/messages").respond_with_json(refusal)

    run = played(bench, "Hello", saying("x"), ragflow_url=httpserver.url_for(""), ragflow_api_key=SecretStr("key"))

    assert (run.status, run.outputs("say")["memory_error"]) == ("succeeded", "Memory ['x'] not found.")


def test_the_sweeper_asks_again_for_what_nobody_looks_through(bench: Bench):
    book = Notebook(bench.database, bench.tenant_id)
    book.write(book.memory(types=ALL, model=""), "Hello")

    Sweeper(bench.coordinator).tick()

    assert bench.outbox.of(EXTRACT) == [()]
