"""Retrieval in a run, as a node and as a tool of an Agent, on a knowledge base of the tenant."""

from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pytest_httpserver import HTTPServer

from canvas.outcome import Finished
from providers.address_policy import Guard
from scheduler.messaging.celery_app import INGEST
from scheduler.sweeper.sweeper import Sweeper
from tests.builders import content
from tests.integration.engine import Bench, Run
from tests.integration.knowledge_bases import EMBEDDING, KnowledgeTenant, vendor
from tests.integration.worker.scripted_vendor import MODEL, said, vendor_of
from tests.integration.worker.test_agent_over_the_wire import tool_call_deltas
from worker.services.factory import ServiceConfig
from worker.worker import Worker

ANSWER = "Refunds take five days, after which the money is there."


def retrieval_params(**params: Any) -> dict[str, Any]:
    return {"component": "Retrieval", "query": "{sys.query}", "empty_response": "Nobody knows.", **params}


def create_knowledge_base(bench: Bench, folder: Path, model: str = "echo") -> tuple[KnowledgeTenant, Worker]:
    """Create a knowledge base of two documents; return it with the worker that has ingested them."""
    shop = KnowledgeTenant(bench.database, bench.tenant_id, folder, bench.accounts)
    base = shop.base(model=model)
    shop.add(base, "refunds.txt", ANSWER, year=2024)
    shop.add(base, "holidays.txt", "Holidays are thirty days a year, Sundays not counted.")
    worker = bench.a_worker(blobs=shop.blobs, services=ServiceConfig(guard=Guard.parse(allowed="127.0.0.1")))
    worker.ingest()
    return shop, worker


def play_retrieval(bench: Bench, worker: Worker, query: str, **retrieval: Any) -> Run:
    run = bench.start(
        "begin -> work -> say", query=query, work=retrieval_params(**retrieval), say=content("{work@json}")
    )
    bench.play(worker)
    return run


def test_retrieval_node_finds_a_document_and_cites_it(bench: Bench, tmp_path: Path):
    with vendor() as served:
        bench.accounts = [served.account]
        _, worker = create_knowledge_base(bench, tmp_path, EMBEDDING)
        run = play_retrieval(bench, worker, "How long do refunds take?", dataset_ids=["Policies"], top_n=1)

    outputs = run.outputs("work")
    assert [chunk["content_with_weight"] for chunk in outputs["json"]] == [ANSWER]
    assert "├── Title: refunds.txt\n├── year: 2024\n└── Content:\n" + ANSWER in outputs["formalized_content"]
    (end,) = [event.body for event in run.events if event.name == "message_end"]
    assert [chunk["content"] for chunk in end["reference"]["chunks"].values()] == [ANSWER]
    assert end["reference"]["doc_aggs"].keys() == {"refunds.txt"}
    assert len(served.embedded) == 3


def test_knowledge_base_is_found_by_its_id_and_by_a_referenced_name(bench: Bench, tmp_path: Path):
    shop, worker = create_knowledge_base(bench, tmp_path)
    base = shop.find("refunds")["chunks"][0]["kb_id"]
    bench.does(choose=lambda ctx: Finished({"result": ["policies"]}))
    named = retrieval_params(dataset_ids=["choose@result"])

    by_id = play_retrieval(bench, worker, "refunds", dataset_ids=[base])
    by_name = bench.start("begin -> choose -> work -> say", query="refunds", work=named, say=content("{work@json}"))
    bench.play(worker)

    assert by_id.outputs("work")["json"] == by_name.outputs("work")["json"] != []


def test_retrieval_without_a_match_outputs_the_configured_empty_response(bench: Bench, tmp_path: Path):
    _, worker = create_knowledge_base(bench, tmp_path)

    run = play_retrieval(bench, worker, "zebra", dataset_ids=["Policies"])

    assert run.outputs("work")["formalized_content"] == "Nobody knows."


def test_knowledge_base_of_another_tenant_is_not_found(bench: Bench, tmp_path: Path):
    shop, worker = create_knowledge_base(bench, tmp_path)
    base = shop.find("refunds")["chunks"][0]["kb_id"]
    bench.tenant_id = bench.a_tenant()

    runs = [play_retrieval(bench, worker, "refunds", dataset_ids=[entry]) for entry in (base, "Policies")]

    assert [run.rows_of_values("work")[-1]["_ERROR"] for run in runs] == [
        f"Dataset({base}) does not exist.",
        "Dataset(Policies) does not exist.",
    ]


def test_unknown_knowledge_base_is_searched_on_the_ragflow_server(bench: Bench, tmp_path: Path, httpserver: HTTPServer):
    theirs = {"id": "c9", "content": "Theirs.", "document_id": "d9", "document_keyword": "their.md", "similarity": 0.9}
    answer = {"code": 0, "data": {"chunks": [theirs], "doc_aggs": [], "total": 1}}
    httpserver.expect_request("/api/v1/retrieval").respond_with_json(answer)
    shop = KnowledgeTenant(bench.database, bench.tenant_id, tmp_path)
    shop.add(shop.base(), "refunds.txt", ANSWER)
    shop.read()
    worker = bench.a_worker(blobs=shop.blobs, ragflow_url=httpserver.url_for(""), ragflow_api_key=SecretStr("key"))

    run = play_retrieval(bench, worker, "How long do refunds take?", dataset_ids=["Policies", "f" * 32])

    chunks = run.outputs("work")["json"]
    assert [chunk["content_with_weight"] for chunk in chunks] == ["Theirs.", ANSWER]
    ((request, _),) = httpserver.log
    assert request.json["dataset_ids"] == ["f" * 32]


def test_sweeper_enqueues_the_ingestion_of_unread_documents(bench: Bench, tmp_path: Path):
    shop = KnowledgeTenant(bench.database, bench.tenant_id, tmp_path)
    added = shop.add(shop.base(), "refunds.txt", ANSWER)

    Sweeper(bench.coordinator).tick()
    enqueued = bench.outbox.of(INGEST)
    bench.a_worker(blobs=shop.blobs).ingest()
    bench.outbox.lose()
    Sweeper(bench.coordinator).tick()

    assert (enqueued, bench.outbox.of(INGEST)) == ([()], [])
    assert shop.document(added).status == "done"


def test_agent_searches_a_knowledge_base_with_its_tool(bench: Bench, tmp_path: Path):
    call = ("call-1", "search_my_dateset_0", '{"query": "How long do refunds take?"}')
    with vendor_of(tool_call_deltas(call), said("Five days.")) as served:
        bench.accounts = [served.account]
        _, worker = create_knowledge_base(bench, tmp_path)
        tool = {"component_name": "Retrieval", "name": "Rules", "params": {"dataset_ids": ["Policies"], "top_n": 1}}
        prompts = [{"role": "user", "content": "{sys.query}"}]
        agent = {"component": "Agent", "llm_id": MODEL, "tools": [tool], "prompts": prompts}
        run = bench.start("begin -> model -> say", query="refunds?", model=agent, say=content("{model@content}"))
        bench.play(worker)

    assert run.status == "succeeded"
    assert run.text.endswith("Five days.")
    (result,) = [message for message in served.requests[1]["messages"] if message["role"] == "tool"]
    assert ANSWER in result["content"]
    (end,) = [event.body for event in run.events if event.name == "message_end"]
    assert end["reference"]["doc_aggs"].keys() == {"refunds.txt"}
