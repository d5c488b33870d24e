"""Replies of RAGFlow's paths have the form that the OpenAPI document gives them."""

from typing import Any

import httpx2
from pydantic import TypeAdapter

from api.http.ragflow_models import DATA
from tests.integration.api.talking import ECHO, Client


def holds(name: str, reply: httpx2.Response) -> Any:
    """Hold the data of a reply against its model, also for keys that the model does not know; return it."""
    body = reply.json()
    assert body["code"] == 0, body
    TypeAdapter(DATA[name]).validate_python(body["data"], strict=True)
    return body["data"]


def test_agents_versions_and_sessions_have_the_form_of_their_models(client: Client) -> None:
    http = client.http
    agent = holds("create_agent", http.post("/api/v1/agents", json={"title": "models", "dsl": ECHO}))["id"]
    path = f"/api/v1/agents/{agent}"
    holds("set_tags", http.put(f"{path}/tags", json={"tags": ["a"]}))
    holds("list_tags", http.get("/api/v1/agents/tags"))
    holds("update_agent", http.put(path, json={"description": "x"}))
    holds("list_agents", http.get("/api/v1/agents"))
    version = holds("publish", http.post(f"{path}/publish", json={}))
    holds("get_agent", http.get(path))
    holds("list_versions", http.get(f"{path}/versions"))
    holds("get_version", http.get(f"{path}/versions/{version['id']}"))
    holds("reset_draft", http.post(f"{path}/reset"))
    holds("input_form", http.get(f"{path}/components/begin/input-form"))
    file = holds("upload_files", http.post(f"{path}/upload", files={"file": ("a.txt", b"A")}))
    session = holds("create_session", http.post(f"{path}/sessions", json={}))["id"]
    client.chat(agent, "hi", session_id=session, files=[file])
    holds("list_sessions", http.get(f"{path}/sessions"))
    holds("get_session", http.get(f"{path}/sessions/{session}"))
    holds("cancel_agent", http.post(f"{path}/cancel", json={}))
    holds("delete_session", http.delete(f"{path}/sessions/{session}"))
    holds("list_templates", http.get("/api/v1/agents/templates"))
    holds("list_prompts", http.get("/api/v1/agents/prompts"))
    holds("delete_agent", http.delete(path))


def test_knowledge_bases_and_memories_have_the_form_of_their_models(client: Client) -> None:
    http = client.http
    dataset = holds("create_knowledge_bases", http.post("/api/v1/datasets", json={"name": "models"}))["id"]
    path = f"/api/v1/datasets/{dataset}"
    holds("change_datasets", http.put(path, json={"description": "x"}))
    holds("read", http.get(path))
    (document,) = holds("upload_knowledge_bases", http.post(f"{path}/documents", files={"file": ("a.txt", b"A")}))
    holds("patch_change", http.patch(f"{path}/documents/{document['id']}", json={"meta_fields": {"a": "b"}}))
    holds("add_chunk", http.post(f"{path}/documents/{document['id']}/chunks", json={"content": "A text"}))
    holds("list_chunks", http.get(f"{path}/documents/{document['id']}/chunks"))
    holds("list_documents", http.get(f"{path}/documents"))
    holds("list_datasets", http.get("/api/v1/datasets"))
    holds("retrieve", http.post("/api/v1/retrieval", json={"question": "text", "dataset_ids": [dataset]}))
    holds("delete_documents", http.request("DELETE", f"{path}/documents", json={"ids": [document["id"]]}))
    holds("delete_datasets", http.request("DELETE", "/api/v1/datasets", json={"ids": [dataset]}))
    memory = {"name": "models", "memory_type": ["raw"], "embd_id": "", "llm_id": ""}
    made = holds("create_memories", http.post("/api/v1/memories", json=memory))["id"]
    holds("list_memories", http.get("/api/v1/memories"))
    holds("config_memories", http.get(f"/api/v1/memories/{made}/config"))
    said = {"memory_id": [made], "agent_id": "a", "session_id": "s", "user_input": "hi", "agent_response": "hello"}
    assert http.post("/api/v1/messages", json=said).json()["code"] == 0
    holds("recent", http.get("/api/v1/messages", params={"memory_id": made}))
    holds("search", http.get("/api/v1/messages/search", params={"query": "hello", "memory_id": made}))
    holds("change_memories", http.put(f"/api/v1/memories/{made}", json={"description": "x"}))
