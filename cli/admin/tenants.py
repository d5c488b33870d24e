"""Tenants and their API tokens: `easel tokens`."""

from typing import Annotated

import typer

from cli.agents import agents
from cli.runs.inputs import parse_duration, parse_id
from cli.shell import output
from cli.shell.connection import find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from cli.shell.output import YELLOW
from store.tenants import tenants

tokens = typer.Typer(help="API tokens: create, list, bind, revoke.", no_args_is_help=True)

OfAgent = Annotated[
    str | None, typer.Option("--agent", help="The agent that a share link opens, by id or title.", metavar="AGENT")
]
Expires = Annotated[str | None, typer.Option(help="Refuse the token after this time: 30d, 12h, 90m.", metavar="TIME")]


@tokens.command()
def create(
    tenant: OfTenant = LOCAL_TENANT,
    name: Annotated[str, typer.Option(help="Purpose of the token.", metavar="TEXT")] = "command line",
    kind: Annotated[
        str, typer.Option(help="`api`, `admin`, `viewer` to read only, or `beta` for share links.", metavar="KIND")
    ] = "api",
    agent: OfAgent = None,
    expires: Expires = None,
    may_share: Annotated[
        bool, typer.Option("--may-share", help="An `api` token may share single runs; `admin` tokens may anyway.")
    ] = False,
    add_tenant: Annotated[bool, typer.Option("--add-tenant", help="Add the tenant if it does not exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It cannot be shown again: only its hash is stored."""
    if kind not in tenants.KINDS:
        known = ", ".join(tenants.KINDS)
        raise typer.BadParameter(f"{kind!r} is not a kind of token. Use one of: {known}.", param_hint="--kind")
    if (kind == tenants.SHARE_LINK) != (agent is not None):
        raise typer.BadParameter(
            "A share link (--kind beta) opens one agent; other kinds open all.", param_hint="--agent"
        )
    if may_share and kind != "api":
        raise typer.BadParameter(
            "The right to share is for tokens of kind `api`; `admin` tokens have it.", param_hint="--may-share"
        )
    expires_in = parse_duration(expires, "--expires") if expires is not None else None
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, tenant) if add_tenant else find_tenant_id(tx, tenant)
        opens = agents.find(tx, tenant_id, agent) if agent is not None else None
        canvas_id = opens.id if opens is not None else None
        token_id, plain = tenants.create_token(
            tx, tenant_id, name, kind, canvas_id=canvas_id, expires_in=expires_in, may_share=may_share
        )
    if as_json:
        made = {"id": token_id.hex, "tenant_id": tenant_id.hex, "name": name, "kind": kind, "token": plain}
        output.print_json({**made, "agent_id": canvas_id.hex} if canvas_id is not None else made)
    else:
        output.print_line(plain)
        output.print_message(f'Token {token_id.hex} of tenant "{tenant}". It is not shown again.')
    if opens is not None and opens.published_at is None:
        output.print_message(
            f'Agent "{opens.title}" has no published version yet, so the link does not work. Run `easel publish`.',
            YELLOW,
        )


@tokens.command("list")
def list_tokens(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List a tenant's tokens, revoked ones included."""
    with open_connection() as connection, connection.database.transaction() as tx:
        found = tenants.list_tokens(tx, find_tenant_id(tx, tenant))
    rows = [
        {
            "id": token.id.hex,
            "name": token.name,
            "kind": token.kind,
            "agent": token.canvas_id.hex if token.canvas_id is not None else None,
            "may_share": token.may_share or token.kind == "admin",
            "created": token.created_at,
            "last_used": token.last_used_at,
            "expires": token.expires_at,
            "revoked": token.revoked_at,
        }
        for token in found
    ]
    columns = ("id", "name", "kind", "agent", "may_share", "created", "last_used", "expires", "revoked")
    output.print_table(rows, columns, as_json=as_json, empty="There are no tokens. `easel tokens create` adds one.")


@tokens.command()
def bind(
    token: Annotated[str, typer.Argument(help="The share link's id.")],
    agent: Annotated[str, typer.Option(help="The agent that it opens, by id or title.", metavar="AGENT")],
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Set or change the agent that a share link opens."""
    token_id = parse_id(token, "token")
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = agents.find(tx, tenant_id, agent)
        tenants.bind_token(tx, tenant_id, token_id, found.id)
    output.print_message(f'Share link {token_id.hex} opens "{found.title}" from now on.')


@tokens.command()
def revoke(token: Annotated[str, typer.Argument(help="The token's id.")], tenant: OfTenant = LOCAL_TENANT) -> None:
    """Revoke a token: it is refused from now on."""
    token_id = parse_id(token, "token")
    with open_connection() as connection, connection.database.transaction() as tx:
        tenants.revoke_token(tx, find_tenant_id(tx, tenant), token_id)
    output.print_message(f"Token {token_id.hex} is refused from now on.")
