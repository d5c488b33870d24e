"""Memories over HTTP in RAGFlow's format; one test uses Easel's own RAGFlow client."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import RetrievalQuery
from providers.ragflow import RagflowClient
from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client

TEA = "User Input: I like green tea.\nAgent Response: Noted."
ROME = "User Input: I live in Rome.\nAgent Response: Noted."


def create_memory(client: Client, name: str = "Customers", **more: Any) -> dict[str, Any]:
    body = {"name": name, "memory_type": ["raw"], "embd_id": "echo", "llm_id": "", **more}
    reply = client.http.post("/api/v1/memories", json=body).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def add_message(client: Client, memory: str, question: str, **more: str) -> dict[str, Any]:
    body = {"memory_id": [memory], "user_input": question, "agent_response": "Noted.", **more}
    return client.http.post("/api/v1/messages", json=body).json()


def search_messages(client: Client, **params: Any) -> dict[str, Any]:
    return client.http.get("/api/v1/messages/search", params=params).json()


def test_a_memory_is_created_listed_changed_and_deleted(workerless_client: Client):
    memory = create_memory(workerless_client, llm_id="echo", memory_type=["semantic", "raw"], permissions="team")

    (listed,) = workerless_client.http.get("/api/v1/memories", params={"keywords": "cust"}).json()["data"][
        "memory_list"
    ]
    url = f"/api/v1/memories/{memory['id']}"
    changed = workerless_client.http.put(url, json={"name": "Guests", "memory_size": 1000, "temperature": 0.1}).json()[
        "data"
    ]
    config = workerless_client.http.get(f"{url}/config").json()["data"]
    deleted = workerless_client.http.delete(url).json()

    assert listed == {**memory, "owner_name": listed["owner_name"]}
    assert memory["memory_type"] == ["raw", "semantic"]
    assert (memory["embd_id"], memory["llm_id"], memory["permissions"]) == ("echo", "echo", "team")
    assert (memory["memory_size"], memory["forgetting_policy"]) == (5 * 1024 * 1024, "FIFO")
    assert "semantic" in memory["system_prompt"]
    assert (changed["name"], changed["memory_size"], changed["temperature"]) == ("Guests", 1000, 0.1)
    assert config == {**changed, "owner_name": listed["owner_name"]}
    assert listed["owner_name"].startswith("tenant ")
    assert deleted == {"code": 0, "message": "success", "data": None}
    gone = workerless_client.http.get(f"{url}/config").json()
    assert (gone["code"], gone["message"]) == (404, f"Memory '{memory['id']}' not found.")


def test_memories_are_listed_by_type_and_a_page_at_a_time(workerless_client: Client):
    for number in range(3):
        create_memory(workerless_client, f"Memory {number}", memory_type=["semantic"] if number else ["procedural"])

    page = workerless_client.http.get(
        "/api/v1/memories", params={"memory_type": "semantic,episodic", "page_size": 1}
    ).json()

    assert page["data"]["total_count"] == 2
    assert [memory["name"] for memory in page["data"]["memory_list"]] == ["Memory 2"]


def test_page_behind_the_last_one_has_the_total_of_the_list(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    add_message(workerless_client, memory, "Where is my order?")

    memories = workerless_client.http.get("/api/v1/memories", params={"page": 9}).json()["data"]
    messages = workerless_client.http.get(f"/api/v1/memories/{memory}", params={"page": 9}).json()["data"]["messages"]

    assert memories == {"memory_list": [], "total_count": 1}
    assert messages == {"message_list": [], "total_count": 1}


INVALID_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "Memory name cannot be empty or whitespace."),
    ({"name": " "}, "Memory name cannot be empty or whitespace."),
    ({"name": "a" * 129}, f"Memory name '{'a' * 129}' exceeds limit of 128."),
    ({"memory_type": "raw"}, "Memory type must be a list."),
    ({"memory_type": ["raw", "something"]}, "Memory type '{'something'}' is not supported."),
    ({"memory_size": 0}, "Memory size should be in range (0, 67108864] Bytes."),
    ({"memory_size": 10**12}, "Memory size should be in range (0, 67108864] Bytes."),
    ({"permissions": "all"}, "Unknown permission 'all'."),
    ({"forgetting_policy": "LRU"}, "Forgetting policy 'LRU' is not supported."),
    ({"temperature": 2.5}, "Temperature should be in range [0, 2]."),
    ({"temperature": "hot"}, "Temperature should be in range [0, 2]."),
    ({"avatar": "a.png"}, "`avatar` must be data:image/...;base64,... with at most 65535 characters, or empty."),
]


@pytest.mark.parametrize(("fields", "message"), INVALID_FIELDS)
@pytest.mark.parametrize("is_change", [False, True])
def test_invalid_field_of_a_memory_is_refused_in_ragflows_words(
    workerless_client: Client, fields: dict[str, Any], message: str, is_change: bool
):
    memory = create_memory(workerless_client, "before")
    url = f"/api/v1/memories/{memory['id']}"
    body = {"name": "x", "memory_type": ["raw"], "embd_id": "echo", "llm_id": "", **fields}

    sent = fields if is_change else body
    reply = workerless_client.http.request(
        "PUT" if is_change else "POST", url if is_change else "/api/v1/memories", json=sent
    )

    assert (reply.status_code, reply.json()) == (200, {"code": 101, "message": message})
    (listed,) = workerless_client.http.get("/api/v1/memories").json()["data"]["memory_list"]
    assert (listed["name"], listed["memory_size"]) == ("before", memory["memory_size"])


@pytest.mark.parametrize("lacking", ["name", "memory_type", "embd_id", "llm_id"])
def test_memory_without_a_required_field_is_refused(workerless_client: Client, lacking: str):
    body = {"name": "x", "memory_type": ["raw"], "embd_id": "", "llm_id": ""}
    del body[lacking]

    reply = workerless_client.http.post("/api/v1/memories", json=body)
    strict = workerless_client.http.post("/api/v1/memories", json=body, headers={"X-Http-Status": "strict"})

    assert reply.json() == {"code": 101, "message": f"required argument are missing: {lacking}; "}
    assert (reply.status_code, strict.status_code) == (200, 400)


@pytest.mark.parametrize("fields", [{"embd_id": "nothing@Nobody"}, {"llm_id": "nothing@Nobody"}])
def test_memory_with_an_unknown_model_is_refused(workerless_client: Client, fields: dict[str, str]):
    body = {"name": "x", "memory_type": ["raw"], "embd_id": "", "llm_id": "", **fields}

    reply = workerless_client.http.post("/api/v1/memories", json=body).json()

    assert (reply["code"], "nothing" in reply["message"]) == (102, True)


def test_name_that_is_taken_gets_a_number(workerless_client: Client):
    first, second, third = (create_memory(workerless_client, name) for name in ("Guests", "guests", "Other"))
    long, longer = (create_memory(workerless_client, "a" * 128) for _ in range(2))

    renamed = workerless_client.http.put(f"/api/v1/memories/{third['id']}", json={"name": "Guests"}).json()["data"]
    same = workerless_client.http.put(f"/api/v1/memories/{first['id']}", json={"name": "Guests"}).json()["data"]

    assert (first["name"], second["name"], renamed["name"], same["name"]) == (
        "Guests", "guests(1)", "Guests(2)", "Guests",
    )  # fmt: skip
    assert (long["name"], longer["name"]) == ("a" * 128, "a" * 125 + "(1)")


def test_avatar_of_a_memory_is_stored(workerless_client: Client):
    avatar = "data:image/png;base64,iVBORw0KGgo="
    memory = create_memory(workerless_client)
    url = f"/api/v1/memories/{memory['id']}"

    changed = workerless_client.http.put(url, json={"avatar": avatar}).json()["data"]
    removed = workerless_client.http.put(url, json={"avatar": ""}).json()["data"]

    assert (memory["avatar"], changed["avatar"], removed["avatar"]) == ("", avatar, "")
    assert create_memory(workerless_client, "Other", avatar=avatar)["avatar"] == avatar


def test_what_is_missing_is_404_in_the_envelope(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    unknown = "0" * 31 + "7"
    http = workerless_client.http

    def refused(method: str, path: str, body: Any = None) -> str:
        reply = http.request(method, f"/api/v1/{path}", json=body)
        strict = http.request(method, f"/api/v1/{path}", json=body, headers={"X-Http-Status": "strict"})
        assert (reply.status_code, reply.json()["code"], strict.status_code) == (200, 404, 404)
        return reply.json()["message"]

    for each in (unknown, "missing_memory_id"):
        message = f"Memory '{each}' not found."
        assert refused("GET", f"memories/{each}") == refused("GET", f"memories/{each}/config") == message
        assert refused("PUT", f"memories/{each}", {"name": "x"}) == refused("DELETE", f"memories/{each}") == message
        assert refused("GET", f"messages?memory_id={each}") == f"Memory ['{each}'] not found."
        assert refused("GET", f"messages/search?query=x&memory_id={each}") == f"Memory ['{each}'] not found."
    assert refused("DELETE", "messages/missing_memory_id:1") == "Memory 'missing_memory_id' not found."
    for number in ("999", "nothing"):
        message = f"Message '{number}' in memory '{memory}' not found."
        assert refused("GET", f"messages/{memory}:{number}/content") == message
        assert refused("DELETE", f"messages/{memory}:{number}") == message
        assert refused("PUT", f"messages/{memory}:{number}", {"status": True}) == message


def test_messages_are_added_to_the_memories_that_exist(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    body = {"memory_id": [memory, "missing_memory_id"], "user_input": "I like tea.", "agent_response": "Noted."}

    reply = workerless_client.http.post("/api/v1/messages", json=body)

    assert reply.status_code == 200
    assert reply.json() == {
        "code": 500,
        "message": "Some messages failed to add. Detail: Memory ['missing_memory_id'] not found.",
    }
    assert len(workerless_client.http.get("/api/v1/messages", params={"memory_id": memory}).json()["data"]) == 1


def test_message_of_a_memory_is_listed_searched_and_shown(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    added = add_message(workerless_client, memory, "I like green tea.", user_id="ann", agent_id="a1", session_id="s1")
    add_message(workerless_client, memory, "I live in Rome.", agent_id="a2")

    recent = workerless_client.http.get("/api/v1/messages", params={"memory_id": memory, "limit": 1}).json()["data"]
    details = workerless_client.http.get(f"/api/v1/memories/{memory}", params={"agent_id": "a1"}).json()["data"]
    content = workerless_client.http.get(f"/api/v1/messages/{memory}:1/content").json()["data"]

    assert added == {"code": 0, "message": "All add to task.", "data": None}
    assert [message["content"] for message in recent] == [ROME]
    (entry,) = details["messages"]["message_list"]
    assert (entry["message_id"], entry["message_type"], entry["source_id"]) == (1, "raw", 0)
    assert (entry["user_id"], entry["session_id"], entry["status"], entry["extract"]) == ("ann", "s1", True, [])
    assert details["messages"]["total_count"] == 1
    assert (content["id"], content["content"]) == (f"{memory}_1", TEA)
    assert round(sum(number**2 for number in content["content_embed"]), 2) == 1
    nearest = search_messages(workerless_client, query="green tea", memory_id=memory, top_n=1)["data"]
    assert [message["content"] for message in nearest] == [TEA]
    narrowed = search_messages(
        workerless_client, query="tea Rome", memory_id=memory, similarity_threshold=0, agent_id="a2"
    )["data"]
    assert [message["content"] for message in narrowed] == [ROME]


def test_message_is_disabled_enabled_and_forgotten(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    add_message(workerless_client, memory, "I like green tea.")
    url = f"/api/v1/messages/{memory}:1"

    def is_found() -> bool:
        return bool(search_messages(workerless_client, query="green tea", memory_id=memory)["data"])

    workerless_client.http.put(url, json={"status": False})
    is_found_disabled = is_found()
    workerless_client.http.put(url, json={"status": True})
    is_found_enabled = is_found()
    workerless_client.http.delete(url)

    assert (is_found_disabled, is_found_enabled, is_found()) == (False, True, False)
    for body, refusal in (
        ({"status": "false"}, "Status must be a boolean."),
        ({}, "required argument are missing: status; "),
    ):
        assert workerless_client.http.put(url, json=body).json() == {"code": 101, "message": refusal}
    (message,) = workerless_client.http.get(f"/api/v1/memories/{memory}").json()["data"]["messages"]["message_list"]
    assert message["forget_at"] is not None


def test_types_and_embedding_model_cannot_change_after_the_first_message(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    add_message(workerless_client, memory, "I like green tea.")

    replies = [
        workerless_client.http.put(f"/api/v1/memories/{memory}", json=body).json()
        for body in (
            {"memory_type": ["semantic"]},
            {"embd_id": "scripted"},
            {"memory_type": ["raw"], "embd_id": "echo"},
        )
    ]

    assert [reply["code"] for reply in replies] == [101, 101, 0]
    assert replies[0]["message"] == "Can't update ['memory_type'] when memory isn't empty."


def test_repeated_request_stores_one_message(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    headers = {"Idempotency-Key": str(uuid4())}
    body = {"memory_id": memory, "user_input": "I like green tea.", "agent_response": "Noted."}

    replies = [workerless_client.http.post("/api/v1/messages", json=body, headers=headers).json() for _ in range(2)]

    assert replies[0] == replies[1]
    assert len(workerless_client.http.get("/api/v1/messages", params={"memory_id": memory}).json()["data"]) == 1


def test_requests_without_a_memory_are_refused(workerless_client: Client):
    replies = [
        workerless_client.http.get("/api/v1/messages", params={"memory_id": ","}).json(),
        workerless_client.http.get("/api/v1/messages").json(),
        workerless_client.http.get("/api/v1/messages/search").json(),
        workerless_client.http.get("/api/v1/messages/search", params={"memory_id": "x"}).json(),
        workerless_client.http.post("/api/v1/messages", json={"user_input": "x"}).json(),
        workerless_client.http.post("/api/v1/messages", json={"memory_id": [], "user_input": "x"}).json(),
    ]

    assert [reply["code"] for reply in replies] == [101] * 6
    assert [reply["message"] for reply in replies[:4]] == [
        "memory_ids is required.",
        "memory_ids is required.",
        "`query` and `memory_id` are required.",
        "`query` is required.",
    ]
    assert search_messages(workerless_client, query="x") == {"code": 0, "message": "success", "data": []}


def test_easels_ragflow_client_saves_and_searches_on_another_easel(
    workerless_client: Client, workerless_server: Server
):
    """The RAGFlow server of a deployment may be another Easel."""
    memory = create_memory(workerless_client)["id"]
    key = str(uuid4())
    record = {"user_id": "ann", "agent_id": "a", "session_id": "s", "user_input": "I like green tea."}
    options = {"top_n": 3, "similarity_threshold": 0.1, "keywords_similarity_weight": 0.5, "user_id": "ann"}

    async def save_and_search() -> Any:
        http = HttpClient(Guard.parse(allowed="127.0.0.1"))
        server = RagflowClient(http, workerless_server.url, workerless_client.token)
        try:
            for _ in range(2):  # a second attempt after a crash of the worker sends the same key
                await server.save([memory], {**record, "agent_response": "Noted."}, key)
            return await server.search(RetrievalQuery("green tea", memory_ids=[memory], options=options))
        finally:
            await http.aclose()

    chunks = asyncio.run(save_and_search())["chunks"]

    assert [chunk["content"] for chunk in chunks] == [TEA]


def test_deleting_a_message_with_an_invalid_id_is_not_found(workerless_client: Client):
    reply: httpx2.Response = workerless_client.http.delete("/api/v1/messages/nothing")

    assert reply.json()["message"] == "Message 'nothing' in memory '' not found."


def test_memories_are_filtered_by_several_types(workerless_client: Client):
    for name in ("semantic", "procedural", "episodic"):
        create_memory(workerless_client, name, memory_type=[name])

    def names(**params: Any) -> list[str]:
        reply = workerless_client.http.get("/api/v1/memories", params=params).json()
        return [memory["name"] for memory in reply["data"]["memory_list"]]

    assert names(memory_type=["semantic", "procedural"]) == ["procedural", "semantic"]
    assert names(storage_type="table", tenant_id=workerless_client.tenant_id.hex) == [
        "episodic",
        "procedural",
        "semantic",
    ]
    assert names(storage_type="graph") == []
    assert names(tenant_id="0" * 32) == []


def test_messages_of_a_memory_are_filtered_by_several_agents(workerless_client: Client):
    memory = create_memory(workerless_client)["id"]
    for agent in ("a", "b", "c"):
        body = {"memory_id": [memory], "agent_id": agent, "session_id": "s", "user_input": f"by {agent}"}
        assert workerless_client.http.post("/api/v1/messages", json=body).json()["code"] == 0

    def agents(**params: Any) -> list[str]:
        messages = workerless_client.http.get(f"/api/v1/memories/{memory}", params=params).json()["data"]["messages"]
        return [message["agent_id"] for message in messages["message_list"]]

    assert agents() == ["c", "b", "a"]
    assert agents(agent_id=["a", "c"]) == ["c", "a"]
    assert agents(agent_id="b") == ["b"]
