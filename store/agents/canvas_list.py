"""The list of a tenant's canvases: filters, counts by category, and tags."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Text, bindparam, cast, func, or_, select, true, update
from sqlalchemy.dialects.postgresql import ARRAY, array

from canvas.errors import NotFound
from canvas.ids import CanvasId, TenantId
from store.agents.canvases import SHOWN, StoredCanvas
from store.db.transaction import Transaction
from store.tables.tenants import canvases

TAG_LENGTH = 64
TAGS_LENGTH = 512

ORDERS = {
    "create_time": canvases.c.created_at,
    "update_time": canvases.c.updated_at,
    "title": func.lower(canvases.c.title),
}


@dataclass(frozen=True, slots=True)
class CanvasFilter:
    """Which canvases to list; an empty field does not filter. A canvas must have one of `tags`, as a whole word."""

    keywords: str = ""  # in title or tags, in any case
    title: str = ""
    ids: Sequence[CanvasId] = ()
    categories: Sequence[str] = ()
    types: Sequence[str] = ()
    tags: Sequence[str] = ()


_tags = func.string_to_array(func.lower(canvases.c.tags), ",", type_=ARRAY(Text))
_of_tenant = canvases.c.tenant_id == bindparam("tenant_id")
COUNT = select(func.count()).select_from(canvases).where(_of_tenant)
CATEGORIES = (
    select(canvases.c.canvas_category, func.count().label("number"))
    .where(_of_tenant)
    .group_by(canvases.c.canvas_category)
    .order_by(canvases.c.canvas_category)
)
TAGS = select(canvases.c.tags).where(
    _of_tenant,
    canvases.c.tags != "",
    or_(cast(bindparam("category"), Text) == "", canvases.c.canvas_category == bindparam("category")),
)
SET_TAGS = (
    update(canvases)
    .where(canvases.c.tenant_id == bindparam("of_tenant"), canvases.c.id == bindparam("canvas_id"))
    .values(tags=bindparam("new_tags"), updated_at=func.now())
)


def page(
    tx: Transaction,
    tenant_id: TenantId,
    filters: CanvasFilter,
    *,
    order_by: str = "create_time",
    descending: bool = True,
    limit: int = 30,
    offset: int = 0,
) -> tuple[list[StoredCanvas], int]:
    """Return one page of a tenant's canvases without their drafts, and the number of canvases on all pages.

    An unknown order means `create_time`.
    """
    conditions = _conditions(filters)
    order = ORDERS.get(order_by, canvases.c.created_at)
    rows = tx.rows(
        SHOWN.where(_of_tenant, *conditions)
        .order_by(order.desc() if descending else order, canvases.c.id.desc() if descending else canvases.c.id)
        .limit(limit)
        .offset(offset),
        tenant_id=tenant_id,
    )
    total = tx.scalar(COUNT.where(*conditions), tenant_id=tenant_id)
    return [StoredCanvas(*row) for row in rows], total


def count_by_category(tx: Transaction, tenant_id: TenantId) -> dict[str, int]:
    """Return the number of a tenant's canvases in each category."""
    return {row.canvas_category: row.number for row in tx.rows(CATEGORIES, tenant_id=tenant_id)}


def tags_in_use(tx: Transaction, tenant_id: TenantId, category: str = "") -> list[tuple[str, int]]:
    """Return a tenant's tags with the number of canvases that have them, the most frequent first, then by name."""
    counts: dict[str, int] = {}
    for (text,) in tx.rows(TAGS, tenant_id=tenant_id, category=category):
        for tag in normalize_tags([text]):
            counts[tag] = counts.get(tag, 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def set_tags(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, tags: Iterable[str]) -> None:
    """Replace the tags of a canvas. Raises NotFound for an unknown canvas."""
    text = ",".join(_limit_length(normalize_tags(tag.replace(",", " ") for tag in tags)))
    if not tx.execute(SET_TAGS, of_tenant=tenant_id, canvas_id=canvas_id, new_tags=text):
        raise NotFound("Agent not found or no permission.")


def normalize_tags(texts: Iterable[str]) -> list[str]:
    """Return the tags of comma-separated texts: trimmed, at most 64 characters, no duplicates in any letter case."""
    by_lower: dict[str, str] = {}
    for text in texts:
        for part in text.split(","):
            tag = re.sub(r"\s+", " ", part).strip()[:TAG_LENGTH].strip()
            if tag:
                by_lower.setdefault(tag.lower(), tag)
    return list(by_lower.values())


def _limit_length(tags: Sequence[str]) -> list[str]:
    """Return as many tags from the front as fit into 512 characters of comma-separated text."""
    fitting: list[str] = []
    for tag in tags:
        if len(",".join([*fitting, tag])) > TAGS_LENGTH:
            break
        fitting.append(tag)
    return fitting


def _conditions(filters: CanvasFilter) -> list[ColumnElement[bool]]:
    keywords = filters.keywords.strip()
    words = [func.lower(cast(tag, Text)) for tag in normalize_tags(filters.tags)]
    return [
        or_(canvases.c.title.icontains(keywords, autoescape=True), canvases.c.tags.icontains(keywords, autoescape=True))
        if keywords
        else true(),
        func.lower(canvases.c.title) == func.lower(filters.title.strip()) if filters.title.strip() else true(),
        canvases.c.id == func.any(list(filters.ids)) if filters.ids else true(),
        canvases.c.canvas_category == func.any(list(filters.categories)) if filters.categories else true(),
        canvases.c.canvas_type == func.any(list(filters.types)) if filters.types else true(),
        _tags.overlap(array(words)) if words else true(),
    ]
