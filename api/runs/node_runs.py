"""The route that runs one node of a draft alone, with given inputs, and returns its outputs."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from api.agents.agents import get_caller_canvas
from api.findings import parse_document
from api.http.errors import ARGUMENT, RequestRefused, not_found
from api.http.replies import success
from api.http.schemas import Body
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import IdempotentRequest, OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_RUN
from api.runs.runs import wait_seconds
from api.runs.turn import TurnResult, begin, follow, gather, id_headers
from canvas.document.single_node import NodeInputs, nodes_alone
from canvas.ids import RunId
from canvas.state.run_state import RunStatus
from components import node_inputs, registry
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle import node_runs
from scheduler.lifecycle.accept import RunNotWaiting, Start, Started
from scheduler.views.node_result import NodeResult, read_node_result
from store.primitives.ids import new_id
from store.tenants import idempotency

router = APIRouter(tags=["agents"], dependencies=[NEEDS_RUN])


class DebugBody(Body):
    """The inputs of a node, by the names of its input form, and the limits of its run."""

    params: dict[str, Any] = Field(
        description="Name -> {value}: of the input form, or NODE@OUTPUT, sys.X, env.X", max_length=1000
    )
    budget: dict[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        """Return the values by name. Raises RequestRefused for an input without a value."""
        for name, given in self.params.items():
            if not isinstance(given, Mapping) or "value" not in given:
                raise RequestRefused(ARGUMENT, f"`params.{name[:64]}.value` is required.")
        return {name: given["value"] for name, given in self.params.items()}


@dataclass(frozen=True, slots=True)
class PlannedNodeRun:
    """A run of one node that is to start, or that an earlier request with the same key has started."""

    turn: Start | Started
    inputs: NodeInputs
    nodes: frozenset[str]  # the node and, for a container, its body


@router.post("/agents/{agent_id}/components/{component_id}/debug", openapi_extra=body_openapi(DebugBody))
async def debug_node(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    component_id: str,
    body: SmallBody,
    once: OnceByBody,
) -> Response:
    """Run one node of the draft alone with given inputs, and return its outputs, also if it fails (`_ERROR`).

    The node acts for real. With `Prefer: wait=n`, what there is after that time.
    """
    fields = parse_body(DebugBody, body)
    values = fields.values()
    planned = await run_in_thread(
        lambda: plan_node(context, principal, agent_id, component_id, values, once, budget=fields.budget)
    )
    talk = await begin(context, principal.tenant_id, planned.turn, token_id=principal.token_id)
    run_id = talk.started.run_id

    def read() -> NodeResult:
        with context.database.statements() as tx:  # large values are read from the storage in between
            return read_node_result(
                tx, context.versions, principal.tenant_id, run_id, component_id, registry.default_outputs
            )

    turns: list[TurnResult] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_seconds(request) or None):
            turns.append(await gather(talk, request))
            if planned.inputs.answers and (await run_in_thread(read)).status is RunStatus.WAITING:
                answered = await follow(
                    context,
                    principal.tenant_id,
                    run_id,
                    lambda: _answer(context, principal, talk.started, planned.inputs.answers or {}),
                    token_id=principal.token_id,
                )
                turns.append(await gather(answered, request))
    ended = await run_in_thread(read)
    trace = [entry for turn in turns for entry in turn.trace if entry["component_id"] in planned.nodes]
    warnings = {"warnings": list(planned.inputs.warnings)} if planned.inputs.warnings else {}
    reply = success(ended.outputs, **ended.to_json(), trace=trace, **warnings)
    reply.headers.update(id_headers(talk))
    return reply


def plan_node(
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    component_id: str,
    values: Mapping[str, Any],
    once: IdempotentRequest,
    *,
    budget: Mapping[str, Any] | None = None,
) -> PlannedNodeRun:
    """Return the run of one node of the draft with these values, or that of an earlier request with the same key.

    Raises RequestRefused for an unknown agent or node, InvalidRequest for values that the node does not read.
    """
    key = once.run_key
    with context.database.transaction() as tx:
        stored = get_caller_canvas(tx, principal, agent_id)
        document = parse_document(stored.draft, context.max_canvas_bytes)
        if component_id not in document.entries:
            raise not_found(f"component not found: {component_id[:128]}")
        inputs = node_inputs.place_inputs(document, component_id, values)
        nodes = frozenset(nodes_alone(document, component_id))
        first = idempotency.find(tx, principal.tenant_id, *key) if key is not None else None
        started = Started.from_first(first) if first is not None else None
        if started is not None:
            return PlannedNodeRun(started, inputs, nodes)
        start = node_runs.plan_node_run(
            tx,
            principal.tenant_id,
            stored.id,
            document,
            component_id,
            inputs,
            RunId(new_id()),
            title=stored.title,
            user_id=principal.user_id,
            budget=budget,
            idempotency=key,
        )
        context.checked_versions.check(tx, context.versions, start.version_id)
    return PlannedNodeRun(start, inputs, nodes)


def _answer(context: ApiContext, principal: RequestPrincipal, started: Started, answers: Mapping[str, Any]) -> Started:
    """Answer the form of the run with the given inputs, unless a repeat of the request has done so."""
    request = RunRequest(inputs=answers, user_id=principal.user_id)
    try:
        return context.lifecycle.resume_run(principal.tenant_id, started.run_id, request)
    except RunNotWaiting:
        return started
