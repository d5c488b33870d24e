"""OpenAI's own client: one call starts one run, refusals raise errors, and one base URL serves all routes."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pytest_httpserver import HTTPServer
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug import Response

from api.runs import openai_files
from store.files.blobs import LocalBlobs
from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.openai_clients import CITING, REASONING, citing_vendor
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, canvas, message

USER: Any = [{"role": "user", "content": "hi"}]
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")

SHOW_INPUTS = canvas(
    ("begin", "Begin", {"inputs": {"key": {"type": "line", "name": "Key"}}}, ["Message:0"]),
    ("Message:0", "Message", message("said {sys.query} key {begin@key} files {sys.files} by {sys.user_id}"), []),
)


@pytest.fixture(scope="module")
def server_with_files(server: Server, home: Path) -> Iterator[Server]:
    """An API server with a folder for files, whose runs are executed."""
    config = with_settings(server.config, files_dir=home / "files")
    with serving(config) as url:
        yield Server(url, server.database, config)


@pytest.fixture
def client(server_with_files: Server) -> Iterator[Client]:
    client = server_with_files.client()
    yield client
    client.http.close()


@pytest.fixture
def api(client: Client, server_with_files: Server) -> Iterator[OpenAI]:
    """OpenAI's client with its default settings, which include retries."""
    with OpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=client.token) as api:
        yield api


def list_runs(client: Client, agent: str) -> list[dict[str, Any]]:
    return client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["runs"]


# -- one call is one run ---------------------------------------------------------------------------------------------
def test_a_call_of_an_agent_that_fails_starts_one_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(BROKEN)

    with pytest.raises(openai.InternalServerError) as failure:
        api.chat.completions.create(model=agent, messages=USER)

    (run,) = list_runs(client, agent)
    assert run["status"] == "failed"
    assert failure.value.code == "run_failed"
    assert failure.value.type == "server_error"
    assert failure.value.response.headers["x-run-id"] == run["id"]
    assert isinstance(failure.value.body, dict)
    assert failure.value.body["run_id"] == run["id"]


def test_a_call_of_an_agent_that_asks_a_form_opens_one_form(client: Client, api: OpenAI) -> None:
    agent = client.agent(FORM)

    with pytest.raises(openai.ConflictError) as question:
        api.chat.completions.create(model=agent, messages=USER)

    (run,) = list_runs(client, agent)
    assert run["status"] == "waiting"
    assert isinstance(question.value.body, dict)
    assert question.value.body["run_id"] == run["id"]
    assert question.value.body["cpn_id"] == "UserFillUp:0"


@pytest.mark.parametrize(("dsl", "error"), [(BROKEN, openai.InternalServerError), (FORM, openai.ConflictError)])
def test_an_asynchronous_call_that_does_not_succeed_starts_one_run(
    client: Client, server_with_files: Server, dsl: dict[str, Any], error: type[Exception]
) -> None:
    agent = client.agent(dsl)

    async def call() -> None:
        async with AsyncOpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=client.token) as api:
            await api.chat.completions.create(model=agent, messages=USER)

    with pytest.raises(error):
        asyncio.run(call())

    assert len(list_runs(client, agent)) == 1


def test_a_stream_of_an_agent_that_fails_raises_and_starts_one_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(BROKEN)

    with pytest.raises(openai.APIError) as failure:
        list(api.chat.completions.create(model=agent, messages=USER, stream=True))

    (run,) = list_runs(client, agent)
    assert failure.value.code == "run_failed"
    assert isinstance(failure.value.body, dict)
    assert failure.value.body["run_id"] == run["id"]


def test_a_stream_of_an_agent_that_asks_a_form_opens_one_form(client: Client, api: OpenAI) -> None:
    agent = client.agent(FORM)

    chunks = list(api.chat.completions.create(model=agent, messages=USER, stream=True))

    assert chunks[-1].choices[0].finish_reason == "waiting_for_user"
    assert len(list_runs(client, agent)) == 1


def test_database_failure_after_the_start_of_a_run_is_not_retried(
    client: Client, api: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = client.agent(ECHO)

    async def fail(*_: Any) -> None:
        raise PoolTimeout

    monkeypatch.setattr("api.runs.openai_wire.gather", fail)

    with pytest.raises(openai.InternalServerError) as failure:
        api.chat.completions.create(model=agent, messages=USER)

    (run,) = list_runs(client, agent)
    assert failure.value.response.headers["x-run-id"] == run["id"]


def test_failed_start_of_a_run_is_not_retried(client: Client, api: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = client.agent(ECHO)
    calls: list[str] = []

    async def fail(*_: Any, **__: Any) -> None:
        calls.append("begin")
        raise PoolTimeout

    monkeypatch.setattr("api.runs.openai_wire.begin", fail)

    with pytest.raises(openai.InternalServerError):
        api.chat.completions.create(model=agent, messages=USER)

    assert calls == ["begin"]


def test_a_form_with_several_fields_is_answered_with_inputs(client: Client, api: OpenAI) -> None:
    agent = client.agent(FORM)
    with pytest.raises(openai.ConflictError) as question:
        api.chat.completions.create(model=agent, messages=USER)
    session = question.value.response.headers["x-session-id"]

    answered = api.chat.completions.create(
        model=agent, messages=USER, extra_body={"session_id": session, "inputs": {"name": {"value": "Ada"}}}
    )

    assert answered.choices[0].message.content == "Hello Ada"
    assert [run["status"] for run in list_runs(client, agent)] == ["succeeded"]


def test_asynchronous_stream_yields_the_answer(client: Client, server_with_files: Server) -> None:
    agent = client.agent(ECHO)

    async def call() -> str:
        async with AsyncOpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=client.token) as api:
            stream = await api.chat.completions.create(model=agent, messages=USER, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(call()) == "You said: hi"


def test_repeats_after_a_time_limit_of_the_client_are_one_run_with_a_key(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent = workerless_client.agent(ECHO)
    url = f"{workerless_server.url}/api/v1/openai"

    with (
        OpenAI(base_url=url, api_key=workerless_client.token, timeout=0.5, max_retries=1) as api,
        pytest.raises(openai.APITimeoutError),
    ):
        api.chat.completions.create(model=agent, messages=USER, extra_headers={"Idempotency-Key": "once"})

    assert len(list_runs(workerless_client, agent)) == 1


# -- refusals are errors ---------------------------------------------------------------------------------------------
def test_unknown_agent_raises_model_not_found(api: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        api.chat.completions.create(model="0" * 32, messages=USER)

    assert (refusal.value.code, refusal.value.param) == ("model_not_found", "model")
    assert refusal.value.type == "invalid_request_error"


def test_unknown_token_raises_an_authentication_error(server: Server) -> None:
    api = OpenAI(base_url=f"{server.url}/api/v1/openai", api_key="easel_nobody")

    with api, pytest.raises(openai.AuthenticationError) as refusal:
        api.models.list()

    assert (refusal.value.code, refusal.value.type) == ("invalid_api_key", "authentication_error")


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"messages": []}, None, "messages"),
        ({"extra_body": {"budget": {"tokens": "x"}}}, None, "budget.tokens"),
        ({"extra_body": {"budgets": {}}}, "unknown_parameter", "budgets"),
        ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "unsupported_parameter", "tools"),
        ({"n": 2}, "unsupported_parameter", "n"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
        ({"stop": ["x"]}, "unsupported_parameter", "stop"),
        ({"logprobs": True}, "unsupported_parameter", "logprobs"),
    ],
)
def test_invalid_or_unsupported_parameter_is_a_bad_request_and_starts_no_run(
    client: Client, api: OpenAI, changes: dict[str, Any], code: str | None, param: str
) -> None:
    agent = client.agent(ECHO)

    with pytest.raises(openai.BadRequestError) as refusal:
        api.chat.completions.create(**{"model": agent, "messages": USER, **changes})

    assert refusal.value.code == (code or "invalid_request")
    assert refusal.value.param == param
    assert list_runs(client, agent) == []


def test_unknown_session_is_not_found(client: Client, api: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        api.chat.completions.create(model=client.agent(ECHO), messages=USER, extra_body={"session_id": "0" * 32})


def test_openai_compatible_flag_on_ragflows_route_returns_openai_errors(client: Client) -> None:
    body = {"openai-compatible": True, "agent_id": "0" * 32, "messages": USER}

    reply = client.http.post("/api/v1/agents/chat/completions", json=body)

    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "model_not_found"


# -- one base URL ----------------------------------------------------------------------------------------------------
def test_one_base_url_lists_retrieves_and_runs_models(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO, "Echo")

    listed = [model.id for model in api.models.list()]
    retrieved = api.models.retrieve(agent)
    completion = api.chat.completions.create(model=agent, messages=USER)

    assert listed == [agent]
    assert (retrieved.id, retrieved.owned_by) == (agent, "easel")
    assert completion.choices[0].message.content == "You said: hi"
    assert completion.model == agent


def test_base_url_of_one_agent_serves_only_that_model(client: Client, server_with_files: Server) -> None:
    agent, other = client.agent(ECHO, "Echo"), client.agent(ECHO, "Other")

    with OpenAI(base_url=f"{server_with_files.url}/api/v1/openai/agents/{agent}", api_key=client.token) as api:
        listed = [model.id for model in api.models.list()]
        completion = api.chat.completions.create(model="whatever", messages=USER)
        with pytest.raises(openai.NotFoundError):
            api.models.retrieve(other)

    assert listed == [agent]
    assert completion.choices[0].message.content == "You said: hi"


def test_share_link_token_can_call_its_agent_at_the_base_url(client: Client, server_with_files: Server) -> None:
    agent = client.agent(ECHO)
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    guest = server_with_files.guest(client, agent)
    guest.http.close()

    with OpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=guest.token) as api:
        completion = api.chat.completions.create(model=agent, messages=USER)

    assert completion.choices[0].message.content == "You said: hi"


# -- inputs, files and other parameters ------------------------------------------------------------------------------
def test_inputs_files_and_user_reach_the_run_as_on_ragflows_route(client: Client, api: OpenAI) -> None:
    agent = client.agent(SHOW_INPUTS)
    upload = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("notes.txt", b"Notes of Ada")})
    file = upload.json()["data"]
    more = {"inputs": {"key": {"value": "V"}}, "files": [file]}

    completion = api.chat.completions.create(model=agent, messages=USER, user="ada", extra_body=more)
    content = client.chat(agent, "hi", user_id="ada", **more)["data"]["data"]["content"]

    assert completion.choices[0].message.content == content
    assert "said hi key V" in content
    assert "Notes of Ada" in content
    assert "by ada" in content
    run = client.run(list_runs(client, agent)[-1]["id"])
    assert run["request"]["user_id"] == "ada"


def test_a_budget_limits_the_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)

    api.chat.completions.create(model=agent, messages=USER, extra_body={"budget": {"tokens": 7}})

    (run,) = list_runs(client, agent)
    (limit,) = client.run(run["id"])["budget"]
    assert (limit["measure"], limit["limit"]) == ("tokens", 7)


def test_picture_in_a_message_becomes_a_file_of_the_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(SHOW_INPUTS)
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    content: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]

    api.chat.completions.create(model=agent, messages=[{"role": "user", "content": content}])

    (run,) = list_runs(client, agent)
    request = client.run(run["id"])["request"]
    (file,) = request["files"]
    assert request["query"] == "look"
    assert (file["mime_type"], file["name"], file["size"]) == ("image/png", "image.png", len(PIXEL))
    assert client.http.get("/api/v1/agents/download", params={"id": file["id"]}).content == PIXEL


def test_picture_sent_again_with_its_idempotency_key_returns_the_same_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(SHOW_INPUTS)

    def send(data: bytes) -> str:
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        content: Any = [{"type": "image_url", "image_url": {"url": url}}]
        reply = api.chat.completions.with_raw_response.create(
            model=agent, messages=[{"role": "user", "content": content}], extra_headers={"Idempotency-Key": "k"}
        )
        return reply.headers["x-run-id"]

    first, again = send(PIXEL), send(PIXEL)

    assert first == again
    with pytest.raises(openai.ConflictError):
        send(PIXEL + b" ")


def test_picture_url_is_fetched_once_for_requests_with_the_same_idempotency_key(
    client: Client, httpserver: HTTPServer, home: Path, server: Server
) -> None:
    httpserver.expect_request("/dot.png").respond_with_data(PIXEL, content_type="image/png")
    content: Any = [{"type": "image_url", "image_url": {"url": httpserver.url_for("/dot.png")}}]
    config = with_settings(server.config, files_dir=home / "files", allow_any_host=True)

    with serving(config) as url, OpenAI(base_url=f"{url}/api/v1/openai", api_key=client.token) as api:
        agent = client.agent(ECHO)
        first, again = (
            api.chat.completions.with_raw_response.create(
                model=agent,
                messages=[{"role": "user", "content": content}],
                extra_headers={"Idempotency-Key": "picture"},
            ).headers["x-run-id"]
            for _ in range(2)
        )

    (file,) = client.run(first)["request"]["files"]
    assert again == first
    assert (file["name"], file["size"]) == ("dot.png", len(PIXEL))
    assert len(httpserver.log) == 1


def picture_part(data: bytes) -> Any:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def test_files_at_urls_are_refused_if_too_large_together(
    client: Client, httpserver: HTTPServer, home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_files, "MAX_UPLOAD_BYTES", 5 * len(PIXEL) // 2)
    httpserver.expect_request("/dot.png").respond_with_data(PIXEL, content_type="image/png")
    url_part: Any = {"type": "image_url", "image_url": {"url": httpserver.url_for("/dot.png")}}
    config = with_settings(server.config, files_dir=home / "files", allow_any_host=True)

    with serving(config) as url, OpenAI(base_url=f"{url}/api/v1/openai", api_key=client.token) as api:
        agent = client.agent(ECHO)

        def send(*content: Any) -> Any:
            messages: Any = [{"role": "user", "content": content}]
            return api.chat.completions.with_raw_response.create(model=agent, messages=messages)

        run_id = send(picture_part(PIXEL), url_part).headers["x-run-id"]
        with pytest.raises(openai.APIStatusError) as refused:
            send(url_part, picture_part(PIXEL), url_part)

    assert [file["size"] for file in client.run(run_id)["request"]["files"]] == [len(PIXEL)] * 2
    assert refused.value.status_code == 413
    assert f"at most {5 * len(PIXEL) // 2} bytes together" in str(refused.value)
    assert len(list_runs(client, agent)) == 1


def test_files_at_urls_are_fetched_and_stored_one_by_one(
    client: Client, httpserver: HTTPServer, home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    store = LocalBlobs.store

    def record_and_store(blobs: LocalBlobs, data: bytes) -> bytes:
        steps.append("stored")
        return store(blobs, data)

    def respond(_: Any) -> Response:
        steps.append("fetched")
        return Response(PIXEL, content_type="image/png")

    monkeypatch.setattr(LocalBlobs, "store", record_and_store)
    httpserver.expect_request("/dot.png").respond_with_handler(respond)
    content: Any = [{"type": "image_url", "image_url": {"url": httpserver.url_for("/dot.png")}}] * 2
    config = with_settings(server.config, files_dir=home / "files", allow_any_host=True)

    with serving(config) as url, OpenAI(base_url=f"{url}/api/v1/openai", api_key=client.token) as api:
        api.chat.completions.create(model=client.agent(ECHO), messages=[{"role": "user", "content": content}])

    assert steps == ["fetched", "stored"] * 2


def test_picture_may_exceed_the_body_limit_and_text_may_not(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)
    url = f"data:image/png;base64,{base64.b64encode(PIXEL + bytes(2 * 1024 * 1024)).decode()}"
    large_picture: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    large_text: Any = [{"role": "user", "content": "x" * (1024 * 1024 + 1)}]

    api.chat.completions.create(model=agent, messages=large_picture)
    with pytest.raises(openai.APIStatusError) as refusal:
        api.chat.completions.create(model=agent, messages=large_text)

    assert refusal.value.status_code == 413
    assert len(list_runs(client, agent)) == 1


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "not an address"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,???"}},
        {"type": "image_url"},
        {"type": "file", "file": {"file_id": "0" * 32}},
        {"type": "video", "video": {}},
    ],
)
def test_message_part_without_a_valid_file_is_a_bad_request(client: Client, api: OpenAI, part: Any) -> None:
    agent = client.agent(ECHO)
    messages: Any = [{"role": "user", "content": [part]}]

    with pytest.raises(openai.BadRequestError):
        api.chat.completions.create(model=agent, messages=messages)

    assert list_runs(client, agent) == []


def test_url_in_a_private_network_is_not_fetched(client: Client, api: OpenAI, server: Server) -> None:
    content: Any = [{"type": "image_url", "image_url": {"url": f"{server.url}/healthz"}}]

    with pytest.raises(openai.BadRequestError):
        api.chat.completions.create(model=client.agent(ECHO), messages=[{"role": "user", "content": content}])


def test_ignored_parameters_are_accepted_and_listed_in_a_header(client: Client, api: OpenAI) -> None:
    reply = api.chat.completions.with_raw_response.create(
        model=client.agent(ECHO),
        messages=USER,
        temperature=0.2,
        max_tokens=100,
        n=1,
        presence_penalty=0,
        response_format={"type": "text"},
        tools=[],
        extra_body={"logprobs": False},
    )

    assert reply.headers["x-ignored-parameters"] == "temperature, presence_penalty, max_tokens"
    assert reply.parse().choices[0].message.content == "You said: hi"


def test_usage_is_sent_in_a_separate_last_chunk_on_request(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)

    chunks = list(
        api.chat.completions.create(model=agent, messages=USER, stream=True, stream_options={"include_usage": True})
    )

    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)


# -- reasoning, citations and metadata -------------------------------------------------------------------------------
def test_reasoning_and_citations_are_beside_the_content(client: Client, api: OpenAI, server: Server) -> None:
    agent = client.agent(CITING)

    with citing_vendor(server, client):
        completion = api.chat.completions.create(model=agent, messages=USER)
        chunks = list(api.chat.completions.create(model=agent, messages=USER, stream=True))

    message = completion.choices[0].message
    deltas = [chunk.choices[0].delta.to_dict() for chunk in chunks]
    assert message.content is not None
    assert message.content.startswith("Up 4% [ID:")
    assert message.to_dict()["reasoning_content"] == REASONING
    assert message.annotations is not None
    web_page, document = (annotation.to_dict() for annotation in message.annotations)
    assert web_page["type"] == "url_citation"
    assert web_page["url_citation"] == {
        "start_index": 6, "end_index": 14, "url": "https://example.com/a", "title": "Prices"
    }  # fmt: skip
    assert document["file_citation"] == {"file_id": "d" * 32, "filename": "june.pdf", "index": 24}
    assert "".join(str(delta.get("reasoning_content") or "") for delta in deltas) == REASONING
    assert "".join(str(delta.get("content") or "") for delta in deltas) == message.content
    assert deltas[-1]["annotations"] == [web_page, document]
    assert completion.usage is not None
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.completion_tokens_details.reasoning_tokens


def test_reasoning_is_between_think_tags_on_ragflows_route(client: Client, server: Server) -> None:
    agent = client.agent(CITING)
    body = {"openai-compatible": True, "agent_id": agent, "messages": USER}

    with citing_vendor(server, client):
        reply = client.http.post("/api/v1/agents/chat/completions", json=body).json()

    message = reply["choices"][0]["message"]
    assert message["content"].startswith(f"<think>{REASONING}</think>Up 4%")
    assert "reasoning_content" not in message


def test_metadata_is_given_back_and_stored_with_the_run(client: Client, api: OpenAI) -> None:
    agent, metadata = client.agent(ECHO), {"order": "4711"}

    reply = api.chat.completions.with_raw_response.create(model=agent, messages=USER, metadata=metadata)
    chunks = list(api.chat.completions.create(model=agent, messages=USER, metadata=metadata, stream=True))
    stored = api.responses.retrieve(f"resp_{reply.headers['x-run-id']}")

    assert reply.parse().to_dict()["metadata"] == metadata
    assert [chunk.to_dict().get("metadata") for chunk in chunks[-2:]] == [None, metadata]
    assert stored.metadata == metadata


def test_metadata_beyond_the_limits_is_a_bad_request(client: Client, api: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        api.chat.completions.create(model=client.agent(ECHO), messages=USER, metadata={"a": "x" * 513})

    assert refusal.value.param == "metadata.a"


def test_roles_that_are_left_out_are_listed_in_a_header(client: Client, api: OpenAI) -> None:
    messages: Any = [{"role": "system", "content": "Be short."}, *USER]

    reply = api.chat.completions.with_raw_response.create(model=client.agent(ECHO), messages=messages)

    assert reply.headers["x-ignored-parameters"] == "messages.system"


# -- Open WebUI ------------------------------------------------------------------------------------------------------
def test_open_webui_lists_agents_by_name_and_streams_an_answer(client: Client) -> None:
    """The requests are those that Open WebUI's documentation describes for an OpenAI connection."""
    agent = client.agent(ECHO, "Echo")
    chat = {
        "stream": True,
        "model": agent,
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "before"},
            {"role": "assistant", "content": "earlier answer"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, picture_part(PIXEL)]},
        ],
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
        "max_tokens": 512,
        "user": "ada",
    }
    title = {
        "model": agent,
        "messages": USER,
        "stream": False,
        "max_completion_tokens": 1000,
        "metadata": {"task": "t"},
    }

    models = client.http.get("/api/v1/openai/models").json()
    with client.http.stream("POST", "/api/v1/openai/chat/completions", json=chat) as response:
        lines = [line for line in response.iter_lines() if line]
    whole = client.http.post("/api/v1/openai/chat/completions", json=title)

    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    assert [(model["id"], model["name"], model["object"]) for model in models["data"]] == [(agent, "Echo", "model")]
    assert response.headers["content-type"].startswith("text/event-stream")
    assert lines[-1] == "data: [DONE]"
    text = "".join(choice["delta"]["content"] or "" for chunk in chunks for choice in chunk["choices"])
    assert text == "You said: hi"
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert whole.json()["choices"][0]["message"] == {"role": "assistant", "content": "You said: hi"}
