"""The list of a tenant's canvases: filters, order, pages, tags."""

from typing import Any
from uuid import UUID

import pytest

from canvas.errors import NotFound
from store.agents import canvas_list, canvases
from store.agents.canvas_list import CanvasFilter
from store.db.database import Database
from store.primitives.ids import new_id


def create(database: Database, tenant_id: UUID, title: str, tags: str = "", **options: Any) -> UUID:
    with database.transaction() as tx:
        canvas_id = canvases.create(tx, tenant_id, title, {"components": {}}, **options)
        canvas_list.set_tags(tx, tenant_id, canvas_id, tags.split(","))
        return canvas_id


def titles(database: Database, tenant_id: UUID, filters: CanvasFilter | None = None, **options: Any) -> list[str]:
    with database.transaction() as tx:
        found, total = canvas_list.page(tx, tenant_id, filters or CanvasFilter(), **options)
    assert total >= len(found)
    return [canvas.title for canvas in found]


def test_newest_canvas_is_listed_first_by_default(database: Database, tenant_id: UUID):
    first = create(database, tenant_id, "beta")
    create(database, tenant_id, "Alpha")
    create(database, tenant_id, "gamma")
    with database.transaction() as tx:
        canvases.update(tx, tenant_id, first, description="changed last")

    assert titles(database, tenant_id) == ["gamma", "Alpha", "beta"]
    assert titles(database, tenant_id, descending=False) == ["beta", "Alpha", "gamma"]
    assert titles(database, tenant_id, order_by="update_time") == ["beta", "gamma", "Alpha"]
    assert titles(database, tenant_id, order_by="title", descending=False) == ["Alpha", "beta", "gamma"]
    assert titles(database, tenant_id, order_by="id; drop table canvases") == ["gamma", "Alpha", "beta"]


def test_page_has_the_total_number_of_matches(database: Database, tenant_id: UUID):
    for number in range(5):
        create(database, tenant_id, f"canvas {number}")

    with database.transaction() as tx:
        second, total = canvas_list.page(tx, tenant_id, CanvasFilter(), limit=2, offset=2)
        beyond, still_total = canvas_list.page(tx, tenant_id, CanvasFilter(), limit=2, offset=10)

    assert [canvas.title for canvas in second] == ["canvas 2", "canvas 1"]
    assert beyond == []
    assert total == still_total == 5


def test_other_tenants_canvases_are_neither_listed_nor_counted(
    database: Database, tenant_id: UUID, other_tenant_id: UUID
):
    foreign = create(database, other_tenant_id, "theirs", "secret")

    with database.transaction() as tx:
        assert canvas_list.page(tx, tenant_id, CanvasFilter(ids=[foreign])) == ([], 0)
        assert canvas_list.tags_in_use(tx, tenant_id) == []
        assert canvas_list.count_by_category(tx, tenant_id) == {}
        with pytest.raises(NotFound):
            canvas_list.set_tags(tx, tenant_id, foreign, ["mine"])


def test_keywords_match_titles_and_tags_literally_and_in_any_case(database: Database, tenant_id: UUID):
    create(database, tenant_id, "Customer Support")
    create(database, tenant_id, "Invoices", "support desk")
    create(database, tenant_id, "100% sure")

    assert titles(database, tenant_id, CanvasFilter(keywords="SUPPORT")) == ["Invoices", "Customer Support"]
    assert titles(database, tenant_id, CanvasFilter(keywords="0%")) == ["100% sure"]
    assert titles(database, tenant_id, CanvasFilter(keywords="%")) == ["100% sure"]
    assert titles(database, tenant_id, CanvasFilter(keywords="_")) == []


def test_tag_filter_matches_whole_tags_only(database: Database, tenant_id: UUID):
    create(database, tenant_id, "one", "Sales,emea")
    create(database, tenant_id, "two", "presales")
    create(database, tenant_id, "three", "support desk")

    assert titles(database, tenant_id, CanvasFilter(tags=["sales"])) == ["one"]
    assert titles(database, tenant_id, CanvasFilter(tags=["EMEA", "Support Desk"])) == ["three", "one"]
    assert titles(database, tenant_id, CanvasFilter(tags=["desk"])) == []


def test_canvases_are_filtered_by_categories_types_titles_and_ids(database: Database, tenant_id: UUID):
    one = create(database, tenant_id, "one", canvas_type="Recommended")
    create(database, tenant_id, "two", canvas_category="dataflow_canvas")

    assert titles(database, tenant_id, CanvasFilter(categories=["dataflow_canvas"])) == ["two"]
    assert titles(database, tenant_id, CanvasFilter(categories=["dataflow_canvas", "agent_canvas"])) == ["two", "one"]
    assert titles(database, tenant_id, CanvasFilter(types=["Recommended"])) == ["one"]
    assert titles(database, tenant_id, CanvasFilter(title=" ONE ")) == ["one"]
    assert titles(database, tenant_id, CanvasFilter(ids=[one, new_id()])) == ["one"]
    with database.transaction() as tx:
        assert canvas_list.count_by_category(tx, tenant_id) == {"agent_canvas": 1, "dataflow_canvas": 1}


def test_listed_canvas_has_its_publication_time_and_no_draft(database: Database, tenant_id: UUID):
    create(database, tenant_id, "published", release=True)

    with database.transaction() as tx:
        ((canvas,), _) = canvas_list.page(tx, tenant_id, CanvasFilter())

    assert canvas.published_at is not None
    assert canvas.draft == {}


def test_tags_are_counted_over_canvases_and_the_most_frequent_come_first(database: Database, tenant_id: UUID):
    create(database, tenant_id, "one", "sales,emea")
    create(database, tenant_id, "two", "sales,asia")
    create(database, tenant_id, "three", "flow", canvas_category="dataflow_canvas")

    with database.transaction() as tx:
        assert canvas_list.tags_in_use(tx, tenant_id) == [("sales", 2), ("asia", 1), ("emea", 1), ("flow", 1)]
        assert canvas_list.tags_in_use(tx, tenant_id, "dataflow_canvas") == [("flow", 1)]


def test_a_comma_inside_a_tag_becomes_a_blank_and_too_many_tags_are_cut_off(database: Database, tenant_id: UUID):
    canvas_id = create(database, tenant_id, "one")

    with database.transaction() as tx:
        canvas_list.set_tags(tx, tenant_id, canvas_id, ["north,west", *(f"{number:064}" for number in range(20))])
        tags = canvases.get(tx, tenant_id, canvas_id).tags

    assert tags.split(",")[:2] == ["north west", f"{0:064}"]
    assert len(tags) <= 512
    assert len(tags.split(",")) == 8
