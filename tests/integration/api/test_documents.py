"""Documents of datasets as RAGFlow's clients upload, list, change and delete them."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.talking import Client
from tests.integration.knowledge_bases import KnowledgeTenant

SEARCHED = "Refunds take five days, after which the money is there."


@pytest.fixture(scope="module")
def server(workerless_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server with a folder for files."""
    config = with_settings(workerless_server.config, files_dir=tmp_path_factory.mktemp("files"))
    with serving(config) as url:
        yield Server(url, workerless_server.database, config)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    client = server.client()
    yield client
    client.http.close()


@pytest.fixture
def dataset(client: Client) -> str:
    return client.http.post("/api/v1/datasets", json={"name": "d", "embedding_model": "echo"}).json()["data"]["id"]


def upload(client: Client, dataset: str, *files: tuple[str, bytes]) -> dict[str, Any]:
    parts = [("file", file) for file in files]
    return client.http.post(f"/api/v1/datasets/{dataset}/documents", files=parts).json()


def add_document(client: Client, dataset: str, name: str, content: bytes = b"x") -> dict[str, Any]:
    reply = upload(client, dataset, (name, content))
    assert reply["code"] == 0, reply
    return reply["data"][0]


def patch(client: Client, dataset: str, document: str, **body: Any) -> dict[str, Any]:
    return client.http.patch(f"/api/v1/datasets/{dataset}/documents/{document}", json=body).json()


def fetch_list(client: Client, dataset: str, **params: Any) -> dict[str, Any]:
    return client.http.get(f"/api/v1/datasets/{dataset}/documents", params=params).json()


def names(client: Client, dataset: str, **params: Any) -> list[str]:
    return [each["name"] for each in fetch_list(client, dataset, **params)["data"]["docs"]]


def delete(client: Client, dataset: str, **body: Any) -> dict[str, Any]:
    return client.http.request("DELETE", f"/api/v1/datasets/{dataset}/documents", json=body).json()


def parse(server: Server, client: Client, dataset: str, *documents: str) -> None:
    """Parse documents, as a worker does."""
    reply = client.http.post(f"/api/v1/datasets/{dataset}/chunks", json={"document_ids": list(documents)}).json()
    assert reply["code"] == 0, reply
    tenant = KnowledgeTenant(server.database, client.tenant_id, server.config.settings.files_dir)
    assert tenant.read() >= len(documents)  # and what other tests left


def retrieve(client: Client, dataset: str) -> list[str]:
    body = {"question": "How long do refunds take?", "dataset_ids": [dataset]}
    found = client.http.post("/api/v1/retrieval", json=body).json()
    return [chunk["document_keyword"] for chunk in found["data"]["chunks"]]


# -- upload -----------------------------------------------------------------------------------------------------------
def test_equal_files_are_documents_of_their_own_with_numbered_names(
    server: Server, client: Client, dataset: str
) -> None:
    first, second = (add_document(client, dataset, "a.txt", SEARCHED.encode()) for _ in range(2))
    parse(server, client, dataset, first["id"], second["id"])

    assert [first["name"], second["name"]] == ["a.txt", "a(1).txt"]
    assert sorted(retrieve(client, dataset)) == ["a(1).txt", "a.txt"]
    assert delete(client, dataset, ids=[first["id"]])["data"] == {"deleted": 1}
    path = f"/api/v1/datasets/{dataset}/documents/{second['id']}"
    assert client.http.get(path).content == SEARCHED.encode()
    assert retrieve(client, dataset) == ["a(1).txt"]


UPLOADS = [
    ("", 101, "File name can't be empty."),
    ("n" * 252 + ".txt", 101, "File name must be 255 bytes or less."),
    ("ü" * 127 + ".txt", 101, "File name must be 255 bytes or less."),
    ("setup.exe", 102, "setup.exe: This type of file has not been supported yet!"),
    ("a.unknown", 102, "a.unknown: This type of file has not been supported yet!"),
    ("talk.mp3", 102, "talk.mp3: This type of file has not been supported yet!"),
    ("all.zip", 102, "all.zip: This type of file has not been supported yet!"),
]


@pytest.mark.parametrize(("name", "code", "words"), UPLOADS)
def test_upload_of_an_unreadable_or_unnamed_file_stores_nothing(
    client: Client, dataset: str, name: str, code: int, words: str
) -> None:
    disposition = 'Content-Disposition: form-data; name="file"; filename='
    parts = [f'--x\r\n{disposition}"{each}"\r\n\r\ntext\r\n' for each in ("good.txt", name)]

    reply = client.http.post(
        f"/api/v1/datasets/{dataset}/documents",
        content=("".join(parts) + "--x--\r\n").encode(),
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )

    assert (reply.status_code, reply.json()) == (200, {"code": code, "message": words})
    assert fetch_list(client, dataset)["data"]["total"] == 0


@pytest.mark.parametrize("name", ["LICENSE", "notes.md", "page.HTML", "sheet.xlsx", "scan.tiff", "code.py", "a.pdf"])
def test_file_that_may_be_readable_by_its_name_is_accepted(client: Client, dataset: str, name: str) -> None:
    document = add_document(client, dataset, name, b"")

    assert (document["name"], document["size"], document["run"]) == (name, 0, "UNSTART")


def test_upload_without_a_file_or_into_an_unknown_dataset_is_refused(client: Client, dataset: str) -> None:
    path = f"/api/v1/datasets/{dataset}/documents"
    without = client.http.post(path, data={"name": "a"}).json()
    as_text = client.http.post(path, data={"file": "a"}).json()
    unknown = upload(client, "0" * 32, ("a.txt", b"a"))
    of_type = client.http.post(path, params={"type": "web"}).json()

    assert without == as_text == {"code": 101, "message": "No file part!"}
    assert unknown == {"code": 102, "message": f"Can't find the dataset with ID {'0' * 32}!"}
    assert of_type["code"] == 101


def test_more_than_a_hundred_files_are_uploaded_at_once(client: Client, dataset: str) -> None:
    reply = upload(client, dataset, *((f"{number}.txt", b"x") for number in range(101)))

    assert len(reply["data"]) == 101
    ids = [document["id"] for document in reply["data"]]
    assert fetch_list(client, dataset, page=9, page_size=30)["data"] == {"docs": [], "total": 101}
    assert delete(client, dataset, ids=ids)["data"] == {"deleted": 101}


def test_empty_document_is_made_of_a_name(client: Client, dataset: str) -> None:
    path = f"/api/v1/datasets/{dataset}/documents?type=empty"

    made = client.http.post(path, json={"name": "later.txt"}).json()["data"]
    again = client.http.post(path, json={"name": "later.txt"}).json()
    unnamed = client.http.post(path, json={"name": " "}).json()
    other = client.http.post(path, json={"title": "a"}).json()

    assert (made["name"], made["size"], made["chunk_count"]) == ("later.txt", 0, 0)
    assert again == {"code": 102, "message": "Duplicated document name in the same dataset."}
    assert unnamed == {"code": 101, "message": "File name can't be empty."}
    assert other["code"] == 101
    assert names(client, dataset) == ["later.txt"]


# -- parsing ----------------------------------------------------------------------------------------------------------
def test_parsed_document_says_when_and_how_long(server: Server, client: Client, dataset: str) -> None:
    document = add_document(client, dataset, "a.txt")
    assert (document["process_begin_at"], document["process_duration"], document["progress_msg"]) == (None, 0, "")

    parse(server, client, dataset, document["id"])

    (shown,) = fetch_list(client, dataset)["data"]["docs"]
    assert shown["process_begin_at"].endswith("GMT")
    assert shown["process_duration"] > 0
    assert shown["progress_msg"].startswith("Task done (")


def test_parse_request_with_an_unknown_id_parses_the_others(client: Client, dataset: str) -> None:
    document = add_document(client, dataset, "a.txt")

    body = {"document_ids": ["0" * 32, document["id"]]}
    reply = client.http.post(f"/api/v1/datasets/{dataset}/chunks", json=body).json()

    assert reply == {"code": 102, "message": f"Documents not found: ['{'0' * 32}']"}
    assert fetch_list(client, dataset)["data"]["docs"][0]["run"] == "RUNNING"


def test_stopped_document_is_cancelled_until_it_is_parsed_again(server: Server, client: Client, dataset: str) -> None:
    document = add_document(client, dataset, "a.txt")["id"]
    path = f"/api/v1/datasets/{dataset}/chunks"
    client.http.post(path, json={"document_ids": [document]})
    client.http.request("DELETE", path, json={"document_ids": [document]})

    (stopped,) = fetch_list(client, dataset)["data"]["docs"]
    parse(server, client, dataset, document)

    assert (stopped["run"], stopped["progress"]) == ("CANCEL", 0)
    assert fetch_list(client, dataset)["data"]["docs"][0]["run"] == "DONE"


def test_document_is_split_by_its_own_parser_config(server: Server, client: Client, dataset: str) -> None:
    document = add_document(client, dataset, "a.txt", b"One sentence is here. Another sentence is there.")["id"]
    config = {"chunk_token_num": 6, "overlapped_percent": 0}

    changed = patch(client, dataset, document, parser_config=config)
    parse(server, client, dataset, document)

    assert "warnings" not in changed
    (shown,) = fetch_list(client, dataset)["data"]["docs"]
    assert (shown["chunk_count"], shown["parser_config"]["chunk_token_num"]) == (2, 6)
    assert client.http.get(f"/api/v1/datasets/{dataset}").json()["data"]["parser_config"]["chunk_token_num"] == 512


def test_text_is_split_into_chunks_of_one_token(server: Server, client: Client) -> None:
    body = {"name": "tiny", "embedding_model": "echo", "parser_config": {"chunk_token_num": 1}}
    dataset = client.http.post("/api/v1/datasets", json=body).json()["data"]["id"]
    document = add_document(client, dataset, "a.txt", b"one two three")["id"]

    parse(server, client, dataset, document)

    page = client.http.get(f"/api/v1/datasets/{dataset}/documents/{document}/chunks").json()["data"]
    assert [chunk["content"] for chunk in page["chunks"]] == ["one", "two", "three"]


# -- list -------------------------------------------------------------------------------------------------------------
def test_list_of_documents_is_filtered_by_state_extension_and_metadata(
    server: Server, client: Client, dataset: str
) -> None:
    ids = {name: add_document(client, dataset, name)["id"] for name in ("a.txt", "b.MD", "c.txt", "LICENSE")}
    patch(client, dataset, ids["a.txt"], meta_fields={"year": 2024, "tags": ["x", "y"]})
    patch(client, dataset, ids["c.txt"], meta_fields={"year": 2025, "tags": ["x"]})
    parse(server, client, dataset, ids["a.txt"])

    def since(year: int, **more: Any) -> str:
        return json.dumps({"conditions": [{"name": "year", "comparison_operator": ">=", "value": str(year)}], **more})

    assert names(client, dataset, run="DONE") == ["a.txt"]
    assert names(client, dataset, run=["3", "RUNNING"]) == ["a.txt"]
    assert names(client, dataset, run="unstart", suffix="txt") == ["c.txt"]
    assert names(client, dataset, suffix="md,.txt") == ["c.txt", "b.MD", "a.txt"]
    assert names(client, dataset, metadata_condition=since(2025)) == ["c.txt"]
    assert names(client, dataset, metadata_condition=since(2024), id=ids["a.txt"]) == ["a.txt"]
    assert names(client, dataset, metadata_condition=since(2030), id=ids["a.txt"]) == []
    assert names(client, dataset, run="FAIL") == []
    counted = fetch_list(client, dataset, type="filter", suffix="txt")["data"]
    assert counted == {
        "filter": {
            "suffix": {"txt": 2},
            "run_status": {"3": 1, "0": 1},
            "metadata": {"year": {"2024": 1, "2025": 1}, "tags": {"x": 2, "y": 1}},
        },
        "total": 2,
    }


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({"run": "ASLEEP"}, 102, "Invalid filter run status conditions: ASLEEP. Use: UNSTART, "),
        ({"metadata_condition": "[]"}, 102, "metadata_condition must be an object."),
        ({"metadata_condition": '{"key": "a"}'}, 102, "metadata_condition must be {logic, conditions: [...]}."),
        ({"metadata_condition": '{"conditions": [{"name": "a", "operator": "~"}]}'}, 102, "unknown operator"),
        ({"id": "d1"}, 102, "you don't own the document d1"),
        ({"name": "none.txt"}, 102, "you don't own the document none.txt"),
        ({"type": "all"}, 101, "Input should be '' or 'filter'"),
        ({"orderby": "colour"}, 101, "`orderby` is 'colour'"),
        ({"create_time_from": "-1"}, 101, "Field: <create_time_from> - "),
        ({"create_time_to": "now"}, 101, "Input should be a valid integer"),
        ({"suffixes": "txt"}, 101, "`suffixes` is not a parameter of this route"),
    ],
)
def test_invalid_filter_of_documents_is_refused(
    client: Client, dataset: str, params: dict[str, str], code: int, words: str
) -> None:
    reply = fetch_list(client, dataset, **params)

    assert (reply["code"], set(reply)) == (code, {"code", "message"})
    assert words in reply["message"]


# -- change -----------------------------------------------------------------------------------------------------------
def test_settings_of_a_document_are_kept_and_a_whole_document_may_be_sent_back(client: Client, dataset: str) -> None:
    document = add_document(client, dataset, "a.txt")

    config = {"auto_keywords": 4, "raptor": {"use_raptor": True}}
    changed = patch(client, dataset, document["id"], chunk_method="book", parser_config=config)
    whole = changed["data"]
    again = patch(client, dataset, document["id"], **{**whole, "name": "b.txt", "create_time": 1})

    assert changed["warnings"] == [
        "`chunk_method` has no effect here.",
        "`parser_config.auto_keywords` has no effect here.",
        "`parser_config.raptor` has no effect here.",
    ]
    assert again["warnings"] == ["`create_time` has no effect here."]
    assert (again["data"]["name"], again["data"]["chunk_method"]) == ("b.txt", "book")
    assert again["data"]["parser_config"] == whole["parser_config"]
    assert (whole["parser_config"]["auto_keywords"], whole["parser_config"]["raptor"]["use_raptor"]) == (4, True)


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"name": "a.pdf"}, "The extension of file can't be changed"),
    ({"name": ""}, "File name can't be empty."),
    ({"name": "x" * 252 + ".txt"}, "File name must be 255 bytes or less."),
    ({"name": 7}, "Field: <name> - Message: <Input should be a valid string> - Value: <7>"),
    ({"name": "b.txt"}, "Duplicated document name in the same dataset."),
    ({"chunk_count": 5}, "can't change `chunk_count`."),
    ({"token_count": 5}, "can't change `token_count`."),
    ({"progress": 1.0}, "can't change `progress`."),
    ({"chunk_method": "cut"}, "Input should be 'naive', 'book'"),
    ({"parser_config": {"chunk_token_num": 0}}, "Field: <parser_config.chunk_token_num> - "),
    ({"parser_config": {"unheard_of": 0}}, "Extra inputs are not permitted"),
    ({"meta_fields": []}, "Input should be a valid dictionary"),
    ({"meta_fields": {"a": {"b": 1}}}, "The type is not supported: {'b': 1}"),
    ({"meta_fields": {"a": [{"b": 1}]}}, "The type is not supported in list: [{'b': 1}]"),
    ({"meta_fields": {"a": None}}, "The type is not supported: None"),
    ({"meta_fields": {"a": "x" * 70_000}}, "Metadata exceeds 65536 characters"),
    ({"enabled": "perhaps"}, "Input should be a valid boolean"),
    ({"status": "2"}, "Input should be '0', '1', 0 or 1"),
    ({"unheard_of": 1}, "Extra inputs are not permitted"),
]


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
@pytest.mark.parametrize(("body", "words"), CHANGES, ids=lambda value: str(value)[:50])
def test_refused_change_of_a_document_is_code_102_and_changes_nothing(
    client: Client, dataset: str, method: str, body: dict[str, Any], words: str
) -> None:
    document = add_document(client, dataset, "a.txt")
    add_document(client, dataset, "b.txt")

    reply = client.http.request(method, f"/api/v1/datasets/{dataset}/documents/{document['id']}", json=body)

    assert (reply.status_code, reply.json()["code"], set(reply.json())) == (200, 102, {"code", "message"})
    assert words in reply.json()["message"]
    assert fetch_list(client, dataset, id=document["id"])["data"]["docs"] == [document]


def test_disabled_document_is_not_found_until_it_is_enabled(server: Server, client: Client, dataset: str) -> None:
    first, second = (add_document(client, dataset, name, SEARCHED.encode())["id"] for name in ("a.txt", "b.txt"))
    parse(server, client, dataset, first, second)

    off = patch(client, dataset, first, enabled=False)["data"]
    while_off = retrieve(client, dataset)
    also_off = patch(client, dataset, second, status="0")["data"]
    without_any = retrieve(client, dataset)
    on = patch(client, dataset, first, enabled=1)["data"]

    assert (off["enabled"], off["status"], while_off) == (False, "0", ["b.txt"])
    assert (also_off["enabled"], without_any) == (False, [])
    assert (on["enabled"], on["status"], retrieve(client, dataset)) == (True, "1", ["a.txt"])


# -- delete, download -------------------------------------------------------------------------------------------------
DELETIONS: list[tuple[dict[str, Any], int, str]] = [
    ({}, 102, "should either provide doc ids or set delete_all(true), dataset: {dataset}"),
    ({"ids": None}, 102, "should either provide doc ids or set delete_all(true), dataset: {dataset}"),
    ({"ids": []}, 102, "should either provide doc ids or set delete_all(true), dataset: {dataset}"),
    ({"ids": ["d1"]}, 102, "Documents not found: ['d1']"),
    ({"ids": ["d1", "d1"]}, 101, "Duplicate ids: 'd1'"),
    ({"ids": "d1"}, 101, "Input should be a valid list"),
    ({"every": True}, 101, "Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("body", "code", "words"), DELETIONS, ids=str)
def test_deletion_that_names_no_document_or_a_wrong_one_deletes_nothing(
    client: Client, dataset: str, body: dict[str, Any], code: int, words: str
) -> None:
    add_document(client, dataset, "a.txt")

    reply = delete(client, dataset, **body)

    assert reply["code"] == code
    assert words.format(dataset=dataset) in reply["message"]
    assert fetch_list(client, dataset)["data"]["total"] == 1


def test_bytes_of_deleted_documents_are_deleted_unless_another_document_has_them(
    server: Server, client: Client, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.files.blobs.MIN_DISCARD_AGE", timedelta(0))
    contents = {"a": b"x", "b": b"x", "c": b"y"}
    shared, _, own = (add_document(client, dataset, name, content) for name, content in contents.items())
    folder = server.config.settings.files_dir
    assert folder is not None

    def count_stored() -> int:
        return sum(path.read_bytes() in (b"x", b"y") for path in folder.rglob("*") if path.is_file())

    before = count_stored()
    delete(client, dataset, ids=[shared["id"], own["id"]])

    assert before - count_stored() == 1


def test_download_of_an_unknown_document_has_the_keys_by_which_clients_know_an_error(
    client: Client, dataset: str
) -> None:
    reply = client.http.get(f"/api/v1/datasets/{dataset}/documents/{'0' * 32}").json()

    assert reply == {"code": 102, "message": f"The dataset not own the document {'0' * 32}."}


# -- metadata ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def documents(client: Client, dataset: str) -> dict[str, str]:
    """Documents by name, with metadata."""
    ids = {name: add_document(client, dataset, name)["id"] for name in ("a.txt", "b.txt", "c.txt")}
    patch(client, dataset, ids["a.txt"], meta_fields={"author": "Ada", "year": 1843, "tags": ["x", "y"]})
    patch(client, dataset, ids["b.txt"], meta_fields={"author": "Bob", "day": "2024-01-31", "tags": ["x"]})
    return ids


def metadata_of(client: Client, dataset: str) -> dict[str, Any]:
    return {each["name"]: each["meta_fields"] for each in fetch_list(client, dataset)["data"]["docs"]}


def test_metadata_is_summarized_and_flattened(client: Client, dataset: str, documents: dict[str, str]) -> None:
    path = f"/api/v1/datasets/{dataset}/metadata/summary"

    summary = client.http.get(path).json()["data"]["summary"]
    of_one = client.http.get(path, params={"doc_ids": documents["b.txt"]}).json()["data"]["summary"]
    params = {"dataset_ids": dataset}
    flattened = client.http.get("/api/v1/datasets/metadata/flattened", params=params).json()["data"]

    assert summary["tags"] == {"type": "list", "values": [["x", 2], ["y", 1]]}
    assert summary["year"] == {"type": "number", "values": [["1843", 1]]}
    assert (summary["author"]["type"], summary["day"]["type"]) == ("string", "time")
    assert of_one["author"]["values"] == [["Bob", 1]]
    assert flattened["author"] == {"Ada": [documents["a.txt"]], "Bob": [documents["b.txt"]]}
    assert sorted(flattened["tags"]["x"]) == sorted([documents["a.txt"], documents["b.txt"]])
    unknown = client.http.get("/api/v1/datasets/metadata/flattened", params={"dataset_ids": "0" * 32}).json()
    assert (unknown["code"], "lacks permission" in unknown["message"]) == (102, True)


def test_metadata_of_selected_documents_is_changed_together(
    client: Client, dataset: str, documents: dict[str, str]
) -> None:
    path = f"/api/v1/datasets/{dataset}/documents/metadatas"

    def change(**body: Any) -> dict[str, Any]:
        return client.http.patch(path, json=body).json()["data"]

    one = change(selector={"document_ids": [documents["c.txt"]]}, updates=[{"key": "author", "value": "Cy"}])
    matched = change(
        updates=[{"key": "tags", "match": "x", "value": "z"}, {"key": "author", "match": "Bob", "value": "B"}]
    )
    condition = {"conditions": [{"name": "author", "comparison_operator": "is", "value": "Ada"}]}
    chosen = change(
        selector={"metadata_condition": condition}, deletes=[{"key": "year"}, {"key": "tags", "value": "y"}]
    )
    none = change(deletes=[{"key": "author", "value": "nobody"}])

    assert (one, matched, chosen, none) == (
        {"updated": 1, "matched_docs": 1}, {"updated": 2, "matched_docs": 3},
        {"updated": 1, "matched_docs": 1}, {"updated": 0, "matched_docs": 3},
    )  # fmt: skip
    assert metadata_of(client, dataset) == {
        "a.txt": {"author": "Ada", "tags": ["z"]},
        "b.txt": {"author": "B", "day": "2024-01-31", "tags": ["z"]},
        "c.txt": {"author": "Cy"},
    }


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({}, 102, "`updates` or `deletes` is required."),
        ({"updates": [{"key": "", "value": 1}]}, 101, "Field: <updates.0.key> - "),
        ({"updates": [{"key": "a"}]}, 101, "Field required"),
        ({"updates": [{"key": "a", "value": {"b": 1}}]}, 102, "The type is not supported: {'b': 1}"),
        ({"selector": {"document_ids": ["d1"]}, "deletes": [{"key": "a"}]}, 102, "not own the document d1."),
        ({"selector": {"all": True}, "deletes": [{"key": "a"}]}, 101, "Extra inputs are not permitted"),
    ],
)
def test_refused_change_of_metadata_changes_no_document(
    client: Client, dataset: str, documents: dict[str, str], body: dict[str, Any], code: int, words: str
) -> None:
    before = metadata_of(client, dataset)

    reply = client.http.patch(f"/api/v1/datasets/{dataset}/documents/metadatas", json=body).json()

    assert reply["code"] == code
    assert words in reply["message"]
    assert metadata_of(client, dataset) == before


def test_metadata_config_is_kept_and_said_to_have_no_effect(client: Client, dataset: str) -> None:
    path = f"/api/v1/datasets/{dataset}/metadata/config"
    document = add_document(client, dataset, "a.txt")["id"]
    field = {"name": "author", "type": "list", "description": None, "examples": ["Ada"], "restrict_values": True}

    before = client.http.get(path).json()["data"]
    client.http.put(f"/api/v1/datasets/{dataset}", json={"auto_metadata_config": {"enabled": True}})
    by_the_dataset = client.http.get(path).json()["data"]
    stored = client.http.put(path, json={"enabled": True, "fields": [field]}).json()
    refused = client.http.put(path, json={"enabled": True, "fields": [{"name": "a", "type": "colour"}]}).json()
    of_one = client.http.put(
        f"/api/v1/datasets/{dataset}/documents/{document}/metadata/config", json={"metadata": [field]}
    ).json()

    assert (before, by_the_dataset) == ({"enabled": False, "fields": []}, {"enabled": True, "fields": []})
    assert stored["warnings"] == ["`auto_metadata_config` has no effect here."]
    assert refused["code"] == 101
    assert client.http.get(path).json()["data"] == {"enabled": True, "fields": [field]}
    assert of_one["warnings"] == ["`parser_config.metadata` has no effect here."]
    assert fetch_list(client, dataset)["data"]["docs"][0]["parser_config"]["metadata"] == [field]
