"""Tenants and their API tokens: `easel tokens`."""

from typing import Annotated

import typer

from cli import output
from cli.connection import opened, tenant_of
from cli.inputs import id_of
from cli.options import LOCAL, AsJson, OfTenant
from store import tenants

tokens = typer.Typer(help="API tokens: create, list, revoke.", no_args_is_help=True)


@tokens.command()
def create(
    tenant: OfTenant = LOCAL,
    name: Annotated[str, typer.Option(help="What the token is for.", metavar="TEXT")] = "command line",
    kind: Annotated[str, typer.Option(help="`api`, `admin`, or `beta` for share links.", metavar="KIND")] = "api",
    add_tenant: Annotated[bool, typer.Option("--add-tenant", help="Add the tenant if there is none.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, this once: only its hash is kept."""
    if kind not in tenants.KINDS:
        known = ", ".join(tenants.KINDS)
        raise typer.BadParameter(f"{kind!r} is no kind of token. There is: {known}.", param_hint="--kind")
    with opened() as connection, connection.database.transaction() as tx:
        tenant_id = tenants.ensure_tenant(tx, tenant) if add_tenant else tenant_of(tx, tenant)
        token_id, plain = tenants.create_token(tx, tenant_id, name, kind)
    if as_json:
        output.say_json({"id": token_id.hex, "tenant_id": tenant_id.hex, "name": name, "kind": kind, "token": plain})
    else:
        output.say(plain)
        output.tell(f'Token {token_id.hex} of tenant "{tenant}". It is not shown again.')


@tokens.command("list")
def list_tokens(tenant: OfTenant = LOCAL, as_json: AsJson = False) -> None:
    """List a tenant's tokens, revoked ones included."""
    with opened() as connection, connection.database.transaction() as tx:
        found = tenants.tokens_of(tx, tenant_of(tx, tenant))
    rows = [
        {
            "id": token.id.hex,
            "name": token.name,
            "kind": token.kind,
            "created": token.created_at,
            "last_used": token.last_used_at,
            "revoked": token.revoked_at,
        }
        for token in found
    ]
    columns = ("id", "name", "kind", "created", "last_used", "revoked")
    output.table(rows, columns, as_json=as_json, empty="There are no tokens. `easel tokens create` makes one.")


@tokens.command()
def revoke(token: Annotated[str, typer.Argument(help="The token's id.")], tenant: OfTenant = LOCAL) -> None:
    """Refuse a token from now on."""
    token_id = id_of(token, "token")
    with opened() as connection, connection.database.transaction() as tx:
        tenants.revoke_token(tx, tenant_of(tx, tenant), token_id)
    output.tell(f"Token {token_id.hex} is refused from now on.")
