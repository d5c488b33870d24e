"""Routes that list the versions of an agent and show their documents, to read."""

from datetime import timedelta
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.query_values import parse_number
from api.http.replies import json_reply, parse_canvas_id, parse_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.viewer.reply_models import VersionListReply, VersionReply
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import VersionId
from scheduler.views.json_values import iso, milliseconds
from store.agents import canvases, version_list, versions
from store.agents.canvases import StoredCanvas
from store.agents.version_list import MAX_COUNTED_RUNS, MAX_VERSIONS, ListedVersion
from store.agents.version_titles import chosen_title
from store.db.transaction import Transaction
from store.monitoring import server_info

router = APIRouter(
    prefix="/viewer/agents/{agent_id}/versions", tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_READ]
)

DRAFT = "draft"
RECENT = timedelta(days=30)


@router.get("", operation_id="list_viewer_versions", response_model=VersionListReply)
def list_versions(
    context: ApiContextDep,
    principal: Viewer,
    agent_id: str,
    before: str = "",
    limit: str = "50",
) -> Response:
    """List an agent's versions without their documents, the newest first.

    `next` is the `before` of the next page; null on the last one.
    """
    size = parse_number("limit", limit, MAX_VERSIONS)
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        canvas = get_canvas(tx, principal, agent_id)
        first = _parse_before(tx, canvas, before) if before else None
        found = version_list.page(tx, principal.tenant_id, canvas.id, since=now - RECENT, before=first, limit=size + 1)
    shown = [version_json(version) for version in found[:size]]
    following = shown[-1]["id"] if len(found) > size else None
    return json_reply({"now": milliseconds(now), "versions": shown, "next": following})


@router.get("/{version_id}", operation_id="get_viewer_version", response_model=VersionReply)
def get_version(context: ApiContextDep, principal: Viewer, agent_id: str, version_id: str) -> Response:
    """Get a version with its document, or with `draft` the agent's draft. Secrets are masked."""
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        canvas = get_canvas(tx, principal, agent_id)
        if version_id == DRAFT:
            return json_reply({"now": milliseconds(now), **_draft_json(context, canvas)})
        parsed = parse_id(version_id)
        found = None
        if parsed is not None:
            found = version_list.find(tx, principal.tenant_id, canvas.id, VersionId(parsed), since=now - RECENT)
        if found is None:
            raise NotFound(f"The agent has no version {version_id[:64]}.")
        stored = versions.lock_by_id(tx, principal.tenant_id, canvas.id, found.id)
    document = context.canvas_secrets(principal.tenant_id, canvas.id).mask_document(stored.dsl)
    return json_reply({"now": milliseconds(now), **version_json(found), "document": document})


def get_canvas(tx: Transaction, principal: RequestPrincipal, agent_id: str, *, locked: bool = False) -> StoredCanvas:
    """Return an agent of the caller's tenant, locked if it is to be changed. Raises NotFound."""
    canvas_id = parse_canvas_id(agent_id)
    try:
        if canvas_id is not None:
            return (canvases.lock if locked else canvases.get)(tx, principal.tenant_id, canvas_id)
    except NotFound:
        pass
    raise NotFound(f"There is no agent {agent_id[:64]}.")


def _parse_before(tx: Transaction, canvas: StoredCanvas, text: str) -> VersionId:
    parsed = parse_id(text)
    if parsed is None or not version_list.is_stored(tx, canvas.tenant_id, canvas.id, VersionId(parsed)):
        raise InvalidRequest(
            f"`before` is {text[:64]!r}, which is not a version of this agent. Use `next` of the page before, or begin "
            "again without it.",
            field="before",
        )
    return VersionId(parsed)


def version_json(version: ListedVersion) -> dict[str, Any]:
    """Return a version as lists show it."""
    return {
        "id": version.id.hex,
        "number": version.number,
        "title": chosen_title(version.title),
        "description": version.description,
        "published": version.released,
        "digest": version.digest.hex(),
        "same_as_draft": version.is_like_draft,
        "created_at": iso(version.created_at),
        "runs_30d": min(version.recent_runs, MAX_COUNTED_RUNS),
        "runs_30d_is_capped": version.recent_runs > MAX_COUNTED_RUNS,
    }


def _draft_json(context: ApiContext, canvas: StoredCanvas) -> dict[str, Any]:
    """Return the draft in the shape of a version, without what only a version has."""
    return {
        "id": DRAFT,
        "title": canvas.title,
        "description": canvas.description,
        "published": False,
        "digest": versions.digest_of(canvas.draft).hex(),
        "same_as_draft": True,
        "updated_at": iso(canvas.updated_at),
        "document": context.canvas_secrets(canvas.tenant_id, canvas.id).mask_document(canvas.draft),
    }
