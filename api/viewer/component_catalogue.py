"""Routes from which the editor makes its palette and forms: components with JSON Schemas, and choices of a tenant."""

import hashlib
from functools import lru_cache
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.findings import own_accounts
from api.http.replies import json_reply, large_json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ, OF_ONE_AGENT
from canvas.errors import InvalidRequest
from components import registry
from components.forms.catalogue import catalogue
from providers.models.chat.catalogue import BUILTIN_FACTORY
from providers.models.vendors.accounts import VendorAccount
from store.db.transaction import Transaction
from store.knowledge import bases, memories
from store.mcp import servers
from store.primitives.json_codec import encode

router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_READ])

MAX_CHOICES = 100
MAX_SEARCHED = 1000  # knowledge bases among which `q` is searched
MAX_WORDS_LENGTH = 200
_ALL_TYPES = sum(memories.TYPES.values())


class ComponentsReply(BaseModel):
    """Components and tools with JSON Schemas of their forms; the same for all tenants."""

    build: str
    groups: list[dict[str, Any]]
    components: list[dict[str, Any]]
    tools: list[dict[str, Any]]


class Choice(BaseModel):
    """A value that a field may have, and how to show it."""

    value: str
    label: str
    details: dict[str, Any]


class ChoicesReply(BaseModel):
    """The values that a tenant has. `more`: not all are listed, so search with `q`."""

    choices: list[Choice] = Field(max_length=MAX_CHOICES)
    more: bool


@router.get("/components", response_model=ComponentsReply, dependencies=[OF_ONE_AGENT])
def list_components(request: Request, principal: Viewer) -> Response:
    """List the components and tools of this server, each with the JSON Schema of its form as the editor writes it."""
    body, tag = _catalogue(
        len(registry.COMPONENTS), request.app.version
    )  # plugins are registered before the first request
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=304, headers=headers)
    return large_json_reply(request, body, headers)


@lru_cache(maxsize=2)
def _catalogue(_number: int, build: str) -> tuple[dict[str, Any], str]:
    body = {"build": build, **catalogue()}
    return body, f'"{hashlib.sha256(encode(body).encode()).hexdigest()[:32]}"'


@router.get("/viewer/choices", response_model=ChoicesReply)
def list_choices(
    context: ApiContextDep,
    principal: Viewer,
    kind: Literal["model", "knowledge_base", "memory", "mcp", "tool"],
    q: str = "",
) -> Response:
    """List what the tenant may choose for a field: models, knowledge bases, memories, MCP servers or tools."""
    if len(q) > MAX_WORDS_LENGTH:
        raise InvalidRequest(f"`q` may have {MAX_WORDS_LENGTH} characters at most.", field="q")
    with context.database.transaction() as tx:
        found, is_cut = _find_choices(tx, context, principal, kind, q)
    words = q.lower()
    matching = [each for each in found if words in each.label.lower() or words in each.value.lower()]
    shown = [each.model_dump() for each in matching[:MAX_CHOICES]]
    return json_reply({"choices": shown, "more": is_cut or len(matching) > MAX_CHOICES})


def _find_choices(
    tx: Transaction, context: ApiContext, principal: RequestPrincipal, kind: str, q: str
) -> tuple[list[Choice], bool]:
    """Return choices of a kind, and whether there are more. Those whose name has no `q` may be among them."""
    tenant_id = principal.tenant_id
    match kind:
        case "model":
            return _models([*own_accounts(tx, tenant_id), *context.shared_accounts]), False
        case "knowledge_base":
            found, total = bases.page(tx, tenant_id, most=MAX_SEARCHED)
            details = [{"documents": each.documents, "language": each.language} for each in found]
            return _choices_of(found, details), total > len(found)
        case "memory":
            found, total = memories.page(tx, tenant_id, keywords=q, types=_ALL_TYPES, most=MAX_CHOICES)
            return _choices_of(found, [{"description": each.description} for each in found]), total > len(found)
        case "mcp":
            rows = servers.list_servers(tx, tenant_id, context.encryption_key, q)
            listed = [
                Choice(
                    value=each.id.hex,
                    label=each.fields.name,
                    details={"description": each.fields.description, "server_type": each.fields.server_type},
                )
                for each in rows
            ]
            return listed, False
        case _:
            tools = _catalogue(len(registry.COMPONENTS), "")[0]["tools"]
            return [
                Choice(value=each["name"], label=each["title"], details={"description": each["description"]})
                for each in tools
            ], False


def _models(accounts: list[VendorAccount]) -> list[Choice]:
    """Return the models that accounts name, and the built-in one; values are those of `llm_id`."""
    found = {
        f"echo@{BUILTIN_FACTORY}": Choice(
            value=f"echo@{BUILTIN_FACTORY}", label="echo", details={"vendor": BUILTIN_FACTORY, "kinds": ["chat"]}
        )
    }
    for account in accounts:
        if account.status != "active":
            continue
        for name, model in account.models.items():
            if model.status == "active":
                place = account.factory if account.instance == "default" else f"{account.instance}@{account.factory}"
                details = {"vendor": account.factory, "instance": account.instance, "kinds": sorted(model.kinds)}
                value = f"{name}@{place}"
                found.setdefault(value, Choice(value=value, label=name, details=details))
    return list(found.values())


def _choices_of(found: Any, details: list[dict[str, Any]]) -> list[Choice]:
    return [Choice(value=each.id.hex, label=each.name, details=more) for each, more in zip(found, details, strict=True)]
