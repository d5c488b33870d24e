"""Chunks over HTTP as people write them: add, list, read, change, switch, delete, and how searches find them."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client
from tests.integration.api.test_knowledge import (
    REFUNDS,
    create_base,
    parse_waiting,
    request_parsing,
    retrieve,
    upload_documents,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
UNKNOWN = "0" * 31 + "7"


@pytest.fixture
def client(server_with_files: Server) -> Iterator[Client]:
    client = server_with_files.client()
    yield client
    client.http.close()


class Document:
    """A document over HTTP, and its chunks."""

    def __init__(self, client: Client, name: str = "notes.txt", data: bytes = REFUNDS.encode(), **base: Any) -> None:
        self.client = client
        self.base = create_base(client, **base)["id"]
        (document,) = upload_documents(client, self.base, (name, data))
        self.id = document["id"]
        self.path = f"/api/v1/datasets/{self.base}/documents/{self.id}/chunks"

    def send(self, method: str, body: Any = None, chunk: str = "") -> dict[str, Any]:
        reply = self.client.http.request(method, f"{self.path}/{chunk}" if chunk else self.path, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def add(self, content: str, **more: Any) -> dict[str, Any]:
        reply = self.send("POST", {"content": content, **more})
        assert reply["code"] == 0, reply
        return reply["data"]["chunk"]

    def page(self, **params: Any) -> dict[str, Any]:
        reply = self.client.http.get(self.path, params=params).json()
        assert reply["code"] == 0, reply
        return reply["data"]

    def contents(self, **params: Any) -> list[str]:
        return [chunk["content"] for chunk in self.page(**params)["chunks"]]

    def found(self, question: str, **body: Any) -> list[str]:
        reply = retrieve(self.client, self.base, question=question, **body)
        assert reply["code"] == 0, reply
        return [chunk["content"] for chunk in reply["data"]["chunks"]]


@pytest.fixture
def document(client: Client) -> Document:
    """An uploaded document that is not parsed."""
    return Document(client)


@pytest.fixture
def parsed(server_with_files: Server, document: Document) -> Document:
    request_parsing(document.client, document.base, document.id)
    assert parse_waiting(server_with_files, document.client) == 1
    return document


def test_chunk_is_added_listed_read_changed_and_deleted(document: Document) -> None:
    added = document.add("Holidays are thirty days.", important_keywords=["leave"], questions=[" How long? ", ""])
    read = document.send("GET", chunk=added["id"])
    changed = document.send("PATCH", {"content": "Holidays are forty days."}, added["id"])
    listed = document.page(id=added["id"])
    deleted = document.send("DELETE", {"chunk_ids": [added["id"]]})

    assert (added["dataset_id"], added["document_id"]) == (document.base, document.id)
    assert (added["important_keywords"], added["questions"]) == (["leave"], ["How long?"])
    assert (read["data"]["id"], read["data"]["content_with_weight"]) == (added["id"], "Holidays are thirty days.")
    assert (read["data"]["doc_id"], read["data"]["important_kwd"], read["data"]["available_int"]) == (
        document.id,
        ["leave"],
        1,
    )
    assert changed["code"] == 0
    assert (listed["total"], listed["chunks"][0]["content"]) == (1, "Holidays are forty days.")
    assert listed["chunks"][0]["important_keywords"] == ["leave"]
    assert (listed["doc"]["chunk_count"], listed["doc"]["run"]) == (1, "UNSTART")
    assert (deleted["code"], deleted["message"]) == (0, "deleted 1 chunks")
    assert document.page() | {"doc": None} == {"chunks": [], "doc": None, "total": 0}
    assert document.page()["doc"]["chunk_count"] == 0


def test_chunk_of_an_unparsed_document_is_found_by_its_text_keywords_and_questions(document: Document) -> None:
    document.add("The canteen opens at noon.")
    document.add("Thirty days a year.", important_keywords=["sabbatical"])
    document.add("Ask the desk.", questions=["Where do visitors park?"])

    assert document.found("When does the canteen open?") == ["The canteen opens at noon."]
    assert document.found("sabbatical")[0] == "Thirty days a year."
    assert document.found("Where do visitors park?")[0] == "Ask the desk."
    (chunk,) = retrieve(document.client, document.base, question="visitors park", page_size=1)["data"]["chunks"]
    assert (chunk["questions"], chunk["document_id"]) == (["Where do visitors park?"], document.id)


def test_changed_chunk_is_found_by_its_new_text_only(parsed: Document) -> None:
    (chunk,) = parsed.page()["chunks"]
    assert parsed.found("refunds take") == [REFUNDS]

    parsed.send("PATCH", {"content": "Elephants are grey."}, chunk["id"])

    assert parsed.found("refunds take") == []
    assert parsed.found("grey elephants") == ["Elephants are grey."]


def test_chunk_that_is_not_available_is_listed_and_not_found(parsed: Document) -> None:
    (chunk,) = parsed.page()["chunks"]
    added = parsed.add("Refunds need a receipt.", available=False)
    assert parsed.found("refunds receipt") == [REFUNDS]

    switched = parsed.send("PATCH", {"chunk_ids": [chunk["id"], added["id"]], "available_int": 1})
    both = parsed.found("refunds receipt")
    parsed.send("PATCH", {"available": False}, chunk["id"])

    assert switched == {"code": 0, "message": "success", "data": True}
    assert sorted(both) == sorted([REFUNDS, "Refunds need a receipt."])
    assert parsed.found("refunds receipt") == ["Refunds need a receipt."]
    assert parsed.contents(available="false") == [REFUNDS]
    assert parsed.contents(available="true") == ["Refunds need a receipt."]


def test_parsing_again_replaces_chunks_that_people_wrote(server_with_files: Server, parsed: Document) -> None:
    (chunk,) = parsed.page()["chunks"]
    parsed.send("PATCH", {"content": "changed"}, chunk["id"])
    first = parsed.add("written")

    request_parsing(parsed.client, parsed.base, parsed.id)
    refused = parsed.send("POST", {"content": "too early"})
    parse_waiting(server_with_files, parsed.client)
    second = parsed.add("written again")

    assert (refused["code"], refused["message"][:29]) == (409, "The document is being parsed,")
    assert parsed.contents() == [REFUNDS, "written again"]
    assert parsed.page()["doc"]["chunk_count"] == 2
    assert first["id"] != second["id"]  # no id means another chunk later


def test_parsed_chunks_are_deleted_and_counted(parsed: Document) -> None:
    (chunk,) = parsed.page()["chunks"]
    kept = parsed.add("kept")

    parsed.send("DELETE", {"chunk_ids": [chunk["id"]]})

    assert parsed.contents() == ["kept"]
    assert parsed.page()["doc"]["chunk_count"] == 1
    assert parsed.found("refunds take") == []
    assert parsed.send("DELETE", {"chunk_ids": None, "delete_all": True})["message"] == "deleted 1 chunks"
    assert parsed.send("GET", chunk=kept["id"])["message"] == "Chunk not found!"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`content` is required"),
        ({"content": " \n"}, "`content` is required"),
        ({"content": 1}, "`content` is required"),
        ({"content": "x", "important_keywords": "a"}, "`important_keywords` is required to be a list"),
        ({"content": "x", "important_keywords": [1]}, "`important_keywords` must be a list of strings"),
        ({"content": "x", "questions": 1}, "`questions` is required to be a list"),
        ({"content": "x", "questions": [None]}, "`questions` must be a list of strings"),
        ({"content": "x", "tag_kwd": "a"}, "`tag_kwd` is required to be a list"),
        ({"content": "x", "tag_kwd": [1]}, "`tag_kwd` must be a list of strings"),
        ({"content": "x", "tag_feas": {"a": "b"}}, "`tag_feas` must be an object of numbers"),
        ({"content": "x", "positions": [[1, 2]]}, "Each sublist in positions must have a length of 5"),
        ({"content": "x", "available": "yes"}, "`available` should be a boolean"),
        ({"content": "x", "image_base64": " "}, "`image_base64` must be a non-empty string"),
        ({"content": "x", "image_base64": "%%"}, "Invalid `image_base64`"),
        ({"content": "x", "image_base64": "bm8gcGljdHVyZQ=="}, "`image_base64` has no picture of the type PNG"),
        ({"content": "x" * 100_001}, "`content` may have 100000 characters."),
        ({"content": "x", "questions": ["y" * 70_000]}, "Keywords, questions, tags and positions may have"),
    ],
)
def test_invalid_chunk_is_refused_and_not_stored(document: Document, body: dict[str, Any], message: str) -> None:
    reply = document.send("POST", body)

    assert reply["code"] == 102
    assert reply["message"].startswith(message)
    assert document.page()["total"] == 0


def test_unknown_field_of_a_chunk_is_refused(document: Document) -> None:
    chunk = document.add("x")["id"]

    replies = [
        document.send("POST", {"content": "x", "avaliable": False}),
        document.send("PATCH", {"avaliable": False}, chunk),
        document.send("PATCH", {"chunk_ids": [chunk], "avaliable": 0}),
        document.send("DELETE", {"chunk_id": [chunk]}),
    ]

    assert [reply["code"] for reply in replies] == [101] * 4
    assert "available" in replies[0]["message"]
    assert document.contents() == ["x"]


def test_change_of_a_chunk_is_refused_in_ragflows_words(document: Document) -> None:
    chunk = document.add("x")["id"]

    def refused(body: Any, chunk_id: str = chunk) -> str:
        reply = document.send("PATCH", body, chunk_id)
        assert reply["code"] == 102
        return reply["message"]

    assert refused({"content": ""}) == "`content` is required"
    assert refused({"important_keywords": "a"}) == "`important_keywords` should be a list"
    assert refused({"questions": 1}) == "`questions` should be a list"
    assert refused({"positions": "a"}) == "`positions` should be a list"
    assert refused({"content": "y"}, UNKNOWN) == f"Can't find this chunk {UNKNOWN}"
    assert document.send("PATCH", {"content": None}, chunk)["code"] == 0
    assert document.send("PATCH", {}, chunk)["code"] == 0
    assert document.contents() == ["x"]


def test_tags_are_stored_and_named_as_without_an_effect(document: Document) -> None:
    reply = document.send("POST", {"content": "x", "tag_kwd": ["a"], "positions": [[1, 2, 3, 4, 5]]})
    changed = document.send("PATCH", {"tag_feas": {"a": 2}}, reply["data"]["chunk"]["id"])

    (chunk,) = document.page()["chunks"]
    assert (chunk["tag_kwd"], chunk["tag_feas"], chunk["positions"]) == (["a"], {"a": 2}, [[1, 2, 3, 4, 5]])
    assert reply["warnings"] == ["`tag_kwd` has no effect here."]
    assert changed["warnings"] == ["`tag_feas` has no effect here."]


def test_picture_of_a_chunk_is_shown_to_its_tenant_only(document: Document, server_with_files: Server) -> None:
    chunk = document.add("A chart.", image_base64=base64.b64encode(PNG).decode())
    stranger = server_with_files.client()

    url = f"/api/v1/documents/images/{chunk['image_id']}"
    reply = document.client.http.get(url)
    theirs = stranger.http.get(url).json()
    stranger.http.close()

    assert (reply.content, reply.headers["content-type"]) == (PNG, "image/png")
    assert chunk["doc_type_kwd"] == "image"
    assert (theirs["code"], theirs["message"]) == (102, "Image not found.")
    (found,) = retrieve(document.client, document.base, question="chart")["data"]["chunks"]
    assert found["image_id"] == chunk["image_id"]
    for written in ("nothing", f"{document.base}-{UNKNOWN}", f"{UNKNOWN}-{chunk['id']}"):
        assert document.client.http.get(f"/api/v1/documents/images/{written}").json()["message"] == "Image not found."


def test_deleting_counts_what_existed(document: Document) -> None:
    ids = [document.add(f"chunk {number}")["id"] for number in range(4)]

    some = document.send("DELETE", {"chunk_ids": ["nothing", ids[0]]})
    nothing = [document.send("DELETE", body) for body in (None, {}, {"chunk_ids": []}, {"delete_all": False})]
    twice = document.send("DELETE", {"chunk_ids": [ids[1], ids[2], ids[1]]})

    assert (some["code"], some["message"]) == (102, "rm_chunk deleted chunks 1, expect 2")
    assert [reply["code"] for reply in nothing] == [0] * 4
    assert (twice["code"], twice["data"]) == (0, {"success_count": 2, "errors": [f"Duplicate chunk ids: {ids[1]}"]})
    assert document.contents() == ["chunk 3"]


def test_deletion_of_chunks_is_in_the_audit_log(server_with_files: Server) -> None:
    admin = server_with_files.client(kind="admin")
    document = Document(admin)
    document.add("x")

    document.send("DELETE", {"delete_all": True})
    document.send("DELETE", {"delete_all": True})  # there are none any more

    (entry,) = admin.http.get("/api/v1/audit").json()["entries"]
    admin.http.close()
    assert (entry["action"], entry["object"]["id"]) == ("document.chunks_deleted", document.id)
    assert entry["details"] == {"knowledge_base_id": document.base, "chunks": 1}


def test_switching_an_unknown_chunk_changes_none(document: Document) -> None:
    chunk = document.add("x")["id"]

    unknown = document.send("PATCH", {"chunk_ids": [chunk, f"{document.id}00000009"], "available": False})
    without_ids = document.send("PATCH", {"available": False})
    without_value = document.send("PATCH", {"chunk_ids": [chunk]})

    assert (unknown["code"], unknown["message"]) == (102, "Index updating failure")
    assert without_ids["message"] == "`chunk_ids` is required."
    assert without_value["message"] == "`available_int` or `available` is required."
    assert document.contents(available="true") == ["x"]


def test_chunks_are_paged_and_filtered(document: Document) -> None:
    ids = [document.add(text)["id"] for text in ("ragflow upload", "chunk 0", "chunk 1")]

    assert document.contents(keywords="chunk") == ["chunk 0", "chunk 1"]
    assert document.contents(chunk_ids=f"{ids[2]},{ids[0]},nothing") == ["ragflow upload", "chunk 1"]
    behind = document.page(page=3, page_size=2)
    assert (behind["chunks"], behind["total"]) == ([], 3)
    unknown = document.client.http.get(document.path, params={"id": "unknown"}).json()
    assert (unknown["code"], unknown["message"]) == (102, f"Chunk not found: {document.base}/unknown")


def test_paths_of_others_are_refused_in_ragflows_words(document: Document) -> None:
    chunk = document.add("x")["id"]
    other = f"/api/v1/datasets/{document.base}/documents/{UNKNOWN}/chunks"
    other_base = f"/api/v1/datasets/{UNKNOWN}/documents/{document.id}/chunks"
    http = document.client.http

    for method, url, body in (
        ("POST", "", {"content": "x"}),
        ("GET", "", None),
        ("DELETE", "", {"delete_all": True}),
        ("GET", f"/{chunk}", None),
        ("PATCH", f"/{chunk}", {"content": "y"}),
    ):
        reply = http.request(method, f"{other}{url}", json=body).json()
        assert (reply["code"], reply["message"]) == (102, f"you don't own the document {UNKNOWN}")
        reply = http.request(method, f"{other_base}{url}", json=body).json()
        assert (reply["code"], reply["message"]) == (102, f"You don't own the dataset {UNKNOWN}.")
    switched = http.patch(other, json={"chunk_ids": [chunk], "available": True}).json()
    assert (switched["code"], switched["message"]) == (102, "document not found")


def test_chunks_are_added_and_changed_by_many_at_once(document: Document) -> None:
    def add(number: int) -> str:
        return document.add(f"chunk {number}")["id"]

    def change(field: dict[str, Any]) -> int:
        return document.send("PATCH", field, added[0])["code"]

    with ThreadPoolExecutor(4) as threads:
        added = list(threads.map(add, range(12)))
        codes = list(threads.map(change, [{"questions": ["q"]}, {"important_keywords": ["k"]}, {"tag_kwd": ["t"]}]))

    assert (len(set(added)), codes) == (12, [0] * 3)
    chunk = document.page(id=added[0])["chunks"][0]
    assert (chunk["questions"], chunk["important_keywords"], chunk["tag_kwd"]) == (["q"], ["k"], ["t"])
    assert document.page()["doc"]["chunk_count"] == 12


def test_repeated_request_adds_one_chunk(document: Document) -> None:
    headers = {"Idempotency-Key": "once"}

    replies = [document.client.http.post(document.path, json={"content": "x"}, headers=headers) for _ in range(2)]

    assert replies[0].json() == replies[1].json()
    assert document.contents() == ["x"]


def test_base_without_a_model_finds_written_chunks_by_words(client: Client) -> None:
    document = Document(client, name="a.txt", data=b"a")
    client.http.put(f"/api/v1/datasets/{document.base}", json={"embedding_model": None})
    document.add("Thirty days.", important_keywords=["holidays"])

    assert document.found("holidays") == ["Thirty days."]
