"""What is wrong with a canvas, as clients see it, and versions that were found able to run."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any
from uuid import UUID

from canvas.document import parsing
from canvas.document.document import Document
from canvas.errors import InvalidCanvas
from canvas.validation.findings import Finding, errors_of
from components.checks import missing_models as model_checks
from components.checks import missing_sources as source_checks
from components.checks.check import errors_in
from knowledge import names
from providers.models.vendors.accounts import Account, AccountModel
from scheduler.coordinator.version_cache import VersionCache
from store.db.transaction import Transaction
from store.tenants import model_accounts

KEPT = 1024


def shown(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as clients see them."""
    return [
        {
            "severity": found.severity,
            "node": found.node,
            "field": found.field,
            "message": found.message,
            "code": found.code,
        }
        for found in findings
    ]


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raise InvalidCanvas, which names the first error and lists all, if there is any."""
    errors = errors_of(findings)
    if errors:
        first = errors[0]
        raise InvalidCanvas(first.message, node=first.node, field=first.field, findings=shown(findings))


def missing_models(
    tx: Transaction, tenant_id: UUID, document: Document, shared: Sequence[Account] = ()
) -> list[Finding]:
    """A warning for every model that a document names and that its tenant lacks; `shared` are everybody's accounts."""
    own = [
        Account(
            row.factory,
            row.instance,
            row.base_url,
            models={name: AccountModel.model_validate(model) for name, model in row.models.items()},
            status=row.status,
            extra=row.extra,
        )
        for row in model_accounts.accounts_of(tx, tenant_id)
    ]
    return list(model_checks.missing(document, [*own, *shared]))


def missing_sources(tx: Transaction, tenant_id: UUID, document: Document, *, elsewhere: bool) -> list[Finding]:
    """A warning for every knowledge base, memory and MCP server that a document names and that its tenant lacks.

    `elsewhere`: a search server may have those that are not the tenant's own.
    """
    there = names.there(tx, tenant_id, source_checks.named(document))
    return list(source_checks.missing(document, there, elsewhere=elsewhere))


def parsed(source: str | Mapping[str, Any], max_bytes: int) -> Document:
    """The document that a request brings. Raises InvalidCanvas."""
    return parsing.parse(source, max_bytes=max_bytes)


class Checked:
    """Versions that were found able to run. They never change, so once is enough."""

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, None] = OrderedDict()
        self._lock = Lock()

    def version(self, tx: Transaction, versions: VersionCache, version_id: UUID) -> None:
        """Raise InvalidCanvas if a version cannot run."""
        with self._lock:
            if version_id in self._known:
                return
        refuse_errors(errors_in(versions.get(tx, version_id).document))
        with self._lock:
            self._known[version_id] = None
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
