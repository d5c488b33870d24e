"""The versions of an agent as a list for people: numbered, compared with the draft, and with their recent runs."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from canvas.ids import CanvasId, TenantId, VersionId
from store.db.transaction import Transaction
from store.primitives.ids import first_id_at

MAX_VERSIONS = 100
MAX_COUNTED_RUNS = 1000  # of each version

PAGE = text("""
    with draft as materialized (
        select sha256(convert_to(cast(draft as text), 'UTF8')) as digest from canvases
        where tenant_id = :tenant_id and id = :canvas_id
    ), numbered as (
        select id, title, description, released, digest, created_at, deleted_at,
            row_number() over (order by created_at, id) as number
        from versions where tenant_id = :tenant_id and canvas_id = :canvas_id
    ), page as materialized (
        select * from numbered
        where deleted_at is null and (cast(:version_id as uuid) is null or id = :version_id)
            and (cast(:before as uuid) is null
                or (created_at, id) < (select created_at, id from numbered where id = :before))
        order by number desc limit :most
    )
    select p.id, p.number, p.title, p.description, p.released, p.digest, p.digest = draft.digest as is_like_draft,
        p.created_at, counted.runs
    from page p cross join draft cross join lateral (
        select count(*) as runs from (
            select from runs where version_id = p.id and tenant_id = :tenant_id and id >= :since limit :most_runs
        ) recent
    ) counted
    order by p.number desc
""")
EXISTS = text("""
    select exists (select from versions where tenant_id = :tenant_id and canvas_id = :canvas_id and id = :version_id)
""")


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version without its document. `number` is its place among the stored versions of the agent, from 1.

    `recent_runs` are counted up to MAX_COUNTED_RUNS and one more. `is_like_draft`: the draft is the same document.
    """

    id: VersionId
    number: int
    title: str
    description: str | None
    released: bool
    digest: bytes
    is_like_draft: bool
    created_at: datetime
    recent_runs: int


def page(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    *,
    since: datetime,
    before: VersionId | None = None,
    limit: int = MAX_VERSIONS,
) -> list[ListedVersion]:
    """Return a page of an agent's versions, the newest first, that begins after the version `before`.

    Deleted versions are left out, but count in the numbers while runs or conversations refer to them. Runs are counted
    that were accepted at `since` or later. Empty for an unknown agent.
    """
    return _read(tx, tenant_id, canvas_id, since, before=before, limit=limit)


def find(
    tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, version_id: VersionId, *, since: datetime
) -> ListedVersion | None:
    """Return one version of an agent as in the list; None if the agent has no such version."""
    return next(iter(_read(tx, tenant_id, canvas_id, since, version_id=version_id, limit=1)), None)


def is_stored(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, version_id: VersionId) -> bool:
    """Return whether an agent has this version, deleted or not, so that a page can begin after it."""
    return bool(tx.scalar(EXISTS, tenant_id=tenant_id, canvas_id=canvas_id, version_id=version_id))


def _read(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    since: datetime,
    *,
    version_id: VersionId | None = None,
    before: VersionId | None = None,
    limit: int,
) -> list[ListedVersion]:
    rows = tx.rows(
        PAGE,
        tenant_id=tenant_id,
        canvas_id=canvas_id,
        version_id=version_id,
        before=before,
        since=first_id_at(since),
        most=limit,
        most_runs=MAX_COUNTED_RUNS + 1,
    )
    return [ListedVersion(*row) for row in rows]
