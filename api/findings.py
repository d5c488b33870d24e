"""Findings about canvases in replies, and the cache of versions that have been checked."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from canvas.document import drawing, parsing
from canvas.document.document import Document
from canvas.errors import InvalidCanvas
from canvas.ids import TenantId, VersionId
from canvas.validation.findings import Finding, errors_of
from components.checks import missing_models as model_checks
from components.checks import missing_sources as source_checks
from components.checks.check import errors_in, findings_of
from knowledge import names
from providers.models.vendors.accounts import AccountModel, VendorAccount
from scheduler.coordinator.version_cache import VersionCache
from store.db.transaction import Transaction
from store.tenants import model_accounts

MAX_CHECKED_VERSIONS = 1024


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings as replies show them."""
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
    """Raise InvalidCanvas if there is an error; it names the first one and lists all."""
    errors = errors_of(findings)
    if errors:
        first = errors[0]
        raise InvalidCanvas(first.message, node=first.node, field=first.field, findings=findings_json(findings))


def draft_findings(draft: Mapping[str, Any], max_bytes: int) -> tuple[Document | None, list[Finding]]:
    """Return a draft parsed, and what validation finds in it; None for a draft that is not a canvas at all.

    Missing models and sources depend on the tenant and are not among the findings.
    """
    unfinished = [
        Finding("error", each.node, each.field, each.message, "bad_drawing")
        for each in drawing.derive(draft.get("graph")).errors.values()
    ]
    try:
        document = parse_document(draft, max_bytes)
    except InvalidCanvas as error:
        return None, [Finding("error", error.node, error.field, error.message, "unreadable"), *unfinished]
    return document, [*unfinished, *findings_of(document)]


def missing_models(
    tx: Transaction, tenant_id: TenantId, document: Document, shared: Sequence[VendorAccount] = ()
) -> list[Finding]:
    """Return a warning for every model that a document names and its tenant lacks; `shared`: everyone's accounts."""
    return list(model_checks.find_missing(document, [*own_accounts(tx, tenant_id), *shared]))


def own_accounts(tx: Transaction, tenant_id: TenantId) -> list[VendorAccount]:
    """Return a tenant's model accounts, without their keys."""
    return [
        VendorAccount(
            row.factory,
            row.instance,
            row.base_url,
            models={name: AccountModel.model_validate(model) for name, model in row.models.items()},
            status=row.status,
            extra=row.extra,
        )
        for row in model_accounts.list_accounts(tx, tenant_id)
    ]


def missing_sources(tx: Transaction, tenant_id: TenantId, document: Document, *, elsewhere: bool) -> list[Finding]:
    """Return a warning for every knowledge base, memory and MCP server that a document names and its tenant lacks.

    `elsewhere`: a search server may have those that are not the tenant's own.
    """
    there = names.existing_sources(tx, tenant_id, source_checks.find_named_sources(document))
    return list(source_checks.find_missing(document, there, may_be_external=elsewhere))


def parse_document(source: str | Mapping[str, Any], max_bytes: int) -> Document:
    """Return the document of a request. Raises InvalidCanvas."""
    return parsing.parse(source, max_bytes=max_bytes)


class CheckedVersions:
    """The versions that have been checked and can run. Versions never change, so one check is enough."""

    def __init__(self) -> None:
        self._known: OrderedDict[VersionId, None] = OrderedDict()
        self._lock = Lock()

    def check(self, tx: Transaction, versions: VersionCache, version_id: VersionId) -> None:
        """Raise InvalidCanvas if a version cannot run."""
        with self._lock:
            if version_id in self._known:
                return
        try:
            document = versions.get(tx, version_id).document
        except InvalidCanvas as error:
            refuse_errors([Finding("error", error.node, error.field, error.message, "unreadable")])
            raise
        refuse_errors(errors_in(document))
        with self._lock:
            self._known[version_id] = None
            while len(self._known) > MAX_CHECKED_VERSIONS:
                self._known.popitem(last=False)
