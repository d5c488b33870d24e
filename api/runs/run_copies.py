"""Routes that copy runs: a rerun does everything again, a fork goes on from a chosen step of its source."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import MissingScope
from api.http.replies import json_reply, parse_canvas_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import CALLBACKS, Body
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import OnceByViewer
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_RUN
from api.runs.reply_models import EndedTurnReply, ForkPreviewReply, StartedReply
from api.runs.runs import accepted_reply, get_run_id, wait_seconds
from api.runs.turn import TurnToStart, begin, with_callbacks
from canvas.errors import NotFound
from canvas.ids import RunId, TenantId
from scheduler.lifecycle import run_copies
from scheduler.lifecycle.accept import Start, Started
from scheduler.lifecycle.run_copies import CopyOptions, ForkOptions
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tenants import idempotency
from store.tenants.scopes import TokenScope

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_RUN])

RESUME_ROUTE = "resume_from"  # scope of idempotency keys
VERSION = "same (default), draft, published, or the id of a version"


class RerunBody(Body):
    """What a rerun changes; what is left out is as in the source."""

    version: str = Field(default=run_copies.SAME, description=VERSION)
    query: str | dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None
    files: list[dict[str, Any]] | Literal["keep"] = "keep"
    conversation: Literal["new", "same"] = Field(
        default="new", description="`new` begins where the source began, `same` is the next turn of its conversation"
    )
    answers: Literal["ask", "as_then"] = Field(default="ask", description="What happens at forms")
    on_busy: str = "refuse"
    budget: dict[str, Any] | None = None
    callbacks: list[dict[str, Any]] | None = Field(default=None, description=CALLBACKS, max_length=10)
    name: str = ""


class ForkEdits(Body):
    """What a fork changes."""

    query: str | dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None
    variables: dict[str, Any] = Field(default_factory=dict[str, Any], description="Global variable -> value")
    outputs: dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]],
        description="Step that is taken over -> output -> value; steps are named as in `from`",
    )
    params: dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]], description="Node that runs again -> parameter -> value"
    )


class ForkBody(Body):
    """From where a fork goes on, and what it changes."""

    places: list[str] = Field(
        default_factory=list[str],
        alias="from",
        description="Steps that run again, with all that follows: ids of activations, nodes, or a node with its item, "
        "`LLM:0[3]`. Empty: what has failed or not ended",
        max_length=1000,
    )
    version: str = Field(default=run_copies.SAME, description=VERSION)
    dry_run: bool = Field(default=False, description="Only tell what the fork would do")
    edits: ForkEdits = ForkEdits()
    answers: Literal["ask", "as_then"] = "ask"
    budget: dict[str, Any] | None = None
    callbacks: list[dict[str, Any]] | None = Field(default=None, description=CALLBACKS, max_length=10)
    name: str = ""
    confirm_unsafe: list[str] = Field(
        default_factory=list[str], description="Nodes whose side effects may happen again", max_length=1000
    )

    def options(self, key: tuple[str, str, bytes] | None) -> ForkOptions:
        """Return the options of the fork."""
        copy = CopyOptions(
            version=self.version,
            query=self.edits.query,
            inputs=self.edits.inputs,
            answers=self.answers,
            budget=self.budget,
            name=self.name,
            idempotency=key,
        )
        return ForkOptions(copy, self.places, self.edits.outputs, self.edits.variables, self.edits.params)


@router.post(
    "/runs/{run_id}/rerun",
    status_code=202,
    response_model=StartedReply,
    responses={200: {"model": EndedTurnReply}},
    openapi_extra=body_openapi(RerunBody),
)
async def rerun(
    request: Request, context: ApiContextDep, principal: Viewer, run_id: str, body: SmallBody, once: OnceByViewer
) -> Response:
    """Do all of a run again, with the same request or an edited one: 202. `Prefer: wait=n` works as for a start."""
    fields = parse_body(RerunBody, body)
    options = CopyOptions(
        version=fields.version,
        query=fields.query,
        inputs=fields.inputs,
        files=None if fields.files == "keep" else fields.files,
        answers=fields.answers,
        budget=fields.budget,
        name=fields.name,
        in_conversation=fields.conversation == "same",
        on_busy=fields.on_busy,
        idempotency=once.run_key,
    )

    def plan(tx: Transaction, source: RunId) -> Start:
        return run_copies.plan_rerun(tx, context.versions, principal.tenant_id, source, options, RunId(new_id()))

    return await _start(request, context, principal, run_id, options.idempotency, plan, fields.callbacks)


@router.post(
    "/runs/{run_id}/fork",
    status_code=202,
    response_model=StartedReply,
    responses={200: {"model": ForkPreviewReply | EndedTurnReply}},
    openapi_extra=body_openapi(ForkBody),
)
async def fork(
    request: Request, context: ApiContextDep, principal: Viewer, run_id: str, body: SmallBody, once: OnceByViewer
) -> Response:
    """Go on from any step of a run: what lies before is taken over, what follows runs again. 202 as for a start.

    With `dry_run` 200: what would be taken over and what would run again, and what that has cost in the source. 409
    `needs_confirmation` lists nodes whose side effects may happen again.
    """
    fields = parse_body(ForkBody, body)
    if fields.edits.params and not principal.has(TokenScope.EDIT):
        raise MissingScope("To run nodes with other parameters needs the scope `edit`. Leave out `edits.params`.")
    options = fields.options(once.run_key)
    if fields.dry_run:
        planned = await run_in_thread(lambda: _preview(context, principal, run_id, options))
        return json_reply(planned)

    def plan(tx: Transaction, source: RunId) -> Start:
        return plan_confirmed(tx, context, principal.tenant_id, source, options, fields.confirm_unsafe)

    return await _start(request, context, principal, run_id, once.run_key, plan, fields.callbacks)


def plan_confirmed(
    tx: Transaction,
    context: ApiContext,
    tenant_id: TenantId,
    source: RunId,
    options: ForkOptions,
    confirmed: list[str],
) -> Start:
    """Return the start of a fork. Raises NeedsConfirmation for side effects that are not confirmed."""
    planned = run_copies.plan_fork(
        tx, context.versions, tenant_id, source, options, RunId(new_id()), context.canvas_secrets
    )
    run_copies.require_confirmation(planned, confirmed)
    return planned.start


def plan_from_failure(
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    source: str,
    options: ForkOptions,
    confirmed: list[str],
    key: str | None,
) -> Start | Started:
    """Return the start of a fork that goes on where a run of this agent has failed, or that of an earlier request.

    Raises NotFound for a run of another agent.
    """
    run_id = get_run_id(context, principal, source)
    digest = hashlib.sha256(json.dumps([agent_id, run_id.hex, sorted(confirmed)]).encode()).digest()
    run_key = (RESUME_ROUTE, key, digest) if key is not None else None
    with context.database.transaction() as tx:
        first = idempotency.find(tx, principal.tenant_id, *run_key) if run_key is not None else None
        started = Started.from_first(first) if first is not None else None
        if started is not None:
            return started
        keyed = replace(options, copy=replace(options.copy, idempotency=run_key))
        start = plan_confirmed(tx, context, principal.tenant_id, run_id, keyed, confirmed)
        if start.canvas_id != parse_canvas_id(agent_id):
            raise NotFound(f"This agent has no run {source[:64]}.")
        return replace(start, by=principal.actor)


def _preview(context: ApiContext, principal: RequestPrincipal, run_id: str, options: ForkOptions) -> Mapping[str, Any]:
    source = get_run_id(context, principal, run_id)
    return run_copies.preview(
        context.database,
        context.versions,
        lambda tx: principal.tenant_id,
        lambda tx, tenant_id: source,
        options,
        context.canvas_secrets,
    )


async def _start(
    request: Request,
    context: ApiContext,
    principal: RequestPrincipal,
    run_id: str,
    key: tuple[str, str, bytes] | None,
    plan: Callable[[Transaction, RunId], Start],
    callbacks: Sequence[Any] | None,
) -> Response:
    """Start a copy of a run; a repeated request follows the first one's run."""
    seconds = wait_seconds(request)

    def choose() -> TurnToStart:
        source = get_run_id(context, principal, run_id)
        with context.database.transaction() as tx:
            first = idempotency.find(tx, principal.tenant_id, *key) if key is not None else None
            started = Started.from_first(first) if first is not None else None
            planned = started or replace(plan(tx, source), by=principal.actor)
        return with_callbacks(context, principal.tenant_id, planned, callbacks)

    talk = await begin(context, principal.tenant_id, await run_in_thread(choose), token_id=principal.token_id)
    return await accepted_reply(request, talk, seconds)
