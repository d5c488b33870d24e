"""The models that a canvas names, held against the accounts that a tenant has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canvas.document import Document
from canvas.errors import ModelError
from canvas.findings import Finding, warning
from providers.accounts import Account
from providers.catalogue import resolve


def missing(document: Document, accounts: Sequence[Account]) -> Iterator[Finding]:
    """A warning for every field that names a model which these accounts do not have, Agents' tools included.

    The stand-ins are always there. A model that has not been chosen at all is another finding.
    """
    for entry in document.entries.values():
        for field, llm_id in _named("", entry.params):
            try:
                resolve(llm_id, accounts)
            except ModelError as lacking:
                yield warning(entry, field, "unknown_model", lacking.message.rstrip("."))


def _named(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """(field, id) of every model inside of params; `parse` has bounded their depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{field}.{key}" if field else str(key)
            if key == "llm_id" and isinstance(item, str) and item:
                yield inner, item
            else:
                yield from _named(inner, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _named(f"{field}[{position}]", item)
