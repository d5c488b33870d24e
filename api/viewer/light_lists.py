"""Agents and conversations for pages that list them: without documents, with their latest run."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.agents.session_wire import prologue_of
from api.findings import draft_findings, findings_json
from api.http.query_values import parse_position
from api.http.replies import id_or_unused, json_reply, parse_canvas_id, parse_session_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ, OF_ONE_AGENT
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import CanvasId
from components.nodes.flow import form_fields
from components.nodes.flow.begin import MODES
from scheduler.views.json_values import hex_of, iso, milliseconds
from scheduler.views.value_previews import preview, values_json
from store.agents import agent_overviews, canvases, conversations, versions
from store.agents.agent_overviews import AgentOverview, BriefMessage, ConversationOverview
from store.runs.activation_details import StoredValues

router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_READ])

Limit = Annotated[int, Query(ge=1, le=100)]
MAX_WORDS_LENGTH = 200  # characters of `q`
_LAST = 2**31 - 1


class AgentRow(BaseModel):
    """An agent of a list; runs of the last day are counted up to 10,000."""

    id: str
    title: str
    tags: list[str]
    description: str | None
    updated_at: str
    published: bool
    last_run: dict[str, Any] | None
    runs_24h: int
    failed_24h: int


class AgentListReply(BaseModel):
    """A page of agents, the last changed first."""

    agents: list[AgentRow]
    next: str | None = Field(description="The `after` of the next page; null on the last")


class AgentHeadReply(BaseModel):
    """An agent without its document."""

    id: str
    title: str
    tags: list[str]
    description: str | None
    avatar: str | None
    updated_at: str
    published: bool
    draft_digest: str
    begin: dict[str, Any]
    findings: list[dict[str, Any]]


class ConversationRow(BaseModel):
    """A conversation of a list."""

    id: str
    agent_id: str
    agent_title: str | None
    name: str
    user_id: str
    source: str
    messages: int
    rounds: int
    active_run: str | None
    last_run: str | None
    error: str | None
    created_at: str
    updated_at: str


class ConversationListReply(BaseModel):
    """A page of conversations, the last changed first."""

    conversations: list[ConversationRow]
    next: str | None = Field(description="The `before` of the next page; null on the last")


class MessageRow(BaseModel):
    """A message. An assistant's `content` has the outputs of the node that answered, large ones as previews."""

    number: int
    role: str
    content: Any
    run_id: str | None
    activation_id: str | None
    node_id: str | None
    created_at: int


class ConversationMessagesReply(BaseModel):
    """The last messages of a conversation, in order."""

    id: str
    agent_id: str
    name: str
    messages: list[MessageRow]
    next: int | None = Field(description="The `before` of the messages before these; null for the first ones")


@router.get(
    "/viewer/agents", operation_id="list_viewer_agents", response_model=AgentListReply, dependencies=[OF_ONE_AGENT]
)
def list_agents(
    context: ApiContextDep, principal: Viewer, q: str = "", tag: str = "", after: str = "", limit: Limit = 30
) -> Response:
    """List agents, the last changed first; `q` is a part of title or description."""
    with context.database.transaction() as tx:
        found, has_more = agent_overviews.list_agents(
            tx,
            principal.tenant_id,
            canvas_id=principal.agent,
            words=_words(q),
            tag=tag,
            after=parse_position("after", after),
            limit=limit,
        )
    return json_reply({"agents": [_agent_row(each) for each in found], "next": found[-1].id.hex if has_more else None})


@router.get("/viewer/agents/{agent_id}", response_model=AgentHeadReply)
def get_agent_head(context: ApiContextDep, principal: Viewer, agent_id: str) -> Response:
    """Get an agent without its document: the form of its Begin, and what validation finds in its draft."""
    canvas_id = parse_canvas_id(agent_id)
    if canvas_id is None:
        raise _agent_not_found(agent_id)
    with context.database.transaction() as tx:
        try:
            stored = canvases.get(tx, principal.tenant_id, canvas_id)
        except NotFound:
            raise _agent_not_found(agent_id) from None
    document, findings = draft_findings(stored.draft, context.max_canvas_bytes)
    params = document.begin_params if document is not None else {}
    return json_reply(
        {
            "id": stored.id.hex,
            "title": stored.title,
            "tags": _tags(stored.tags),
            "description": stored.description,
            "avatar": stored.avatar,
            "updated_at": iso(stored.updated_at),
            "published": stored.published_at is not None,
            "draft_digest": versions.digest_of(stored.draft).hex(),
            "begin": {
                "inputs": form_fields.fields_of(params.get("inputs")),
                "prologue": prologue_of(document) if document is not None else "",
                "mode": params.get("mode") or MODES[0],
            },
            "findings": findings_json(findings),
        }
    )


@router.get("/viewer/conversations", response_model=ConversationListReply, dependencies=[OF_ONE_AGENT])
def list_conversations(
    context: ApiContextDep,
    principal: Viewer,
    agent_id: str = "",
    q: str = "",
    before: str = "",
    limit: Limit = 30,
) -> Response:
    """List conversations, the last changed first; `q` is a part of the name."""
    with context.database.transaction() as tx:
        found, has_more = agent_overviews.list_conversations(
            tx,
            principal.tenant_id,
            canvas_id=principal.chosen_agent(CanvasId(id_or_unused(agent_id)) if agent_id else None),
            words=_words(q),
            before=parse_position("before", before),
            limit=limit,
        )
    shown = [_conversation_row(each) for each in found]
    return json_reply({"conversations": shown, "next": found[-1].id.hex if has_more else None})


@router.get("/viewer/conversations/{session_id}", response_model=ConversationMessagesReply, dependencies=[OF_ONE_AGENT])
def get_messages(
    context: ApiContextDep,
    principal: Viewer,
    session_id: str,
    before: Annotated[int, Query(ge=1, le=_LAST)] = _LAST,
    limit: Limit = 50,
) -> Response:
    """Get the last messages of a conversation, or those before a message number."""
    conversation_id = parse_session_id(session_id)
    if conversation_id is None:
        raise NotFound("Session not found!")
    with context.database.transaction() as tx:
        conversation = conversations.get(tx, principal.tenant_id, conversation_id, principal.agent)
        found, has_more = agent_overviews.read_messages(
            tx, principal.tenant_id, conversation_id, before=before, limit=limit
        )
    return json_reply(
        {
            "id": conversation.id.hex,
            "agent_id": conversation.canvas_id.hex,
            "name": conversation.name,
            "messages": [_message_row(each) for each in found],
            "next": found[0].number if has_more else None,
        }
    )


def _agent_row(agent: AgentOverview) -> dict[str, Any]:
    last = {"status": agent.run_status, "created_at": iso(agent.run_created_at)}
    return {
        "id": agent.id.hex,
        "title": agent.title,
        "tags": _tags(agent.tags),
        "description": agent.description,
        "updated_at": iso(agent.updated_at),
        "published": agent.is_published,
        "last_run": {"id": agent.run_id.hex, **last} if agent.run_id is not None else None,
        "runs_24h": agent.recent_runs,
        "failed_24h": agent.recent_failed,
    }


def _conversation_row(conversation: ConversationOverview) -> dict[str, Any]:
    return {
        "id": conversation.id.hex,
        "agent_id": conversation.canvas_id.hex,
        "agent_title": conversation.agent_title,
        "name": conversation.name,
        "user_id": conversation.user_id,
        "source": conversation.source,
        "messages": conversation.messages,
        "rounds": conversation.rounds,
        "active_run": hex_of(conversation.active_run),
        "last_run": hex_of(conversation.last_run),
        "error": conversation.error or None,
        "created_at": iso(conversation.created_at),
        "updated_at": iso(conversation.updated_at),
    }


def _message_row(message: BriefMessage) -> dict[str, Any]:
    outputs = message.outputs
    stored: dict[str, Any] = (message.large or {}).get("outputs") or {}
    files = {name: file for name, file in stored.items() if (outputs or {}).get(name) is None}
    content = preview(message.content) if outputs is None else values_json(StoredValues(outputs, files))
    return {
        "number": message.number,
        "role": message.role,
        "content": content,
        "run_id": hex_of(message.run_id),
        "activation_id": hex_of(message.activation_id),
        "node_id": message.node_id,
        "created_at": milliseconds(message.created_at),
    }


def _tags(written: str) -> list[str]:
    return [tag for tag in written.split(",") if tag]


def _words(written: str) -> str:
    if len(written) > MAX_WORDS_LENGTH:
        raise InvalidRequest(f'"q" may have {MAX_WORDS_LENGTH} characters at most.', field="q")
    return written


def _agent_not_found(agent_id: str) -> NotFound:
    return NotFound(f"There is no agent {agent_id[:64]}.")
