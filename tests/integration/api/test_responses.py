"""Responses of OpenAI's own client: whole, streamed, in the background, continued, and refused."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.openai_clients import CITING, REASONING, citing_vendor
from tests.integration.api.talking import BROKEN, ECHO, FORM, MODEL, Client, eventually
from tests.integration.api.test_openai_client import PIXEL, SHOW_INPUTS, list_runs


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


# -- whole -----------------------------------------------------------------------------------------------------------
def test_response_has_the_answer_and_the_id_of_its_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)

    response = api.responses.create(model=agent, input="hi", metadata={"order": "4711"}, user="ada")
    again = api.responses.retrieve(response.id)

    (run,) = list_runs(client, agent)
    assert response.output_text == "You said: hi"
    assert (response.id, response.status, response.model) == (f"resp_{run['id']}", "completed", agent)
    assert (response.metadata, response.user) == ({"order": "4711"}, "ada")
    assert again.to_dict() == response.to_dict()
    assert client.run(run["id"])["request"]["user_id"] == "ada"


def test_usage_is_that_of_the_run(client: Client, api: OpenAI) -> None:
    response = api.responses.create(model=client.agent(MODEL), input="hi")

    used = client.run(response.id.removeprefix("resp_"))["usage"]
    assert response.usage is not None
    assert response.usage.total_tokens == used["total_tokens"] > 0
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        used["prompt_tokens"],
        used["completion_tokens"],
    )


def test_earlier_messages_of_the_input_are_the_history_of_a_new_session(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)
    items: Any = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": "a"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "user", "content": [{"type": "input_text", "text": "now"}]},
    ]

    reply = api.responses.with_raw_response.create(model=agent, input=items, temperature=0.1)

    session = client.http.get(f"/api/v1/agents/{agent}/sessions/{reply.headers['x-session-id']}").json()["data"]
    assert [entry["content"] for entry in session["message"]] == ["a", "b", "now", "You said: now"]
    assert reply.headers["x-ignored-parameters"] == "temperature, input.developer"


def test_picture_and_file_of_the_input_are_files_of_the_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(SHOW_INPUTS)
    encoded = base64.b64encode(PIXEL).decode()
    upload = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("notes.txt", b"Notes of Ada")})
    content: Any = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{encoded}", "detail": "auto"},
        {"type": "input_file", "filename": "dot.png", "file_data": f"data:image/png;base64,{encoded}"},
        {"type": "input_file", "file_id": upload.json()["data"]["id"]},
    ]

    api.responses.create(model=agent, input=[{"role": "user", "content": content}])

    (run,) = list_runs(client, agent)
    request = client.run(run["id"])["request"]
    assert request["query"] == "look"
    assert [(file["name"], file["size"]) for file in request["files"]] == [
        ("image.png", len(PIXEL)),
        ("dot.png", len(PIXEL)),
        ("notes.txt", 12),
    ]


def test_inputs_and_a_budget_reach_the_run(client: Client, api: OpenAI) -> None:
    agent = client.agent(SHOW_INPUTS)
    more = {"inputs": {"key": {"value": "V"}}, "budget": {"tokens": 7}}

    response = api.responses.create(model=agent, input="hi", extra_body=more)

    (limit,) = client.run(response.id.removeprefix("resp_"))["budget"]
    assert "said hi key V" in response.output_text
    assert (limit["measure"], limit["limit"]) == ("tokens", 7)


def test_reasoning_and_citations_are_parts_of_the_output(client: Client, api: OpenAI, server: Server) -> None:
    agent = client.agent(CITING)

    with citing_vendor(server, client):
        response = api.responses.create(model=agent, input="What of prices?")

    reasoning, message = response.to_dict()["output"]  # pyright: ignore[reportGeneralTypeIssues]
    (part,) = message["content"]
    web_page, document = part["annotations"]
    assert (reasoning["type"], reasoning["content"][0]["text"]) == ("reasoning", REASONING)
    assert part["text"].startswith("Up 4% [ID:")
    assert (web_page["type"], web_page["url"], web_page["title"]) == ("url_citation", "https://example.com/a", "Prices")
    assert part["text"][web_page["start_index"] : web_page["end_index"]].startswith("[ID:")
    assert (document["type"], document["file_id"], document["filename"]) == ("file_citation", "d" * 32, "june.pdf")


# -- failures, forms and cancels -------------------------------------------------------------------------------------
def test_failed_run_is_a_failed_response_and_runs_once(client: Client, api: OpenAI) -> None:
    agent = client.agent(BROKEN)

    response = api.responses.create(model=agent, input="hi")

    (run,) = list_runs(client, agent)
    assert (response.status, run["status"]) == ("failed", "failed")
    assert response.error is not None
    assert response.error.code == "run_failed"
    assert response.error.message == run["error"]
    assert api.responses.retrieve(response.id).to_dict() == response.to_dict()


def test_form_is_an_incomplete_response_that_the_next_request_answers(client: Client, api: OpenAI) -> None:
    agent = client.agent(FORM)

    asked = api.responses.create(model=agent, input="hi")
    answered = api.responses.create(
        model=agent, previous_response_id=asked.id, extra_body={"inputs": {"name": {"value": "Ada"}}}
    )

    question = asked.to_dict()["waiting_for_user"]
    assert asked.status == "incomplete"
    assert isinstance(question, dict)
    assert (question["cpn_id"], question["tips"]) == ("UserFillUp:0", "Who are you?")
    assert (answered.status, answered.output_text, answered.id) == ("completed", "Hello Ada", asked.id)
    assert answered.previous_response_id == asked.id
    assert [run["status"] for run in list_runs(client, agent)] == ["succeeded"]


def test_failure_after_the_start_of_a_run_is_not_retried_and_names_the_run(
    client: Client, api: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = client.agent(ECHO)

    async def fail(*_: Any) -> None:
        raise PoolTimeout

    monkeypatch.setattr("api.responses.routes.gather", fail)

    with pytest.raises(openai.InternalServerError) as failure:
        api.responses.create(model=agent, input="hi")

    (run,) = list_runs(client, agent)
    assert failure.value.response.headers["x-should-retry"] == "false"
    assert failure.value.response.headers["x-run-id"] == run["id"]


def test_call_that_exceeds_the_time_limit_of_the_client_is_one_run_with_a_key(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent = workerless_client.agent(ECHO)
    url = f"{workerless_server.url}/api/v1/openai"

    with (
        OpenAI(base_url=url, api_key=workerless_client.token, timeout=0.5, max_retries=1) as api,
        pytest.raises(openai.APITimeoutError),
    ):
        api.responses.create(model=agent, input="hi", extra_headers={"Idempotency-Key": "once"})

    assert len(list_runs(workerless_client, agent)) == 1


# -- in the background -----------------------------------------------------------------------------------------------
def test_background_response_is_polled_until_it_is_completed(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)

    begun = api.responses.create(model=agent, input="hi", background=True)
    done = eventually(lambda: api.responses.retrieve(begun.id), lambda response: response.status == "completed")

    assert begun.status in ("queued", "in_progress", "completed")
    assert begun.background is True
    assert (done.output_text, done.background) == ("You said: hi", True)


def test_background_response_is_cancelled(workerless_client: Client, workerless_server: Server) -> None:
    agent = workerless_client.agent(ECHO)

    with OpenAI(base_url=f"{workerless_server.url}/api/v1/openai", api_key=workerless_client.token) as api:
        begun = api.responses.create(model=agent, input="hi", background=True)
        cancelled = api.responses.cancel(begun.id)

    (run,) = list_runs(workerless_client, agent)
    assert begun.status == "in_progress"
    assert (cancelled.status, run["status"]) == ("cancelled", "cancelled")


def test_asynchronous_client_polls_a_background_response(client: Client, server_with_files: Server) -> None:
    agent = client.agent(ECHO)

    async def call() -> str:
        async with AsyncOpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=client.token) as api:
            begun = await api.responses.create(model=agent, input="hi", background=True)
            async with asyncio.timeout(30):
                while (found := await api.responses.retrieve(begun.id)).status != "completed":
                    await asyncio.sleep(0.02)
            return found.output_text

    assert asyncio.run(call()) == "You said: hi"


def test_response_whose_events_were_deleted_has_the_text_of_the_run(
    client: Client, api: OpenAI, server: Server
) -> None:
    response = api.responses.create(model=client.agent(ECHO), input="hi")
    with server.database.transaction() as tx:
        tx.execute(
            text("delete from run_events where run_id = :run_id"), run_id=UUID(response.id.removeprefix("resp_"))
        )

    found = api.responses.retrieve(response.id)

    assert (found.status, found.output_text) == ("completed", "You said: hi")


# -- streamed --------------------------------------------------------------------------------------------------------
def test_stream_has_the_events_of_a_response_numbered_in_order(client: Client, api: OpenAI) -> None:
    events = list(api.responses.create(model=client.agent(ECHO), input="hi", stream=True))

    names = [event.type for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert list(dict.fromkeys(names)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "You said: hi"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.to_dict() == api.responses.retrieve(last.response.id).to_dict()


def test_stream_helper_of_the_client_collects_the_answer_with_its_citations(
    client: Client, api: OpenAI, server: Server
) -> None:
    agent = client.agent(CITING)

    with citing_vendor(server, client), api.responses.stream(model=agent, input="What of prices?") as stream:
        events = list(stream)
        final = stream.get_final_response()

    kinds = [event.annotation for event in events if event.type == "response.output_text.annotation.added"]
    reasoning = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    stored = api.responses.retrieve(final.id)
    assert "".join(reasoning) == REASONING
    assert [kind["type"] if isinstance(kind, dict) else kind.type for kind in kinds if kind is not None] == [
        "url_citation",
        "file_citation",
    ]
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == stored.output_text


@pytest.mark.parametrize(
    ("dsl", "last", "status"),
    [(BROKEN, "response.failed", "failed"), (FORM, "response.incomplete", "incomplete")],
)
def test_stream_of_a_run_that_does_not_complete_ends_with_its_state(
    client: Client, api: OpenAI, dsl: dict[str, Any], last: str, status: str
) -> None:
    agent = client.agent(dsl)

    events: list[Any] = list(api.responses.create(model=agent, input="hi", stream=True))

    assert (events[-1].type, events[-1].response.status) == (last, status)
    assert len(list_runs(client, agent)) == 1


def test_asynchronous_stream_yields_the_answer(client: Client, server_with_files: Server) -> None:
    agent = client.agent(ECHO)

    async def call() -> str:
        async with AsyncOpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=client.token) as api:
            stream = await api.responses.create(model=agent, input="hi", stream=True)
            return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

    assert asyncio.run(call()) == "You said: hi"


def test_stream_of_an_existing_response_begins_with_its_first_event(client: Client, api: OpenAI) -> None:
    response = api.responses.create(model=client.agent(ECHO), input="hi")

    events: list[Any] = list(api.responses.retrieve(response.id, stream=True))

    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert events[-1].response.output_text == "You said: hi"


# -- continued -------------------------------------------------------------------------------------------------------
def test_previous_response_is_continued_in_its_session(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)

    first = api.responses.create(model=agent, input="one")
    second = api.responses.create(model=agent, input="two", previous_response_id=first.id)
    assert second.conversation is not None
    third = api.responses.create(model=agent, input="three", conversation=second.conversation.id)

    session = third.to_dict()["session_id"]
    messages = client.http.get(f"/api/v1/agents/{agent}/sessions/{session}").json()["data"]["message"]
    assert first.conversation == second.conversation == third.conversation
    assert second.previous_response_id == first.id
    assert [each["content"] for each in messages if each["role"] == "user"] == ["one", "two", "three"]


def test_response_that_is_not_the_latest_cannot_be_continued(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)
    first = api.responses.create(model=agent, input="one")
    second = api.responses.create(model=agent, input="two", previous_response_id=first.id)

    with pytest.raises(openai.BadRequestError) as refusal:
        api.responses.create(model=agent, input="other", previous_response_id=first.id)

    assert refusal.value.param == "previous_response_id"
    assert second.id in refusal.value.message
    assert len(list_runs(client, agent)) == 2


def test_continuing_request_that_is_sent_again_with_its_key_gets_the_same_response(client: Client, api: OpenAI) -> None:
    agent = client.agent(ECHO)
    first = api.responses.create(model=agent, input="one")

    second, again = (
        api.responses.create(
            model=agent, input="two", previous_response_id=first.id, extra_headers={"Idempotency-Key": "second"}
        )
        for _ in range(2)
    )

    assert again.to_dict() == second.to_dict()
    assert len(list_runs(client, agent)) == 2


# -- refused ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "video"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.content[0]"),
        ({"instructions": "Be short."}, "instructions"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ({"extra_body": {"metadata": {"a": 1}}}, "metadata.a"),
        ({"extra_body": {"budgets": {}}}, "budgets"),
        ({"background": True, "extra_body": {"cancel_on_disconnect": True}}, "cancel_on_disconnect"),
        ({"conversation": "conv_x", "extra_body": {"session_id": "x"}}, "session_id"),
    ],
)
def test_invalid_or_unsupported_parameter_is_a_bad_request_and_starts_no_run(
    client: Client, api: OpenAI, changes: dict[str, Any], param: str
) -> None:
    agent = client.agent(ECHO)

    with pytest.raises(openai.BadRequestError) as refusal:
        api.responses.create(**{"model": agent, "input": "hi", **changes})

    assert refusal.value.param == param
    assert list_runs(client, agent) == []


def test_unknown_agent_and_unknown_responses_are_not_found(client: Client, api: OpenAI) -> None:
    agent, unknown = client.agent(ECHO), f"resp_{'0' * 32}"

    with pytest.raises(openai.NotFoundError) as no_agent:
        api.responses.create(model="0" * 32, input="hi")
    with pytest.raises(openai.NotFoundError) as no_previous:
        api.responses.create(model=agent, input="hi", previous_response_id=unknown)
    for call in (api.responses.retrieve, api.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(unknown)

    assert no_agent.value.code == "model_not_found"
    assert no_previous.value.param == "previous_response_id"
    assert list_runs(client, agent) == []


def test_response_of_another_agent_is_not_found_at_the_base_url_of_one_agent(
    client: Client, api: OpenAI, server_with_files: Server
) -> None:
    agent, other = client.agent(ECHO, "one"), client.agent(ECHO, "other")
    theirs = api.responses.create(model=other, input="hi")

    with OpenAI(base_url=f"{server_with_files.url}/api/v1/openai/agents/{agent}", api_key=client.token) as api_of_one:
        ours = api_of_one.responses.create(model="anything", input="hi")
        found = api_of_one.responses.retrieve(ours.id)
        with pytest.raises(openai.NotFoundError):
            api_of_one.responses.retrieve(theirs.id)
        with pytest.raises(openai.NotFoundError):
            api_of_one.responses.create(model="anything", input="hi", previous_response_id=theirs.id)

    assert found.output_text == "You said: hi"


def test_share_link_reaches_only_responses_of_its_sessions(
    client: Client, api: OpenAI, server_with_files: Server
) -> None:
    agent = client.agent(ECHO)
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    theirs = api.responses.create(model=agent, input="hi")
    guest = server_with_files.guest(client, agent)
    guest.http.close()

    with OpenAI(base_url=f"{server_with_files.url}/api/v1/openai", api_key=guest.token) as api_of_link:
        own = api_of_link.responses.create(model=agent, input="hi")
        found = api_of_link.responses.retrieve(own.id)
        for call in (api_of_link.responses.retrieve, api_of_link.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                call(theirs.id)
        with pytest.raises(openai.NotFoundError):
            api_of_link.responses.create(model=agent, input="hi", previous_response_id=theirs.id)

    assert found.output_text == "You said: hi"
