"""Find what a canvas names and a deployment lacks: models, knowledge bases, memories and MCP servers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from canvas.document.document import Document
from canvas.validation.findings import Finding
from cli.models import models
from cli.shell.connection import find_tenant_id, open_connection
from components.checks import missing_models, missing_sources
from knowledge import names
from providers.models.vendors.accounts import VendorAccount, accounts_from_toml


def make_lookup(file: Path | None, tenant: str | None, *, elsewhere: bool) -> Callable[[Document], Sequence[Finding]]:
    """Return a function that lists what a document names and these accounts, or this tenant, do not have.

    With a tenant, its accounts are read from the database, and knowledge bases, memories and MCP servers are checked
    too. `elsewhere`: a search server may have some of these. Raises ExecutorError for a file that cannot be read or a
    tenant that does not exist.
    """
    accounts = accounts_from_toml(file) if file is not None else []
    if tenant is not None:
        accounts = [*_tenant_accounts(tenant), *accounts]

    def find_missing(document: Document) -> list[Finding]:
        found = list(missing_models.find_missing(document, accounts))
        return found + (_find_missing_sources(tenant, document, elsewhere=elsewhere) if tenant is not None else [])

    return find_missing


def _tenant_accounts(tenant: str) -> list[VendorAccount]:
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
        return models.accounts_of(connection, tenant_id)


def _find_missing_sources(tenant: str, document: Document, *, elsewhere: bool) -> list[Finding]:
    with open_connection() as connection, connection.database.transaction() as tx:
        there = names.existing_sources(tx, find_tenant_id(tx, tenant), missing_sources.find_named_sources(document))
    return list(missing_sources.find_missing(document, there, may_be_external=elsewhere))
