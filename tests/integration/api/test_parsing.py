"""Parsing over HTTP, RAGFlow's further searches, documents by their ids alone, and its routes about the system."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.integration.api.conftest import NO_TLS, Server
from tests.integration.api.talking import Client
from tests.integration.api.test_chunks import PNG, UNKNOWN, Document
from tests.integration.api.test_knowledge import REFUNDS, parse_waiting, retrieve, upload_documents


@pytest.fixture
def client(server_with_files: Server) -> Iterator[Client]:
    client = server_with_files.client()
    yield client
    client.http.close()


@pytest.fixture
def document(client: Client) -> Document:
    """An uploaded document that is not parsed."""
    return Document(client)


def send(client: Client, path: str, body: Any, method: str = "POST") -> dict[str, Any]:
    reply = client.http.request(method, f"/api/v1{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def run_of(document: Document) -> str:
    return document.page()["doc"]["run"]


# -- parsing ----------------------------------------------------------------------------------------------------------
def test_documents_are_parsed_and_stopped_at_ragflows_paths(document: Document) -> None:
    path, ids = f"/datasets/{document.base}/documents", {"document_ids": [document.id]}

    started = send(document.client, f"{path}/parse", ids)
    running = run_of(document)
    stopped = send(document.client, f"{path}/stop", ids)
    again = send(document.client, f"{path}/stop", ids)

    assert started["data"] == stopped["data"] == {"success_count": 1, "errors": []}
    assert (running, run_of(document)) == ("RUNNING", "CANCEL")
    assert again["message"] == "Can't stop parsing document that has not started or already completed"
    assert (again["code"], again["data"]) == (102, {"error_code": "DOC_STOP_PARSING_INVALID_STATE"})


@pytest.mark.parametrize(
    ("method", "route", "done"),
    [
        ("POST", "chunks", "parsed"),
        ("POST", "documents/parse", "parsed"),
        ("DELETE", "chunks", "stopped"),
        ("POST", "documents/stop", "stopped"),
    ],
)
def test_document_that_is_named_twice_counts_once(document: Document, method: str, route: str, done: str) -> None:
    if done == "stopped":
        send(document.client, f"/datasets/{document.base}/chunks", {"document_ids": [document.id]})

    body = {"document_ids": [document.id] * 2}
    reply = send(document.client, f"/datasets/{document.base}/{route}", body, method)

    assert (reply["code"], reply["message"]) == (0, f"Partially {done} 1 documents with 1 errors")
    assert reply["data"] == {"success_count": 1, "errors": [f"Duplicate document ids: {document.id}"]}


@pytest.mark.parametrize("route", ["chunks", "documents/parse"])
def test_parsing_an_unknown_document_parses_the_others(document: Document, route: str) -> None:
    path = f"/datasets/{document.base}/{route}"

    partly = send(document.client, path, {"document_ids": ["nothing", document.id]})
    empty = send(document.client, path, {"document_ids": []})
    foreign = send(document.client, f"/datasets/{UNKNOWN}/{route}", {"document_ids": [document.id]})

    assert (partly["code"], partly["message"], run_of(document)) == (102, "Documents not found: ['nothing']", "RUNNING")
    assert (empty["code"], empty["message"]) == (102, "`document_ids` is required")
    assert (foreign["code"], foreign["message"]) == (102, f"You don't own the dataset {UNKNOWN}.")


def test_stopping_an_unknown_document_stops_none(document: Document) -> None:
    send(document.client, f"/datasets/{document.base}/chunks", {"document_ids": [document.id]})

    body = {"document_ids": [document.id, UNKNOWN]}
    reply = send(document.client, f"/datasets/{document.base}/documents/stop", body)

    assert (reply["code"], reply["message"]) == (102, f"you don't own the document {UNKNOWN}")
    assert run_of(document) == "RUNNING"


def test_documents_of_several_bases_are_ingested_and_cancelled(server_with_files: Server, client: Client) -> None:
    first, second = Document(client, name="a.txt"), Document(client, name="b.txt")
    ids = [first.id, second.id]

    started = send(client, "/documents/ingest", {"doc_ids": ids, "run": "1", "delete": True})
    running = [run_of(first), run_of(second)]
    cancelled = send(client, "/documents/ingest", {"doc_ids": [second.id], "run": 2})
    parse_waiting(server_with_files, client)
    too_late = send(client, "/documents/ingest", {"doc_ids": ids, "run": "2"})

    assert started == {"code": 0, "message": "success", "data": True}
    assert (running, cancelled["code"]) == (["RUNNING", "RUNNING"], 0)
    assert [run_of(first), run_of(second)] == ["DONE", "CANCEL"]
    assert (too_late["code"], too_late["message"]) == (102, "Cannot cancel a task that is not in RUNNING status")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({}, 101, "required argument are missing: doc_ids,run; "),
        ({"doc_ids": ["nothing"], "run": "1"}, 109, "No authorization."),
        ({"doc_ids": [UNKNOWN], "run": "2"}, 109, "No authorization."),
        ({"doc_ids": [], "run": "3"}, 102, "`run` must be 1 (parse) or 2 (cancel)."),
        ({"doc_ids": "x", "run": "1"}, 102, "`doc_ids` should be a list of ids"),
        ({"doc_ids": [], "run": "1", "deleted": True}, 101, "`deleted` is not a field of this request."),
    ],
)
def test_invalid_ingestion_is_refused(client: Client, body: dict[str, Any], code: int, message: str) -> None:
    reply = send(client, "/documents/ingest", body)

    assert (reply["code"], reply["message"][: len(message)]) == (code, message)


def test_ingesting_nothing_succeeds_and_names_what_has_no_effect(client: Client) -> None:
    reply = send(client, "/documents/ingest", {"doc_ids": [], "run": "1", "apply_kb": True})

    assert (reply["code"], reply["warnings"]) == (0, ["`apply_kb` has no effect here."])


def test_status_of_documents_is_set_together(document: Document) -> None:
    document.add("Written by hand.")
    path = f"/datasets/{document.base}/documents/batch-update-status"

    off = send(document.client, path, {"doc_ids": [document.id], "status": "0"})
    hidden = document.found("written by hand")
    partly = send(document.client, path, {"doc_ids": [document.id, UNKNOWN], "status": "1"})
    invalid = send(document.client, path, {"doc_ids": [document.id], "status": "2"})
    still_hidden = document.found("written by hand")
    send(document.client, path, {"doc_ids": [document.id], "status": 1})

    assert off["data"] == {document.id: {"status": "0"}}
    assert (hidden, still_hidden, document.found("written by hand")) == ([], [], ["Written by hand."])
    assert (partly["code"], invalid["message"]) == (102, '"Status" must be either 0 or 1!')


# -- searches ---------------------------------------------------------------------------------------------------------
def test_bases_are_searched_at_the_paths_of_ragflows_pages(document: Document) -> None:
    document.add("The canteen opens at noon.", important_keywords=["lunch"])
    question = {"question": "canteen", "doc_ids": [document.id], "size": 5, "highlight": True}

    one = send(document.client, f"/datasets/{document.base}/search", question)
    several = send(document.client, "/datasets/search", {**question, "dataset_ids": [document.base]})

    assert one == several
    (chunk,) = one["data"]["chunks"]
    assert (chunk["content_with_weight"], chunk["doc_id"]) == ("The canteen opens at noon.", document.id)
    assert (chunk["kb_id"], chunk["important_kwd"]) == (document.base, ["lunch"])
    assert "<em>canteen</em>" in chunk["highlight"]
    assert (one["data"]["total"], one["data"]["labels"]) == (1, {})


def test_search_for_pages_is_filtered_by_metadata(document: Document) -> None:
    document.add("The canteen opens at noon.")
    path = f"/datasets/{document.base}/documents/{document.id}"
    send(document.client, path, {"meta_fields": {"author": "ann"}}, "PATCH")

    def total(author: str) -> int:
        manual = [{"key": "author", "op": "=", "value": author}]
        body = {"question": "canteen", "meta_data_filter": {"method": "manual", "logic": "and", "manual": manual}}
        return send(document.client, f"/datasets/{document.base}/search", body)["data"]["total"]

    assert (total("ann"), total("bob")) == (1, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`question` is required."),
        ({"question": "x", "doc_ids": "x"}, "`documents` should be a list"),
        ({"question": "x", "doc_ids": [UNKNOWN]}, f"The datasets don't own the document {UNKNOWN}"),
        ({"question": "x", "meta_data_filter": {"manuel": []}}, "`meta_data_filter.manuel` is unknown."),
        ({"question": "x", "dataset_ids": "x"}, "`dataset_ids` should be a list"),
        ({"question": "x", "dataset_ids": [UNKNOWN]}, f"You don't own the dataset {UNKNOWN}."),
        ({"question": "x", "top_k": 0}, "`top_k` must be greater than 0"),
    ],
)
def test_invalid_search_for_pages_is_102(document: Document, body: dict[str, Any], message: str) -> None:
    reply = send(document.client, "/datasets/search", {"dataset_ids": [document.base], **body})

    assert (reply["code"], reply["message"][: len(message)]) == (102, message)


def test_search_app_is_refused(document: Document) -> None:
    reply = send(document.client, f"/datasets/{document.base}/search", {"question": "x", "search_id": "a"})

    assert (reply["code"], "search app" in reply["message"]) == (101, True)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"highlight": "not_bool"}, 102, "`highlight` should be a boolean"),
        ({"highlight": 1}, 102, "`highlight` should be a boolean"),
        ({"highlight": "True"}, 0, ""),
        ({"document_ids": "bad"}, 102, "`documents` should be a list"),
        ({"dataset_ids": "bad"}, 102, "`dataset_ids` should be a list"),
        ({"question": None}, 102, "`question` is required."),
        ({"metadata_condition": {"condition": []}}, 102, "`metadata_condition.condition` is unknown."),
        ({"page": 0, "page_size": -1}, 0, ""),
        ({"page": "1", "page_size": "2", "keyword": "False"}, 0, ""),
        ({"vector_similarity_weight": "a"}, 101, "`vector_similarity_weight`"),
        ({"a": "b"}, 101, "`a` is not a field of this request."),
    ],
)
def test_retrieval_checks_its_fields_as_ragflow_does(
    document: Document, body: dict[str, Any], code: int, message: str
) -> None:
    document.add("Refunds take five days.")

    reply = retrieve(document.client, document.base, **body)

    assert (reply["code"], reply["message"][: len(message)]) == (code, message or "")
    if code == 0:
        assert [chunk["content"] for chunk in reply["data"]["chunks"]] == ["Refunds take five days."]
        assert ("highlight" in reply["data"]["chunks"][0]) == ("highlight" in body)


def test_weight_out_of_range_is_bounded_with_a_warning(document: Document) -> None:
    document.add("Refunds take five days.")

    wide, bounded = (retrieve(document.client, document.base, vector_similarity_weight=weight) for weight in (10, 1))

    assert wide["data"] == bounded["data"]
    assert wide["warnings"] == ["`vector_similarity_weight` is 10; the search used 1."]
    assert "warnings" not in bounded


# -- documents by id --------------------------------------------------------------------------------------------------
def test_document_is_downloaded_and_shown_by_its_id_alone(document: Document, server_with_files: Server) -> None:
    http = document.client.http
    (page,) = upload_documents(document.client, document.base, ("page.html", b"<script>alert(1)</script>"))
    stranger = server_with_files.client()

    download = http.get(f"/api/v1/documents/{document.id}")
    preview = http.get(f"/api/v1/documents/{document.id}/preview")
    html = http.get(f"/api/v1/documents/{page['id']}/preview")
    refused = [stranger.http.get(f"/api/v1/documents/{document.id}{route}").json() for route in ("", "/preview")] + [
        http.get("/api/v1/documents/invalid_document_id").json()
    ]
    stranger.http.close()

    assert download.content == preview.content == REFUNDS.encode()
    assert download.headers["content-disposition"].startswith("attachment")
    assert preview.headers["content-disposition"] == "inline"
    assert preview.headers["content-type"].startswith("text/plain")
    assert html.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in preview.headers["content-security-policy"]
    assert refused == [{"code": 102, "message": "document not found"}] * 3


def test_thumbnails_are_those_of_pictures(document: Document) -> None:
    (picture,) = upload_documents(document.client, document.base, ("photo.png", PNG))
    http = document.client.http

    ids = f"{document.id},{picture['id']},{UNKNOWN}"
    found = http.get("/api/v1/thumbnails", params={"doc_ids": ids}).json()["data"]
    nothing = http.get("/api/v1/thumbnails").json()

    assert found == {document.id: "", picture["id"]: f"/api/v1/documents/{picture['id']}/preview"}
    assert http.get(found[picture["id"]]).content == PNG
    assert (nothing["code"], nothing["message"]) == (102, 'Lack of "Document ID"')


# -- system -----------------------------------------------------------------------------------------------------------
def test_probes_of_ragflow_need_no_token(server_with_files: Server) -> None:
    with httpx2.Client(base_url=server_with_files.url, verify=NO_TLS) as http:
        ping = http.get("/api/v1/system/ping")
        version = http.get("/api/v1/system/version").json()
        config = http.get("/api/v1/system/config").json()
        health = http.get("/api/v1/system/healthz")
        former = http.get("/v1/system/healthz")
        status = http.get("/api/v1/system/status")

    assert (ping.status_code, ping.text) == (200, "pong")
    assert (version["code"], bool(version["data"])) == (0, True)
    assert config["data"] == {"registerEnabled": 0, "disablePasswordLogin": True}
    assert (health.status_code, former.json()) == (200, health.json())
    assert health.json() == dict.fromkeys(
        ("db", "redis", "broker", "migrations", "storage", "doc_engine", "status"), "ok"
    )
    assert (status.status_code, "Unauthorized" in status.json()["message"]) == (401, True)


def test_status_of_the_system_has_colours(client: Client) -> None:
    status = client.http.get("/api/v1/system/status").json()["data"]

    assert {name: part["status"] for name, part in status.items()} == dict.fromkeys(
        ("doc_engine", "database", "storage", "redis"), "green"
    )
