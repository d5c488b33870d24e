"""Reading of request bodies."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Request

from api.requests import request_bodies
from api.requests.dependencies import ApiContext
from canvas.document import json_checks

Reads = Callable[[Request, ApiContext], Coroutine[Any, Any, dict[str, Any]]]
CONTEXT = cast(
    "ApiContext",
    SimpleNamespace(
        max_canvas_bytes=8 * request_bodies.PARSE_IN_THREAD_ABOVE,
        max_body_bytes=8 * request_bodies.PARSE_IN_THREAD_ABOVE,
    ),
)


def request_with(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "headers": []}, receive)


@pytest.mark.parametrize("reads", [request_bodies.canvas_body, request_bodies.small_body, request_bodies.chat_body])
def test_large_bodies_are_parsed_in_a_thread(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    original = json_checks.copy_storable

    def record_thread(value: Any) -> Any:
        threads.append(threading.get_ident())
        return original(value)

    monkeypatch.setattr(json_checks, "copy_storable", record_thread)
    small, large = {"text": "x"}, {"text": "x" * request_bodies.PARSE_IN_THREAD_ABOVE}

    assert asyncio.run(reads(request_with(json.dumps(small).encode()), CONTEXT)) == small
    assert asyncio.run(reads(request_with(json.dumps(large).encode()), CONTEXT)) == large

    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()
