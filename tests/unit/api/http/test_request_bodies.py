"""Bodies of requests as they are read."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Request

from api.dependencies import ApiContext
from api.http import request_bodies
from canvas.document import json_checks

Reads = Callable[[Request, ApiContext], Coroutine[Any, Any, dict[str, Any]]]
EDGE = cast(
    "ApiContext",
    SimpleNamespace(
        max_canvas_bytes=8 * request_bodies.PARSE_IN_THREAD_ABOVE,
        max_body_bytes=8 * request_bodies.PARSE_IN_THREAD_ABOVE,
    ),
)


def bringing(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "headers": []}, receive)


@pytest.mark.parametrize("reads", [request_bodies.canvas_body, request_bodies.small_body, request_bodies.chat_body])
def test_large_bodies_are_parsed_in_a_thread(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    copied = json_checks.copy_storable

    def noted(value: Any) -> Any:
        threads.append(threading.get_ident())
        return copied(value)

    monkeypatch.setattr(json_checks, "copy_storable", noted)
    small, large = {"text": "x"}, {"text": "x" * request_bodies.PARSE_IN_THREAD_ABOVE}

    assert asyncio.run(reads(bringing(json.dumps(small).encode()), EDGE)) == small
    assert asyncio.run(reads(bringing(json.dumps(large).encode()), EDGE)) == large

    assert threads[0] == threading.get_ident()
    assert threads[1] != threading.get_ident()
