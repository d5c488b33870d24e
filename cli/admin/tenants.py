"""Tenants and their API tokens: `easel tokens`."""

from typing import Annotated

import typer

from cli.agents import agents
from cli.runs.inputs import parse_duration, parse_id
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from cli.shell.output import YELLOW
from store.tenants import audit, tenants
from store.tenants.audit import Action
from store.tenants.scopes import KINDS, TokenScope, in_order, kind_of, parse_scopes

tokens = typer.Typer(help="API tokens: create, list, bind, revoke.", no_args_is_help=True)

OfAgent = Annotated[
    str | None, typer.Option("--agent", help="The only agent that the token opens, by id or title.", metavar="AGENT")
]
Expires = Annotated[
    str | None,
    typer.Option("--expires-in", "--expires", help="Refuse the token after this time: 30d, 12h, 90m.", metavar="TIME"),
]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        help="`read`, `run`, `edit` or `admin`, repeatable; or `share` alone, for a share link.",
        metavar="SCOPE",
    ),
]


@tokens.command()
def create(
    tenant: OfTenant = LOCAL_TENANT,
    name: Annotated[str, typer.Option(help="Purpose of the token.", metavar="TEXT")] = "command line",
    kind: Annotated[
        str | None,
        typer.Option(help="Instead of scopes: `api`, `admin`, `viewer` to read only, or `beta`.", metavar="KIND"),
    ] = None,
    scope: Scopes = None,
    agent: OfAgent = None,
    expires: Expires = None,
    may_share: Annotated[
        bool, typer.Option("--may-share", help="The token may share single runs; it needs the scope `edit`.")
    ] = False,
    add_tenant: Annotated[bool, typer.Option("--add-tenant", help="Add the tenant if it does not exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It cannot be shown again: only its hash is stored."""
    scopes = _parse_scopes(kind, scope)
    expires_in = parse_duration(expires, "--expires-in") if expires is not None else None
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, tenant) if add_tenant else find_tenant_id(tx, tenant)
        opens = agents.find(tx, tenant_id, agent) if agent is not None else None
        canvas_id = opens.id if opens is not None else None
        token_id, plain = tenants.create_token(
            tx, tenant_id, name, scopes=scopes, canvas_id=canvas_id, expires_in=expires_in, may_share=may_share
        )
        listed, only = in_order(scopes), canvas_id.hex if canvas_id is not None else None
        details = {"name": name, "scopes": listed, "agent_id": only}
        audit.record(tx, tenant_id, find_actor(), Action.TOKEN_CREATED, token_id, details)
    if as_json:
        made = {"id": token_id.hex, "tenant_id": tenant_id.hex, "name": name, "kind": kind_of(scopes), "token": plain}
        made |= {"scopes": listed}
        output.print_json({**made, "agent_id": canvas_id.hex} if canvas_id is not None else made)
    else:
        output.print_line(plain)
        output.print_message(f'Token {token_id.hex} of tenant "{tenant}". It is not shown again.')
    if opens is not None and opens.published_at is None and TokenScope.SHARE in scopes:
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
            "scopes": " ".join(in_order(token.scopes)),
            "prefix": token.prefix or "",
            "agent": token.canvas_id.hex if token.canvas_id is not None else None,
            "may_share": token.may_share or TokenScope.ADMIN in token.scopes,
            "created": token.created_at,
            "last_used": token.last_used_at,
            "expires": token.expires_at,
            "revoked": token.revoked_at,
        }
        for token in found
    ]
    columns = ("id", "name", "prefix", "scopes", "agent", "may_share", "created", "last_used", "expires", "revoked")
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
        audit.record(tx, tenant_id, find_actor(), Action.TOKEN_CHANGED, token_id, {"agent_id": found.id.hex})
    output.print_message(f'Share link {token_id.hex} opens "{found.title}" from now on.')


@tokens.command()
def revoke(
    token: Annotated[str, typer.Argument(help="The token's id.")],
    tenant: OfTenant = LOCAL_TENANT,
    with_made: Annotated[
        bool, typer.Option("--with-made", help="Also all tokens that were made with it, and with these.")
    ] = False,
) -> None:
    """Revoke a token: it is refused from now on."""
    token_id = parse_id(token, "token")
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        tenants.revoke_token(tx, tenant_id, token_id)
        made = tenants.revoke_made(tx, tenant_id, token_id) if with_made else ()
        for each in (token_id, *made):
            audit.record(tx, tenant_id, find_actor(), Action.TOKEN_REVOKED, each)
    more = f" So are {len(made)} tokens that were made with it." if made else ""
    output.print_message(f"Token {token_id.hex} is refused from now on.{more}")


def _parse_scopes(kind: str | None, written: list[str] | None) -> frozenset[TokenScope]:
    """Return the scopes of a new token, by its kind or its scopes; without either, those of the kind `api`."""
    if written:
        if kind is not None:
            raise typer.BadParameter("A token has a kind or scopes. Leave one of them out.", param_hint="--scope")
        return parse_scopes(written)
    if kind is not None and kind not in KINDS:
        known = ", ".join(KINDS)
        raise typer.BadParameter(f"{kind!r} is not a kind of token. Use one of: {known}.", param_hint="--kind")
    return KINDS[kind or "api"]
