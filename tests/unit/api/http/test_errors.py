"""Replies about parameters that a route cannot parse, in each style."""

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from api.http import errors
from api.http.reply_styles import OpenAIRoute, OwnRoute

REASON = "Input should be a valid integer, unable to parse string as an integer"


@pytest.mark.parametrize(
    ("route_class", "expected"),
    [
        (
            OwnRoute,
            {"code": "invalid_request", "message": f"query.limit: {REASON}", "details": {"field": "limit"}},
        ),
        (
            OpenAIRoute,
            {
                "error": {
                    "message": f"query.limit: {REASON}",
                    "type": "invalid_request_error",
                    "param": "limit",
                    "code": "invalid_request",
                }
            },
        ),
        (APIRoute, {"code": 101, "message": f"query.limit: {REASON}", "data": None}),
    ],
)
def test_reply_names_a_parameter_that_cannot_be_parsed(route_class: type[APIRoute], expected: dict[str, Any]) -> None:
    router = APIRouter(route_class=route_class)

    @router.get("/things")
    def list_things(limit: int) -> int:
        return limit

    app = FastAPI()
    errors.add_handlers(app)
    app.include_router(router)
    reply = TestClient(app).get("/things", params={"limit": "many"})

    assert (reply.status_code, reply.json()) == (400, expected)
