"""Datasets as RAGFlow's clients write and read them: what is stored, what is refused, and in which words."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client

PNG = "data:image/png;base64,iVBORw0KGgo="
EXTRA = "Extra inputs are not permitted"
INTEGER = "Input should be a valid integer"


@pytest.fixture(scope="module")
def client(workerless_server: Server) -> Iterator[Client]:
    """A client whose tenant has the base of the fixture `base`."""
    client = workerless_server.client()
    yield client
    client.http.close()


@pytest.fixture(scope="module")
def base(client: Client) -> str:
    return create(client, name="base")["data"]["id"]


def create(client: Client, **body: Any) -> dict[str, Any]:
    return client.http.post("/api/v1/datasets", json=body).json()


def line(field: str, message: str, value: Any) -> str:
    return f"Field: <{field}> - Message: <{message}> - Value: <{value}>"


KEPT = [
    {"avatar": PNG},
    {"description": "What holds.", "language": "German"},
    {"permission": "team"},
    {"chunk_method": "laws"},
    {"auto_metadata_config": {"enabled": True, "fields": [{"name": "author", "type": "string"}]}},
    {"parse_type": 2, "pipeline_id": "0" * 32},
    {"ext": {"of": "a client"}},
    {"parser_config": {"auto_keywords": 5, "auto_questions": 10, "delimiter": "##", "html4excel": True}},
    {"parser_config": {"topn_tags": 10, "tag_kb_ids": ["a"], "filename_embd_weight": 1, "task_page_size": 12}},
    {"parser_config": {"layout_recognize": "Plain Text", "pages": [[1, 9]], "children_delimiter": "--"}},
    {"parser_config": {"raptor": {"use_raptor": True, "max_token": 2048, "threshold": 0.5}}},
    {"parser_config": {"graphrag": {"use_graphrag": True, "method": "general", "entity_types": ["person"]}}},
    {"parser_config": {"parent_child": {"use_parent_child": True, "children_delimiter": "|"}}},
    {"parser_config": {"chunk_token_num": 1, "overlapped_percent": 0}},
    {"parser_config": {"chunk_token_num": 2048}},
]


@pytest.mark.parametrize("fields", KEPT, ids=lambda fields: json.dumps(fields)[:60])
def test_settings_of_a_dataset_are_returned_by_create_change_list_and_read(
    client: Client, base: str, fields: dict[str, Any]
) -> None:
    created = create(client, name="kept", **fields)
    changed = client.http.put(f"/api/v1/datasets/{base}", json=fields).json()
    path = "/api/v1/datasets"
    (listed,) = client.http.get(path, params={"id": created["data"]["id"]}).json()["data"]
    read = client.http.get(f"{path}/{created['data']['id']}").json()["data"]

    assert (created["code"], changed["code"]) == (0, 0)
    for shown in (created["data"], changed["data"], listed, read):
        assert includes(shown, fields), shown


def includes(shown: Any, fields: Any) -> bool:
    """Return whether a value has all members of another one; further members of objects do not count."""
    if isinstance(fields, dict):
        return all(name in shown and includes(shown[name], value) for name, value in fields.items())
    if isinstance(fields, list) and isinstance(shown, list):
        return len(fields) == len(shown) and all(map(includes, shown, fields))
    return shown == fields


def test_dataset_without_settings_has_ragflows_defaults_and_null_for_unset_texts(client: Client) -> None:
    shown = create(client, name="plain", avatar=None, description=None, parser_config=None)

    data = shown["data"]
    assert "warnings" not in shown
    assert (data["avatar"], data["description"], data["permission"], data["chunk_method"]) == (
        None,
        None,
        "me",
        "naive",
    )
    assert (data["pagerank"], data["connectors"]) == (0, [])
    parser = data["parser_config"]
    assert (parser["chunk_token_num"], parser["delimiter"], parser["layout_recognize"]) == (512, "\n", "DeepDOC")
    assert (parser["auto_keywords"], parser["auto_questions"], parser["html4excel"]) == (0, 0, False)
    assert (parser["raptor"]["use_raptor"], parser["graphrag"]["use_graphrag"]) == (False, False)


def test_parser_config_of_a_change_is_merged_into_the_stored_one(client: Client, base: str) -> None:
    raptor = {"use_raptor": True, "max_cluster": 7}
    client.http.put(f"/api/v1/datasets/{base}", json={"parser_config": {"chunk_token_num": 99, "raptor": raptor}})

    later = {"parser_config": {"delimiter": "!", "raptor": {"max_cluster": 8}}, "pagerank": 100, "connectors": ["c"]}
    shown = client.http.put(f"/api/v1/datasets/{base}", json=later).json()["data"]

    assert includes(shown["parser_config"], {"chunk_token_num": 99, "delimiter": "!", "raptor": {"use_raptor": True}})
    assert shown["parser_config"]["raptor"]["max_cluster"] == 8
    assert (shown["pagerank"], shown["connectors"]) == (100, ["c"])


def test_fields_without_an_effect_are_listed_as_warnings(client: Client) -> None:
    parser = {"chunk_token_num": 64, "delimiter": "\n", "auto_keywords": 3, "raptor": {"use_raptor": False}}

    shown = create(client, name="warned", chunk_method="book", permission="me", parser_config=parser)

    assert shown["warnings"] == [
        "`chunk_method` has no effect here.",
        "`parser_config.auto_keywords` has no effect here.",
    ]


REFUSED = [
    ({}, line("name", "Field required", {})),
    ({"name": ""}, line("name", "String should have at least 1 character", "")),
    ({"name": "  "}, "String should have at least 1 character"),
    ({"name": "x" * 129}, "String should have at most 128 characters"),
    ({"name": 7}, line("name", "Input should be a valid string", 7)),
    ({"name": None}, line("name", "Input should be a valid string", None)),
    ({"avatar": "x" * 65_536}, "String should have at most 65535 characters"),
    ({"avatar": "iVBORw0KGgo="}, "Missing MIME prefix. Expected format: data:<mime>;base64,<data>"),
    ({"avatar": "image/png;base64,iVBORw0KGgo="}, "Invalid MIME prefix format. Must start with 'data:'"),
    ({"avatar": "data:image/svg+xml;base64,iVBORw0KGgo="}, "Unsupported MIME type. Allowed: ['image/jpeg', "),
    ({"description": "x" * 65_536}, "String should have at most 65535 characters"),
    ({"permission": "ME"}, line("permission", "Input should be 'me' or 'team'", "ME")),
    ({"permission": None}, "Input should be 'me' or 'team'"),
    ({"chunk_method": "cut"}, "Input should be 'naive', 'book', 'email', 'laws', 'manual', 'one', 'paper', "),
    ({"embedding_model": ""}, "embedding model identifier must follow <model_name>@<provider> format"),
    ({"embedding_model": "bge"}, "embedding model identifier must follow <model_name>@<provider> format"),
    ({"embedding_model": "@Acme"}, "both model_name and provider must be non-empty strings"),
    ({"embedding_model": "bge@ "}, "both model_name and provider must be non-empty strings"),
    ({"id": "0" * 32}, line("id", EXTRA, "0" * 32)),
    ({"tenant_id": "0" * 32}, EXTRA),
    ({"chunk_count": 1}, line("chunk_count", EXTRA, 1)),
    ({"unheard_of": 1}, line("unheard_of", EXTRA, 1)),
    ({"parser_config": {"chunk_tokens": 1}}, line("parser_config.chunk_tokens", EXTRA, 1)),
    ({"parser_config": {"auto_keywords": 33}}, "Input should be less than or equal to 32"),
    ({"parser_config": {"auto_keywords": -1}}, "Input should be greater than or equal to 0"),
    ({"parser_config": {"auto_keywords": "5"}}, line("parser_config.auto_keywords", INTEGER, 5)),
    ({"parser_config": {"auto_keywords": 1.5}}, "Input should be a valid integer"),
    ({"parser_config": {"auto_keywords": True}}, "Input should be a valid integer"),
    ({"parser_config": {"auto_questions": 11}}, "Input should be less than or equal to 10"),
    ({"parser_config": {"chunk_token_num": 0}}, "Input should be greater than or equal to 1"),
    ({"parser_config": {"chunk_token_num": 2049}}, "Input should be less than or equal to 2048"),
    ({"parser_config": {"overlapped_percent": 51}}, "Input should be less than or equal to 50"),
    ({"parser_config": {"delimiter": ""}}, "String should have at least 1 character"),
    ({"parser_config": {"html4excel": 3}}, "Input should be a valid boolean"),
    ({"parser_config": {"topn_tags": 0}}, "Input should be greater than or equal to 1"),
    ({"parser_config": {"tag_kb_ids": "a"}}, "Input should be a valid list"),
    ({"parser_config": {"filename_embd_weight": 1.1}}, "Input should be less than or equal to 1"),
    ({"parser_config": {"task_page_size": 0}}, "Input should be greater than or equal to 1"),
    ({"parser_config": {"pages": [1]}}, "Input should be a valid list"),
    ({"parser_config": {"raptor": {"max_token": 2049}}}, "Field: <parser_config.raptor.max_token> - Message: <"),
    ({"parser_config": {"raptor": {"threshold": 2}}}, "Input should be less than or equal to 1"),
    ({"parser_config": {"raptor": {"max_cluster": 1025}}}, "Input should be less than or equal to 1024"),
    ({"parser_config": {"raptor": {"random_seed": -1}}}, "Input should be greater than or equal to 0"),
    ({"parser_config": {"raptor": {"prompt": " "}}}, "String should have at least 1 character"),
    ({"parser_config": {"raptor": {"clusters": 1}}}, line("parser_config.raptor.clusters", EXTRA, 1)),
    ({"parser_config": {"graphrag": {"method": "heavy"}}}, "Input should be 'light' or 'general'"),
    ({"parser_config": {"graphrag": {"entity_types": [1]}}}, "Input should be a valid string"),
    ({"parser_config": {"parent_child": {"use_parent_child": "so"}}}, "Input should be a valid boolean"),
    ({"parser_config": {"delimiter": "x" * 65_520}}, "Parser config exceeds size limit (max 65,535 characters)"),
    ({"parser_config": "naive"}, "Input should be"),
    ({"auto_metadata_config": {"fields": [{"name": ""}]}}, "Field: <auto_metadata_config.fields.0.name> - "),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_invalid_field_of_a_new_dataset_is_refused_in_ragflows_words(
    client: Client, fields: dict[str, Any], words: str
) -> None:
    body = fields if not fields or "name" in fields else {"name": "refused", **fields}

    reply = client.http.post("/api/v1/datasets", json=body)

    assert (reply.status_code, reply.json()["code"]) == (200, 101)
    assert words in reply.json()["message"]
    assert set(reply.json()) == {"code", "message"}
    assert client.http.get("/api/v1/datasets", params={"keywords": "refused"}).json()["total_datasets"] == 0


@pytest.mark.parametrize(("fields", "words"), [case for case in REFUSED if case[0]], ids=lambda value: str(value)[:60])
def test_invalid_field_of_a_changed_dataset_is_refused_in_ragflows_words(
    client: Client, base: str, fields: dict[str, Any], words: str
) -> None:
    reply = client.http.put(f"/api/v1/datasets/{base}", json=fields).json()

    assert reply["code"] == 101
    assert words in reply["message"]


def test_every_wrong_field_has_a_line_and_strict_clients_get_a_400(client: Client) -> None:
    body = {"name": "", "permission": "all", "pagerank": 5}

    reply = client.http.post("/api/v1/datasets", json=body, headers={"X-Http-Status": "strict"})

    assert reply.status_code == 400
    assert [each.partition(" - ")[0] for each in reply.json()["message"].split("\n")] == [
        "Field: <permission>", "Field: <name>", "Field: <pagerank>",
    ]  # fmt: skip


CHANGES = [
    ({}, 101, "no properties were modified"),
    ({"pagerank": 101}, 101, "Input should be less than or equal to 100"),
    ({"pagerank": -1}, 101, "Input should be greater than or equal to 0"),
    ({"pagerank": "1"}, 101, "Input should be a valid integer"),
    ({"connectors": "c"}, 101, "Input should be a valid list"),
    ({"embedding_model": "bge@Acme"}, 102, "Model bge@Acme not found for model embedding"),
    ({"name": "TAKEN"}, 102, "Dataset name 'TAKEN' already exists."),
]


@pytest.mark.parametrize(("fields", "code", "words"), CHANGES, ids=str)
def test_refused_change_leaves_the_dataset_as_it_is(
    client: Client, base: str, fields: dict[str, Any], code: int, words: str
) -> None:
    create(client, name="taken")
    before = client.http.get(f"/api/v1/datasets/{base}").json()

    reply = client.http.put(f"/api/v1/datasets/{base}", json=fields)

    assert (reply.status_code, reply.json()["code"]) == (200, code)
    assert words in reply.json()["message"]
    assert client.http.get(f"/api/v1/datasets/{base}").json() == before


BODIES = [
    (b'{"name": "x"}', "text/xml", "Unsupported content type: Expected application/json, got text/xml"),
    (b'{"name": "x"}', None, "Unsupported content type: Expected application/json, got no content type"),
    (b"{name: x}", "application/json", "Malformed JSON syntax: Missing commas/brackets or invalid encoding"),
    (b'{"name": "\xff"}', "application/json", "Malformed JSON syntax: Missing commas/brackets or invalid encoding"),
    (b'"a"', "application/json", "Invalid request payload: expected object, got str"),
    (b"[1]", "application/json; charset=utf-8", "Invalid request payload: expected object, got list"),
]


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", ""), ("PUT", "/{base}"), ("DELETE", ""), ("PATCH", "/{base}/documents/metadatas")],
)
@pytest.mark.parametrize(("content", "media_type", "words"), BODIES)
def test_body_that_is_no_json_object_is_refused(
    client: Client, base: str, method: str, path: str, content: bytes, media_type: str | None, words: str
) -> None:
    headers = {"Content-Type": media_type} if media_type else {}

    url = f"/api/v1/datasets{path.format(base=base)}"
    reply = client.http.request(method, url, content=content, headers=headers).json()

    assert reply == {"code": 101, "message": words}


LISTS: list[tuple[dict[str, Any], int, str]] = [
    ({"page": 0}, 101, line("page", "Input should be greater than or equal to 1", 0)),
    ({"page": "a"}, 101, "Input should be a valid integer, unable to parse string as an integer"),
    ({"page_size": 0}, 101, line("page_size", "Input should be greater than or equal to 1", 0)),
    ({"page_size": 101}, 101, "Input should be less than or equal to 100"),
    ({"orderby": "name"}, 101, "Input should be 'create_time' or 'update_time'"),
    ({"desc": "perhaps"}, 101, "Input should be a valid boolean, unable to interpret input"),
    ({"id": "b1"}, 101, line("id", "Invalid UUID format", "b1")),
    ({"id": ""}, 101, "Invalid UUID format"),
    ({"id": "0" * 32}, 102, "lacks permission for dataset '" + "0" * 32),
    ({"name": "nobody's"}, 102, "lacks permission for dataset 'nobody's'"),
    ({"ext": "{"}, 101, "Input should be a JSON object"),
    ({"ext": '{"keywords": 1}'}, 101, "Input should be a valid string"),
    ({"ext": '{"parser_id": "naive"}'}, 101, "`ext.parser_id` is not a filter of this list"),
    ({"unheard_of": 1}, 101, "`unheard_of` is not a parameter of this route"),
]


@pytest.mark.parametrize(("params", "code", "words"), LISTS, ids=str)
def test_invalid_query_of_the_list_is_refused(client: Client, params: dict[str, Any], code: int, words: str) -> None:
    reply = client.http.get("/api/v1/datasets", params=params)

    assert (reply.status_code, reply.json()["code"]) == (200, code)
    assert words in reply.json()["message"]


def test_list_of_datasets_is_filtered_ordered_and_counted(workerless_client: Client) -> None:
    client = workerless_client
    ids = {name: create(client, name=name)["data"]["id"] for name in ("Alpha", "alpine", "beta_%")}
    client.http.put(f"/api/v1/datasets/{ids['Alpha']}", json={"description": "later"})

    def names(**params: Any) -> tuple[list[str], int]:
        reply = client.http.get("/api/v1/datasets", params=params).json()
        return [each["name"] for each in reply["data"]], reply["total_datasets"]

    assert names() == (["beta_%", "alpine", "Alpha"], 3)
    assert names(orderby="update_time", desc=True) == (["Alpha", "beta_%", "alpine"], 3)
    assert names(desc="False") == (["Alpha", "alpine", "beta_%"], 3)
    assert names(keywords="ALP") == (["alpine", "Alpha"], 2)
    assert names(keywords="_%") == (["beta_%"], 1)
    assert names(ext=json.dumps({"keywords": "bet", "owner_ids": [client.tenant_id.hex]})) == (["beta_%"], 1)
    assert names(ext=json.dumps({"owner_ids": ["0" * 32]})) == ([], 0)
    assert names(id=ids["Alpha"], name="alpine") == ([], 0)
    assert names(page=2, page_size=2) == (["Alpha"], 3)
    assert names(page=9) == ([], 3)
    counted = client.http.get("/api/v1/datasets", params={"type": "filter"}).json()["data"]
    owner = client.tenant_id.hex
    assert counted == {"filter": {"owner": [{"id": owner, "label": owner, "count": 3}]}, "total": 3}


def test_new_dataset_with_a_name_in_use_gets_a_number(workerless_client: Client) -> None:
    names = [create(workerless_client, name=name)["data"]["name"] for name in ("Rules", "rules", "RULES", "Rules(1)")]

    assert names == ["Rules", "rules(1)", "RULES(2)", "Rules(1)(1)"]


def test_datasets_that_are_created_at_once_with_one_name_get_different_numbers(workerless_client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda name: create(workerless_client, name=name), ["same"] * 8))

    assert sorted(reply["data"]["name"] for reply in replies) == ["same", *(f"same({n})" for n in range(1, 8))]


DELETIONS: list[tuple[dict[str, Any], int, Any]] = [
    ({"ids": None}, 0, {"deleted": 0}),
    ({"ids": []}, 0, {"deleted": 0}),
    ({"ids": ["b1"]}, 101, "Invalid UUID format"),
    ({"ids": ["{base}", "{base}"]}, 101, "Duplicate ids: '"),
    ({"ids": ["{base}", "0" * 32]}, 102, "lacks permission for dataset"),
    ({"ids": "all"}, 101, "Input should be a valid list"),
    ({"ids": [1]}, 101, "Input should be a valid string"),
    ({"all": True}, 101, EXTRA),
]


@pytest.mark.parametrize(("body", "code", "outcome"), DELETIONS, ids=str)
def test_deletion_that_names_no_dataset_or_a_wrong_one_deletes_nothing(
    client: Client, base: str, body: dict[str, Any], code: int, outcome: Any
) -> None:
    ids = body.get("ids")
    sent = {**body, "ids": [base if each == "{base}" else each for each in ids]} if isinstance(ids, list) else body

    reply = client.http.request("DELETE", "/api/v1/datasets", json=sent).json()

    assert reply["code"] == code
    assert outcome in reply["message"] if code else reply["data"] == outcome
    assert client.http.get(f"/api/v1/datasets/{base}").json()["code"] == 0


def test_more_than_a_hundred_datasets_are_deleted_at_once(workerless_client: Client) -> None:
    ids = [create(workerless_client, name="many")["data"]["id"] for _ in range(101)]

    deleted = workerless_client.http.request("DELETE", "/api/v1/datasets", json={"ids": ids}).json()

    assert deleted["data"] == {"deleted": 101}
    assert workerless_client.http.get("/api/v1/datasets").json()["total_datasets"] == 0


@pytest.mark.parametrize(("dataset", "code"), [("b1", 101), ("0" * 32, 102)])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_dataset_that_does_not_exist_is_neither_read_nor_changed(
    client: Client, method: str, dataset: str, code: int
) -> None:
    reply = client.http.request(method, f"/api/v1/datasets/{dataset}", json={"name": "x"}).json()

    assert reply["code"] == code
    assert ("Invalid UUID format" if code == 101 else "lacks permission for dataset") in reply["message"]
