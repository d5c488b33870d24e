"""Chat models over the OpenAI SDK, against a small HTTP server with scripted replies."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from providers.models.chat.catalogue import AccountModel, RequestLimits, VendorAccount, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.transport.clients import close_connections
from providers.models.types.chat import (
    CallsDelta,
    ChatModel,
    ChatRequest,
    ContentDelta,
    Delta,
    ErrorDelta,
    ReasoningDelta,
    ToolCall,
    Usage,
    UsageDelta,
)

T = TypeVar("T")
MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
KEY = "sk-integration-secret"


@dataclass
class Server:
    """Plays one reply for each request, the last one again and again; records requests and disconnects."""

    replies: list[Callable[["Server", asyncio.StreamWriter], Awaitable[None]]]
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
                body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
                self.requests.append({"line": head[0], "headers": headers, "body": body})
                reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
                answering = asyncio.create_task(self.answer(reply, writer))
                disconnecting = asyncio.create_task(reader.read(1))
                await asyncio.wait({answering, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
                if disconnecting.done():  # a client that still waits sends nothing: it has disconnected
                    answering.cancel()
                    self.left.set()
                    return
                disconnecting.cancel()
                await asyncio.gather(disconnecting, return_exceptions=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(
        self, reply: Callable[["Server", asyncio.StreamWriter], Awaitable[None]], writer: asyncio.StreamWriter
    ) -> None:
        await reply(self, writer)
        await writer.drain()

    def model(self, timeout: float = 30, **model: Any) -> ChatModel:
        account = VendorAccount(
            "OpenAI-API-Compatible",
            base_url=f"http://127.0.0.1:{self.port}",
            api_key=KEY,
            models={"m": AccountModel(is_tools=True, **model)},
        )
        spec = resolve("m@OpenAI-API-Compatible", [account])
        return open_chat(
            spec, RequestLimits(timedelta(seconds=timeout)), retry_policy=RetryPolicy(record_wait, lambda: 0.0)
        )


waits: list[float] = []


async def record_wait(seconds: float) -> None:
    waits.append(seconds)


def whole(body: Any, status: int = 200, **headers: str) -> Callable[[Server, asyncio.StreamWriter], Awaitable[None]]:
    async def reply(server: Server, writer: asyncio.StreamWriter) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        fields = {"content-type": "application/json", "content-length": str(len(text.encode())), **headers}
        writer.write(head(status, fields) + text.encode())

    return reply


def events(*chunks: Any, then: str = "done") -> Callable[[Server, asyncio.StreamWriter], Awaitable[None]]:
    """Return an event stream; `then` it is done, the connection breaks, or it hangs until the client disconnects."""

    async def reply(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        for chunk in chunks:
            send(writer, f"data: {json.dumps(chunk)}\n\n")
            await writer.drain()
        if then == "hang":
            await server.left.wait()
        elif then == "break":
            writer.transport.abort()
        else:
            send(writer, "data: [DONE]\n\n")
            writer.write(b"0\r\n\r\n")

    return reply


async def never_answer(server: Server, writer: asyncio.StreamWriter) -> None:
    await server.left.wait()


async def hang_up(server: Server, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def head(status: int, headers: Mapping[str, str]) -> bytes:
    return f"HTTP/1.1 {status} X\r\n{''.join(f'{k}: {v}{chr(13)}{chr(10)}' for k, v in headers.items())}\r\n".encode()


def send(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def chunk_of(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def completion_of(text: str, usage: Mapping[str, int] | None = None, **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@asynccontextmanager
async def serving(*replies: Callable[[Server, asyncio.StreamWriter], Awaitable[None]]) -> AsyncGenerator[Server]:
    server = Server(list(replies))
    waits.clear()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await close_connections()
        listener.close()


async def read_deltas(model: ChatModel, **request: Any) -> list[Delta]:
    return [delta async for delta in model.stream(ChatRequest(MESSAGES, **request))]


def within_seconds(steps: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(steps, 20))


def test_a_streamed_answer_arrives_with_reasoning_and_usage():
    async def steps() -> tuple[list[Delta], dict[str, Any]]:
        usage = {**chunk_of(), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
        chunks = [
            chunk_of(reasoning_content="a"),
            chunk_of(content="Hel"),
            chunk_of(content="lo"),
            chunk_of("stop"),
            usage,
        ]
        async with serving(events(*chunks)) as server:
            return await read_deltas(server.model()), server.requests[0]

    deltas, request = within_seconds(steps())

    assert deltas == [ReasoningDelta("a"), ContentDelta("Hel"), ContentDelta("lo"), UsageDelta(Usage(7, 2, 9, 1))]
    assert request["line"] == "POST /v1/chat/completions HTTP/1.1"
    assert request["headers"]["authorization"] == f"Bearer {KEY}"
    assert request["body"] == {
        "model": "m",
        "messages": MESSAGES,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_generation_parameters_images_and_template_arguments_are_sent():
    async def steps() -> dict[str, Any]:
        async with serving(whole(completion_of("ok"))) as server:
            request = ChatRequest(
                MESSAGES,
                params={"temperature": 0.2, "max_tokens": 9, "unheard_of": 1},
                images=["data:image/png;base64,QQ=="],
                chat_template_kwargs={"style": "brief"},
            )
            await server.model().complete(request)
            return server.requests[0]["body"]

    body = within_seconds(steps())

    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "Q"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
    ]
    assert {name: body[name] for name in body if name not in ("messages", "model")} == {
        "temperature": 0.2,
        "max_tokens": 9,
        "chat_template_kwargs": {"style": "brief"},
    }


def test_deltas_of_a_streamed_tool_call_are_joined():
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}

    def part(**function: Any) -> dict[str, Any]:
        return chunk_of(tool_calls=[{"index": 0, "id": "c0", "type": "function", "function": function}])

    async def steps() -> tuple[list[Delta], dict[str, Any]]:
        chunks = [
            part(name="search", arguments=""),
            part(arguments='{"q": '),
            part(arguments='"x"}'),
            chunk_of("tool_calls"),
        ]
        async with serving(events(*chunks)) as server:
            return await read_deltas(server.model(), tools=[tool]), server.requests[0]["body"]

    deltas, body = within_seconds(steps())

    assert deltas[0] == CallsDelta((ToolCall("c0", "search", '{"q": "x"}'),))
    assert (body["tools"], body["tool_choice"]) == ([tool], "auto")


def test_tools_are_not_sent_to_a_model_that_cannot_call_them():
    tool = {"type": "function", "function": {"name": "search"}}

    async def steps() -> dict[str, Any]:
        async with serving(whole(completion_of("ok"))) as server:
            account = VendorAccount("VLLM", base_url=f"http://127.0.0.1:{server.port}/v1", extra={"is_tools": False})
            model = open_chat(resolve("m@VLLM", [account]))
            await model.complete(ChatRequest(MESSAGES, tools=[tool]))
            return server.requests[0]

    request = within_seconds(steps())

    assert not {"tools", "tool_choice"} & set(request["body"])


def test_rate_limited_request_is_retried_after_the_providers_delay():
    async def steps() -> tuple[str, Usage, int]:
        limited = whole({"error": {"message": "slow down"}}, 429, **{"retry-after": "3"})
        usage = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
        async with serving(limited, whole(completion_of("hi", usage))) as server:
            answer = await server.model().complete(ChatRequest(MESSAGES, retries=1))
            return answer.text, answer.usage, len(server.requests)

    assert within_seconds(steps()) == ("hi", Usage(4, 1, 5, calls=2), 2)
    assert waits == [3.0]


@pytest.mark.parametrize(
    ("status", "body", "text", "requests"),
    [
        (401, {"error": {"message": f"bad key {KEY}"}}, "**ERROR**: AUTH_ERROR - bad key ***", 1),
        (400, {"error": {"message": "no", "code": "content_filter"}}, "**ERROR**: CONTENT_FILTERED - no", 1),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "**ERROR**: QUOTA_EXCEEDED - pay", 1),
        (404, {"detail": "no such model"}, "**ERROR**: MODEL_ERROR - no such model", 1),
        (529, {"error": {"message": "overloaded"}}, "**ERROR**: SERVER_ERROR - overloaded", 3),
        (502, "<html>bad gateway</html>", "**ERROR**: SERVER_ERROR - <html>bad gateway</html>", 3),
    ],
)
def test_error_code_follows_the_status_and_only_transient_errors_are_retried(
    status: int, body: Any, text: str, requests: int
):
    async def steps() -> tuple[str, int]:
        async with serving(whole(body, status)) as server:
            answer = await server.model().complete(ChatRequest(MESSAGES, retries=2))
            return answer.text, len(server.requests)

    assert within_seconds(steps()) == (text, requests)


def test_broken_stream_is_not_restarted():
    async def steps() -> tuple[list[Delta], int]:
        async with serving(events(chunk_of(content="half"), then="break"), events(chunk_of(content="never"))) as server:
            return await read_deltas(server.model(), retries=3), len(server.requests)

    deltas, requests = within_seconds(steps())

    assert deltas[0] == ContentDelta("half")
    assert isinstance(deltas[1], ErrorDelta)
    assert deltas[1].code == "CONNECTION_ERROR"
    assert requests == 1


def test_an_error_in_the_middle_of_a_stream_ends_the_answer():
    async def steps() -> list[Delta]:
        error = {"error": {"message": "key servers are busy", "code": 502}}
        async with serving(events(chunk_of(content="half"), error)) as server:
            return await read_deltas(server.model(), retries=3)

    assert within_seconds(steps())[:2] == [ContentDelta("half"), ErrorDelta("SERVER_ERROR", "key servers are busy")]


def test_request_is_retried_if_the_connection_breaks_before_the_answer():
    async def steps() -> tuple[list[Delta], int]:
        async with serving(hang_up, events(chunk_of(content="hi"), chunk_of("stop"))) as server:
            return await read_deltas(server.model(), retries=1), len(server.requests)

    deltas, requests = within_seconds(steps())

    assert (deltas[0], requests) == (ContentDelta("hi"), 2)


def test_error_for_an_unreachable_server_has_its_url_without_the_key():
    async def steps() -> str:
        async with serving(hang_up) as server:
            model = server.model()
        return (await model.complete(ChatRequest(MESSAGES))).text

    text = within_seconds(steps())

    assert text.startswith("**ERROR**: CONNECTION_ERROR - http://127.0.0.1:")
    assert KEY not in text


def test_request_times_out_if_the_provider_does_not_answer():
    async def steps() -> tuple[str, bool]:
        async with serving(never_answer) as server:
            answer = await server.model(timeout=0.05).complete(ChatRequest(MESSAGES))
            await server.left.wait()
            return answer.text, server.left.is_set()

    text, left = within_seconds(steps())

    assert text.startswith("**ERROR**: TIMEOUT - ")
    assert left


@pytest.mark.parametrize("moment", ["before the answer", "between two deltas", "while busy with a delta"])
def test_cancelling_the_reader_closes_the_connection(moment: str):
    async def steps() -> bool:
        reply = never_answer if moment == "before the answer" else events(chunk_of(content="first"), then="hang")
        has_started = asyncio.Event()

        async def read(model: ChatModel) -> None:
            stream = model.stream(ChatRequest(MESSAGES))  # referenced, so that garbage collection does not close it
            if moment == "before the answer":
                has_started.set()
            async for _ in stream:
                has_started.set()
                if moment == "while busy with a delta":
                    await asyncio.Event().wait()

        async with serving(reply) as server:
            reader = asyncio.create_task(read(server.model()))
            await has_started.wait()
            while not server.requests:
                await asyncio.sleep(0)
            reader.cancel()
            await asyncio.wait({reader})
            await server.left.wait()
            return reader.cancelled()

    assert within_seconds(steps())


def test_request_has_the_accounts_key_and_no_settings_of_the_operator(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-operator")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer of-the-operator")

    async def steps() -> list[dict[str, str]]:
        async with serving(whole(completion_of("ok"))) as server:
            for key in ("sk-one", "sk-two", ""):
                account = VendorAccount("VLLM", base_url=f"http://127.0.0.1:{server.port}", api_key=key)
                await open_chat(resolve("m@VLLM", [account])).complete(ChatRequest(MESSAGES))
            return [request["headers"] for request in server.requests]

    headers = within_seconds(steps())

    assert [each["authorization"] for each in headers] == ["Bearer sk-one", "Bearer sk-two", "Bearer none"]
    assert not [each for each in headers if "openai-organization" in each]


def test_requests_of_one_account_go_over_one_connection():
    async def steps() -> tuple[int, int]:
        async with serving(whole(completion_of("ok"))) as server:
            for _ in range(3):
                await server.model().complete(ChatRequest(MESSAGES))
            return len(server.requests), server.connections

    assert within_seconds(steps()) == (3, 1)


def test_azure_request_goes_to_the_url_of_the_deployment():
    async def steps() -> dict[str, Any]:
        async with serving(whole(completion_of("ok"))) as server:
            account = VendorAccount(
                "Azure-OpenAI", base_url=f"http://127.0.0.1:{server.port}", api_key='{"api_key": "sk-az"}'
            )
            await open_chat(resolve("gpt-4o@Azure-OpenAI", [account])).complete(ChatRequest(MESSAGES))
            return server.requests[0]

    request = within_seconds(steps())

    assert "/openai/deployments/gpt-4o/chat/completions?api-version=2024-02-01" in request["line"]
    assert request["headers"]["api-key"] == "sk-az"
