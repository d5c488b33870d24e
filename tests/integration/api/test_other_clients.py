"""LangChain's and LiteLLM's clients against the API: `make clients`, which installs them, runs these tests."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.__main__ import SETTING
from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client

CALLS = Path(__file__).resolve().parents[2] / "clients"

pytestmark = pytest.mark.skipif(not os.environ.get(SETTING), reason="`make clients` installs the clients")


def call(script: str, server: Server, client: Client, agents: list[str]) -> dict[str, Any]:
    """Run a script with the clients' interpreter; return what it found."""
    command = [os.environ[SETTING], str(CALLS / script), f"{server.url}/api/v1/openai", client.token, *agents]
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def agents_of(client: Client) -> list[str]:
    return [client.agent(dsl, title) for title, dsl in (("echo", ECHO), ("broken", BROKEN), ("form", FORM))]


def count_runs(client: Client, agent: str) -> int:
    return len(client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["runs"])


def test_langchain_calls_agents_as_chat_models(server: Server, client: Client) -> None:
    _, broken, form = agents = agents_of(client)

    found = call("langchain_calls.py", server, client, agents)

    assert found == {
        "chat": "You said: hi",
        "chat usage": True,
        "chat stream": "You said: hi",
        "chat asynchronously": "You said: hi",
        "chat of a broken agent": "OpenAIAPIError",  # of LangChain, a subclass of InternalServerError
        "chat that asks a form": "ConflictError",
        "responses": "You said: hi",
        "responses continued": "You said: again",
        "responses stream": "You said: hi",
        "responses of a broken agent": "ValueError",
        "status of a form": "incomplete",
    }
    assert (count_runs(client, broken), count_runs(client, form)) == (2, 2)


def test_litellm_calls_agents_as_models(server: Server, client: Client) -> None:
    _, broken, form = agents = agents_of(client)

    found = call("litellm_calls.py", server, client, agents)

    assert found == {
        "chat": "You said: hi",
        "chat usage": True,
        "chat stream": "You said: hi",
        "chat asynchronously": "You said: hi",
        "chat of a broken agent": "InternalServerError",
        "chat that asks a form": "APIError",
        "responses": "You said: hi",
        "responses stream": "You said: hi",
        "status of a broken agent": "failed",
        "status of a form": "incomplete",
    }
    assert (count_runs(client, broken), count_runs(client, form)) == (2, 2)
