"""The route that lists a run's activations in columns."""

import time
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from api.runs import activation_list
from tests.integration.api.activation_rows import rows_of
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, MODEL, Client
from tests.integration.api.test_calls import ADD_ATTEMPT

ITERATION: dict[str, Any] = {
    "components": {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["StringTransform:S"]},
        "StringTransform:S": {
            "obj": {
                "component_name": "StringTransform",
                "params": {"method": "split", "split_ref": "sys.query", "delimiters": [","]},
            },
            "downstream": ["Iteration:0"],
        },
        "Iteration:0": {
            "obj": {
                "component_name": "Iteration",
                "params": {
                    "items_ref": "StringTransform:S@result",
                    "outputs": {"all": {"ref": "StringTransform:0@result", "type": "Array"}},
                },
            },
            "downstream": ["Message:0"],
        },
        "IterationItem:0": {
            "obj": {"component_name": "IterationItem", "params": {}},
            "downstream": ["StringTransform:0"],
            "parent_id": "Iteration:0",
        },
        "StringTransform:0": {
            "obj": {
                "component_name": "StringTransform",
                "params": {"method": "merge", "script": "<{IterationItem:0@item}>", "delimiters": ["-"]},
            },
            "downstream": [],
            "parent_id": "Iteration:0",
        },
        "Message:0": {"obj": {"component_name": "Message", "params": {"content": ["done"]}}, "downstream": []},
    }
}


def list_activations(client: Client, run_id: str, **query: Any) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{run_id}/activations", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def run_to_end(client: Client, dsl: dict[str, Any], query: str = "hi", title: str = "agent") -> str:
    run_id = client.start(client.agent(dsl, title), query)["run_id"]
    run = client.wait_for(run_id, "succeeded", "failed")
    assert run["status"] == "succeeded", run["error"]
    return run_id


def test_finished_run_lists_its_activations_in_columns(client: Client) -> None:
    run_id = run_to_end(client, MODEL)

    page = list_activations(client, run_id)

    rows = {row["node_id"]: row for row in rows_of(page)}
    assert set(rows) == {"begin", "LLM:0", "Message:0"}
    assert {row["status"] for row in rows.values()} == {"done"}
    assert rows["LLM:0"]["calls"] == 1
    assert rows["LLM:0"]["started_at"] <= rows["LLM:0"]["finished_at"] <= page["now"]
    assert abs(page["now"] - time.time() * 1000) < 60_000
    assert (page["next"], page["total"]) == (None, 3)
    by_order = [row["node_id"] for row in sorted(rows.values(), key=lambda row: row["order_key"])]
    assert by_order == ["begin", "LLM:0", "Message:0"]


def test_ids_are_those_of_the_tree(client: Client) -> None:
    run_id = run_to_end(client, ECHO)

    listed = {row["id"] for row in rows_of(list_activations(client, run_id))}

    assert listed == {step["id"] for step in client.run(run_id)["activations"]}


def test_items_of_an_iteration_are_selected_by_entry_item_and_scope(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a,b,c")

    inside = rows_of(list_activations(client, run_id, within="Iteration:0#0"))
    second = rows_of(list_activations(client, run_id, within="Iteration:0#0", items="1-1"))
    top = rows_of(list_activations(client, run_id, scope=""))
    everything = list_activations(client, run_id, scope="*")

    assert [row["scope"] for row in inside] == [f"Iteration:0#0.{n}" for n in (0, 0, 1, 1, 2, 2, 3)]
    assert [row["node_id"] for row in second] == ["IterationItem:0", "StringTransform:0"]
    assert [row["node_id"] for row in top] == ["begin", "StringTransform:S", "Iteration:0", "Message:0"]
    assert everything["total"] == len(inside) + len(top) == len(everything["rows"])
    container = top[2]
    assert (container["outcome"], container["count"]) == ("ContainerOpened", 3)
    assert container["ended_at"] == max(row["finished_at"] for row in inside)


def test_earlier_attempts_of_the_rows_of_a_page_are_listed_with_them(client: Client, server: Server) -> None:
    run_id = run_to_end(client, MODEL)
    rows = rows_of(list_activations(client, run_id))
    ids = {row["node_id"]: row["id"] for row in rows}
    repeat = "update activations set attempt = 3 where run_id = :run and node_id <> 'begin'"
    with server.database.transaction() as tx:
        tx.execute(text(repeat), run=UUID(run_id))
        for node_id, attempt in (("LLM:0", 1), ("LLM:0", 2), ("Message:0", 1)):
            tx.execute(ADD_ATTEMPT, run_id=UUID(run_id), activation=UUID(ids[node_id]), attempt=attempt)

    page = list_activations(client, run_id, **{"with": "attempts"})
    of_one = list_activations(client, run_id, node_id="Message:0", **{"with": "attempts"})

    shown = [(rows_of(page)[row]["node_id"], attempt) for row, attempt, *_ in page["attempts"]]
    assert sorted(shown) == [("LLM:0", 1), ("LLM:0", 2), ("Message:0", 1)]
    assert [row for row, *_ in page["attempts"]] == sorted(row for row, *_ in page["attempts"])
    named = dict(zip(of_one["attempt_columns"], of_one["attempts"][0], strict=True))
    assert (named["row"], named["attempt"], named["end_reason"]) == (0, 1, "worker_lost")
    assert named["ended_at"] - named["started_at"] == 2000
    assert (len(of_one["attempts"]), page["attempts_cut"]) == (1, False)
    assert "attempts" not in list_activations(client, run_id)


def test_list_of_attempts_says_that_it_is_cut(client: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_to_end(client, ECHO)
    (row,) = rows_of(list_activations(client, run_id, node_id="begin"))
    with server.database.transaction() as tx:
        tx.execute(text("update activations set attempt = 3 where run_id = :run"), run=UUID(run_id))
        for attempt in (1, 2):
            tx.execute(ADD_ATTEMPT, run_id=UUID(run_id), activation=UUID(row["id"]), attempt=attempt)
    monkeypatch.setattr(activation_list, "MAX_ATTEMPTS", 1)

    page = list_activations(client, run_id, **{"with": "attempts"})

    assert (len(page["attempts"]), page["attempts_cut"]) == (1, True)


def test_pages_follow_each_other_until_the_last(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a,b")
    for query in ({}, {"within": "Iteration:0#0"}):
        whole = list_activations(client, run_id, **query)
        seen: list[list[Any]] = []
        after: dict[str, Any] = {}
        while True:
            page = list_activations(client, run_id, limit=2, **query, **after)
            seen += rows_of(page)
            if page["next"] is None:
                break
            after = {"after": page["next"]}

        assert seen == rows_of(whole)


def test_changes_since_each_revision_complete_a_copy(workerless_client: Client) -> None:  # T140
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    first = list_activations(workerless_client, run_id)
    workerless_client.http.post(f"/api/v1/runs/{run_id}/cancel")

    changes = list_activations(workerless_client, run_id, since=first["revision"])
    later = list_activations(workerless_client, run_id, since=changes["revision"])

    assert [row["status"] for row in rows_of(first)] == ["ready"]
    assert [row["status"] for row in rows_of(changes)] == ["closed"]
    assert (later["rows"], later["total"]) == ([], 1)


@pytest.mark.parametrize("page_size", [7, 2_000])
def test_copy_that_follows_a_run_has_its_rows_at_the_end(client: Client, page_size: int) -> None:  # T140
    run_id = client.start(client.agent(ITERATION), ",".join(map(str, range(40))))["run_id"]
    copy: dict[str, dict[str, Any]] = {}
    since: dict[str, int] = {}
    reads = 0

    while client.run(run_id)["status"] == "running" or reads == 0:
        since = {"since": apply_changes(client, run_id, copy, since, page_size)}
        reads += 1
    apply_changes(client, run_id, copy, since, page_size)

    assert copy == {row["id"]: row for row in rows_of(list_activations(client, run_id, limit=2_000))}
    assert len(copy) == 4 + 2 * 40 + 1


def apply_changes(
    client: Client, run_id: str, copy: dict[str, dict[str, Any]], since: dict[str, int], page_size: int
) -> int:
    """Apply what has changed since a revision to a copy, page by page; return the next revision."""
    revision: int | None = None
    after: dict[str, str] = {}
    while True:
        page = list_activations(client, run_id, limit=page_size, **since, **after)
        copy |= {row["id"]: row for row in rows_of(page)}
        revision = page["revision"] if revision is None else revision
        if page["next"] is None:
            return revision
        after = {"after": page["next"]}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 2001}, "limit"),
        ({"limit": 0}, "limit"),
        ({"since": "x"}, "since"),
        ({"since": -1}, "since"),
        ({"status": "saying"}, "status"),
        ({"ids": "x"}, "ids"),
        ({"ids": ",".join(["0" * 32] * 201)}, "ids"),
        ({"node_id": ","}, "node_id"),
        ({"after": "x"}, "after"),
        ({"after": "0" * 32, "scope": ""}, "after"),
        ({"items": "0-4"}, "items"),
        ({"items": "4-0", "within": "Iteration:0#0"}, "items"),
        ({"of": "x"}, "of"),
    ],
)
def test_invalid_query_is_refused_with_the_name_of_its_field(
    workerless_client: Client, query: dict[str, Any], field: str
) -> None:  # T145
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.get(f"/api/v1/runs/{run_id}/activations", params=query)

    assert reply.status_code == 400
    assert reply.json()["details"]["field"] == field
