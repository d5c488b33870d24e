"""Secrets in stored canvases: `easel secrets seal`."""

import typer

from cli.agents import drafts
from cli.shell import output
from cli.shell.connection import open_connection
from store.agents import canvas_secrets

secrets = typer.Typer(help="Keys and passwords in stored canvases.", no_args_is_help=True)


@secrets.callback()
def group() -> None:
    """Keys and passwords in stored canvases."""


@secrets.command()
def seal() -> None:
    """Encrypt secrets that drafts and versions of all tenants still have in plain text. Safe to repeat."""
    number = 0
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            found = canvas_secrets.list_all_canvases(tx)
        for tenant_id, canvas_id in found:
            with connection.database.transaction() as tx:
                number += canvas_secrets.seal_stored(tx, drafts.canvas_secrets_of(tenant_id, canvas_id))
    output.print_message(
        f"{number} documents of {len(found)} agents had secrets in plain text, which are encrypted now."
    )
