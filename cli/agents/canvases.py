"""Agents and their canvases: `easel import`, `export`, `publish`, `agents`."""

from typing import Annotated

import typer

from canvas.document import drawing, parsing
from cli.agents import agents as named
from cli.agents import canvas_file, drafts
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, CanvasFile, OfTenant
from settings import load
from store.agents import canvas_list, canvases, versions
from store.tenants import audit
from store.tenants.audit import Action

Agent = Annotated[str, typer.Argument(help="The agent's id or title.", metavar="AGENT")]


def import_file(
    file: CanvasFile,
    title: Annotated[
        str | None, typer.Option(help="Title of the agent; by default the file's name.", metavar="TEXT")
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="Publish the canvas as well.")] = False,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Store a canvas as an agent's draft and print the agent's id. An agent with that title gets a new draft."""
    judged = canvas_file.load_runnable(file, load().max_canvas_bytes)
    name = (title or canvas_file.title_of(file)).strip()
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        agent_id, is_new = drafts.save_draft(tx, tenant_id, name, judged.dsl)
        version = canvases.publish(tx, tenant_id, agent_id) if publish else None
        if version is not None:
            details = {"version_id": version.id.hex}
            audit.record(tx, tenant_id, find_actor(), Action.AGENT_PUBLISHED, agent_id, details)
    if as_json:
        output.print_json(
            {"id": agent_id.hex, "title": name, "version": version.id.hex if version else None, "new": is_new}
        )
        return
    output.print_line(agent_id.hex)
    published = f", published as version {version.id.hex}" if version else ""
    output.print_message(f'Agent "{name}" {"added" if is_new else "changed"}{published}.')


def export(
    agent: Agent,
    release: Annotated[
        bool, typer.Option("--release", help="Print the published version instead of the draft.")
    ] = False,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Print keys and passwords instead of masks.")
    ] = False,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Print an agent's canvas as JSON that `easel import` and RAGFlow's editor read. A missing drawing is added."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = named.find(tx, tenant_id, agent)
        if release:
            stored = versions.lock_latest_released(tx, tenant_id, found.id).dsl
        else:
            stored = canvases.get(tx, tenant_id, found.id).draft
    secrets = drafts.canvas_secrets_of(tenant_id, found.id)
    shown = secrets.open_document(stored) if with_secrets else secrets.mask_document(stored)
    output.print_document(drawing.with_drawing(parsing.dump(parsing.parse(shown, max_bytes=parsing.MAX_BYTES))))


def publish(agent: Agent, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Publish an agent's draft and print the id of the version."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = named.find(tx, tenant_id, agent)
        draft = canvases.get(tx, tenant_id, found.id).draft
        canvas_file.require_runnable(f'Agent "{found.title}"', draft)
        version = canvases.publish(tx, tenant_id, found.id)
        details = {"version_id": version.id.hex}
        audit.record(tx, tenant_id, find_actor(), Action.AGENT_PUBLISHED, found.id, details)
    if as_json:
        output.print_json({"id": found.id.hex, "title": found.title, "version": version.id.hex})
    else:
        output.print_line(version.id.hex)
        output.print_message(f'Agent "{found.title}" is published.')


def agents(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List the agents, the latest changed first."""
    with open_connection() as connection, connection.database.transaction() as tx:
        found, _ = canvas_list.page(
            tx, find_tenant_id(tx, tenant), canvas_list.CanvasFilter(), order_by="update_time", limit=1000
        )
    rows = [
        {"id": agent.id.hex, "title": agent.title, "changed": agent.updated_at, "published": agent.published_at}
        for agent in found
    ]
    columns = ("id", "title", "changed", "published")
    output.print_table(rows, columns, as_json=as_json, empty="There are no agents. `easel import FILE` adds one.")
