"""Memories over HTTP, as RAGFlow's clients know them: one of these clients is our own."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import RetrievalQuery
from providers.ragflow import RagflowClient
from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client

TEA = "User Input: I like green tea.\nAgent Response: Noted."
ROME = "User Input: I live in Rome.\nAgent Response: Noted."


def created(client: Client, name: str = "Customers", **more: Any) -> dict[str, Any]:
    body = {"name": name, "memory_type": ["raw"], "embd_id": "echo", **more}
    reply = client.http.post("/api/v1/memories", json=body).json()
    assert reply["code"] == 0, reply
    return reply["data"]


def told(client: Client, memory: str, question: str, **more: str) -> dict[str, Any]:
    body = {"memory_id": [memory], "user_input": question, "agent_response": "Noted.", **more}
    return client.http.post("/api/v1/messages", json=body).json()


def found(client: Client, **params: Any) -> dict[str, Any]:
    return client.http.get("/api/v1/messages/search", params=params).json()


def test_a_memory_is_created_listed_changed_and_deleted(lonely: Client):
    memory = created(lonely, llm_id="echo", memory_type=["semantic", "raw"], permissions="team")

    (listed,) = lonely.http.get("/api/v1/memories", params={"keywords": "cust"}).json()["data"]["memory_list"]
    url = f"/api/v1/memories/{memory['id']}"
    changed = lonely.http.put(url, json={"name": "Guests", "memory_size": 1000, "temperature": 0.1}).json()["data"]
    config = lonely.http.get(f"{url}/config").json()["data"]
    deleted = lonely.http.delete(url).json()

    assert listed == memory
    assert memory["memory_type"] == ["raw", "semantic"]
    assert (memory["embd_id"], memory["llm_id"], memory["permissions"]) == ("echo", "echo", "team")
    assert (memory["memory_size"], memory["forgetting_policy"]) == (5 * 1024 * 1024, "FIFO")
    assert "semantic" in memory["system_prompt"]
    assert (changed["name"], changed["memory_size"], changed["temperature"]) == ("Guests", 1000, 0.1)
    assert config == changed
    assert deleted == {"code": 0, "message": "success", "data": None}
    assert lonely.http.get(f"{url}/config").json()["code"] == 102


def test_memories_are_listed_by_type_and_a_page_at_a_time(lonely: Client):
    for number in range(3):
        created(lonely, f"Memory {number}", memory_type=["semantic"] if number else ["procedural"])

    page = lonely.http.get("/api/v1/memories", params={"memory_type": "semantic,episodic", "page_size": 1}).json()

    assert page["data"]["total_count"] == 2
    assert [memory["name"] for memory in page["data"]["memory_list"]] == ["Memory 2"]


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
def test_a_memory_that_could_not_work_is_refused(lonely: Client, body: dict[str, Any], code: int):
    reply = lonely.http.post("/api/v1/memories", json=body).json()

    assert reply["code"] == code, reply
    assert lonely.http.get("/api/v1/memories").json()["data"]["total_count"] == 0


def test_what_was_said_is_listed_searched_and_shown(lonely: Client):
    memory = created(lonely)["id"]
    added = told(lonely, memory, "I like green tea.", user_id="ann", agent_id="a1", session_id="s1")
    told(lonely, memory, "I live in Rome.", agent_id="a2")

    recent = lonely.http.get("/api/v1/messages", params={"memory_id": memory, "limit": 1}).json()["data"]
    shown = lonely.http.get(f"/api/v1/memories/{memory}", params={"agent_id": "a1"}).json()["data"]
    content = lonely.http.get(f"/api/v1/messages/{memory}:1/content").json()["data"]

    assert added == {"code": 0, "message": "All add to task.", "data": None}
    assert [message["content"] for message in recent] == [ROME]
    (said,) = shown["messages"]["message_list"]
    assert (said["message_id"], said["message_type"], said["source_id"]) == (1, "raw", 0)
    assert (said["user_id"], said["session_id"], said["status"], said["extract"]) == ("ann", "s1", True, [])
    assert shown["messages"]["total_count"] == 1
    assert (content["id"], content["content"]) == (f"{memory}_1", TEA)
    near = found(lonely, query="green tea", memory_id=memory, top_n=1)["data"]
    assert [message["content"] for message in near] == [TEA]
    narrowed = found(lonely, query="tea Rome", memory_id=memory, similarity_threshold=0, agent_id="a2")["data"]
    assert [message["content"] for message in narrowed] == [ROME]


def test_a_message_is_switched_off_and_on_and_forgotten(lonely: Client):
    memory = created(lonely)["id"]
    told(lonely, memory, "I like green tea.")
    url = f"/api/v1/messages/{memory}:1"

    def is_found() -> bool:
        return bool(found(lonely, query="green tea", memory_id=memory)["data"])

    lonely.http.put(url, json={"status": False})
    off = is_found()
    lonely.http.put(url, json={"status": True})
    on = is_found()
    lonely.http.delete(url)

    assert (off, on, is_found()) == (False, True, False)
    assert lonely.http.put(url, json={"status": "perhaps"}).json()["code"] == 101
    (said,) = lonely.http.get(f"/api/v1/memories/{memory}").json()["data"]["messages"]["message_list"]
    assert said["forget_at"] is not None


def test_types_and_embedding_model_stay_once_something_was_said(lonely: Client):
    memory = created(lonely)["id"]
    told(lonely, memory, "I like green tea.")

    replies = [
        lonely.http.put(f"/api/v1/memories/{memory}", json=body).json()
        for body in (
            {"memory_type": ["semantic"]},
            {"embd_id": "scripted"},
            {"memory_type": ["raw"], "embd_id": "echo"},
        )
    ]

    assert [reply["code"] for reply in replies] == [102, 102, 0]
    assert replies[0]["message"] == "Can't update ['memory_type'] when memory isn't empty."


def test_a_repeated_request_remembers_once(lonely: Client):
    memory = created(lonely)["id"]
    headers = {"Idempotency-Key": str(uuid4())}
    body = {"memory_id": memory, "user_input": "I like green tea.", "agent_response": "Noted."}

    replies = [lonely.http.post("/api/v1/messages", json=body, headers=headers).json() for _ in range(2)]

    assert replies[0] == replies[1]
    assert len(lonely.http.get("/api/v1/messages", params={"memory_id": memory}).json()["data"]) == 1


def test_requests_without_a_memory_are_refused(lonely: Client):
    replies = [
        lonely.http.get("/api/v1/messages", params={"memory_id": ","}).json(),
        lonely.http.get("/api/v1/messages/search", params={"query": "x"}).json(),
        lonely.http.post("/api/v1/messages", json={"user_input": "x"}).json(),
        lonely.http.post("/api/v1/messages", json={"memory_id": [], "user_input": "x"}).json(),
    ]

    assert [reply["code"] for reply in replies] == [101] * 4


def test_our_own_client_of_ragflow_saves_and_searches_here(lonely: Client, lonely_server: Server):
    """What a deployment is told to use as a RAGFlow server may be another Easel."""
    memory = created(lonely)["id"]
    key = str(uuid4())
    record = {"user_id": "ann", "agent_id": "a", "session_id": "s", "user_input": "I like green tea."}
    options = {"top_n": 3, "similarity_threshold": 0.1, "keywords_similarity_weight": 0.5, "user_id": "ann"}

    async def talk() -> Any:
        http = HttpClient(Guard.parse(allowed="127.0.0.1"))
        server = RagflowClient(http, lonely_server.url, lonely.token)
        try:
            for _ in range(2):  # as an attempt that comes after a worker that died
                await server.save([memory], {**record, "agent_response": "Noted."}, key)
            return await server.search(RetrievalQuery("green tea", memory_ids=[memory], options=options))
        finally:
            await http.aclose()

    chunks = asyncio.run(talk())["chunks"]

    assert [chunk["content"] for chunk in chunks] == [TEA]


def test_a_memory_is_no_path_to_another_route(lonely: Client):
    reply: httpx2.Response = lonely.http.delete("/api/v1/messages/nothing")

    assert reply.json()["message"] == "Message 'nothing' not found."


def test_memories_are_narrowed_by_each_of_several_types(lonely: Client):
    for name in ("semantic", "procedural", "episodic"):
        created(lonely, name, memory_type=[name])

    def names(**params: Any) -> list[str]:
        reply = lonely.http.get("/api/v1/memories", params=params).json()
        return [memory["name"] for memory in reply["data"]["memory_list"]]

    assert names(memory_type=["semantic", "procedural"]) == ["procedural", "semantic"]
    assert names(storage_type="table", tenant_id=lonely.tenant_id.hex) == ["episodic", "procedural", "semantic"]
    assert names(storage_type="graph") == []
    assert names(tenant_id="0" * 32) == []


def test_messages_of_a_memory_are_narrowed_by_several_agents(lonely: Client):
    memory = created(lonely)["id"]
    for agent in ("a", "b", "c"):
        body = {"memory_id": [memory], "agent_id": agent, "session_id": "s", "user_input": f"by {agent}"}
        assert lonely.http.post("/api/v1/messages", json=body).json()["code"] == 0

    def agents(**params: Any) -> list[str]:
        found = lonely.http.get(f"/api/v1/memories/{memory}", params=params).json()["data"]["messages"]
        return [message["agent_id"] for message in found["message_list"]]

    assert agents() == ["c", "b", "a"]
    assert agents(agent_id=["a", "c"]) == ["c", "a"]
    assert agents(agent_id="b") == ["b"]
