"""Preconditions of requests that change a draft: `If-Match` names the draft that the caller has seen.

The `ETag` of an agent names its draft. Check it in the transaction that writes, with the canvas locked: two editors
that have seen the same draft cannot both save.
"""

from typing import Annotated

from fastapi import Header

from api.http.errors import DraftChanged, PreconditionRequired
from scheduler.views.json_values import hex_of, iso
from store.agents.canvases import StoredCanvas

IfMatch = Annotated[str | None, Header(description="The ETag of the draft that is changed; another one is a 412")]


def etag_of(revision: int) -> str:
    """Return the entity tag of a draft."""
    return f'"{revision}"'


def require_if_match(if_match: str | None) -> str:
    """Return the header. Raises PreconditionRequired without one."""
    if if_match is None or not if_match.strip():
        raise PreconditionRequired("Send `If-Match` with the `etag` of the draft that you have seen.", field="If-Match")
    return if_match


def check_if_match(if_match: str | None, canvas: StoredCanvas) -> None:
    """Raise DraftChanged if the header names another draft than that of a locked canvas. `*` names every draft."""
    if if_match is None:
        return
    current = etag_of(canvas.draft_revision)
    tags = [each.strip().removeprefix("W/") for each in if_match.split(",")]  # proxies that compress weaken tags
    if "*" not in tags and current not in tags:
        raise DraftChanged(
            "The draft was changed since you have read it. Nothing was stored. Read it again, and repeat your change.",
            etag=current,
            updated_at=iso(canvas.updated_at),
            updated_by=hex_of(canvas.draft_token_id),
        )
