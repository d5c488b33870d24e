"""Idempotency keys: a repeated request with the same `Idempotency-Key` gets the first reply.

    def create(..., once: OnceByBody):
        with once.transaction(context.database) as tx:  # a repeat ends here
            ...
            return once.store_reply(tx, reply)

The transaction of the request also claims the key and stores the reply, so all three are committed together: a process
that dies before the commit has done nothing, and one that dies after it has stored the reply for a repeat. A repeat
that arrives meanwhile waits for the first request. Routes that start runs pass their keys to the start (`find_key`),
which stores the run instead.
"""

import hashlib
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, BinaryIO

from fastapi import Depends, Header, Request
from fastapi.responses import Response

from api.http.errors import RepeatedRequest
from api.http.replies import json_reply
from api.requests.auth import AnyTokenCaller, Identified, RequestPrincipal
from api.requests.request_bodies import CanvasBody, JsonObject, SmallBody
from canvas.errors import InvalidRequest
from canvas.ids import TenantId
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.blobs import hash_file
from store.tenants import idempotency
from store.tenants.idempotency import FirstResponse

HEADER = "idempotency-key"

_KeyHeader = Annotated[str | None, Header(description="A repeat with the same key within a day gets the first reply")]


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request with its idempotency key. Without a key, every repeat is executed."""

    tenant_id: TenantId
    route: str
    key: str | None
    digest: bytes = field(repr=False)

    @property
    def run_key(self) -> tuple[str, str, bytes] | None:
        """Return the key for operations on runs: (route, key, digest)."""
        return (self.route, self.key, self.digest) if self.key is not None else None

    def check_repeat(self, database: Database) -> None:
        """Raise RepeatedRequest for a repeat.

        Call this before work outside of the transaction that could have another result now.
        """
        if self.key is None:
            return
        with database.transaction() as tx:
            first = idempotency.find(tx, self.tenant_id, self.route, self.key, self.digest)
        if first is not None:
            raise _repeated_request(first)

    @contextmanager
    def transaction(self, database: Database) -> Generator[Transaction]:
        """Open the request's transaction.

        Raises RepeatedRequest for a repeat, Conflict for another request with the key.
        """
        with database.transaction() as tx:
            if self.key is not None:
                first = idempotency.claim(tx, self.tenant_id, self.route, self.key, self.digest)
                if first is not None:
                    raise _repeated_request(first)
            yield tx

    def store_reply(self, tx: Transaction, reply: Response) -> Response:
        """Store the reply for repeats, with the commit of this transaction, and return it."""
        if self.key is not None:
            stored = {"status": reply.status_code, "body": json.loads(bytes(reply.body))}
            idempotency.store_reply(tx, self.tenant_id, self.route, self.key, stored)
        return reply


def find_key(request: Request, in_body: str | None = None) -> str | None:
    """Return the request's key from its header or a field of its body. Raises InvalidRequest for an invalid one."""
    keys = set(request.headers.getlist(HEADER)) | ({in_body} if in_body is not None else set())
    if len(keys) > 1:
        raise InvalidRequest("The request names more than one idempotency key.")
    return idempotency.validate_key(keys.pop()) if keys else None


def _repeated_request(first: FirstResponse) -> RepeatedRequest:
    assert first.reply is not None  # since `store_reply` is called before the commit
    return RepeatedRequest(json_reply(first.reply["body"], first.reply["status"]))


def _of_canvas(
    request: Request, principal: AnyTokenCaller, body: CanvasBody, idempotency_key: _KeyHeader = None
) -> IdempotentRequest:
    return _make_request(request, principal, body, is_ordered=True)  # nodes run in the order of their keys


def _of_body(
    request: Request, principal: AnyTokenCaller, body: SmallBody, idempotency_key: _KeyHeader = None
) -> IdempotentRequest:
    return _make_request(request, principal, body, is_ordered=False)


def _of_json_object(
    request: Request, principal: AnyTokenCaller, body: JsonObject, idempotency_key: _KeyHeader = None
) -> IdempotentRequest:
    return _make_request(request, principal, body, is_ordered=False)


def _of_viewer(
    request: Request, principal: Identified, body: SmallBody, idempotency_key: _KeyHeader = None
) -> IdempotentRequest:
    return _make_request(request, principal, body, is_ordered=False)


def _of_viewer_canvas(
    request: Request, principal: Identified, body: CanvasBody, idempotency_key: _KeyHeader = None
) -> IdempotentRequest:
    return _make_request(request, principal, body, is_ordered=True)


OnceByCanvas = Annotated[IdempotentRequest, Depends(_of_canvas)]
OnceByBody = Annotated[IdempotentRequest, Depends(_of_body)]
OnceByJsonObject = Annotated[IdempotentRequest, Depends(_of_json_object)]
"""The same for bodies of RAGFlow's datasets and documents."""
OnceByViewer = Annotated[IdempotentRequest, Depends(_of_viewer)]
"""The same for routes that pages use."""
OnceByViewerCanvas = Annotated[IdempotentRequest, Depends(_of_viewer_canvas)]


def make_file_request(
    request: Request, principal: RequestPrincipal, files: Sequence[tuple[str, BinaryIO]]
) -> IdempotentRequest:
    """Return the request with the digest of its files and their names. Files are read in parts and rewound."""
    if find_key(request) is None:
        return IdempotentRequest(principal.tenant_id, _route(request, principal), None, b"")
    return _make_request(request, principal, [[name, _hash(file)] for name, file in files], is_ordered=True)


def _make_request(request: Request, principal: RequestPrincipal, body: Any, *, is_ordered: bool) -> IdempotentRequest:
    key = find_key(request)
    if key is None:
        return IdempotentRequest(principal.tenant_id, _route(request, principal), None, b"")
    whole = [request.url.path, sorted(request.query_params.multi_items()), body]
    written = json.dumps(whole, sort_keys=not is_ordered)
    return IdempotentRequest(
        principal.tenant_id, _route(request, principal), key, hashlib.sha256(written.encode()).digest()
    )


def _route(request: Request, principal: RequestPrincipal) -> str:
    """Return the declared route with placeholders for ids: a key belongs to a route, and ids belong to the request."""
    return principal.key_route(f"{request.method} {request.scope['route'].path}")


def _hash(file: BinaryIO) -> str:
    sha256, _ = hash_file(file)
    return sha256.hex()
