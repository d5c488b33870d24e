"""The response headers of every vendor reach the rate limiter."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from providers.models.chat.catalogue import open_chat, resolve
from providers.models.transport.clients import close_connections
from providers.models.types.chat import ChatRequest
from providers.models.vendors.accounts import AccountModel, VendorAccount
from tests.vendor_server import vendor_server, whole

ANTHROPIC = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "type": "message"}
GEMINI = {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}
BEDROCK = {"output": {"message": {"content": [{"text": "hi"}]}}, "stopReason": "end_turn"}
OPENAI = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
KEYS = json.dumps({"bedrock_ak": "AKIAEXAMPLE", "bedrock_sk": "a-secret-of-forty-letters"})


class HeaderRecorder:
    """A rate limiter that grants every permit and records the response headers."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []

    async def acquire(self, request: Any) -> "HeaderRecorder":
        return self

    def release(self, tokens: int | None, failed: Any) -> None:
        pass

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        self.headers.append(headers)


@pytest.mark.parametrize(
    ("factory", "key", "answer"),
    [("Anthropic", "k", ANTHROPIC), ("Gemini", "k", GEMINI), ("Bedrock", KEYS, BEDROCK), ("OpenAI", "k", OPENAI)],
)
def test_rate_limit_headers_of_every_vendor_reach_the_limiter(factory: str, key: str, answer: Any):
    recorder = HeaderRecorder()

    async def complete() -> str:
        play = whole(answer, anthropic_ratelimit_requests_remaining="0")
        async with vendor_server(play) as server:
            account = VendorAccount(factory, base_url=server.url, api_key=key, models={"m": AccountModel()})
            try:
                model = open_chat(resolve(f"m@{factory}", [account]), limiter=recorder)
                return (await model.complete(ChatRequest([{"role": "user", "content": "Q"}]))).text
            finally:
                await close_connections()

    assert asyncio.run(complete()) == "hi"
    assert [headers["anthropic-ratelimit-requests-remaining"] for headers in recorder.headers] == ["0"]
