"""Knowledge bases over HTTP in RAGFlow's format; one test uses Easel's own RAGFlow client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import ToolError
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import RetrievalQuery
from providers.ragflow import RagflowClient
from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.talking import Client
from tests.integration.knowledge_bases import KnowledgeTenant

OPTIONS = {"top_n": 3, "top_k": 1024, "similarity_threshold": 0.2, "keywords_similarity_weight": 0.5}
REFUNDS = "Refunds take five days, after which the money is there."


@pytest.fixture(scope="module")
def server_with_files(workerless_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server with a folder for files."""
    folder: Path = tmp_path_factory.mktemp("files")
    config = with_settings(workerless_server.config, files_dir=folder)
    with serving(config) as url:
        yield Server(url, workerless_server.database, config)


@pytest.fixture
def client(server_with_files: Server) -> Iterator[Client]:
    client = server_with_files.client()
    yield client
    client.http.close()


def parse_waiting(server_with_files: Server, client: Client) -> int:
    """Parse the waiting documents, as a worker does; return how many there were."""
    return KnowledgeTenant(
        server_with_files.database, client.tenant_id, server_with_files.config.settings.files_dir
    ).read()


def create_base(client: Client, name: str = "Policies", **more: Any) -> dict[str, Any]:
    reply = client.http.post("/api/v1/datasets", json={"name": name, "embedding_model": "echo", **more}).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def upload_documents(client: Client, dataset: str, *files: tuple[str, bytes]) -> list[dict[str, Any]]:
    parts = [("file", file) for file in files]
    reply = client.http.post(f"/api/v1/datasets/{dataset}/documents", files=parts).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def request_parsing(client: Client, dataset: str, *documents: str) -> dict[str, Any]:
    return client.http.post(f"/api/v1/datasets/{dataset}/chunks", json={"document_ids": list(documents)}).json()


def retrieve(client: Client, *datasets: str, **body: Any) -> dict[str, Any]:
    request = {"question": "How long do refunds take?", "dataset_ids": list(datasets), **body}
    return client.http.post("/api/v1/retrieval", json=request).json()


@pytest.fixture
def base_with_document(server_with_files: Server, client: Client) -> tuple[str, str]:
    """Create a base with one parsed document; return the ids of both."""
    dataset = create_base(client)["id"]
    (document,) = upload_documents(client, dataset, ("refunds.txt", REFUNDS.encode()))
    request_parsing(client, dataset, document["id"])
    assert parse_waiting(server_with_files, client) == 1
    return dataset, document["id"]


def test_a_base_is_created_listed_changed_and_deleted(client: Client) -> None:
    base = create_base(client, description="What holds.", parser_config={"chunk_token_num": 128})
    duplicate = client.http.post("/api/v1/datasets", json={"name": "policies"}).json()["data"]
    changed = client.http.put(f"/api/v1/datasets/{base['id']}", json={"name": "Rules"}).json()
    (listed,) = client.http.get("/api/v1/datasets", params={"name": "Rules"}).json()["data"]
    both = {"ids": [base["id"], duplicate["id"]]}
    deleted = client.http.request("DELETE", "/api/v1/datasets", json=both).json()

    assert (base["parser_config"]["chunk_token_num"], base["parser_config"]["overlapped_percent"]) == (128, 10)
    assert (base["embedding_model"], base["document_count"], base["chunk_count"]) == ("echo", 0, 0)
    assert duplicate["name"] == "policies(1)"
    assert (changed["code"], listed["id"], listed["description"]) == (0, base["id"], "What holds.")
    assert (deleted["code"], deleted["data"]) == (0, {"deleted": 2})
    assert client.http.get("/api/v1/datasets").json()["data"] == []


def test_all_bases_are_deleted_only_with_delete_all(client: Client) -> None:
    create_base(client)

    nothing = client.http.request("DELETE", "/api/v1/datasets", json={}).json()
    remaining = client.http.get("/api/v1/datasets").json()["data"]
    client.http.request("DELETE", "/api/v1/datasets", json={"delete_all": True})

    assert nothing["data"] == {"deleted": 0}
    assert len(remaining) == 1
    assert client.http.get("/api/v1/datasets").json()["data"] == []


def test_base_with_an_unknown_embedding_model_is_refused(client: Client) -> None:
    reply = client.http.post("/api/v1/datasets", json={"name": "x", "embedding_model": "bge-m3@Acme"}).json()

    assert (reply["code"], reply["message"]) == (102, "Model bge-m3@Acme not found for model embedding")


def test_uploaded_document_is_parsed_only_after_a_request(
    server_with_files: Server, client: Client, base_with_document: tuple[str, str]
) -> None:
    dataset, first = base_with_document
    second, third = upload_documents(
        client, dataset, ("a.md", b"# Holidays\nThirty days."), ("again.txt", REFUNDS.encode())
    )

    assert parse_waiting(server_with_files, client) == 0
    assert (second["run"], second["size"], third["size"]) == ("UNSTART", 23, len(REFUNDS))
    assert third["id"] != first
    assert request_parsing(client, dataset, second["id"])["code"] == 0
    (listed,) = client.http.get(f"/api/v1/datasets/{dataset}/documents?name=a.md").json()["data"]["docs"]
    assert (listed["run"], listed["progress"]) == ("RUNNING", 0)
    assert parse_waiting(server_with_files, client) == 1
    page = client.http.get(f"/api/v1/datasets/{dataset}/documents/{second['id']}/chunks").json()["data"]
    assert [chunk["content"] for chunk in page["chunks"]] == ["# Holidays\nThirty days."]
    assert (page["doc"]["run"], page["doc"]["progress"], page["total"]) == ("DONE", 1, 1)
    download = client.http.get(f"/api/v1/datasets/{dataset}/documents/{second['id']}")
    assert download.content == b"# Holidays\nThirty days."


def test_a_picture_that_no_model_can_read_fails_with_the_reason_over_http(
    server_with_files: Server, client: Client
) -> None:
    dataset = create_base(client)["id"]
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    (document,) = upload_documents(client, dataset, ("photo.png", png))
    request_parsing(client, dataset, document["id"])

    assert parse_waiting(server_with_files, client) == 1

    (listed,) = client.http.get(f"/api/v1/datasets/{dataset}/documents?name=photo.png").json()["data"]["docs"]
    assert (listed["run"], listed["progress"], listed["chunk_count"]) == ("FAIL", -1, 0)
    assert 'The file "photo.png" (image) has no text, and no model of the kind vision or ocr' in listed["progress_msg"]


def test_matching_words_are_highlighted_only_on_request(client: Client, base_with_document: tuple[str, str]) -> None:
    (highlighted,) = retrieve(client, base_with_document[0], highlight=True)["data"]["chunks"]
    (plain,) = retrieve(client, base_with_document[0], keyword=True)["data"]["chunks"]  # no chat model, so no keywords

    assert highlighted["highlight"].replace("<em>", "").replace("</em>", "") == highlighted["content"]
    assert "<em>Refunds</em>" in highlighted["highlight"]
    assert "highlight" not in plain


def test_retrieval_returns_chunks_in_ragflows_format(client: Client, base_with_document: tuple[str, str]) -> None:
    dataset, document = base_with_document

    reply = retrieve(client, dataset)

    (chunk,) = reply["data"]["chunks"]
    assert (reply["code"], reply["data"]["total"]) == (0, 1)
    assert reply["data"]["doc_aggs"] == [{"doc_name": "refunds.txt", "doc_id": document, "count": 1}]
    assert (chunk["content"], chunk["document_id"], chunk["dataset_id"]) == (REFUNDS, document, dataset)
    assert chunk["document_keyword"] == "refunds.txt"
    assert 0.2 < chunk["similarity"] <= 1


def test_retrieval_is_filtered_by_metadata(client: Client, base_with_document: tuple[str, str]) -> None:
    dataset, document = base_with_document
    client.http.put(f"/api/v1/datasets/{dataset}/documents/{document}", json={"meta_fields": {"year": 2024}})

    def count_since(year: str) -> int:
        condition = {"name": "year", "comparison_operator": ">=", "value": year}
        return retrieve(client, dataset, metadata_condition={"conditions": [condition]})["data"]["total"]

    assert (count_since("2024"), count_since("2025")) == (1, 0)
    assert retrieve(client, dataset, document_ids=[document])["data"]["total"] == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"dataset_ids": []}, "`dataset_ids` is required."),
        ({"dataset_ids": ["k9"]}, "You don't own the dataset k9."),
        ({"top_k": 0}, "`top_k` must be greater than 0"),
        ({"document_ids": ["d9"]}, "The datasets don't own the document d9"),
        ({"use_kg": True}, "No knowledge graph is configured for this deployment"),
    ],
)
def test_invalid_retrieval_is_refused_with_ragflows_message(
    client: Client, base_with_document: tuple[str, str], body: dict[str, Any], message: str
) -> None:
    reply = retrieve(client, base_with_document[0], **body)

    assert reply["code"] == 102
    assert reply["message"].startswith(message)


def test_deleted_documents_are_not_retrieved(client: Client, base_with_document: tuple[str, str]) -> None:
    dataset, document = base_with_document
    assert retrieve(client, dataset)["data"]["total"] == 1

    deleted = client.http.request("DELETE", f"/api/v1/datasets/{dataset}/documents", json={"ids": [document]}).json()

    assert deleted["code"] == 0
    assert retrieve(client, dataset)["data"]["total"] == 0


def test_embedding_model_cannot_change_while_there_are_chunks(
    client: Client, base_with_document: tuple[str, str]
) -> None:
    reply = client.http.put(f"/api/v1/datasets/{base_with_document[0]}", json={"embedding_model": "scripted"}).json()

    assert reply["message"] == "When chunk_count (1) > 0, embedding_model must remain echo."


def test_easels_ragflow_client_searches_on_another_easel(
    server_with_files: Server, client: Client, base_with_document: tuple[str, str]
) -> None:
    dataset, document = base_with_document

    async def search(*entries: str, **options: Any) -> Any:
        http = HttpClient(Guard())
        server = RagflowClient(http, server_with_files.url, client.token)
        try:
            return await server.search(
                RetrievalQuery("refunds take", dataset_ids=entries, options={**OPTIONS, **options})
            )
        finally:
            await http.aclose()

    by_id = asyncio.run(search(dataset))
    by_name = asyncio.run(search("Policies", may_be_names=["Policies"]))

    assert by_id == by_name
    (chunk,) = by_id["chunks"]
    assert (chunk["content_with_weight"], chunk["doc_id"], chunk["kb_id"]) == (REFUNDS, document, dataset)
    with pytest.raises(ToolError, match=r"Dataset\(Nothing\) does not exist\."):
        asyncio.run(search("Nothing", may_be_names=["Nothing"]))
    with pytest.raises(ToolError, match="You don't own the dataset"):
        asyncio.run(search("f" * 32))


def test_bases_are_filtered_by_a_list_of_ids(client: Client) -> None:
    first, second, third = (create_base(client, name)["id"] for name in ("a", "b", "c"))

    def ids(params: Any) -> list[str]:
        return [base["id"] for base in client.http.get("/api/v1/datasets", params=params).json()["data"]]

    assert ids({"ids": [first, third]}) == [third, first]
    assert ids({"ids": f"{first},{second}"}) == [second, first]
    assert ids({"ids": [first, third], "desc": False}) == [first, third]
    client.http.put(f"/api/v1/datasets/{first}", json={"description": "changed"})
    assert ids({"orderby": "update_time"}) == [first, third, second]
    unknown = client.http.get("/api/v1/datasets", params={"ids": [first, "0" * 32]}).json()
    assert (unknown["code"], unknown["message"]) == (
        102,
        f"User '{client.tenant_id.hex}' lacks permission for dataset '{'0' * 32}'",
    )


def test_documents_are_ordered_and_filtered_by_creation_time(client: Client) -> None:
    base = create_base(client)["id"]
    first, second = (upload_documents(client, base, (name, name.encode()))[0] for name in ("b.txt", "a.txt"))

    def names(**params: Any) -> list[str]:
        reply = client.http.get(f"/api/v1/datasets/{base}/documents", params=params).json()
        return [document["name"] for document in reply["data"]["docs"]]

    assert names() == ["a.txt", "b.txt"]
    assert names(desc=False) == ["b.txt", "a.txt"]
    assert names(orderby="name", desc=True) == ["b.txt", "a.txt"]
    assert names(create_time_from=0, create_time_to=0) == ["a.txt", "b.txt"]
    assert names(create_time_from=second["create_time"] + 1000) == []
    assert names(create_time_to=first["create_time"] - 1000) == []


def test_all_documents_of_a_base_are_deleted_only_with_delete_all(client: Client) -> None:
    base, other = create_base(client)["id"], create_base(client, "Other")["id"]
    upload_documents(client, base, ("a.txt", b"a"), ("b.txt", b"b"))
    upload_documents(client, other, ("c.txt", b"c"))

    def total(base_id: str) -> int:
        return client.http.get(f"/api/v1/datasets/{base_id}/documents").json()["data"]["total"]

    empty = client.http.request("DELETE", f"/api/v1/datasets/{base}/documents", json={"ids": None}).json()
    remaining = total(base)
    body = {"ids": None, "delete_all": True}
    deleted = client.http.request("DELETE", f"/api/v1/datasets/{base}/documents", json=body).json()

    assert (empty["code"], remaining) == (102, 2)
    assert (deleted["code"], total(base), total(other)) == (0, 0, 1)


def test_chunks_are_filtered_by_keywords_and_id(client: Client, base_with_document: tuple[str, str]) -> None:
    base, _ = base_with_document
    (document, *_) = client.http.get(f"/api/v1/datasets/{base}/documents").json()["data"]["docs"]
    path = f"/api/v1/datasets/{base}/documents/{document['id']}/chunks"

    def chunks(**params: str) -> tuple[list[str], int]:
        data = client.http.get(path, params=params).json()["data"]
        return [chunk["id"] for chunk in data["chunks"]], data["total"]

    ids, _ = chunks()

    assert chunks(id=ids[0]) == ([ids[0]], 1)
    assert chunks(keywords="nobody says this") == ([], 0)
    word = client.http.get(path).json()["data"]["chunks"][0]["content"].split()[0]
    assert ids[0] in chunks(keywords=word)[0]
    assert client.http.get(path, params={"id": "x"}).json()["code"] == 102
