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
    body = {"name": name, "memory_type": ["raw"], "embd_id": "echo", **more}
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

    assert listed == memory
    assert memory["memory_type"] == ["raw", "semantic"]
    assert (memory["embd_id"], memory["llm_id"], memory["permissions"]) == ("echo", "echo", "team")
    assert (memory["memory_size"], memory["forgetting_policy"]) == (5 * 1024 * 1024, "FIFO")
    assert "semantic" in memory["system_prompt"]
    assert (changed["name"], changed["memory_size"], changed["temperature"]) == ("Guests", 1000, 0.1)
    assert config == changed
    assert deleted == {"code": 0, "message": "success", "data": None}
    assert workerless_client.http.get(f"{url}/config").json()["code"] == 102


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


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 101),
        ({"name": " "}, 101),
        ({"name": "x", "memory_type": ["wild"]}, 101),
        ({"name": "x", "memory_size": 0}, 101),
        ({"name": "x", "memory_size": 10**12}, 101),
        ({"name": "x", "embd_id": "nothing@Nobody"}, 102),
        ({"name": "x", "llm_id": "nothing@Nobody"}, 102),
    ],
)
def test_memory_with_invalid_fields_is_refused(workerless_client: Client, body: dict[str, Any], code: int):
    reply = workerless_client.http.post("/api/v1/memories", json=body).json()

    assert reply["code"] == code, reply
    assert workerless_client.http.get("/api/v1/memories").json()["data"]["total_count"] == 0


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
    assert workerless_client.http.put(url, json={"status": "perhaps"}).json()["code"] == 101
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

    assert [reply["code"] for reply in replies] == [102, 102, 0]
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
        workerless_client.http.get("/api/v1/messages/search", params={"query": "x"}).json(),
        workerless_client.http.post("/api/v1/messages", json={"user_input": "x"}).json(),
        workerless_client.http.post("/api/v1/messages", json={"memory_id": [], "user_input": "x"}).json(),
    ]

    assert [reply["code"] for reply in replies] == [101] * 4


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

    assert reply.json()["message"] == "Message 'nothing' not found."


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
