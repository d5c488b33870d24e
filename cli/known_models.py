"""The models that a canvas may name: those of a file of accounts, and of a tenant."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from canvas.document import Document
from canvas.findings import Finding
from cli import models
from cli.connection import opened, tenant_of
from components import chosen_models
from providers.accounts import Account, accounts_from_toml


def look_up(file: Path | None, tenant: str | None) -> Callable[[Document], Sequence[Finding]]:
    """What finds the models that a canvas names and these accounts lack. A tenant's are read from the database.

    Raises ExecutorError for a file that cannot be read, or a tenant that is not there.
    """
    accounts = accounts_from_toml(file) if file is not None else []
    if tenant is not None:
        accounts = [*_of_tenant(tenant), *accounts]
    return partial(_lacking, accounts)


def _of_tenant(tenant: str) -> list[Account]:
    with opened() as connection:
        with connection.database.transaction() as tx:
            tenant_id = tenant_of(tx, tenant)
        return models.accounts_of(connection, tenant_id)


def _lacking(accounts: Sequence[Account], document: Document) -> list[Finding]:
    return list(chosen_models.missing(document, accounts))
