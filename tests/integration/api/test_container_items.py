"""The route of the items of a container."""

from typing import Any

import pytest

from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client
from tests.integration.api.test_activation_list import ITERATION, run_to_end
from tests.integration.api.test_activation_page import activation_of


def list_items(client: Client, run_id: str, **query: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{run_id}/items", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_items_of_an_iteration_are_listed_in_columns(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a,b,c")
    container = activation_of(client, run_id, "Iteration:0")

    page = list_items(client, run_id, of=container)
    second = list_items(client, run_id, of=container, **{"from": 1, "limit": 1})

    rows = [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
    assert [(row["item"], row["state"], row["steps"], row["failed"]) for row in rows] == [
        (0, "done", 2, 0),
        (1, "done", 2, 0),
        (2, "done", 2, 0),
    ]
    assert all(row["started_at"] <= row["ended_at"] <= page["now"] for row in rows)
    # a deferred claim is dated back by the worker's clock, to the millisecond
    assert all(row["created_at"] <= row["started_at"] + 2 for row in rows)
    assert (page["count"], page["done"], page["next"], page["error_of"]) == (3, 3, None, {})
    assert (second["rows"][0][0], second["next"]) == (1, 2)


def test_activation_without_items_is_refused(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a")
    plain = activation_of(client, run_id, "begin")

    refused = client.http.get(f"/api/v1/runs/{run_id}/items", params={"of": plain})
    unknown = client.http.get(f"/api/v1/runs/{run_id}/items", params={"of": "0" * 32})

    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "of")
    assert unknown.status_code == 404


def test_items_of_another_tenant_are_not_found(client: Client, server: Server) -> None:
    run_id = run_to_end(client, ITERATION, "a")
    stranger = server.client()

    reply = stranger.http.get(f"/api/v1/runs/{run_id}/items", params={"of": activation_of(client, run_id, "begin")})

    assert reply.status_code == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "of"),
        ({"state": "odd"}, "state"),
        ({"order": "x"}, "order"),
        ({"limit": 2001}, "limit"),
        ({"from": -1}, "from"),
    ],
)
def test_invalid_query_is_refused_with_the_name_of_its_field(client: Client, query: dict[str, Any], field: str) -> None:
    # T145
    of = {} if field == "of" else {"of": "0" * 32}

    reply = client.http.get(f"/api/v1/runs/{'0' * 32}/items", params={**of, **query})

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)
