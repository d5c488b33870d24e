"""Read request bodies: up to a limit, JSON objects only, with values that can be stored.

A field that a schema does not know is refused, with the names of those that it knows. Otherwise a misspelt field would
be silently ignored.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from api.http.errors import ARGUMENT, RequestRefused, UnknownParameter
from api.http.schemas import Body
from api.http.similar_names import nearest_first
from api.http.validation_words import describe_errors
from api.requests.dependencies import ApiContextDep, run_in_thread
from canvas.document import json_checks
from canvas.errors import InvalidRequest

# bytes of a body above which it is parsed in a thread, since every stream waits for the event loop
PARSE_IN_THREAD_ABOVE = 1024 * 1024

MAX_CHAT_BYTES = 20 * 1024 * 1024
"""Bytes of a body with pictures. Without its pictures, EASEL_MAX_BODY_BYTES is the limit."""

SIZE = "body_size"  # of a chat's body, in the state of its request

M = TypeVar("M", bound=Body)
V = TypeVar("V", bound=BaseModel)


async def canvas_body(request: Request, context: ApiContextDep) -> dict[str, Any]:
    """Return a body that may contain a canvas."""
    return await _parse_object(await _bytes(request, context.max_canvas_bytes, "EASEL_MAX_CANVAS_BYTES"))


async def small_body(request: Request, context: ApiContextDep) -> dict[str, Any]:
    """Return any other body."""
    return await _parse_object(await _bytes(request, context.max_body_bytes, "EASEL_MAX_BODY_BYTES"))


async def chat_body(request: Request, context: ApiContextDep) -> dict[str, Any]:
    """Return a body of an OpenAI client, which may contain pictures. Store its size in the state of the request."""
    data = await _bytes(request, max(MAX_CHAT_BYTES, context.max_body_bytes), "these routes")
    setattr(request.state, SIZE, len(data))
    return await _parse_object(data)


async def patch_body(request: Request, context: ApiContextDep) -> list[Any]:
    """Return a body that is a JSON Patch: a list of operations. They are checked when they are applied."""
    body = await _bytes(request, context.max_canvas_bytes, "EASEL_MAX_CANVAS_BYTES")
    value = _load(body) if len(body) <= PARSE_IN_THREAD_ABOVE else await run_in_thread(lambda: _load(body))
    if not isinstance(value, list):
        raise InvalidRequest("The request body must be a JSON Patch: a list of operations.")
    return value


async def json_object(request: Request, context: ApiContextDep) -> dict[str, Any]:
    """Return a body of RAGFlow's datasets or documents, with their words about a body that is no JSON object.

    An empty body is {}. A media type other than JSON is refused.
    """
    data = await _bytes(request, context.max_body_bytes, "EASEL_MAX_BODY_BYTES")
    if not data.strip():
        return {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        written = media_type[:128] or "no content type"
        raise RequestRefused(ARGUMENT, f"Unsupported content type: Expected application/json, got {written}")
    return (
        await run_in_thread(lambda: _ragflow_object(data))
        if len(data) > PARSE_IN_THREAD_ABOVE
        else (_ragflow_object(data))
    )


def _ragflow_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        message = "Malformed JSON syntax: Missing commas/brackets or invalid encoding"
        raise RequestRefused(ARGUMENT, message) from None
    if not isinstance(value, dict):
        raise RequestRefused(ARGUMENT, f"Invalid request payload: expected object, got {type(value).__name__}")
    return _storable(value)


PatchBody = Annotated[list[Any], Depends(patch_body)]
CanvasBody = Annotated[dict[str, Any], Depends(canvas_body)]
SmallBody = Annotated[dict[str, Any], Depends(small_body)]
ChatBody = Annotated[dict[str, Any], Depends(chat_body)]
JsonObject = Annotated[dict[str, Any], Depends(json_object)]


def with_query(body: Mapping[str, Any], **query: str) -> dict[str, Any]:
    """Return a body with query parameters added. Fields of the body override them, except null."""
    from_query = {name: value for name, value in query.items() if value}
    return from_query | {name: value for name, value in body.items() if value is not None}


def parse_body(model: type[M], body: Mapping[str, Any]) -> M:
    """Return a body parsed by its schema. Keys with null count as absent.

    Raises UnknownParameter for a field that the schema does not have, and InvalidRequest.
    """
    _refuse_unknown(model, body, "")
    return validate_fields(model, {name: value for name, value in body.items() if value is not None})


def validate_fields(model: type[V], fields: Mapping[str, Any]) -> V:
    """Return fields parsed by a schema; others are ignored. Raises InvalidRequest."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in first["loc"])
        raise InvalidRequest(f"`{field}`: {first['msg']}.", field=field) from None


def parse_strictly(model: type[V], body: Mapping[str, Any], *, code: int = ARGUMENT) -> V:
    """Return a body parsed by its schema, in which null is a value like others.

    Raises RequestRefused with one line for each field that is wrong (api/http/validation_words.py).
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise RequestRefused(code, describe_errors(error.errors(include_url=False, include_context=False))) from None


def ignored_field_warnings(model: type[Body], body: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return `{"warnings": [...]}` about fields of a body without an effect; {} if there are none."""
    ignored = _ignored_in(model, body, "")
    return {"warnings": [f"`{name}` has no effect here." for name in ignored]} if ignored else {}


def _refuse_unknown(model: type[Body], body: Mapping[str, Any], path: str) -> None:
    """Raise UnknownParameter for a field that a schema does not have, also in nested objects with a schema."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for name, value in body.items():
        if value is not None and name not in fields and name not in model.without_effect:
            listed = nearest_first(name[:64], fields)
            raise UnknownParameter(
                f"`{path}{name[:64]}` is not a field of this request. Its fields are: {', '.join(listed)}.",
                field=f"{path}{name[:64]}",
            )
    for name, inner, value in _nested_bodies(model, body):
        _refuse_unknown(inner, value, f"{path}{name}.")


def _ignored_in(model: type[Body], body: Mapping[str, Any], path: str) -> list[str]:
    without_effect = ((name, values) for name, values in model.without_effect.items() if body.get(name) is not None)
    here = [f"{path}{name}" for name, values in without_effect if body[name] not in values]
    return here + [
        each for name, inner, value in _nested_bodies(model, body) for each in _ignored_in(inner, value, f"{name}.")
    ]


def _nested_bodies(model: type[Body], body: Mapping[str, Any]) -> Iterator[tuple[str, type[Body], Mapping[str, Any]]]:
    """Yield the nested objects of a body that have their own schema."""
    for name, field in model.model_fields.items():
        value = body.get(name)
        kinds = get_args(field.annotation) or (field.annotation,)
        for kind in kinds:
            if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Body):
                yield name, kind, value


def body_openapi(model: type[BaseModel]) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that reads its body itself."""
    schema = model.model_json_schema()
    whole = _inline_definitions(schema, schema.pop("$defs", {}))
    return {"requestBody": {"content": {"application/json": {"schema": whole}}, "required": True}}


def _inline_definitions(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with references replaced by their definitions, which OpenAPI keeps in another place."""
    if isinstance(schema, list):
        return [_inline_definitions(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        others = {name: value for name, value in schema.items() if name != "$ref"}
        return _inline_definitions({**definitions[reference.rpartition("/")[2]], **others}, definitions)
    return {name: _inline_definitions(each, definitions) for name, each in schema.items()}


async def read_body(request: Request, most_bytes: int, too_large: Callable[[int], Exception]) -> bytes:
    """Return the whole body. If it is too large, stop reading and raise `too_large(size)`."""
    promised = declared_size(request.headers)
    if promised is not None and promised > most_bytes:
        raise too_large(promised)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise too_large(len(body))
    return bytes(body)


def declared_size(headers: Mapping[str, str]) -> int | None:
    """Return the size of the body that the head of a request declares, or None."""
    written = headers.get("content-length", "")
    return int(written[:15]) if written.isascii() and written.isdigit() else None


def parse_json(text: str | bytes) -> Any:
    """Return the value of an untrusted JSON text. Raises ValueError, also for NaN and Infinity."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


async def _bytes(request: Request, limit: int, setting: str) -> bytes:
    message = f"request body too large: more than the {limit} bytes that {setting} allows."
    return await read_body(request, limit, lambda _: RequestRefused(ARGUMENT, message, status=413))


async def _parse_object(body: bytes) -> dict[str, Any]:
    return _load_object(body) if len(body) <= PARSE_IN_THREAD_ABOVE else await run_in_thread(lambda: _load_object(body))


def _load_object(body: bytes) -> dict[str, Any]:
    value = _load(body)
    if not isinstance(value, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    return _storable(value)


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        return json_checks.copy_storable(value)
    except json_checks.Unstorable as error:
        message = f"The request body cannot be stored. {error.where}: {error.reason}."
        raise InvalidRequest(message, field=error.field) from None


def _load(body: bytes) -> Any:
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        where = {"line": error.lineno, "column": error.colno} if isinstance(error, json.JSONDecodeError) else {}
        raise InvalidRequest(f"The request body is not JSON: {_reason(error)}.", **where) from None


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a number in it is too long"
