"""Retrieval in a run, as a node and as an Agent's tool, on a knowledge base of the tenant's own."""

from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pytest_httpserver import HTTPServer

from canvas.outcome import Finished
from providers.http.address_policy import Guard
from scheduler.messaging.celery_app import INGEST
from scheduler.sweeper.sweeper import Sweeper
from tests.builders import says
from tests.integration.engine import Bench, Run
from tests.integration.knowledge_bases import EMBEDDING, Shop, vendor
from tests.integration.worker.test_agent_over_the_wire import MODEL, calling, saying, vendors
from worker.services.factory import ServiceConfig
from worker.worker import Worker

ANSWER = "Refunds take five days, after which the money is there."


def searching(**params: Any) -> dict[str, Any]:
    return {"component": "Retrieval", "query": "{sys.query}", "empty_response": "Nobody knows.", **params}


def stocked(bench: Bench, folder: Path, model: str = "echo") -> tuple[Shop, Worker]:
    """A base of two documents, read by the worker of the bench itself."""
    shop = Shop(bench.database, bench.tenant_id, folder, bench.accounts)
    base = shop.base(model=model)
    shop.add(base, "refunds.txt", ANSWER, year=2024)
    shop.add(base, "holidays.txt", "Holidays are thirty days a year, Sundays not counted.")
    worker = bench.a_worker(blobs=shop.blobs, services=ServiceConfig(guard=Guard.parse(allowed="127.0.0.1")))
    worker.ingest()
    return shop, worker


def played(bench: Bench, worker: Worker, query: str, **retrieval: Any) -> Run:
    run = bench.start("begin -> work -> say", query=query, work=searching(**retrieval), say=says("{work@json}"))
    bench.play(worker)
    return run


def test_a_node_finds_what_a_document_says_and_cites_it(bench: Bench, tmp_path: Path):
    with vendor() as served:
        bench.accounts = [served.account]
        _, worker = stocked(bench, tmp_path, EMBEDDING)
        run = played(bench, worker, "How long do refunds take?", dataset_ids=["Policies"], top_n=1)

    outputs = run.outputs("work")
    assert [chunk["content_with_weight"] for chunk in outputs["json"]] == [ANSWER]
    assert "├── Title: refunds.txt\n├── year: 2024\n└── Content:\n" + ANSWER in outputs["formalized_content"]
    (end,) = [event.body for event in run.events if event.name == "message_end"]
    assert [chunk["content"] for chunk in end["reference"]["chunks"].values()] == [ANSWER]
    assert end["reference"]["doc_aggs"].keys() == {"refunds.txt"}
    assert len(served.embedded) == 3


def test_a_base_is_found_by_its_id_and_by_a_name_that_another_node_gives(bench: Bench, tmp_path: Path):
    shop, worker = stocked(bench, tmp_path)
    base = shop.find("refunds")["chunks"][0]["kb_id"]
    bench.does(choose=lambda ctx: Finished({"result": ["policies"]}))
    named = searching(dataset_ids=["choose@result"])

    by_id = played(bench, worker, "refunds", dataset_ids=[base])
    by_name = bench.start("begin -> choose -> work -> say", query="refunds", work=named, say=says("{work@json}"))
    bench.play(worker)

    assert by_id.outputs("work")["json"] == by_name.outputs("work")["json"] != []


def test_what_is_nowhere_gives_the_authors_own_words(bench: Bench, tmp_path: Path):
    _, worker = stocked(bench, tmp_path)

    run = played(bench, worker, "zebra", dataset_ids=["Policies"])

    assert run.outputs("work")["formalized_content"] == "Nobody knows."


def test_another_tenants_base_does_not_exist(bench: Bench, tmp_path: Path):
    shop, worker = stocked(bench, tmp_path)
    base = shop.find("refunds")["chunks"][0]["kb_id"]
    bench.tenant_id = bench.a_tenant()

    runs = [played(bench, worker, "refunds", dataset_ids=[entry]) for entry in (base, "Policies")]

    assert [run.rows_of_values("work")[-1]["_ERROR"] for run in runs] == [
        f"Dataset({base}) does not exist.",
        "Dataset(Policies) does not exist.",
    ]


def test_what_is_no_base_here_is_asked_of_the_ragflow_server(bench: Bench, tmp_path: Path, httpserver: HTTPServer):
    theirs = {"id": "c9", "content": "Theirs.", "document_id": "d9", "document_keyword": "their.md", "similarity": 0.9}
    told = {"code": 0, "data": {"chunks": [theirs], "doc_aggs": [], "total": 1}}
    httpserver.expect_request("/api/v1/retrieval").respond_with_json(told)
    shop = Shop(bench.database, bench.tenant_id, tmp_path)
    shop.add(shop.base(), "refunds.txt", ANSWER)
    shop.read()
    worker = bench.a_worker(blobs=shop.blobs, ragflow_url=httpserver.url_for(""), ragflow_api_key=SecretStr("key"))

    run = played(bench, worker, "How long do refunds take?", dataset_ids=["Policies", "f" * 32])

    chunks = run.outputs("work")["json"]
    assert [chunk["content_with_weight"] for chunk in chunks] == ["Theirs.", ANSWER]
    ((asked, _),) = httpserver.log
    assert asked.json["dataset_ids"] == ["f" * 32]


def test_the_sweeper_tells_workers_of_documents_that_nobody_reads(bench: Bench, tmp_path: Path):
    shop = Shop(bench.database, bench.tenant_id, tmp_path)
    added = shop.add(shop.base(), "refunds.txt", ANSWER)

    Sweeper(bench.coordinator).tick()
    told = bench.outbox.of(INGEST)
    bench.a_worker(blobs=shop.blobs).ingest()
    bench.outbox.lose()
    Sweeper(bench.coordinator).tick()

    assert (told, bench.outbox.of(INGEST)) == ([()], [])
    assert shop.document(added).status == "done"


def test_an_agent_searches_with_its_tool(bench: Bench, tmp_path: Path):
    call = ("call-1", "search_my_dateset_0", '{"query": "How long do refunds take?"}')
    with vendors(calling(call), saying("Five days.")) as served:
        bench.accounts = [served.account]
        _, worker = stocked(bench, tmp_path)
        tool = {"component_name": "Retrieval", "name": "Rules", "params": {"dataset_ids": ["Policies"], "top_n": 1}}
        asks = [{"role": "user", "content": "{sys.query}"}]
        agent = {"component": "Agent", "llm_id": MODEL, "tools": [tool], "prompts": asks}
        run = bench.start("begin -> model -> say", query="refunds?", model=agent, say=says("{model@content}"))
        bench.play(worker)

    assert run.status == "succeeded"
    assert run.said.endswith("Five days.")
    (told,) = [message for message in served.asked[1]["messages"] if message["role"] == "tool"]
    assert ANSWER in told["content"]
    (end,) = [event.body for event in run.events if event.name == "message_end"]
    assert end["reference"]["doc_aggs"].keys() == {"refunds.txt"}
