"""The OpenAPI document of the API, as generators of clients need it.

FastAPI makes it of the routes. What it cannot know is added here: ids of operations that are names of methods in a
client, the errors of each reply style, streams, and ways to sign in. Handlers read and check their queries and bodies,
so FastAPI's own 422 never occurs and is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import TypeAdapter

from api.http.ragflow_models import DATA
from api.http.reply_styles import OpenAIRoute, OwnRoute

JSON, EVENT_STREAM = "application/json", "text/event-stream"
COOKIE = "cookie"

_Key = tuple[str, str]  # method and path

TAGS: Mapping[str, str] = {
    "agents": "Canvases, their versions, templates and tags",
    "sessions": "Conversations with an agent",
    "chat": "Turns of a conversation in RAGFlow's format",
    "OpenAI": "Turns and models in OpenAI's format",
    "A2A": "Agents for other agents, by the Agent2Agent protocol",
    "share links": "What the link of an agent opens for people without an account",
    "runs": "Runs: start, watch, answer, cancel, repeat",
    "shares": "Links that show one run to people without an account",
    "tasks": "Cancelling by the ids of RAGFlow's events",
    "schedules": "Runs that start at times",
    "callbacks": "Requests by which other systems are told that runs have ended or wait",
    "tokens": "Tokens: who may do what",
    "audit log": "Who changed, published, deleted or cancelled what",
    "budgets": "Limits of tokens, calls, time and money",
    "logs": "Tool calls of a turn",
    "webhooks": "Runs that other systems start by a request of their own form",
    "files": "Files that users send and that runs make",
    "knowledge bases": "Knowledge bases, documents, chunks and retrieval",
    "memories": "Memories and their messages",
    "mcp": "MCP servers that agents call, and agents as MCP tools",
    "tools": "Checks of what tools connect to",
    "components": "What a canvas may consist of",
    "viewer": "What the web pages need",
    "health": "Whether the process works, for probes and monitors",
}

ERROR_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "EaselError": {
        "title": "EaselError",
        "description": "An error of Easel's own routes, with a real status",
        "type": "object",
        "required": ["code", "message", "details"],
        "properties": {
            "code": {"type": "string", "description": "A stable word"},
            "message": {"type": "string"},
            "details": {"type": "object", "additionalProperties": True},
        },
        "example": {"code": "not_found", "message": "There is no run order-4711.", "details": {}},
    },
    "RagflowError": {
        "title": "RagflowError",
        "description": "An error of RAGFlow's routes. Its status is 200 unless the request has `X-Http-Status: strict`",
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "integer", "description": "101 argument, 102 data, 103 not allowed, 401, 409, 500, ..."},
            "message": {"type": "string"},
            "data": {},
        },
        "example": {"code": 102, "message": "canvas not found."},
    },
    "OpenAIError": {
        "title": "OpenAIError",
        "description": "An error in OpenAI's format",
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                    "run_id": {"type": "string", "description": "The run that the request has started"},
                    "session_id": {"type": "string"},
                },
                "additionalProperties": True,
            }
        },
    },
}
JSON_PATCH: Mapping[str, Any] = {
    "title": "JsonPatch",
    "description": "A JSON Patch (RFC 6902)",
    "type": "array",
    "items": {
        "title": "PatchOperation",
        "type": "object",
        "required": ["op", "path"],
        "properties": {
            "op": {"type": "string", "enum": ["add", "remove", "replace", "move", "copy", "test"]},
            "path": {"type": "string", "description": "A JSON Pointer (RFC 6901)"},
            "from": {"type": "string"},
            "value": {},
        },
    },
}
_MODEL = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string", "enum": ["model"]},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "name": {"type": "string"},
    },
}
_MODELS = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {
        "object": {"type": "string", "enum": ["list"]},
        "data": {"type": "array", "items": _MODEL},
        "has_more": {"type": "boolean"},
    },
}
_OPENAI_OBJECT = {
    "type": "object",
    "required": ["id", "object"],
    "properties": {"id": {"type": "string"}, "object": {"type": "string"}},
    "additionalProperties": True,
}
_COMPLETIONS = ("complete_chat", "complete_with_agent", "complete_by_old_path")
_RESPONSES = tuple(f"{what}_response{of}" for what in ("create", "get", "cancel") for of in ("", "_of_agent"))
FILES = frozenset({
    "download_files", "download_attachment", "preview_attachment", "download_document", "download_document_v1",
    "show_artifact", "download_knowledge_bases", "download_document_by_id", "preview_document", "show_chunk_image",
})  # fmt: skip
TEXTS = frozenset({"metrics", "ping"})
STREAMS = frozenset({
    "complete", "complete_by_path", "complete_shared", "run", "stream", "follow_shared_run", *_COMPLETIONS, *_RESPONSES,
    "call",
})  # fmt: skip
HEALTH = ("healthz", "healthz_v1")
BOTH_STYLES = frozenset({"complete", "complete_by_path", "complete_shared", "run", "stream"})
"""Operations whose errors are OpenAI's if the body asks for it."""
PLAIN: Mapping[str, Mapping[str, Any]] = {  # replies that are no envelope
    **dict.fromkeys(("list_models", "list_models_of_agent"), _MODELS),
    **dict.fromkeys(("get_model", "get_model_of_agent"), _MODEL),
    **dict.fromkeys((*_COMPLETIONS, *_RESPONSES), _OPENAI_OBJECT),
    **{name: {"type": "object"} for name in ("alive", "ready", *HEALTH)},
    **{
        f"{method}_{what}": {"description": "What the author's canvas answers"}
        for method in ("get", "post", "put", "patch", "delete")
        for what in ("call_webhook", "test_webhook")
    },
}
EITHER_ERROR = "RagflowOrOpenAIError"
_REASONS = {
    "400": "A field, parameter or document is invalid; the message names it",
    "401": "The token is missing, unknown, revoked or expired",
    "403": "The caller may not do this",
    "404": "It does not exist, or belongs to another tenant",
    "409": "It is in another state, or a key was used for another request",
    "412": "The draft has changed since",
    "413": "The body is too large",
    "428": "`If-Match` is missing",
    "429": "Too many requests, or open streams, of this token",
    "500": "A run has failed, or an internal error with the id of the request",
    "503": "The database or another service does not answer; `Retry-After` says when to try again",
}
_OF_TOKENS = ("401", "403", "429")
_OF_CONDITIONS = ("412", "428")

EXAMPLES: Mapping[str, Any] = {  # bodies, by operation
    "create_agent": {"title": "Support", "dsl": {"components": {}, "graph": {"nodes": [], "edges": []}}},
    "start_run": {"query": "My invoice is wrong.", "user_id": "ada", "budget": {"tokens": 10000}},
    "complete": {"agent_id": "0198c0ffee0198c0ffee0198c0ffee01", "query": "Hello", "stream": False},
    "run": {"query": "Hello"},
    "stream": {"query": "Hello"},
    "create_session": {"name": "Ada's questions", "user_id": "ada"},
    "resume_run": {"inputs": {"name": {"value": "Ada"}}},
    "create_knowledge_bases": {"name": "handbook", "parser_config": {"chunk_token_num": 512}},
    "retrieve": {"question": "How long is the notice period?", "dataset_ids": ["0198c0ffee0198c0ffee0198c0ffee02"]},
    "create_memories": {"name": "facts", "memory_type": ["raw", "semantic"]},
    "complete_chat": {
        "model": "0198c0ffee0198c0ffee0198c0ffee01",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
    },
}


class DescribedApi(FastAPI):
    """An application whose document is made here, once."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = _describe(self)
        return self.openapi_schema


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        servers=[{"url": "/"}],
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    either = [{"$ref": f"#/components/schemas/{name}"} for name in ("RagflowError", "OpenAIError")]
    schemas.update({**ERROR_SCHEMAS, EITHER_ERROR: {"anyOf": either}, "JsonPatch": JSON_PATCH})
    document["components"]["responses"] = {
        f"{name}{status}": {
            "description": reason,
            "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}},
        }
        for name in (*ERROR_SCHEMAS, EITHER_ERROR)
        for status, reason in _REASONS.items()
    }
    document["components"]["securitySchemes"][COOKIE] = {
        "type": "apiKey",
        "in": "cookie",
        "name": "easel",
        "description": "The sign-in of a browser: `POST /api/v1/viewer/session`",
    }
    routes = {key: route for key, route in _routes_of(app).items() if key[0] in document["paths"].get(key[1], {})}
    names = _operation_ids(routes)
    for (method, path), route in routes.items():
        operation = document["paths"][path][method]
        _complete(operation, route, names[method, path])
        _add_reply(operation, names[method, path], _error_of(route), schemas)
        _name_bodies(operation, schemas)
    return document


def _routes_of(app: FastAPI) -> Mapping[_Key, APIRoute]:
    return {
        (method.lower(), str(each.path).replace(":path}", "}")): route
        for each in iter_route_contexts(app.routes)
        if isinstance(route := each.original_route, APIRoute)
        for method in route.methods or ()
    }


def _operation_ids(routes: Mapping[_Key, APIRoute]) -> Mapping[_Key, str]:
    """Return a name for each operation: that of its handler, with as much more as tells it from others of the name."""

    def tag_of(key: _Key) -> str:
        return str(routes[key].tags[0]).lower().replace(" ", "_")

    def last_word(key: _Key) -> str:
        return [part for part in key[1].replace("-", "_").split("/") if part and "{" not in part][-1]

    def own(key: _Key) -> str:
        return str(routes[key].operation_id or routes[key].name)

    spellings: list[Callable[[_Key], str]] = [
        own,
        lambda key: f"{own(key)}_{tag_of(key)}",
        lambda key: f"{key[0]}_{own(key)}",
        lambda key: f"{own(key)}_{last_word(key)}",
        lambda key: f"{key[0]}_{own(key)}_{last_word(key)}",
    ]
    names: dict[_Key, str] = {}
    left = list(routes)
    for spell in spellings:
        counts = Counter([*names.values(), *(spell(key) for key in left)])
        names |= {key: spell(key) for key in left if counts[spell(key)] == 1}
        left = [key for key in left if key not in names]
    assert not left, f"These operations need a name of their own: {left}"
    return names


def _complete(operation: dict[str, Any], route: APIRoute, name: str) -> None:
    """Add what FastAPI does not know of an operation."""
    operation["operationId"] = name
    responses = operation["responses"]
    responses.pop("422", None)
    is_private = "security" in operation
    is_conditional = any(each["name"].lower() == "if-match" for each in operation.get("parameters", ()))
    error = EITHER_ERROR if name in BOTH_STYLES else _error_of(route)
    for status in _REASONS:
        if (status in _OF_TOKENS and not is_private) or (status in _OF_CONDITIONS and not is_conditional):
            continue
        responses.setdefault(status, {"$ref": f"#/components/responses/{error}{status}"})
    operation["responses"] = dict(sorted(responses.items()))
    example = EXAMPLES.get(operation["operationId"])
    for content in _json_contents(operation.get("requestBody", {})):
        if example is not None:
            content["example"] = example


def _add_reply(operation: dict[str, Any], name: str, error: str, schemas: dict[str, Any]) -> None:
    """Describe a good reply that its route does not describe: a file, a stream, RAGFlow's envelope, or any JSON."""
    status, reply = next(((code, each) for code, each in operation["responses"].items() if code[0] == "2"), ("", {}))
    if status == "204" or any(content.get("schema") for content in reply.get("content", {}).values()):
        return
    if name in FILES:
        reply["content"] = {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            JSON: {"schema": {"$ref": "#/components/schemas/RagflowError"}},
        }
        reply["description"] = "The bytes, or with `Range` a part of them"
        operation["responses"].setdefault("206", reply)
        operation["responses"].setdefault("304", {"description": "The client has the file"})
        operation["responses"].setdefault("416", {"description": "The file has no such part"})
    elif name in TEXTS:
        reply["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif error == "RagflowError" and name not in PLAIN:
        reply["content"] = {JSON: {"schema": _envelope(name, schemas)}}
    else:
        reply["content"] = {JSON: {"schema": PLAIN.get(name, {"type": "object", "additionalProperties": True})}}
    if name in HEALTH:
        operation["responses"]["500"] = {"description": "A part does not work", "content": reply["content"]}
    if name in STREAMS:
        reply["content"][EVENT_STREAM] = {"schema": {"type": "string"}}


def _envelope(name: str, schemas: dict[str, Any]) -> Mapping[str, Any]:
    """Return the schema of RAGFlow's envelope. An error that is a 200 has it too: another code, and no data."""
    data: dict[str, Any] = {"description": "Any value; null or absent in an error"}
    if name in DATA:
        made = TypeAdapter(DATA[name]).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(made.pop("$defs", {}))
        if "properties" in made:  # an object with a name of its own
            schemas[made["title"]] = made
            made = {"$ref": f"#/components/schemas/{made['title']}"}
        data = {"anyOf": [made, {"type": "null"}, {"type": "boolean"}]}  # the last two in an error
    return {
        "type": "object",
        "required": ["code"],
        "properties": {
            "code": {"type": "integer", "description": "0, or the code of an error"},
            "message": {"type": "string"},
            "data": data,
            "warnings": {"type": "array", "items": {"type": "string"}, "description": "Fields without effect"},
        },
        "additionalProperties": True,
    }


def _name_bodies(operation: Mapping[str, Any], schemas: dict[str, Any]) -> None:
    """Move the schemas of bodies to those that have names, so that clients have one class for each."""
    for content in _json_contents(operation.get("requestBody", {})):
        schema = content["schema"]
        name = schema.get("title", "").replace(" ", "")
        if name and schemas.setdefault(name, schema) == schema:
            content["schema"] = {"$ref": f"#/components/schemas/{name}"}


def _error_of(route: APIRoute) -> str:
    if isinstance(route, OwnRoute):
        return "EaselError"
    return "OpenAIError" if isinstance(route, OpenAIRoute) else "RagflowError"


def _json_contents(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (content for kind, content in body.get("content", {}).items() if kind == JSON)
