"""Scopes: what a token may do. A closed set; each route names the one that it needs (api/requests/scopes.py).

A token has a kind as well, which is the word of RAGFlow and of earlier releases. A token without scopes of its own has
those of its kind.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from canvas.errors import InvalidRequest


class TokenScope(StrEnum):
    """A right of a token."""

    READ = "read"  # runs, agents, conversations, knowledge bases, memories
    RUN = "run"  # start, answer, cancel, rerun and fork runs; upload files
    EDIT = "edit"  # change and publish agents, knowledge bases, memories, MCP servers; make tokens with fewer rights
    ADMIN = "admin"  # budgets of the tenant, all tokens, the audit log; includes the three above
    SHARE = "share"  # chat with the published version of one agent, and nothing else


KINDS: Mapping[str, frozenset[TokenScope]] = {
    "api": frozenset({TokenScope.READ, TokenScope.RUN, TokenScope.EDIT}),
    "admin": frozenset({TokenScope.READ, TokenScope.RUN, TokenScope.EDIT, TokenScope.ADMIN}),
    "viewer": frozenset({TokenScope.READ}),
    "beta": frozenset({TokenScope.SHARE}),
}
"""The scopes of each kind of token."""


def parse_scopes(written: Iterable[str]) -> frozenset[TokenScope]:
    """Return the scopes of these names, with those that `admin` includes. Raises InvalidRequest.

    `share` goes with no other scope.
    """
    names = list(written)
    known = {each.value for each in TokenScope}
    for name in names:
        if name not in known:
            listed = ", ".join(each.value for each in TokenScope)
            raise InvalidRequest(f"{name[:64]!r} is not a scope. Use some of: {listed}.", field="scopes")
    scopes = frozenset(map(TokenScope, names))
    if not scopes:
        raise InvalidRequest("A token has at least one scope. Name some of: read, run, edit, admin.", field="scopes")
    if TokenScope.SHARE in scopes and len(scopes) > 1:
        raise InvalidRequest("The scope `share` goes with no other scope. Make two tokens.", field="scopes")
    return KINDS["admin"] if TokenScope.ADMIN in scopes else scopes


def kind_of(scopes: Collection[TokenScope]) -> str:
    """Return the kind of a token with these scopes: `api` for a set that no kind has."""
    return next((kind for kind, of_kind in KINDS.items() if of_kind == frozenset(scopes)), "api")


def scopes_of(kind: str, stored: str | None) -> frozenset[TokenScope]:
    """Return the scopes of a stored token, whose column has names between spaces, or null for those of its kind.

    A name of a later release gives no right.
    """
    if stored is None:
        return KINDS[kind]
    known = {each.value for each in TokenScope}
    return frozenset(TokenScope(name) for name in stored.split() if name in known)


def in_order(scopes: Collection[TokenScope]) -> list[str]:
    """Return the names of scopes, in the order of the set."""
    return [each.value for each in TokenScope if each in scopes]
