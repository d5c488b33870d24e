"""Knowledge bases over HTTP, as RAGFlow's clients know them: one of these clients is our own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canvas.errors import ToolError
from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import RetrievalQuery
from providers.ragflow import RagflowClient
from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.talking import Client
from tests.integration.knowledge_bases import Shop

OPTIONS = {"top_n": 3, "top_k": 1024, "similarity_threshold": 0.2, "keywords_similarity_weight": 0.5}
REFUNDS = "Refunds take five days, after which the money is there."


@pytest.fixture(scope="module")
def storing(lonely_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The application with a folder for files."""
    folder: Path = tmp_path_factory.mktemp("files")
    config = with_settings(lonely_server.config, files_dir=folder)
    with serving(config) as url:
        yield Server(url, lonely_server.database, config)


@pytest.fixture
def client(storing: Server) -> Iterator[Client]:
    client = storing.client()
    yield client
    client.http.close()


def read(storing: Server, client: Client) -> int:
    """Read what waits, as a worker does; how many documents."""
    return Shop(storing.database, client.tenant_id, storing.config.settings.files_dir).read()


def created(client: Client, name: str = "Policies", **more: Any) -> dict[str, Any]:
    reply = client.http.post("/api/v1/datasets", json={"name": name, "embedding_model": "echo", **more}).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def uploaded(client: Client, dataset: str, *files: tuple[str, bytes]) -> list[dict[str, Any]]:
    parts = [("file", file) for file in files]
    reply = client.http.post(f"/api/v1/datasets/{dataset}/documents", files=parts).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def parsed(client: Client, dataset: str, *documents: str) -> dict[str, Any]:
    return client.http.post(f"/api/v1/datasets/{dataset}/chunks", json={"document_ids": list(documents)}).json()


def retrieved(client: Client, *datasets: str, **body: Any) -> dict[str, Any]:
    given = {"question": "How long do refunds take?", "dataset_ids": list(datasets), **body}
    return client.http.post("/api/v1/retrieval", json=given).json()


@pytest.fixture
def stocked(storing: Server, client: Client) -> tuple[str, str]:
    """A base and its document, which was read."""
    dataset = created(client)["id"]
    (document,) = uploaded(client, dataset, ("refunds.txt", REFUNDS.encode()))
    parsed(client, dataset, document["id"])
    assert read(storing, client) == 1
    return dataset, document["id"]


def test_a_base_is_created_listed_changed_and_deleted(client: Client) -> None:
    made = created(client, description="What holds.", parser_config={"chunk_token_num": 128})
    taken = client.http.post("/api/v1/datasets", json={"name": "policies"}).json()
    changed = client.http.put(f"/api/v1/datasets/{made['id']}", json={"name": "Rules"}).json()
    (listed,) = client.http.get("/api/v1/datasets", params={"name": "Rules"}).json()["data"]
    gone = client.http.request("DELETE", "/api/v1/datasets", json={"ids": [made["id"]]}).json()

    assert made["parser_config"] == {"chunk_token_num": 128, "overlapped_percent": 10}
    assert (made["embedding_model"], made["document_count"], made["chunk_count"]) == ("echo", 0, 0)
    assert taken["code"] == 409
    assert (changed["code"], listed["id"], listed["description"]) == (0, made["id"], "What holds.")
    assert gone["code"] == 0
    assert client.http.get("/api/v1/datasets").json()["data"] == []


def test_everything_goes_only_if_somebody_says_so(client: Client) -> None:
    created(client)

    refused = client.http.request("DELETE", "/api/v1/datasets", json={}).json()
    kept = client.http.get("/api/v1/datasets").json()["data"]
    client.http.request("DELETE", "/api/v1/datasets", json={"delete_all": True})

    assert refused["message"] == "`ids` is required."
    assert len(kept) == 1
    assert client.http.get("/api/v1/datasets").json()["data"] == []


def test_a_model_that_the_tenant_does_not_have_is_refused(client: Client) -> None:
    reply = client.http.post("/api/v1/datasets", json={"name": "x", "embedding_model": "bge-m3@Acme"}).json()

    assert reply["code"] == 102
    assert "bge-m3" in reply["message"]


def test_an_upload_waits_until_somebody_wants_it_read(
    storing: Server, client: Client, stocked: tuple[str, str]
) -> None:
    dataset, first = stocked
    second, third = uploaded(client, dataset, ("a.md", b"# Holidays\nThirty days."), ("again.txt", REFUNDS.encode()))

    assert read(storing, client) == 0
    assert (second["run"], second["size"], third["id"]) == ("UNSTART", 23, first)
    assert parsed(client, dataset, second["id"])["code"] == 0
    (listed,) = client.http.get(f"/api/v1/datasets/{dataset}/documents?name=a.md").json()["data"]["docs"]
    assert (listed["run"], listed["progress"]) == ("RUNNING", 0)
    assert read(storing, client) == 1
    told = client.http.get(f"/api/v1/datasets/{dataset}/documents/{second['id']}/chunks").json()["data"]
    assert [chunk["content"] for chunk in told["chunks"]] == ["# Holidays\nThirty days."]
    assert (told["doc"]["run"], told["doc"]["progress"], told["total"]) == ("DONE", 1, 1)
    bytes_back = client.http.get(f"/api/v1/datasets/{dataset}/documents/{second['id']}")
    assert bytes_back.content == b"# Holidays\nThirty days."


def test_a_picture_that_no_model_can_read_fails_with_the_reason_over_http(storing: Server, client: Client) -> None:
    dataset = created(client)["id"]
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    (document,) = uploaded(client, dataset, ("photo.png", png))
    parsed(client, dataset, document["id"])

    assert read(storing, client) == 1

    (listed,) = client.http.get(f"/api/v1/datasets/{dataset}/documents?name=photo.png").json()["data"]["docs"]
    assert (listed["run"], listed["progress"], listed["chunk_count"]) == ("FAIL", -1, 0)
    assert 'The file "photo.png" (image) has no text, and no model of the kind vision or ocr' in listed["progress_msg"]


def test_words_that_were_looked_for_are_marked_where_the_request_wants_it(
    client: Client, stocked: tuple[str, str]
) -> None:
    (marked,) = retrieved(client, stocked[0], highlight=True)["data"]["chunks"]
    (plain,) = retrieved(client, stocked[0], keyword=True)["data"]["chunks"]  # without a chat model: without key words

    assert marked["highlight"].replace("<em>", "").replace("</em>", "") == marked["content"]
    assert "<em>Refunds</em>" in marked["highlight"]
    assert "highlight" not in plain


def test_what_is_found_is_told_as_ragflow_tells_it(client: Client, stocked: tuple[str, str]) -> None:
    dataset, document = stocked

    found = retrieved(client, dataset)

    (chunk,) = found["data"]["chunks"]
    assert (found["code"], found["data"]["total"]) == (0, 1)
    assert found["data"]["doc_aggs"] == [{"doc_name": "refunds.txt", "doc_id": document, "count": 1}]
    assert (chunk["content"], chunk["document_id"], chunk["dataset_id"]) == (REFUNDS, document, dataset)
    assert chunk["document_keyword"] == "refunds.txt"
    assert 0.2 < chunk["similarity"] <= 1


def test_metadata_decides_what_is_found(client: Client, stocked: tuple[str, str]) -> None:
    dataset, document = stocked
    client.http.put(f"/api/v1/datasets/{dataset}/documents/{document}", json={"meta_fields": {"year": 2024}})

    def found(year: str) -> int:
        condition = {"name": "year", "comparison_operator": ">=", "value": year}
        return retrieved(client, dataset, metadata_condition={"conditions": [condition]})["data"]["total"]

    assert (found("2024"), found("2025")) == (1, 0)
    assert retrieved(client, dataset, document_ids=[document])["data"]["total"] == 1


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
def test_what_cannot_be_searched_is_said_in_ragflows_words(
    client: Client, stocked: tuple[str, str], body: dict[str, Any], message: str
) -> None:
    reply = retrieved(client, stocked[0], **body)

    assert reply["code"] == 102
    assert reply["message"].startswith(message)


def test_documents_are_deleted_and_not_found_any_more(client: Client, stocked: tuple[str, str]) -> None:
    dataset, document = stocked
    assert retrieved(client, dataset)["data"]["total"] == 1

    gone = client.http.request("DELETE", f"/api/v1/datasets/{dataset}/documents", json={"ids": [document]}).json()

    assert gone["code"] == 0
    assert retrieved(client, dataset)["data"]["total"] == 0


def test_the_embedding_model_stays_while_there_are_chunks(client: Client, stocked: tuple[str, str]) -> None:
    reply = client.http.put(f"/api/v1/datasets/{stocked[0]}", json={"embedding_model": "scripted"}).json()

    assert reply["message"] == "When chunk_count (1) > 0, embedding_model must remain echo."


def test_another_easel_can_search_here_as_it_searches_ragflow(
    storing: Server, client: Client, stocked: tuple[str, str]
) -> None:
    dataset, document = stocked

    async def search(*entries: str, **options: Any) -> Any:
        http = HttpClient(Guard())
        server = RagflowClient(http, storing.url, client.token)
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


def test_a_list_of_ids_narrows_to_these_bases(client: Client) -> None:
    first, second, third = (created(client, name)["id"] for name in ("a", "b", "c"))

    def ids(params: Any) -> list[str]:
        return [base["id"] for base in client.http.get("/api/v1/datasets", params=params).json()["data"]]

    assert ids({"ids": [first, third]}) == [third, first]
    assert ids({"ids": f"{first},{second}"}) == [second, first]
    assert ids({"ids": [first, third], "desc": False}) == [first, third]
    client.http.put(f"/api/v1/datasets/{first}", json={"description": "changed"})
    assert ids({"orderby": "update_time"}) == [first, third, second]
    unknown = client.http.get("/api/v1/datasets", params={"ids": [first, "0" * 32]}).json()
    assert (unknown["code"], unknown["message"]) == (102, f"You don't own the dataset {'0' * 32}.")


def test_documents_are_ordered_and_narrowed_by_when_they_were_added(client: Client) -> None:
    base = created(client)["id"]
    first, second = (uploaded(client, base, (name, name.encode()))[0] for name in ("b.txt", "a.txt"))

    def names(**params: Any) -> list[str]:
        reply = client.http.get(f"/api/v1/datasets/{base}/documents", params=params).json()
        return [document["name"] for document in reply["data"]["docs"]]

    assert names() == ["a.txt", "b.txt"]
    assert names(desc=False) == ["b.txt", "a.txt"]
    assert names(orderby="name", desc=True) == ["b.txt", "a.txt"]
    assert names(create_time_from=0, create_time_to=0) == ["a.txt", "b.txt"]
    assert names(create_time_from=second["create_time"] + 1000) == []
    assert names(create_time_to=first["create_time"] - 1000) == []


def test_all_documents_of_a_base_go_if_somebody_says_so(client: Client) -> None:
    base, other = created(client)["id"], created(client, "Other")["id"]
    uploaded(client, base, ("a.txt", b"a"), ("b.txt", b"b"))
    uploaded(client, other, ("c.txt", b"c"))

    def total(of: str) -> int:
        return client.http.get(f"/api/v1/datasets/{of}/documents").json()["data"]["total"]

    empty = client.http.request("DELETE", f"/api/v1/datasets/{base}/documents", json={"ids": None}).json()
    kept = total(base)
    body = {"ids": None, "delete_all": True}
    gone = client.http.request("DELETE", f"/api/v1/datasets/{base}/documents", json=body).json()

    assert (empty["code"], kept) == (102, 2)
    assert (gone["code"], total(base), total(other)) == (0, 0, 1)


def test_a_document_is_not_switched_off_by_a_field_that_nobody_reads(client: Client) -> None:
    base = created(client)["id"]
    (document,) = uploaded(client, base, ("a.txt", b"a"))
    path = f"/api/v1/datasets/{base}/documents/{document['id']}"

    off = client.http.patch(path, json={"enabled": False})
    renamed = client.http.patch(path, json={**document, "name": "b.txt", "enabled": True}).json()

    assert off.status_code == 400
    assert (renamed["code"], renamed["data"]["name"]) == (0, "b.txt")
    assert "`parser_config` has no effect here." in renamed["warnings"]


def test_chunks_are_narrowed_by_words_and_by_id(client: Client, stocked: tuple[str, str]) -> None:
    base, _ = stocked
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
