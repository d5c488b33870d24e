"""Published agents over the Agent2Agent protocol, called by the official SDK's client in versions 1.0 and 0.3."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import pytest
from a2a.client import Client as AgentClient
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict

from tests.integration.api.conftest import Server
from tests.integration.api.openai_clients import CITING, citing_vendor
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, eventually
from tests.integration.api.test_openai_client import PIXEL, SHOW_INPUTS, list_runs

T = TypeVar("T")
VERSIONS = ("1.0", "0.3")


def publish(client: Client, dsl: Mapping[str, Any], title: str = "agent") -> str:
    """Create and publish an agent; return its id."""
    agent = client.agent(dsl, title)
    assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0
    return agent


def headers_of(client: Client) -> dict[str, str]:
    return {"Authorization": f"Bearer {client.token}"}


@asynccontextmanager
async def calling(
    server: Server, client: Client, agent: str, version: str = "1.0", *, streams: bool = False
) -> AsyncGenerator[AgentClient]:
    """Open the SDK's client of an agent, which reads the card, in a version of the protocol."""
    async with httpx.AsyncClient(headers=headers_of(client), timeout=30) as http:
        card = await A2ACardResolver(http, f"{server.url}/api/v1/a2a/{agent}").get_agent_card()
        for interface in list(card.supported_interfaces):
            if interface.protocol_version != version:
                card.supported_interfaces.remove(interface)
        http.headers["A2A-Version"] = version
        yield ClientFactory(ClientConfig(streaming=streams, httpx_client=http)).create(card)


def run(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return asyncio.run(call())


def message_of(*parts: Part, **ids: str) -> Message:
    return Message(message_id="m1", role=Role.ROLE_USER, parts=parts, **ids)


def data_of(value: Any) -> Part:
    return ParseDict({"data": value}, Part())


async def send(client: AgentClient, *parts: Part, configuration: Any = None, **ids: str) -> Task:
    """Send a message without a stream; return the task."""
    request = SendMessageRequest(message=message_of(*parts, **ids), configuration=configuration)
    (response,) = [each async for each in client.send_message(request)]
    return response.task


def texts(task: Task) -> list[str]:
    return [part.text for artifact in task.artifacts for part in artifact.parts]


def post(client: Client, agent: str, body: Any, version: str | None = "1.0") -> dict[str, Any]:
    headers = {"A2A-Version": version} if version else {}
    reply = client.http.post(f"/api/v1/a2a/{agent}", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


# -- the card --------------------------------------------------------------------------------------------------------
def test_card_describes_a_published_agent(server: Server, client: Client) -> None:
    agent = publish(client, SHOW_INPUTS, "Inputs")

    async def read() -> AgentCard:
        async with httpx.AsyncClient(headers=headers_of(client)) as http:
            return await A2ACardResolver(http, f"{server.url}/api/v1/a2a/{agent}").get_agent_card()

    card = run(read)

    assert card.name == "Inputs"
    assert [(each.protocol_binding, each.protocol_version) for each in card.supported_interfaces] == [
        ("JSONRPC", "1.0"),
        ("JSONRPC", "0.3"),
    ]
    assert {each.url for each in card.supported_interfaces} == {f"{server.url}/api/v1/a2a/{agent}"}
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (True, False)
    assert card.security_schemes["token"].http_auth_security_scheme.scheme == "bearer"
    assert "key" in card.skills[0].description


def test_agent_that_is_not_published_has_no_card_and_takes_no_call(client: Client) -> None:
    agent = client.agent(ECHO)

    card = client.http.get(f"/api/v1/a2a/{agent}/.well-known/agent-card.json")
    call = client.http.post(f"/api/v1/a2a/{agent}", json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage"})

    assert (card.status_code, call.status_code) == (404, 404)
    assert "There is no published agent" in card.json()["message"]
    assert list_runs(client, agent) == []


# -- messages --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", VERSIONS)
def test_message_is_answered_by_a_task_that_is_a_run(server: Server, client: Client, version: str) -> None:
    agent = publish(client, ECHO)

    async def call() -> tuple[Task, Task, Task]:
        async with calling(server, client, agent, version) as api:
            first = await send(api, Part(text="hi"))
            second = await send(api, Part(text="again"), context_id=first.context_id)
            return first, second, await api.get_task(GetTaskRequest(id=first.id, history_length=1))

    first, second, found = run(call)

    runs = {each["id"]: each for each in list_runs(client, agent)}
    assert (first.status.state, texts(first)) == (TaskState.TASK_STATE_COMPLETED, ["You said: hi"])
    assert set(runs) == {first.id, second.id}
    assert runs[first.id]["session_id"] == first.context_id == second.context_id
    assert (found.artifacts, found.status.state) == (first.artifacts, first.status.state)
    assert [part.text for part in found.history[0].parts] == ["hi"]


@pytest.mark.parametrize("version", VERSIONS)
def test_stream_has_the_task_its_text_and_its_last_status(server: Server, client: Client, version: str) -> None:
    agent = publish(client, ECHO)

    async def call() -> list[StreamResponse]:
        async with calling(server, client, agent, version, streams=True) as api:
            return [each async for each in api.send_message(SendMessageRequest(message=message_of(Part(text="hi"))))]

    first, *updates, last = run(call)

    artifacts = [each.artifact_update for each in updates if each.HasField("artifact_update")]
    assert first.task.status.state == TaskState.TASK_STATE_WORKING
    assert "".join(part.text for each in artifacts for part in each.artifact.parts) == "You said: hi"
    assert [each.append for each in artifacts] == [False, *[True] * (len(artifacts) - 1)]
    assert artifacts[-1].last_chunk
    assert last.status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert last.status_update.task_id == first.task.id


@pytest.mark.parametrize("version", VERSIONS)
def test_form_is_a_task_that_requires_input_and_is_answered_by_data(
    server: Server, client: Client, version: str
) -> None:
    agent = publish(client, FORM)

    async def call() -> tuple[Task, Task]:
        async with calling(server, client, agent, version) as api:
            asked = await send(api, Part(text="hi"))
            return asked, await send(api, data_of({"name": "Ada"}), task_id=asked.id, context_id=asked.context_id)

    asked, answered = run(call)

    tips, form = asked.status.message.parts
    assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert tips.text == "Who are you?"
    assert list(MessageToDict(form)["data"]["inputs"]) == ["name"]
    assert (answered.id, answered.status.state) == (asked.id, TaskState.TASK_STATE_COMPLETED)
    assert texts(answered) == ["Hello Ada"]


@pytest.mark.parametrize("version", VERSIONS)
def test_files_and_data_reach_the_run(server: Server, client: Client, version: str) -> None:
    agent = publish(client, SHOW_INPUTS)
    picture = Part(raw=PIXEL, filename="dot.png", media_type="image/png")

    async def call() -> Task:
        async with calling(server, client, agent, version) as api:
            return await send(api, Part(text="look"), data_of({"key": "V"}), picture)

    task = run(call)

    request = client.run(task.id)["request"]
    assert request["query"] == "look"
    assert [(file["name"], file["size"]) for file in request["files"]] == [("dot.png", len(PIXEL))]
    assert "said look key V" in texts(task)[0]


def test_failed_run_is_a_failed_task_with_its_error(server: Server, client: Client) -> None:
    agent = publish(client, BROKEN)

    async def call() -> Task:
        async with calling(server, client, agent) as api:
            return await send(api, Part(text="hi"))

    task = run(call)

    (failed,) = list_runs(client, agent)
    assert task.status.state == TaskState.TASK_STATE_FAILED
    assert task.status.message.parts[0].text == failed["error"]


def test_reasoning_is_not_part_of_the_answer(server: Server, client: Client) -> None:
    agent = publish(client, CITING)

    async def call() -> tuple[Task, str]:
        async with calling(server, client, agent) as api, calling(server, client, agent, streams=True) as streaming:
            whole = await send(api, Part(text="hi"))
            request = SendMessageRequest(message=message_of(Part(text="hi")))
            updates = [each.artifact_update async for each in streaming.send_message(request)]
            return whole, "".join(part.text for each in updates for part in each.artifact.parts)

    with citing_vendor(server, client):
        whole, streamed = run(call)

    assert texts(whole)[0].startswith("Up 4% [ID:")
    assert streamed == texts(whole)[0]


def test_share_link_calls_its_agent_and_sees_no_other_tasks(server: Server, client: Client) -> None:
    agent, other = publish(client, ECHO, "one"), publish(client, ECHO, "other")
    guest = server.guest(client, agent)

    async def call(caller: Client) -> Task:
        async with calling(server, caller, agent) as api:
            return await send(api, Part(text="hi"))

    theirs = run(lambda: call(client))
    own = run(lambda: call(guest))
    hidden = post(guest, agent, {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": theirs.id}})
    card = guest.http.get(f"/api/v1/a2a/{other}/.well-known/agent-card.json")
    guest.http.close()

    assert texts(own) == ["You said: hi"]
    assert hidden["error"]["code"] == -32001
    assert card.status_code == 404


# -- tasks -----------------------------------------------------------------------------------------------------------
def test_task_that_is_not_awaited_is_polled(server: Server, client: Client) -> None:
    agent = publish(client, ECHO)

    async def call() -> Task:
        async with calling(server, client, agent) as api:
            return await send(api, Part(text="hi"), configuration=SendMessageConfiguration(return_immediately=True))

    async def poll(task_id: str) -> Task:
        async with calling(server, client, agent) as api:
            return await api.get_task(GetTaskRequest(id=task_id))

    begun = run(call)
    done = eventually(
        lambda: run(lambda: poll(begun.id)), lambda task: task.status.state == TaskState.TASK_STATE_COMPLETED
    )

    assert texts(done) == ["You said: hi"]


@pytest.mark.parametrize("version", VERSIONS)
def test_task_is_cancelled_once(workerless_server: Server, workerless_client: Client, version: str) -> None:
    agent = publish(workerless_client, ECHO)
    at_once = SendMessageConfiguration(return_immediately=True)

    async def call() -> tuple[Task, Task]:
        async with calling(workerless_server, workerless_client, agent, version) as api:
            begun = await send(api, Part(text="hi"), configuration=at_once)
            cancelled = await api.cancel_task(CancelTaskRequest(id=begun.id))
            with pytest.raises((TaskNotCancelableError, A2AError)):
                await api.cancel_task(CancelTaskRequest(id=begun.id))
            return begun, cancelled

    begun, cancelled = run(call)

    assert begun.status.state == TaskState.TASK_STATE_WORKING
    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
    assert workerless_client.run(begun.id)["status"] == "cancelled"


def test_task_is_followed_again_from_its_beginning(server: Server, client: Client) -> None:
    agent = publish(client, FORM)

    async def call() -> tuple[Task, list[StreamResponse]]:
        async with calling(server, client, agent) as api, calling(server, client, agent, streams=True) as streaming:
            asked = await send(api, Part(text="hi"))
            return asked, [each async for each in streaming.subscribe(SubscribeToTaskRequest(id=asked.id))]

    asked, updates = run(call)

    assert updates[0].task.id == asked.id
    assert updates[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED


def test_task_that_is_over_takes_no_message_and_is_not_followed(server: Server, client: Client) -> None:
    agent = publish(client, ECHO)

    async def call() -> None:
        async with calling(server, client, agent) as api, calling(server, client, agent, streams=True) as streaming:
            done = await send(api, Part(text="hi"))
            with pytest.raises(UnsupportedOperationError):
                await send(api, Part(text="more"), task_id=done.id)
            with pytest.raises(UnsupportedOperationError):
                _ = [each async for each in streaming.subscribe(SubscribeToTaskRequest(id=done.id))]
            with pytest.raises(TaskNotFoundError):
                await api.get_task(GetTaskRequest(id="0" * 32))

    run(call)

    assert len(list_runs(client, agent)) == 1


def test_metadata_of_a_message_is_stored_and_given_back(client: Client) -> None:
    agent = publish(client, ECHO)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "metadata": {"order": {"id": 4711}}}

    sent = post(client, agent, {"jsonrpc": "2.0", "id": "a", "method": "SendMessage", "params": {"message": message}})
    task = sent["result"]["task"]
    found = post(client, agent, {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task["id"]}})

    assert sent["id"] == "a"
    assert task["metadata"] == found["result"]["metadata"] == {"order": {"id": 4711}}


def test_message_that_is_sent_again_with_its_idempotency_key_is_one_task(client: Client) -> None:
    agent = publish(client, ECHO)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"A2A-Version": "1.0", "Idempotency-Key": "once"}

    first, again = (
        client.http.post(f"/api/v1/a2a/{agent}", json=body, headers=headers).json()["result"]["task"] for _ in range(2)
    )

    assert first["id"] == again["id"]
    assert len(list_runs(client, agent)) == 1


# -- refusals --------------------------------------------------------------------------------------------------------
def of_parts(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": list(parts), **more}}


HI = {"text": "hi"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"jsonrpc": "1.0"}, -32600),
        ({"id": True}, -32600),
        ({"method": "Nothing"}, -32601),
        ({"method": "message/send"}, -32601),
        ({"method": "ListTasks"}, -32004),
        ({"method": "CreateTaskPushNotificationConfig"}, -32003),
        ({"method": "GetExtendedAgentCard"}, -32007),
        ({"method": "GetTask", "params": {"id": "x"}}, -32001),
        ({"params": []}, -32602),
        ({"params": [1]}, -32602),
        ({"params": of_parts()}, -32602),
        ({"params": of_parts({"data": [1]})}, -32602),
        ({"params": of_parts({"raw": "???", "mediaType": "image/png"})}, -32602),
        ({"params": of_parts({"url": "file:///etc/passwd"})}, -32602),
        ({"params": of_parts(HI, role="ROLE_AGENT")}, -32602),
        ({"params": of_parts(HI, taskId="0" * 32)}, -32001),
        ({"params": of_parts(HI, contextId="0" * 32)}, -32602),
        ({"params": {**of_parts(HI), "configuration": {"taskPushNotificationConfig": {"url": "https://x"}}}}, -32003),
        ({"params": {**of_parts(HI), "configuration": {"acceptedOutputModes": ["video/mp4"]}}}, -32005),
    ],
)
def test_invalid_call_is_an_error_of_the_protocol_and_starts_no_run(
    workerless_client: Client, changes: dict[str, Any], code: int
) -> None:
    agent = publish(workerless_client, ECHO)
    body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": of_parts(HI), **changes}

    reply = post(workerless_client, agent, body)

    assert reply["error"]["code"] == code
    assert reply["error"]["message"]
    assert reply["id"] == (None if changes.get("id") else 7)
    assert list_runs(workerless_client, agent) == []


def test_body_that_is_not_json_and_an_unknown_version_are_errors_of_the_protocol(workerless_client: Client) -> None:
    agent = publish(workerless_client, ECHO)
    body = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": of_parts(HI)}

    broken = workerless_client.http.post(f"/api/v1/a2a/{agent}", content=b"{")
    unknown = post(workerless_client, agent, body, version="9.1")
    unnamed = post(workerless_client, agent, body, version=None)

    assert broken.json()["error"]["code"] == -32700
    assert unknown["error"]["code"] == -32009
    assert unnamed["error"]["code"] == -32601
    assert "message/send" in unnamed["error"]["message"]


def test_context_that_is_busy_refuses_a_message(workerless_client: Client) -> None:
    agent = publish(workerless_client, ECHO)
    begun = workerless_client.start(agent, release=True)

    reply = post(
        workerless_client,
        agent,
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": of_parts(HI, contextId=begun["session_id"]),
        },
    )

    assert reply["error"]["code"] == -32004
    assert reply["error"]["data"][0]["run_id"] == begun["run_id"]
