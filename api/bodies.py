"""Request bodies: read up to a limit, JSON objects only, and nothing in them that could not be stored."""

import json
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from api.edge import TheEdge
from api.errors import ARGUMENT, Refused
from canvas import storable
from canvas.errors import InvalidCanvas, InvalidRequest


async def canvas_body(request: Request, edge: TheEdge) -> dict[str, Any]:
    """A body that may bring a canvas."""
    return _object(await _bytes(request, edge.max_canvas_bytes, "EASEL_MAX_CANVAS_BYTES"))


async def small_body(request: Request, edge: TheEdge) -> dict[str, Any]:
    """Any other body."""
    return _object(await _bytes(request, edge.max_body_bytes, "EASEL_MAX_BODY_BYTES"))


CanvasBody = Annotated[dict[str, Any], Depends(canvas_body)]
SmallBody = Annotated[dict[str, Any], Depends(small_body)]


def checked(model: type[BaseModel], body: dict[str, Any]) -> Any:
    """The fields of a body as its schema has them; keys with null count as absent. Raises InvalidRequest."""
    try:
        return model.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise InvalidRequest(f"`{field}`: {first['msg']}.", field=field) from None


def described(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its body itself."""
    schema = model.model_json_schema()
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


async def _bytes(request: Request, limit: int, setting: str) -> bytes:
    """The whole body. Stops reading where it is too large, whatever its head has promised."""
    told = request.headers.get("content-length", "")
    message = f"request body too large: more than the {limit} bytes that {setting} allows."
    too_large = Refused(ARGUMENT, message, status=413)
    if told.isascii() and told.isdigit() and (len(told) > 15 or int(told) > limit):
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise too_large
    return bytes(body)


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The request body is not JSON: {_reason(error)}.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    try:
        return storable.copied(value)
    except InvalidCanvas as error:
        reason = error.message.removeprefix("DSL is not JSON-serializable. ")
        raise InvalidRequest(f"The request body cannot be stored. {reason}", field=error.field) from None


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a number in it is too long"
